"""What gin builds: one ``Experiment``, holding everything the trainer receives."""

import dataclasses
import re
from typing import Any

from launch.sharding import NAMED, Sharding

SPLITS = ("validation", "test")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """One way to score the trained parameters; a fresh state each time.

    Attributes:
      model: a model that accepts the trained parameters. It may differ from the trained one in anything that is
        not a parameter: attention kind, hash rounds, memory size.
      task: the task to score on.
      split: split scored at the end of training (``watch_split`` while training goes on).
      watch_split: split scored every ``eval_every`` steps, with one draw.
      draws: passes over the split, each with its own key (its own hash rotations); their mean is the value and their
        standard deviation the spread. 1 suffices for a model without randomness.
      batch_size: examples a step. The result does not depend on it.
      looks: batches in which a model that has ``measure`` also says what it did, such as how far back its memory
        reached; these figures stand beside the metrics. 0 for none.
    """

    model: Any
    task: Any
    split: str = "test"
    watch_split: str = "validation"
    draws: int = 1
    batch_size: int = 8
    looks: int = 0

    def __post_init__(self):
        for name, least in (("draws", 1), ("batch_size", 1), ("looks", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"Evaluation.{name} is {value!r}; it must be an integer of at least {least}")
        _check_splits("Evaluation", self)
        _check_parts("Evaluation", self)


@dataclasses.dataclass(frozen=True)
class Translation:
    """Another way to score the trained parameters: decoding a split of sentences, and BLEU of what comes out.

    Attributes:
      model: an encoder-decoder (with ``translate``) that accepts the trained parameters.
      task: one with ``references``, ``encode`` and ``decode``.
      split, watch_split: as in ``Evaluation``.
      examples: how many sentences of the split are decoded, from its beginning; None for all.
      watch_examples: the same of ``watch_split``. Decoding is slow: this is what watching costs.
      beam: hypotheses kept per sentence. alpha: of the length penalty, 0 for none.
      extra_length: tokens that a translation may have more than its source's batch has columns.
      batch_size: sentences at a time. The result does not depend on it.
    """

    model: Any
    task: Any
    split: str = "test"
    watch_split: str = "validation"
    examples: int | None = None
    watch_examples: int | None = 100
    beam: int = 4
    alpha: float = 0.6
    extra_length: int = 50
    batch_size: int = 32

    def __post_init__(self):
        for name, least in (
            ("examples", 1),
            ("watch_examples", 1),
            ("beam", 1),
            ("extra_length", 0),
            ("batch_size", 1),
        ):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise ValueError(f"Translation.{name} is {value!r}; it must be an integer of at least {least}")
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, int | float) or not self.alpha >= 0:
            raise ValueError(
                f"Translation.alpha is {self.alpha!r}; it must be a number of at least 0, 0 for no penalty"
            )
        _check_splits("Translation", self)
        _check_parts("Translation", self)
        for name, calls in (("model", ("translate",)), ("task", ("references", "encode", "decode"))):
            if not all(callable(getattr(getattr(self, name), call, None)) for call in calls):
                raise ValueError(
                    f"Translation.{name} is {getattr(self, name)!r}; it must have {', '.join(calls)}, such as "
                    "@reformer.Seq2Seq() and @tasks.wmt14()"
                )


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A training run and its evaluations.

    Attributes:
      model, task, optimizer: see ``launch.__init__``; ``optimizer.build(steps)`` gives an optax transformation.
      evaluations: name -> ``Evaluation`` or ``Translation``, all on the same parameters; names of a-z, 0-9 and ``_``.
      start_from: whose trained parameters this run begins with: the stem of another experiment, run at the same scale
        with the same seed, or the folder of a run. None for fresh ones.
      continue_from: the folder of a run with the same model, task, optimiser and seed. This one goes on from its newest
        checkpoint, with other settings for the rest: more steps, or another batch size, and then rows of documents
        start at document borders with nothing remembered.
      steps: number of updates.
      batch_size: examples an update, over all devices and micro-batches together.
      seed: of the parameters, the data order and all randomness in training.
      eval_every, save_every, log_every: periods in steps. 0 switches that one off before the last step.
      keep: how many checkpoints stay.
      accumulate: micro-batches an update; the gradient is that of the whole batch.
      sharding: a ``Sharding``, or ``replicate`` (rows are split, parameters alike on all devices) or ``fsdp``
        (parameters and optimiser state are split too).
      swap: parameters and optimiser state live in the host's memory, and layers are streamed (``launch.swapping``);
        for models too deep for the accelerator. Results change by rounding at most.
    """

    model: Any
    task: Any
    optimizer: Any
    evaluations: dict[str, Evaluation | Translation]
    steps: int
    batch_size: int
    start_from: str | None = None
    continue_from: str | None = None
    seed: int = 0
    eval_every: int = 0
    save_every: int = 0
    log_every: int = 10
    keep: int = 2
    accumulate: int = 1
    sharding: Any = "replicate"
    swap: bool = False

    def __post_init__(self):
        for name, least in (("steps", 1), ("batch_size", 1), ("log_every", 1), ("keep", 1), ("accumulate", 1),
                            ("eval_every", 0), ("save_every", 0), ("seed", 0)):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"Experiment.{name} is {value!r}; it must be an integer of at least {least}")
        _check_parts("Experiment", self)
        if not callable(getattr(self.optimizer, "build", None)):
            raise ValueError(f"Experiment.optimizer is {self.optimizer!r}; it must be one, such as @optimizers.Adam()")
        entries = self.evaluations.items() if isinstance(self.evaluations, dict) else [("", None)]
        for name, evaluation in entries:
            if not isinstance(evaluation, Evaluation | Translation) or not re.fullmatch(r"[a-z0-9_]+", str(name)):
                raise ValueError(
                    f"Experiment.evaluations is {self.evaluations!r}; it must be a dictionary from names of a-z, 0-9 "
                    "and _ to evaluations, such as {'full': @full/Evaluation()}"
                )
        if self.sharding not in NAMED and not isinstance(self.sharding, Sharding):
            raise ValueError(
                f"Experiment.sharding is {self.sharding!r}; it must be 'replicate', 'fsdp', or @Sharding()"
            )
        models = [self.model, *(evaluation.model for evaluation in self.evaluations.values())]
        if self.swap and (fixed := next((m for m in models if not getattr(m, "swappable", False)), None)):
            raise ValueError(
                f"Experiment.swap is {self.swap!r}, but {type(fixed).__name__} cannot stream its parameters; "
                "set swap to False, or use @reformer.Model() or @reformer.Seq2Seq()"
            )
        if self.start_from and self.continue_from:
            raise ValueError(
                f"Experiment has start_from {self.start_from!r} and continue_from {self.continue_from!r}; a run begins "
                "with the parameters of another or goes on from all of it: set one of them to None"
            )
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of accumulate {self.accumulate}; "
                "each micro-batch needs the same number of examples"
            )


def _check_splits(owner, part):
    for name in ("split", "watch_split"):  # 'train' never ends
        if getattr(part, name) not in SPLITS:
            raise ValueError(f"{owner}.{name} is {getattr(part, name)!r}; it must be one of {', '.join(SPLITS)}")


def _check_parts(owner, part):
    """Whether the model and the task can be used as such, and belong together."""
    for name, calls, such in (("model", ("init", "start", "apply"), "@reformer.Model()"),
                                 ("task", ("feed", "fingerprint"), "@tasks.duplication()")):  # fmt: skip
        value = getattr(part, name)
        if isinstance(value, type) or not all(callable(getattr(value, call, None)) for call in calls):
            raise ValueError(f"{owner}.{name} is {value!r}; it must be one, such as {such}")
    positions = getattr(part.model, "length", part.task.length)
    if positions < part.task.length:
        raise ValueError(
            f"{owner}.model has {positions} positions, but the rows of {part.task.name} have {part.task.length} tokens"
        )
    ids = getattr(part.model, "vocabulary", part.task.vocabulary)
    if ids < part.task.vocabulary:  # an id out of range would be clamped, or turn the loss into nan
        raise ValueError(
            f"{owner}.model has a vocabulary of {ids}, but the ids of {part.task.name} need {part.task.vocabulary}"
        )

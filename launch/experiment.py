"""What gin builds: one ``Experiment``, holding everything the trainer receives."""

import dataclasses
from typing import Any


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
    """

    model: Any
    task: Any
    split: str = "test"
    watch_split: str = "validation"
    draws: int = 1
    batch_size: int = 8

    def __post_init__(self):
        for name in ("draws", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"Evaluation.{name} is {getattr(self, name)}; it must be at least 1")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A training run and its evaluations.

    Attributes:
      model, task, optimizer: see ``launch.__init__``; ``optimizer.build(steps)`` gives an optax transformation.
      evaluations: name -> ``Evaluation``, all on the same parameters.
      steps: number of updates.
      batch_size: examples an update, over all devices and micro-batches together.
      seed: of the parameters, the data order and all randomness in training.
      eval_every, save_every, log_every: periods in steps. 0 switches that one off before the last step.
      keep: how many checkpoints stay.
      accumulate: micro-batches an update; the gradient is that of the whole batch.
      sharding: ``replicate`` or ``fsdp`` (parameters and optimiser state split over the data axis, by shape), or a
        tuple of (regular expression on the path, axis names) pairs, first match wins.
    """

    model: Any
    task: Any
    optimizer: Any
    evaluations: dict[str, Evaluation]
    steps: int
    batch_size: int
    seed: int = 0
    eval_every: int = 0
    save_every: int = 0
    log_every: int = 10
    keep: int = 2
    accumulate: int = 1
    sharding: Any = "replicate"

    def __post_init__(self):
        for name, least in (("steps", 1), ("batch_size", 1), ("log_every", 1), ("keep", 1), ("accumulate", 1),
                            ("eval_every", 0), ("save_every", 0), ("seed", 0)):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"Experiment.{name} is {value!r}; it must be an integer of at least {least}")
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of accumulate {self.accumulate}; "
                "each micro-batch needs the same number of examples"
            )

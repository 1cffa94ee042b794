"""What a trained model writes: text, pictures, or translations, as its task is.

A task tells its kind by what it can do: ``references`` are sentences to translate; a source with ``picture`` makes
pictures of ids, one with ``encode`` and ``decode`` makes text of them; ids of any other are shown as numbers.
"""

import argparse
import dataclasses
import sys
import unicodedata
from pathlib import Path
from typing import Any

from launch import arguments as types
from launch import trained
from launch.errors import ConfigError

GREY = 128  # of pixels not given to the model
PROMPT = 512  # tokens of a test example that are given if they are text, or four segments if that is more
COUNTS = {"text": 1, "picture": 4, "translation": 5}
DEFAULTS = {"tokens": None, "count": None, "temperature": 1.0, "top_k": None, "top_p": 1.0, "draw": 0, "out": None}


def add_arguments(parser):
    """The arguments of ``repro sample`` beside those that name a run."""
    parser.epilog = """\
examples:
  repro run reformer/enwik8/layers12_20k --scale cpu --set "DATA = '/path/to/enwik8'"
  repro sample reformer/enwik8/layers12_20k --scale cpu --set "DATA = '/path/to/enwik8'" --prompt 'The [[history'
  repro sample reformer/imagenet64/layers6 --scale cpu --set "DATA = '/path/to/imagenet64'" --examples 0,1,2
  repro sample reformer/table4/base_100k --scale cpu --set ... --prompt 'Good morning.'
  repro sample memorizing/table4/ctx512_mem8192_xl512+isabelle --scale cpu --set ... --prompt-file Theory.thy

The same STEM, --scale, --seed, --set and --workdir as for `repro run`: they name the run whose newest checkpoint is
read. Text goes on after the prompt; a model with a memory keeps the whole prompt there, however long, and what it
writes. Pictures keep their upper half and get --count lower halves; original, given half and completions stand side by
side in one PNG, a row for each of --examples. Translations come from beam search, as in the run's own evaluation, and
nothing is drawn. The same command prints the same again; --draw 1, 2 ... draws anew. For sharper text try
--temperature 0.8 --top-p 0.95; --temperature 0 always takes the most likely token."""

    def argument(*names, **options):
        parser.add_argument(*names, **options)

    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument("--prompt", metavar="TEXT", help="what to continue or translate (numbers, if ids are no text)")
    prompts.add_argument("--prompt-file", type=Path, metavar="FILE", help="the same from a UTF-8 file; a sentence a "
                         "line, to translate")  # fmt: skip
    argument("--examples", type=types.numbers_from(0), default=(0,), metavar="N[,N...]",
             help="which of the test split to begin with, without a prompt (default: 0, the first)")  # fmt: skip
    argument("--tokens", type=types.number, metavar="N", help="how many to write (256 of text, half a picture)")
    argument("--count", type=types.number, metavar="N", help="samples of each (default: {text} of text, {picture} of a "
             "picture); sentences to translate from each of --examples on ({translation}, or 1 of several)".format(
                 **COUNTS))  # fmt: skip
    argument("--temperature", type=float, metavar="T", help="below 1 bolder, 0 the most likely (default: 1)")
    argument("--top-k", type=types.number, metavar="K", help="only the K most likely tokens (default: all)")
    argument("--top-p", type=float, metavar="P", help="only the likeliest tokens that make up P (default: 1)")
    argument("--rounds", type=types.number, metavar="R", help="hash rounds of LSH attention, over the config's")
    argument("--draw", type=types.whole(0), metavar="N", help="another number, other samples (default: 0)")
    argument("--out", type=Path, metavar="DIR", help="where pictures go (default: samples/ in the run's folder)")
    parser.set_defaults(**DEFAULTS)


def run(arguments):
    """Lets the newest checkpoint of a run write: continues text, completes pictures, translates."""
    run = trained.newest(arguments)
    experiment = run.experiment
    write = _writer(experiment.task)
    model = _with_rounds(experiment.model, arguments.rounds)
    print(f"{run.name}, step {run.step}", flush=True)
    write(Writing(arguments, dataclasses.replace(experiment, model=model), run.params, run.step, run.folder))


@dataclasses.dataclass(frozen=True)
class Writing:
    """What a writer needs: the command's arguments, the experiment with the model to use, its parameters."""

    arguments: argparse.Namespace
    experiment: Any
    params: Any
    step: int
    folder: Path

    def draw(self, prompt, count, copies, number=0):
        """int32 [copies,count] drawn behind ``prompt`` int32 [t]; by other chances for each ``number``."""
        import jax
        import numpy as np

        model, task, chosen = self.experiment.model, self.experiment.task, self.arguments
        if not hasattr(model, "generate"):
            raise ConfigError(
                f"a {type(model).__name__} cannot go on token by token; reformer.Model and memorizing.Model can"
            )
        if room := max(0, len(prompt) + count - limit(model)):
            raise ConfigError(
                f"{len(prompt)} tokens and {count} more are {room} more than the model's {model.length} positions; "
                "give a shorter prompt, or fewer --tokens"
            )
        rows = np.broadcast_to(np.asarray(prompt, np.int32), (copies, len(prompt)))
        settings = {"temperature": chosen.temperature, "top_k": chosen.top_k, "top_p": chosen.top_p}
        if not getattr(task, "predict_first", True):
            settings["begin"] = None  # this task's inputs are the document's tokens, with no 0 before the first
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.experiment.seed), chosen.draw), number)
        try:
            return np.asarray(model.generate(self.params, rows, count, key, ids=task.vocabulary, **settings))
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def given(self):
        """The prompt of the command line, or None."""
        chosen = self.arguments
        if chosen.prompt_file is None:
            return chosen.prompt
        try:
            return chosen.prompt_file.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{chosen.prompt_file} is not UTF-8: {error}") from None

    def examples(self):
        """(number, ids int32 [t]) of the test examples asked for."""
        source = self.experiment.task.source
        for number in self.numbers(source.size("test")):
            yield number, source.example("test", number, None)["targets"]

    def numbers(self, size):
        """Those of --examples, in a test split of ``size``."""
        if beyond := [number for number in self.arguments.examples if number >= size]:
            raise ConfigError(f"--examples: there is no {beyond[0]}; the test split has {size}, from 0")
        return self.arguments.examples

    def refuse(self, reason, *names):
        """Raises if the command line sets what the task has no use for: without a word it would do nothing."""
        for name in names:
            if getattr(self.arguments, name) != DEFAULTS[name]:
                raise ConfigError(f"--{name.replace('_', '-')}: {reason}; leave it away")


def _writer(task):
    if hasattr(task, "references"):
        return translations
    return pictures if hasattr(getattr(task, "source", None), "picture") else text


def limit(model):
    """Tokens that prompt and continuation may have together."""
    return getattr(model, "length", sys.maxsize)


def text(job):
    """Prints continuations of a prompt, or of the beginning of test examples."""
    import numpy as np

    job.refuse("this task's samples are printed, not written to files", "out")
    source, length = job.experiment.task.source, limit(job.experiment.model)
    encode = getattr(source, "encode", _ids)
    decode = getattr(source, "decode", None) or getattr(source, "text", lambda ids: " ".join(map(str, ids)))
    if (prompt := job.given()) is not None:
        prompts = [("prompt", 0, np.asarray(encode(prompt)))]
    else:
        # A memory holds nothing before the second segment: enough is given that it has something to tell.
        given = max(PROMPT, 4 * getattr(job.experiment.model, "segment", 0))
        room = max(1, min(given, length // 2, length - (job.arguments.tokens or 0)))
        prompts = [(f"test example {n}", n, ids[: min(room, len(ids) // 2)]) for n, ids in job.examples()]
    for name, example, prompt in prompts:
        _check_ids(prompt, job.experiment.task.vocabulary)
        count = job.arguments.tokens or max(1, min(256, length - len(prompt)))
        print(f"--- {name}, {len(prompt)} tokens\n{printable(decode(prompt))}", flush=True)
        for number, drawn in enumerate(job.draw(prompt, count, job.arguments.count or COUNTS["text"], example)):
            print(f"--- continuation {number}, {count} tokens\n{printable(decode(drawn))}", flush=True)


def printable(words):
    """Text without what would steer a terminal."""
    return "".join("\ufffd" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in words)


def pictures(job):
    """Writes one PNG: for each test picture a row of the original, what is given of it, and completions."""
    import numpy as np
    from PIL import Image

    if job.given() is not None:
        raise ConfigError(
            "pictures begin with the upper half of a test picture: choose it with --examples, not --prompt"
        )
    picture, rows = job.experiment.task.source.picture, []
    for number, ids in job.examples():
        count = job.arguments.tokens or len(ids) // 2
        if count > len(ids):
            raise ConfigError(f"--tokens is {count}, but a picture has {len(ids)}")
        given = ids[: len(ids) - count]
        drawn = job.draw(given, count, job.arguments.count or COUNTS["picture"], number)
        completed = [picture(np.concatenate([given, one])) for one in drawn]
        rows.append([picture(ids), picture(np.concatenate([given, np.full(count, GREY, ids.dtype)])), *completed])
    folder = job.arguments.out or job.folder / "samples"
    folder.mkdir(parents=True, exist_ok=True)
    name = "_".join(map(str, job.arguments.examples))
    path = folder / f"step{job.step}-pictures{name}-draw{job.arguments.draw}.png"
    Image.fromarray(grid(rows)).save(path)
    print(f"{path}: original, given, {len(completed)} completions")


def grid(rows, least=128):
    """Rows of pictures uint8 [side,side,3] as one picture, white lines between, sides magnified to ``least`` pixels."""
    import numpy as np

    times = max(1, -(-least // rows[0][0].shape[0]))

    def framed(picture):
        large = picture.repeat(times, axis=0).repeat(times, axis=1)
        return np.pad(large, ((2, 2), (2, 2), (0, 0)), constant_values=255)

    return np.concatenate([np.concatenate([framed(p) for p in row], axis=1) for row in rows], axis=0)


def translations(job):
    """Prints translations of the prompt's lines, or of test sentences beside their references."""
    from launch.experiment import Translation
    from launch.translate import sentences

    job.refuse("translations come from beam search and are printed", *(name for name in DEFAULTS if name != "count"))
    evaluation = next((e for e in job.experiment.evaluations.values() if isinstance(e, Translation)), None)
    evaluation = evaluation or Translation(job.experiment.model, job.experiment.task)
    references = None
    if (prompt := job.given()) is not None:
        job.refuse("each line of a prompt has one translation", "count")
        sources = [line for line in prompt.splitlines() if line.strip()]
        if not sources:
            raise ConfigError("there is no sentence to translate: the prompt is empty; write one a line")
    else:
        pairs = job.experiment.task.references("test")
        numbers = job.numbers(len(pairs))
        count = job.arguments.count or (COUNTS["translation"] if len(numbers) == 1 else 1)
        sources, references = zip(*(pair for first in numbers for pair in pairs[first : first + count]), strict=True)
    evaluation = dataclasses.replace(evaluation, batch_size=min(evaluation.batch_size, len(sources)))
    for number, (source, found) in enumerate(zip(sources, sentences(job.params, evaluation, sources), strict=True)):
        print(f"source       {source}\ntranslation  {found}")
        if references:
            print(f"reference    {references[number]}")
        print(flush=True)


# ---- arguments -------------------------------------------------------------------------------------------------------


def _with_rounds(model, rounds):
    """The model with other hash rounds; on the same parameters."""
    if rounds is None:
        return model
    pattern = getattr(model, "attention", ())
    pattern = pattern if isinstance(pattern, tuple) else (pattern,)
    if not any(hasattr(setting, "rounds") for setting in pattern):
        raise ConfigError("--rounds: this model has no LSH attention")
    changed = [dataclasses.replace(s, rounds=rounds) if hasattr(s, "rounds") else s for s in pattern]
    return dataclasses.replace(model, attention=tuple(changed))


def _ids(prompt):
    try:
        return [int(word) for word in prompt.split()]
    except ValueError:
        raise ConfigError(
            f"the prompt {prompt!r} must be ids, such as '0 17 4': this task's tokens are no text"
        ) from None


def _check_ids(prompt, vocabulary):
    for one in prompt:
        if not 0 <= one < vocabulary:
            raise ConfigError(f"the prompt has the id {one}, but ids go from 0 to {vocabulary - 1}")

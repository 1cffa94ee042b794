"""`repro data build`: a corpus from its sources, on this machine or on many."""

import argparse
import dataclasses
import os
import sys
import time
from collections import Counter

from launch import arguments
from launch.errors import ConfigError

# Those of `tasks.build.catalogue`, which takes longer to import than a person likes to wait for help.
NAMES = ("arxiv", "github", "isabelle", "pg19", "c4", "enwik8", "imagenet64", "wmt14")
EPILOG = """\
options of a corpus: repro data build CORPUS --help
words after -- are Apache Beam's, which then says who works: -- --runner=FlinkRunner --flink_master=host:8081"""


def add_arguments(parser):
    """Registers the command's arguments on an argparse parser."""
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, EPILOG
    parser.add_argument("corpus", choices=NAMES, metavar="CORPUS", help=", ".join(NAMES))
    # Which options there are depends on the corpus, whose reader is imported when it is known.
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="--source PATH --out DIR, and more")


def run(args):
    """Builds a corpus: records that tasks, TFDS and seqio read, and a manifest of what is in them and what is not."""
    from tasks.build import catalogue

    words, beam = _parted(args.words)
    module = catalogue.reader(args.corpus)
    if beam and args.corpus not in catalogue.SOURCES:
        raise ConfigError(f"{args.corpus} is laid out on this machine; leave out the words behind --")
    if beam and not any(word.partition("=")[0] == "--runner" for word in beam):
        raise ConfigError(
            f"words behind -- say who works for Apache Beam: wanted is --runner=NAME, got {' '.join(beam)}"
        )
    if args.corpus not in catalogue.SOURCES:
        return _lay_out(args.corpus, module, words)
    return _build(args.corpus, module, words, tuple(beam))


def _parted(words):
    """(the words before '--', those behind it)"""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _parser(corpus, module):
    said = sys.modules[module.__module__].__doc__ if isinstance(module, type) else module.__doc__
    layouts = argparse.RawDescriptionHelpFormatter  # the tables of a module's docstring say what a source looks like
    parser = argparse.ArgumentParser(f"repro data build {corpus}", description=said, formatter_class=layouts)
    parser.add_argument("--source", action="append", required=True, metavar="PATH", help="where it lies")
    parser.add_argument("--out", required=True, metavar="DIR", help="where it goes")
    return parser


def _build(corpus, reader, words, beam):
    from tasks.build.pipeline import Job, build
    from tasks.build.plan import Splitting
    from tasks.build.workers import Workers

    parser = _parser(corpus, reader)
    parser.epilog = EPILOG.splitlines()[1]
    parser.add_argument("--vocabulary", metavar="V", help="count tokens too: 'bytes' or a SentencePiece model")
    parser.add_argument("--workers", type=arguments.number, default=os.cpu_count(), metavar="N",
                        help="processes (default: one for each processor)")  # fmt: skip
    splitting = parser.add_argument_group("splits")
    for field in dataclasses.fields(Splitting):
        splitting.add_argument(
            f"--{field.name}", type=float, default=field.default, metavar="X", help=SPLITS[field.name]
        )
    options = parser.add_argument_group(f"what to take of {corpus}")
    for field in dataclasses.fields(reader):
        if field.name != "vocabulary":  # one that measures by a vocabulary takes the same that counts
            _option(options, field)
    args = parser.parse_args(words)
    values = vars(args)
    job = Job(
        reader(**{field.name: values[field.name] for field in dataclasses.fields(reader)}),
        tuple(args.source),
        Splitting(**{field.name: values[field.name] for field in dataclasses.fields(Splitting)}),
        args.vocabulary,
    )
    with Bar() as bar:
        folder = build(job, args.out, Workers(args.workers, beam), bar)
    _tell(folder, bar)


SPLITS = {
    "validation": "share of the documents that validates (default: 0.05)",
    "test": "share of the documents that tests (default: 0.05)",
    "similar": "documents of which so much is alike, from 0 to 1, share a split; 2 switches that off (default: 0.7)",
}


def _option(parser, field):
    """The command-line option of a reader's field."""
    name, default = f"--{field.name.replace('_', '-')}", field.default
    help = field.metadata.get("help", "")
    if isinstance(default, bool):
        parser.add_argument(name, action=argparse.BooleanOptionalAction, default=default, help=help)
    else:
        kind = str if default is None else type(default)
        said = f" (default: {default})" if default not in (None, "") else ""
        parser.add_argument(name, type=kind, default=default, metavar=kind.__name__.upper(), help=help + said)


def _lay_out(corpus, module, words):
    from tasks.task import NotPublished

    parser = _parser(corpus, module)
    options = getattr(module, "OPTIONS", {})
    for name, help in options.items():
        parser.add_argument(f"--{name}", action="store_true", help=help)
    args = parser.parse_args(words)
    if len(args.source) > 1:
        raise ConfigError(f"{corpus} has one source, got {len(args.source)}")
    try:
        folder = module.build(args.source[0], args.out, **{name: getattr(args, name) for name in options})
    except NotPublished as error:  # the task's own, which knows no command line
        raise NotPublished(error.found, "give --sample") from None
    print(f"{corpus}: {folder}")


def _tell(folder, bar):
    from tasks.build import manifest
    from tasks.tokenised import told

    held = manifest.load(folder)
    print(f"{held['corpus']}: {folder}")
    for split, found in held["splits"].items():
        tokens = f"{found['tokens']:>16,} tokens" if found["tokens"] is not None else ""
        print(f"  {split:10} {found['documents']:>10,} documents {found['bytes']:>16,} bytes{tokens}")
    if alike := held["alike"]["documents"]:
        many = "documents are near duplicates of others and stand in their splits"
        one = "document is a near duplicate of another and stands in its split"
        print(f"  {alike:,} {many if alike > 1 else one}")
    if notes := Counter({(note["what"], note["reason"]): note["count"] for note in held["notes"]}):
        print(f"  {told(notes)}")
    if bar.seconds:
        print(f"  read {bar.amount / 1e6:,.1f} MB in {bar.seconds:.1f} s")


class Bar:
    """A build's progress: a bar with the time left on a terminal, nothing elsewhere.

    amount, seconds: what was read, and how long it took
    """

    def __init__(self):
        self.amount, self.seconds, self._begun = 0, 0.0, None
        self._bar = self._task = None

    def __enter__(self):
        from rich import progress

        from launch.monitor import console

        screen = console()
        self._shown = screen.is_terminal
        self._bar = progress.Progress(
            progress.TextColumn("  {task.description}"),
            progress.BarColumn(bar_width=30),
            progress.TaskProgressColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(compact=True),
            progress.TextColumn("left"),
            console=screen,
            transient=True,
        )
        if self._shown:
            self._bar.start()
        return self

    def begin(self, stage, total):
        self._end_reading()
        if stage == "reading":
            self._begun = time.monotonic()
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(stage, total=total)

    def done(self, amount):
        self.amount += amount * (self._begun is not None)
        self._bar.advance(self._task, amount)

    def _end_reading(self):
        if self._begun is not None:
            self.seconds, self._begun = time.monotonic() - self._begun, None

    def __exit__(self, *_):
        self._end_reading()
        if self._shown:
            self._bar.stop()

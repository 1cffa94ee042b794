"""`repro data`: what has to be made of data before a run, and what there is of it."""

from launch import arguments as types
from launch import composition as files
from launch import data_build, data_corpus
from launch.errors import ConfigError

COMMANDS = {
    "build": (data_build.add_arguments, data_build.run, "build a corpus from its sources"),
    "stats": (data_corpus.add_stats, data_corpus.stats, "counts and lengths of a built corpus, and a picture"),
    "verify": (data_corpus.add_verify, data_corpus.verify, "check a built corpus against its manifest"),
    "show": (data_corpus.add_show, data_corpus.show, "a document of a built corpus as the model sees it"),
}


def add_arguments(parser):
    """Adds the subcommands of ``repro data`` to its parser."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="WHAT")
    for name, (add, run, help) in COMMANDS.items():
        sub = commands.add_parser(name, help=help, description=run.__doc__)
        add(sub)
        sub.set_defaults(command=run)
    _add_vocabulary(commands)


def _add_vocabulary(commands):
    vocab = commands.add_parser("vocab", help="train a subword vocabulary on a task's training texts",
                                description=make_vocabulary.__doc__)  # fmt: skip
    vocab.add_argument("--task", required=True, metavar="NAME", help="a task of configs/tasks, such as wmt14")
    vocab.add_argument("--set", dest="overrides", action="append", default=[], metavar="'NAME = VALUE'",
                       help="a gin assignment, such as \"DATA = '/path/to/wmt14'\"; may be repeated")  # fmt: skip
    vocab.add_argument("--out", required=True, metavar="FILE", help="the model; its fingerprint goes to FILE.json")
    vocab.add_argument(
        "--size", type=types.number, default=32000, metavar="N", help="ids of the vocabulary (default: 32000)"
    )
    vocab.add_argument("--kind", choices=("unigram", "bpe"), default="unigram", help="(default: unigram)")
    vocab.add_argument("--lossless", action="store_true", help="keep white space as it is: for documents and programs")
    vocab.add_argument("--limit", type=types.number, default=100, metavar="MB",
                       help="megabytes of text used at most, spread evenly (default: 100)")  # fmt: skip
    vocab.set_defaults(command=make_vocabulary)


def make_vocabulary(arguments):
    """Trains a SentencePiece vocabulary on the training split of a task. Same texts, same bytes."""
    from tasks import subwords

    task = _task(arguments.task, arguments.overrides)
    if not hasattr(task, "texts"):
        raise ConfigError(f"task {arguments.task} has no texts to make a vocabulary of; its ids are fixed")
    facts = subwords.train(
        task.texts("train"),
        arguments.size,
        arguments.out,
        kind=arguments.kind,
        lossless=arguments.lossless,
        limit=arguments.limit * 1_000_000,
    )
    print(
        f"{arguments.out}: {arguments.size:,} ids ({arguments.kind}) from {facts['texts_used']:,} of "
        f"{facts['texts']:,} texts, {facts['bytes_used']:,} bytes; sha256 {facts['sha256'][:16]}"
    )


def _task(name, overrides):
    """The task that ``configs/tasks/<name>.gin`` binds, with assignments over it."""
    folder = files.CONFIGS / "tasks"
    names = sorted(path.stem for path in folder.glob("*.gin"))
    if name not in names:
        raise ConfigError(f"no task is called {name!r}{files.nearest(name, names)} Known: {', '.join(names)}")
    composed = files.compose(str(folder / f"{name}.gin"), seed=0, overrides=overrides)
    from launch import config

    return config.build_task(composed)

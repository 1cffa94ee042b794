"""``repro inspect``: which earlier tokens a trained model retrieved on a document, and what its memory was worth."""

import contextlib
from pathlib import Path

from launch import arguments as types
from launch import trained
from launch.errors import ConfigError


def add_arguments(parser):
    """The arguments of ``repro inspect`` beside those that name a run."""
    parser.epilog = """\
examples:
  repro inspect memorizing/table4/ctx512_mem8192_xl512+isabelle --scale cpu --set "DATA = '/path/to/isabelle'"
  repro inspect memorizing/table4/ctx512_mem8192_xl512+isabelle --scale cpu --set ... --document 1,2 --memory 512,2048
  repro inspect memorizing/table4/ctx512_mem8192+github --scale cpu --set ... --split validation --tokens 20000

The same STEM, --scale, --seed, --set and --workdir as for `repro run`: they name the run whose newest checkpoint is
read. Each document becomes one HTML page that needs nothing else: the text, every token coloured by what the larger of
two memories gained over the smaller; what a token retrieved, per memory layer and head, when it is pointed at or
clicked; the tokens that gained most; the gates. On Isabelle it also counts how often a name's statement was retrieved
where the name is used (tasks/statements.py has the rule), beside what random entries of the memory would give."""

    def argument(*names, **options):
        parser.add_argument(*names, **options)

    argument("--split", choices=("train", "validation", "test"), default="test", help="default: test")
    argument("--document", type=types.numbers_from(0), default=(0,), metavar="N[,N...]",
             help="which documents of it (default: 0, the first)")  # fmt: skip
    argument("--memory", type=types.numbers_from(0), metavar="A,B", help="sizes of the memory to compare, in entries, "
             "0 for none; what B retrieves is shown (default: a quarter of the model's, and the model's)")  # fmt: skip
    argument("--tokens", type=types.number, metavar="N", help="read only the first N tokens of a document")
    argument(
        "--examples", type=types.number, default=30, metavar="N", help="rows in the tables of tokens (default: 30)"
    )
    argument("--shown", type=types.number, default=4, metavar="N", help="retrieved tokens kept for each token and "
             "head, those with most attention (default: 4)")  # fmt: skip
    argument("--out", type=Path, metavar="DIR", help="where pages go (default: inspect/ in the run's folder)")


def run(arguments):
    """Writes a page about what the newest checkpoint of a run retrieved from its memory while reading a document."""
    run = trained.newest(arguments)
    task = run.experiment.task
    small, large = _models(run, arguments.memory)

    from launch import inspect_page
    from launch.inspection import Document, examine
    from launch.monitor import console

    screen = console()
    say = lambda text: screen.print(text, highlight=False, markup=False, soft_wrap=True)  # noqa: E731
    folder = arguments.out or run.folder / "inspect"
    folder.mkdir(parents=True, exist_ok=True)
    say(f"{run.name}, step {run.step}")
    for number in arguments.document:
        document = Document.of(task, arguments.split, number, arguments.tokens)
        with _bar(screen, document) as advance:
            found = examine(document, small, large, arguments.shown, advance)
        sizes = "_".join(map(str, found.sizes))
        path = folder / f"step{run.step}-{arguments.split}{number}-memory{sizes}.html"
        path.write_text(inspect_page.generate(run, document, found, arguments.examples), encoding="utf-8")
        for line in inspect_page.summary(document, found):
            say(line)
        say(f"  {path}")


def _models(run, sizes):
    """(model, parameters) with the smaller and with the larger memory."""
    model, source = run.experiment.model, getattr(run.experiment.task, "source", None)
    if not getattr(model, "memory", 0):
        raise ConfigError(
            f"{run.name}: this {type(model).__name__} has no memory to look into; choose a row with one, such as "
            "memorizing/table4/ctx512_mem8192_xl512+isabelle"
        )
    if not hasattr(source, "tokens"):
        raise ConfigError(f"{run.name}: {run.experiment.task.name} has no documents to read")
    if sizes is None:
        unit = model.segment
        quarter = max(-(-model.neighbours // unit), model.memory // (4 * unit)) * unit
        sizes = quarter if quarter < model.memory else 0, model.memory
    if len(sizes) != 2 or not sizes[1]:
        raise ConfigError(f"--memory: {','.join(map(str, sizes))} given; two sizes wanted, such as "
                          f"{model.memory // 4},{model.memory}, the second above 0")  # fmt: skip
    try:
        return [model.with_memory(run.params, size) for size in sizes]
    except ValueError as error:
        raise ConfigError(f"--memory: {error}") from None


@contextlib.contextmanager
def _bar(screen, document):
    """A function to call after every segment; it moves a progress bar if someone is looking."""
    if not screen.is_terminal:
        yield lambda: None
        return
    from rich.progress import Progress

    segments = 2 * -(-len(document.ids) // document.task.length)  # under two memories
    with Progress(console=screen, transient=True) as progress:
        bar = progress.add_task(f"  reading {document.name}", total=segments)
        yield lambda: progress.advance(bar)

"""What ``repro list`` and ``repro show`` print."""

from pathlib import Path

from launch import composition as files
from launch.errors import ConfigError
from launch.monitor import console


def list_experiments(pattern, records_dir):
    """A table of experiments whose stem begins with ``pattern``."""
    from rich.table import Table

    wanted = [stem for stem in files.stems() if stem.startswith(pattern.rstrip("/"))]
    if not wanted:
        raise ConfigError(f"no experiment begins with {pattern!r}{files.nearest(pattern, files.stems())}")
    records, problems = _records(records_dir)
    table = Table("experiment", "in the paper", "scales (seeds measured)", "cost", title=None)
    for stem in wanted:
        top = files.header(files.path_of(stem)).fields
        measured = []
        for scale in files.scales(stem):
            seeds = {r.seed for r in records if (r.stem, r.scale) == (stem, scale) and not r.overrides}
            measured.append(f"{scale} ({len(seeds)})" if seeds else f"{scale} (not run)")
        table.add_row(stem, top.get("Paper", "-"), ", ".join(measured), top.get("Cost", "-"))
    screen = console()
    screen.print(table)
    _print_problems(screen, problems)


def show_experiment(composition, path, records_dir):
    """Header, reported figures, composed config with origins, and records of one experiment."""
    screen = console()
    top = files.header(path)
    say = lambda text="": screen.print(text, highlight=False, markup=False, soft_wrap=True)  # noqa: E731
    say(f"{composition.stem}  ({path})")
    say(top.title)
    for name, text in top.fields.items():
        say(f"  {name}: {text}")
    say()
    say(
        f"Config at scale {composition.scale!r} (this experiment has {', '.join(files.scales(str(composition.stem)))}):"
    )
    width = max(len(f"{key} = {binding.value}") for key, binding in composition.bindings.items())
    for key in sorted(composition.bindings, key=lambda k: ("." in k, k)):
        binding = composition.bindings[key]
        line = f"{key} = {binding.value}"
        say(f"  {line:{min(width, 72)}}  # {binding.origin}")
    say()
    _show_reported(composition.stem, say)
    records, problems = _records(records_dir)
    own = [r for r in records if r.stem == composition.stem]
    say(f"Records ({len(own)}):" if own else "Records: none yet; `repro run` writes one")
    for record in sorted(own, key=lambda r: (r.scale, r.seed, r.finished)):
        extra = f"  with {'; '.join(record.overrides)}" if record.overrides else ""
        say(
            f"  {record.scale} seed {record.seed}: {record.steps:,} steps, {record.wall_seconds:,.0f} s on "
            f"{record.devices.kind}, commit {record.commit[:9]}, {record.finished}{extra}"
        )
        for name, evaluation in record.evaluations.items():
            metric, entry = next(iter(evaluation.metrics.items()))
            say(f"    {name:>6}: {metric} {entry.value:.2f} ± {entry.spread:.2f} {entry.unit}")
    _print_problems(screen, problems)


def _show_reported(stem, say):
    import results.reported

    cells = results.reported.cells_for(stem)
    say("The paper's figures:" if cells else "The paper states no figure for this row.")
    for cell in cells:
        say(f"  {cell.column:>6}: {cell.text} {cell.unit}  [{cell.source}]")
    say()


def _records(records_dir):
    from results import schema

    return schema.read_all(Path(records_dir))


def _print_problems(screen, problems):
    for problem in problems:
        screen.print(f"skipped: {problem}", highlight=False, markup=False, style="yellow", soft_wrap=True)

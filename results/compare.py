"""`repro compare`: comparisons drawn in a terminal (rich), as plain lines (one cell each), or as Markdown."""

import sys

from results import claims, reported, schema, tables, texts
from results.markdown import comparison as as_markdown

_STYLES = {"holds": "green", "fails": "red", "not run": "dim"}


def show(name=None, records_dir=schema.RECORDS, markdown=False, file=None):
    """Prints the comparison of one table, or of all: those with records in full, the others as one line each.

    A terminal gets drawn tables, anything else plain lines, and either Markdown on request. Returns the exit status of
    `repro compare`: 0, or 2 for an unknown table, after a line on stderr with the nearest names.
    """
    file = file or sys.stdout
    try:
        chosen = [reported.find(name)] if name else list(reported.tables().values())
    except reported.UnknownTable as error:
        print(f"repro: {error}", file=sys.stderr)
        return 2
    records, problems = schema.read_all(records_dir)
    compared = [tables.compare(table, records) for table in chosen]
    full = [comparison for comparison in compared if name or comparison.measured or comparison.overridden]
    for comparison in full:
        if markdown:
            _print(file, f"## {comparison.table.name}: {comparison.table.title}", "", *as_markdown(comparison), "")
        elif file.isatty():
            from rich.console import Console

            console = Console(file=file, highlight=False)
            console.print(terminal(comparison, console.width))
        else:
            _print(file, *plain(comparison), "")
    _print(file, *(summary_line(comparison) for comparison in compared if comparison not in full))
    if not name:
        homeless = tables.homeless(records, reported.tables())
        _print(file, *(f"{texts.run_line(record)}: under no reported table" for record in homeless))
    _print(file, *(f"skipped: {problem}" for problem in problems))
    return 0


def summary_line(comparison):
    """One line for a table that is not printed in full."""
    table = comparison.table
    state = "for reference" if table.kind == "reference" else "not run"
    return f"{table.name}: {table.title} ({table.place}), {len(table.cells)} reported numbers, {state}"


def plain(comparison):
    """One line per cell and scale, so that a program or grep can read them."""
    table = comparison.table
    yield f"{table.name}: {table.title}. {table.paper} (arXiv {table.arxiv}), {table.place}"
    yield f"unit {', '.join(table.units)}. {texts.SPREADS}"
    if not comparison.groups:
        for cell in table.cells.values():
            yield f"{table.name} {cell.row} {cell.column}: reported {cell.text} {cell.unit} [{cell.source}]"
    for group in comparison.groups:
        yield texts.group_title(group)
        for place in table.places:
            if place not in table.cells and place not in group.cells and not table.runnable(place[0]):
                continue
            mean, spread, difference, draws = texts.measured_parts(comparison, group, place)
            line = f"{group.scale} {place[0]} {place[1]}: reported {texts.reported_text(table, place)}, measured {mean}"
            line += f" {spread}" if spread else ""
            line += f", difference {difference}" if difference else ""
            line += f", {draws}" if draws else ""
            yield line + (f", {texts.seeds_text(list(group.cells[place].by_seed))}" if place in group.cells else "")
    for found in claims.verdicts(comparison).values():
        yield f"claim: {_sentence(found[0].claim)}"
        for verdict in found:
            yield f"  {texts.scale_label(verdict.scale)}: {verdict.verdict}: {texts.verdict_detail(verdict)}"
    yield from _tail(comparison)


def terminal(comparison, width=80):
    """A rich renderable: one block per scale, in each cell ours above, the paper's number and the difference below.

    `width` is the terminal's, in characters: columns that do not fit side by side follow in a further grid.
    """
    from rich.console import Group
    from rich.text import Text

    table = comparison.table
    parts = [
        Text(f"{table.name}: {table.title}", style="bold underline"),
        Text(f"{table.paper} (arXiv {table.arxiv}), {table.place}"),
        Text(f"{table.caption} Columns: {table.column_title.lower()}. Unit: {', '.join(table.units)}.", style="dim"),
    ]
    for group in comparison.groups or [None]:
        parts += ["", Text(texts.group_title(group) if group else "reported only", style="bold")]
        cells = {place: _cell(comparison, group, place) for place in table.places}
        for columns in _batches(table, cells, width):
            grid = _grid(table.row_title, (table.columns[column] for column in columns), "right")
            for row, label in table.rows.items():
                grid.add_row(Text(label), *(cells[row, column] for column in columns))
                if group:
                    grid.add_row("")  # cells of several lines need air between rows
            parts += ["", grid]
    if comparison.groups:
        parts.append(
            Text(f"In each cell: ours; below it the paper's number and the difference. {texts.SPREADS}", style="dim")
        )
    parts += _claims(comparison)
    parts += [Text(line, style="dim" if line.startswith("note") else "") for line in _tail(comparison)]
    return Group(*parts, "")


def _batches(table, cells, width):
    """Splits the columns so that each grid fits into `width`: a number that is cut short would be a wrong number."""
    left = width - min(30, max(map(len, table.rows.values())))
    batches, used = [[]], 0
    for column, label in table.columns.items():
        lines = label.split() + [line for row in table.rows for line in cells[row, column].plain.splitlines()]
        need = 2 + max(map(len, lines))
        if batches[-1] and used + need > left:
            batches.append([])
            used = 0
        batches[-1].append(column)
        used += need
    return batches


def _grid(first, labels, justify):
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline")
    grid.add_column(Text(first), max_width=60 if justify == "left" else 30, overflow="fold")
    for label in labels:
        grid.add_column(Text(label), justify=justify, overflow="fold")
    return grid


def _cell(comparison, group, place):
    from rich.text import Text

    paper = texts.reported_text(comparison.table, place)
    if group is None:
        return Text(paper)
    mean, spread, difference, draws = texts.measured_parts(comparison, group, place)
    text = Text(f"{mean} {spread}".rstrip(), style="bold" if place in group.cells else "dim")
    text.append(f"\n{paper}  {difference}".rstrip(), style="not bold cyan")
    return text.append(f"\n{draws}", style="not bold dim") if draws else text


def _claims(comparison):
    """The claims as a grid of verdicts, and below it what stands behind each claim that fails."""
    from rich.text import Text

    found = list(claims.verdicts(comparison).values())
    if found:
        grid = _grid("Claim", (texts.scale_label(verdict.scale) for verdict in found[0]), "left")
        for column in grid.columns[1:]:
            column.max_width = 8
        for line in found:
            cells = [Text(verdict.verdict, style=_STYLES[verdict.verdict]) for verdict in line]
            grid.add_row(Text(f"{line[0].claim.sentence} ({line[0].claim.place})"), *cells)
            grid.add_row("")
        yield ""
        yield grid
    for verdict in (verdict for line in found for verdict in line if verdict.verdict == "fails"):
        yield Text(f"fails at {texts.scale_label(verdict.scale)}: {_sentence(verdict.claim)}", style="red")
        yield Text(f"  {texts.verdict_detail(verdict)}")


def _sentence(claim):
    return f"{claim.sentence} ({claim.place}){f' {claim.note}' if claim.note else ''}"


def _tail(comparison):
    yield from (f"with overrides, in no cell: {line}" for line in texts.overridden_lines(comparison))
    yield from (f"remark: {remark}" for remark in comparison.remarks)
    yield from (f"note: {note}" for note in comparison.table.notes)
    yield from comparison.table.marks


def _print(file, *lines):
    # A pipe that cannot carry '±' gets '?' rather than a traceback.
    encoding = getattr(file, "encoding", None) or "utf-8"
    for line in lines:
        print(line.encode(encoding, "replace").decode(encoding), file=file)

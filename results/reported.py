"""The papers' own numbers, read from `reported/<stem>.toml` (the format is described in `reported/README.md`).

Numbers are kept as they are printed: `Decimal('2.40')` stays 2.40. A number whose confidence is not 'stated' carries a
mark wherever it is printed; `LEGEND` says what the marks mean.
"""

import tomllib
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from pathlib import Path

REPORTED = Path(__file__).parent / "reported"
MARKS = {"stated": "", "quoted": "†", "derived": "‡", "unverified": "?"}
LEGEND = {
    "†": "quoted: read in another source that repeats or re-measures it",
    "‡": "derived: our arithmetic on stated numbers",
    "?": "unverified: read off a plot or seen only in a leaderboard",
}
_INHERITED = ("metric", "unit", "better", "source", "confidence", "evaluation")
_TABLE_KEYS = {"paper", "arxiv", "place", "title", "caption", "kind", "row_title", "column_title", "notes"}
_TABLE_KEYS |= {"columns_are", "rows", "columns", "cells", "gap", *_INHERITED}
_GAP_KEYS = {"from", "to", "metric"}
_PLACE_KEYS = {"label", "cited", *_INHERITED}
_CELL_KEYS = {"value", "plus_minus", *_INHERITED}


class ReportedError(ValueError):
    """A file of reported numbers that breaks the format; the message names the file and the place."""


class UnknownTable(LookupError):
    """No reported table of that name; the message suggests the nearest."""


@dataclass(frozen=True)
class Cell:
    """One reported number (or formula, as text) and where a record must hold ours to stand beside it."""

    table: str
    row: str
    column: str
    value: Decimal | str
    plus_minus: Decimal | None
    unit: str
    better: str  # 'higher', 'lower' or 'none'
    source: str
    confidence: str
    stem: str
    evaluation: str
    metric: str

    @property
    def text(self):
        """The number as printed in the paper, with its spread if one is given and the mark of its confidence."""
        spread = f" ±{self.plus_minus}" if self.plus_minus is not None else ""
        return f"{self.value}{spread}{MARKS[self.confidence]}"


@dataclass(frozen=True)
class Table:
    """One reported table. `rows` and `columns` map keys to labels; `cells` maps (row, column) to Cell.

    `gap`: None, or {"from": stem, "to": stem, "metric": name}: a cell is then how much of the gap between these two
    experiments, in this metric, its own experiment closes, in per cent.
    `places` gives (stem, evaluation, metric) for every (row, column), also where nothing is reported; `cited` holds the
    rows that the paper takes from elsewhere. `kind` is 'experiment', or 'reference' for numbers no run of ours fills.
    """

    name: str
    paper: str
    arxiv: str
    place: str
    title: str
    caption: str
    kind: str
    row_title: str
    column_title: str
    notes: tuple[str, ...]
    rows: dict[str, str]
    columns: dict[str, str]
    unit: str
    cited: frozenset[str]
    cells: dict[tuple[str, str], Cell]
    places: dict[tuple[str, str], tuple[str, str, str]]
    gap: dict[str, str] | None = None

    @property
    def marks(self):
        """The legend of the marks that occur in this table."""
        used = {MARKS[cell.confidence] for cell in self.cells.values()}
        return [f"{mark} {meaning}" for mark, meaning in LEGEND.items() if mark in used]

    @property
    def units(self):
        """The units of the table's numbers, in order of appearance; of a table without numbers its own unit."""
        return list(dict.fromkeys(cell.unit for cell in self.cells.values())) or [self.unit]

    def runnable(self, row):
        """Whether a run of ours can fill the row."""
        return self.kind == "experiment" and row not in self.cited


@cache
def tables():
    """All reported tables by name, per paper first the experiments: {'reformer/table2': Table, ...}."""
    order = {"reformer": 0, "memorizing": 1}
    found = [load(path) for path in REPORTED.rglob("*.toml")]
    found.sort(key=lambda table: (order.get(table.name.partition("/")[0], 2), table.kind, table.name))
    return {table.name: table for table in found}


def load(path, root=REPORTED):
    """Reads one table; raises ReportedError with the file and the place in it."""
    name = path.relative_to(root).with_suffix("").as_posix()
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
        return _table(name, plain)
    except tomllib.TOMLDecodeError as problem:
        raise ReportedError(f"{path}: not TOML: {problem}") from problem
    except ReportedError as problem:
        raise ReportedError(f"{path}: {problem}") from problem


def find(name):
    """The table called `name`: its full name, its last part if that is unique, or a stem of one of its rows.

    Raises UnknownTable with the nearest names.
    """
    known = tables()
    if name in known:
        return known[name]
    owner = name.rpartition("/")[0]
    if owner in known and name.rpartition("/")[2].partition("+")[0] in known[owner].rows:
        return known[owner]
    ends = [table for table in known if table.rpartition("/")[2] == name]
    if len(ends) == 1:
        return known[ends[0]]
    near = ends or get_close_matches(name, known, 3, 0.5)
    # A last part alone is compared with last parts, so that 'tabel2' finds reformer/table2.
    near = near or [table for table in known if get_close_matches(name, [table.rpartition("/")[2]], 1, 0.6)]
    hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(known)}"
    raise UnknownTable(f"no reported table {name!r}; {hint}")


def cells_for(stem):
    """The reported cells that the experiment `stem` can be set beside: its row, or one cell of it for 'row+task'."""
    found = [cell for table in tables().values() for cell in table.cells.values() if cell.stem == stem]
    # A row's file alone, where tasks make the columns: the whole row is what it is about.
    return found or [
        cell for table in tables().values() for cell in table.cells.values() if f"{table.name}/{cell.row}" == stem
    ]


def _table(name, plain):
    _only(plain, _TABLE_KEYS, "the table")
    for key in ("paper", "arxiv", "place", "title", "caption", "kind", "row_title", "column_title"):
        _check(isinstance(plain.get(key), str) and plain[key], f"{key}: received {plain.get(key)!r}; wanted text")
    _check(
        plain["kind"] in ("experiment", "reference"),
        f"kind: received {plain['kind']!r}; wanted experiment or reference",
    )
    columns_are = plain.get("columns_are", "evaluations")
    _check(
        columns_are in ("evaluations", "tasks"), f"columns_are: received {columns_are!r}; wanted evaluations or tasks"
    )
    rows, columns = _places(plain, "rows"), _places(plain, "columns")
    base = {key: plain[key] for key in _INHERITED if key in plain}
    cells, places = {}, {}
    for row, row_settings in rows.items():
        for column, column_settings in columns.items():
            settings = {**base, **column_settings, **row_settings}
            stem = f"{name}/{row}" + (f"+{column}" if columns_are == "tasks" else "")
            places[row, column] = (stem, settings.get("evaluation", column), settings.get("metric"))
            given = plain.get("cells", {}).get(row, {}).get(column)
            if given is not None:
                cells[row, column] = _cell(name, row, column, given, settings, stem)
    for row, line in plain.get("cells", {}).items():
        _check(row in rows, f"cells.{row}: no such row; rows are {', '.join(rows)}")
        for column in line:
            _check(column in columns, f"cells.{row}.{column}: no such column; columns are {', '.join(columns)}")
    if gap := plain.get("gap"):
        _only(gap, _GAP_KEYS, "gap")
        _check(set(gap) == _GAP_KEYS, f"gap: received {gap!r}; wanted {', '.join(sorted(_GAP_KEYS))}")
    kept = ("paper", "arxiv", "place", "title", "caption", "kind", "row_title", "column_title")
    return Table(
        name=name,
        **{key: plain[key] for key in kept},
        notes=tuple(plain.get("notes", ())),
        rows={key: settings["label"] for key, settings in rows.items()},
        columns={key: settings["label"] for key, settings in columns.items()},
        unit=plain.get("unit", ""),
        cited=frozenset(key for key, settings in rows.items() if settings.get("cited")),
        cells=cells,
        places=places,
        gap=gap,
    )


def _places(plain, which):
    given = plain.get(which, {})
    _check(bool(given), f"{which}: none; wanted key = label")
    settings = {key: {"label": value} if isinstance(value, str) else value for key, value in given.items()}
    for key, value in settings.items():
        _only(value, _PLACE_KEYS, f"{which}.{key}")
        _check("label" in value, f"{which}.{key}: no label")
    return settings


def _cell(table, row, column, given, settings, stem):
    where = f"cells.{row}.{column}"
    own = given if isinstance(given, dict) else {"value": given}
    _only(own, _CELL_KEYS, where)
    full = {"evaluation": column, **settings, **own}
    for key in ("metric", "unit", "better", "source", "confidence"):
        _check(isinstance(full.get(key), str), f"{where}: no {key}, neither here nor in its row, column or table")
    _check(full["confidence"] in MARKS, f"{where}: confidence {full['confidence']!r}; wanted {', '.join(MARKS)}")
    _check(
        full["better"] in ("higher", "lower", "none"),
        f"{where}: better {full['better']!r}; wanted higher, lower or none",
    )
    value, spread = full.get("value"), full.get("plus_minus")
    _check(type(value) in (int, str, Decimal), f"{where}: value {value!r}; wanted a number, or a formula as text")
    return Cell(
        table=table,
        row=row,
        column=column,
        value=value if isinstance(value, str) else Decimal(value),
        plus_minus=None if spread is None else Decimal(spread),
        stem=stem,
        **{key: full[key] for key in _INHERITED},
    )


def _only(plain, known, where):
    for key in plain:
        if key not in known:
            near = get_close_matches(key, known, 1)
            raise ReportedError(f"{where}: unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def _check(holds, message):
    if not holds:
        raise ReportedError(message)

"""Reported and measured numbers side by side: what fills a cell, what does not, and why.

The rules (each has a test):
- a record fills the cells of its own stem and scale; scales are kept apart: a reduced run never stands for the paper's;
- of the records with the same (stem, scale, seed) the one that finished last counts;
- a record with command-line overrides fills nothing and is listed instead;
- a cell is the mean over seeds; its spread is the standard deviation over seeds (n - 1), known from two seeds on;
- where a table is about a gap, a cell is the share that its record closes of that between two others, of the same scale
  and seed;
- a metric in another unit, or better in another direction, than the reported one is not compared but named.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from results.reported import Table
from results.schema import Metric, Record

# The paper's own setting first, then from the largest reduction to the smallest; others follow by name.
SCALES = ("paper", "gpu", "short", "cpu", "tiny")
# (metric, unit as a paper prints it): the same unit as records write it. A dimension of enwik8 is a byte.
SAME_UNITS = {("bits_per_byte", "bits/dim"): "bits/byte"}


@dataclass(frozen=True)
class Measured:
    """One measured cell. `by_seed` maps seed to value; all numbers are in the unit of the reported cell.

    spread       standard deviation over seeds, None for a single seed
    draw_spread  root mean square, over seeds, of the standard deviation over draws of the rotations; None for one draw
    difference   mean minus reported number; None where nothing (or a formula) is reported
    """

    mean: float
    spread: float | None
    draw_spread: float | None
    difference: float | None
    unit: str
    by_seed: dict[int, float]
    draws: int

    @property
    def uncertainty(self):
        """The larger of the two spreads: how far off the mean a repetition could easily land."""
        return max(self.spread or 0.0, self.draw_spread or 0.0)


@dataclass
class Group:
    """The cells measured at one scale, and the records behind them (newest per stem and seed)."""

    scale: str
    cells: dict[tuple[str, str], Measured] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    @property
    def seeds(self):
        return sorted({record.seed for record in self.records})


@dataclass
class Comparison:
    """A reported table, the groups measured at each scale ('paper' always among them), and what did not fit in.

    overridden  records with overrides; superseded  records that a newer one replaced; remarks  sentences for the reader
    """

    table: Table
    groups: list[Group]
    overridden: list[Record]
    superseded: list[Record]
    remarks: list[str]

    def group(self, scale):
        """The group of that scale, empty if nothing was measured there."""
        return next((group for group in self.groups if group.scale == scale), Group(scale))

    @property
    def measured(self):
        return any(group.cells for group in self.groups)


def compare(table: Table, records: Iterable[Record]) -> Comparison:
    """Sets the records that belong to `table` beside its reported cells."""
    records = sorted(records, key=lambda record: record.finish_time)
    ends = {(r.stem, r.scale, r.seed): r for r in records if not r.overrides} if table.gap else {}
    mine = [record for record in records if record.stem.startswith(table.name + "/")]
    overridden = [record for record in mine if record.overrides]
    newest: dict[tuple[str, str, int], Record] = {}
    superseded: list[Record] = []
    remarks: list[str] = []
    stems = {stem for stem, _, _ in table.places.values()} | {table.gap["to"] if table.gap else ""}
    for record in mine:
        if record.overrides:
            continue
        if record.stem not in stems:
            remarks.append(f"{record.stem} ({record.scale}, seed {record.seed}) is no row of {table.name}")
            continue
        key = (record.scale, record.stem, record.seed)
        if key in newest:
            superseded.append(newest[key])
        newest[key] = record
    scales = {record.scale for record in newest.values()}
    groups = []
    for scale in sorted(scales | ({"paper"} if table.kind == "experiment" else set()), key=scale_order):
        group = Group(scale, records=[record for key, record in sorted(newest.items()) if key[0] == scale])
        _fill(group, table, remarks, ends)
        remarks += _inconsistent(group)
        groups.append(group)
    return Comparison(table, groups, overridden, superseded, remarks)


def scale_order(scale):
    """Sort key: the paper's scale, then the known reductions, then others by name."""
    return (SCALES.index(scale) if scale in SCALES else len(SCALES), scale)


def homeless(records, tables):
    """Records whose stem lies under no reported table: they are listed, since no table would show them."""
    return [record for record in records if record.stem.rpartition("/")[0] not in tables]


def decimals(table, place):
    """How many decimals to print for a measured cell: one more than the reported numbers of its unit, at least 2."""
    cell = table.cells.get(place)
    alike = [c.value for c in table.cells.values() if cell is None or c.unit == cell.unit]
    return 1 + max([1] + [-value.as_tuple().exponent for value in alike if not isinstance(value, str)])


def _fill(group, table, remarks, ends):
    for place, (stem, evaluation, metric) in table.places.items():
        cell = table.cells.get(place)
        found = {}
        for record in group.records:
            if record.stem == stem:
                name = f"{stem} ({group.scale}, seed {record.seed})"
                if table.gap:
                    value = _closed(record, evaluation, table.gap, ends)
                else:
                    value = _lookup(record, evaluation, cell.metric if cell else metric)
                if value is None and table.gap:
                    remarks.append(
                        f"{name}: a gap needs {table.gap['from']} and {table.gap['to']} at the same scale and seed, "
                        f"the second of them better in {table.gap['metric']}: cell {place[0]} / {place[1]}"
                    )
                elif value is None:
                    remarks.append(
                        f"{name} has no {metric} of an evaluation {evaluation!r}: cell {place[0]} / {place[1]}"
                    )
                elif cell and not _alike(value[0], cell):
                    remarks.append(
                        f"{name} gives {evaluation} in {value[0].unit} ({value[0].better} is better), the paper in "
                        f"{cell.unit} ({cell.better}): not compared"
                    )
                else:
                    found[record.seed] = value
        if found:
            group.cells[place] = _measure(found, cell)


def _alike(metric, cell):
    """Whether a measured metric and a reported cell have the same unit and the same direction."""
    units = (cell.unit, SAME_UNITS.get((cell.metric, cell.unit)))
    return metric.unit in units and metric.better == cell.better


def _lookup(record, evaluation, metric):
    """(Metric, draws) of the named evaluation; None if it is not there."""
    chosen = record.evaluations.get(evaluation)
    if chosen is None or metric not in chosen.metrics:
        return None
    return chosen.metrics[metric], chosen.draws


def _closed(record, evaluation, gap, ends):
    """(Metric in per cent, 1): how far the record comes on the way between two others; None without these."""
    ways = [ends.get((gap[end], record.scale, record.seed)) for end in ("from", "to")]
    values = [each and _lookup(each, evaluation, gap["metric"]) for each in (*ways, record)]
    if not all(values):
        return None
    far, near, mine = (metric.value for metric, _ in values)
    if far == near or (near < far) != (values[0][0].better == "lower"):
        return None
    share = 100 * (far - mine) / (far - near)
    return Metric(share, "% of the gap", "higher", 0.0, [share]), 1


def _measure(found, cell):
    metrics = [metric for metric, _ in found.values()]
    values = [metric.value for metric in metrics]
    draws = min(count for _, count in found.values())
    mean = statistics.fmean(values)
    reported = cell.value if cell and not isinstance(cell.value, str) else None
    return Measured(
        mean=mean,
        spread=statistics.stdev(values) if len(values) > 1 else None,
        draw_spread=math.sqrt(statistics.fmean(metric.spread**2 for metric in metrics)) if draws > 1 else None,
        difference=None if reported is None else mean - float(reported),
        unit=cell.unit if cell else metrics[0].unit,
        by_seed=dict(sorted((seed, metric.value) for seed, (metric, _) in found.items())),
        draws=draws,
    )


def _inconsistent(group):
    """Sentences about seeds of one row that were not run alike: their mean is then a mean of different things."""
    for stem in dict.fromkeys(record.stem for record in group.records):
        alike = [record for record in group.records if record.stem == stem]
        for what, values in (
            ("steps", {record.steps for record in alike}),
            ("data", {record.data.fingerprint for record in alike}),
            ("parameters", {record.parameters for record in alike}),
        ):
            if len(values) > 1:
                listed = ", ".join(map(str, sorted(values)))
                yield f"{stem} ({group.scale}): its seeds differ in {what}: {listed}"

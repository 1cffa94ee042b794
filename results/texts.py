"""The words that every rendering shares: a number, a cell, a group's title, a run, a verdict."""

from results import claims, reported, tables

SPREADS = "± is the spread over seeds (standard deviation); draws ± is the spread over rotation draws within a seed."


def number(value, digits, signed=False):
    """A measured number with fixed decimals; a huge one in powers of ten, so that no column runs away."""
    sign = "+" if signed else ""
    if abs(value) >= 1e6:
        return f"{value:{sign}.3g}"
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"  # + 0.0 turns -0.0 into 0.0


def measured_parts(comparison, group, place):
    """(mean, spread, difference, draws) of one cell as texts; the first is 'not run' where nothing was measured."""
    cell = group.cells.get(place)
    if cell is None:
        return ("not run" if comparison.table.runnable(place[0]) else "-"), "", "", ""
    digits = tables.decimals(comparison.table, place)
    spread = "" if cell.spread is None else f"±{number(cell.spread, digits)}"
    difference = "" if cell.difference is None else number(cell.difference, digits, signed=True)
    draws = "" if cell.draw_spread is None else f"draws ±{number(cell.draw_spread, digits)}"
    return number(cell.mean, digits), spread, difference, draws


def reported_text(table, place):
    """The reported number as printed, or '-'."""
    return table.cells[place].text if place in table.cells else "-"


def seeds_text(seeds):
    """'seed 0', 'seeds 0, 1, 2'."""
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


def group_title(group):
    """What the group was measured on: seeds, steps, data, devices."""
    kind = "the paper's own setting" if group.scale == "paper" else "a reduced setting"
    if not group.records:
        return f"scale {group.scale} ({kind}): not run"
    steps = sorted({record.steps for record in group.records})
    span = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    devices = ", ".join(dict.fromkeys(device_text(record) for record in group.records))
    tasks = ", ".join(dict.fromkeys(record.data.task for record in group.records))
    return f"scale {group.scale} ({kind}): {seeds_text(group.seeds)}; {span} steps; {tasks}; {devices}"


def device_text(record):
    """'4 x TPU v3', or just the kind for one device."""
    devices = record.devices
    return (f"{devices.count} x " if devices.count > 1 else "") + devices.kind


def run_line(record):
    """One run in one line."""
    overrides = f" with {'; '.join(record.overrides)}" if record.overrides else ""
    return f"{record.stem} scale {record.scale} seed {record.seed}, {record.steps:,} steps{overrides}"


def overridden_lines(comparison):
    """Runs with overrides, with what they measured in the table's metrics: they fill no cell."""
    metrics = {metric for _, _, metric in comparison.table.places.values()}
    for record in comparison.overridden:
        values = [
            f"{evaluation} {metric.value:.4g} {metric.unit}"
            for evaluation, result in record.evaluations.items()
            for name, metric in result.metrics.items()
            if name in metrics
        ]
        yield f"{run_line(record)}: {', '.join(values) or 'nothing in this table'}"


def scale_label(scale):
    """How a verdict's scale is called: the paper's own numbers are judged too."""
    return "paper's numbers" if scale == claims.REPORTED else f"scale {scale}"


def verdict_detail(verdict):
    """What stands behind a verdict: the cells that are missing, or the seeds and the numbers."""
    if verdict.missing:
        table = reported.find(verdict.claim.table)
        names = [f"{table.rows[row]} / {table.columns[column]}" for row, column in verdict.missing]
        if len(names) == len(verdict.claim.check.needs):
            return "none of its cells"
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"missing {', '.join(names[:3])}{more}"
    if verdict.scale == claims.REPORTED:
        return verdict.detail
    return f"{seeds_text(verdict.seeds) if verdict.seeds else 'no seed common to all cells'}; {verdict.detail}"


def provenance(record):
    """Where a record comes from: {label: text}."""
    return {
        "Stem": record.stem + (f" ({'; '.join(record.overrides)})" if record.overrides else ""),
        "Scale": record.scale,
        "Seed": str(record.seed),
        "Steps": f"{record.steps:,}",
        "Finished (UTC)": f"{record.finish_time:%Y-%m-%d %H:%M}",
        "Time": duration(record.wall_seconds),
        "Memory": memory(record.peak_memory_bytes),
        "Tokens/s": f"{record.tokens_per_second:,.0f}",
        "Parameters": f"{record.parameters:,}",
        "Device": device_text(record),
        "Data": f"{record.data.task} {record.data.fingerprint[:8]}",
        "Commit": record.commit[:8] + (" changed" if record.dirty else ""),
    }


def duration(seconds):
    """'41 s', '6 min 20 s', '3 h 5 min'."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def memory(count):
    """'812 MB', '1.4 GB'; 0 means that the platform could not tell."""
    if not count:
        return "unknown"
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"

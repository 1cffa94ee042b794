"""`results/README.md`: all comparisons as Markdown, made from the reported numbers and the records alone."""

from results import claims, tables, texts

HEAD = """# Results

Made from `results/reported` and `results/records` by `repro report`; edits are overwritten, and a test fails when this
file is stale. In each column of a table stand the paper's number, ours, and the difference in brackets. Scales are kept
apart: `paper` is the paper's own setting, every other scale is a reduction, named in `configs/scales`. What we do
differently and why: [deviations.md](deviations.md).
"""


def generate(comparisons, homeless, problems, pictures):
    """The whole page as text.

    `pictures` maps a table's name to [(path relative to the page, caption), ...]; `homeless` are records that no table
    shows, `problems` the (name, problem) pairs of files that are no usable records.
    """
    lines = [HEAD, "## Overview", "", *_overview(comparisons)]
    shown = [one for one in comparisons if one.measured or one.overridden]
    for comparison in shown:
        lines += ["", f"## {_title(comparison)}", "", *_comparison(comparison, pictures.get(comparison.table.name, ()))]
    lines += ["", "## Not run yet", ""]
    for comparison in comparisons:
        if comparison.table.kind == "experiment" and comparison not in shown:
            lines += _folded(comparison)
    lines += ["", "## Numbers to know", "", "Reported by the papers or by others; no experiment here fills them.", ""]
    for comparison in comparisons:
        if comparison.table.kind == "reference":
            lines += _folded(comparison)
    lines += ["", "## Records", "", *_records(comparisons, homeless)]
    lines += _listed("Files that are no usable records", (f"`{name}`: {problem}" for name, problem in problems))
    return "\n".join(lines).rstrip() + "\n"


def _title(comparison):
    return f"{comparison.table.name}: {comparison.table.title}"


def _overview(comparisons):
    yield "| Table | What | Place | Reported numbers | Measured |"
    yield "|---|---|---|---:|---|"
    for comparison in comparisons:
        table = comparison.table
        cells = (f"`{table.name}`", _safe(table.title), _safe(table.place), str(len(table.cells)))
        yield f"| {' | '.join(cells)} | {'<br>'.join(state(comparison))} |"


def state(comparison):
    """A line per scale ('cpu: 20 of 20 cells, seeds 0, 1, 2; ...'), or 'not run', or 'for reference'."""
    if comparison.table.kind == "reference":
        return ["for reference"]
    verdicts = [verdict for found in claims.verdicts(comparison).values() for verdict in found]
    total = sum(comparison.table.runnable(row) for row, _ in comparison.table.cells)
    told = []
    for group in comparison.groups:
        if group.cells:
            words = [verdict.verdict for verdict in verdicts if verdict.scale == group.scale]
            counts = (
                f"claims: {words.count('holds')} hold, {words.count('fails')} fail, {words.count('not run')} not run"
            )
            filled = len(set(group.cells) & set(comparison.table.cells))
            told.append(f"{group.scale}: {filled} of {total} cells, {texts.seeds_text(group.seeds)}; {counts}")
    return told or ["not run"]


def _folded(comparison):
    table = comparison.table
    yield f"<details><summary><code>{table.name}</code>: {_safe(table.title)} ({_safe(table.place)})</summary>"
    yield ""
    yield from _comparison(comparison, ())
    yield ""
    yield "</details>"


def _comparison(comparison, pictures):
    table = comparison.table
    yield f"{_safe(table.caption)} Unit: {', '.join(table.units)}."
    yield ""
    yield f"{_safe(table.paper)} ([arXiv {table.arxiv}](https://arxiv.org/abs/{table.arxiv})), {_safe(table.place)}."
    for path, caption in pictures:
        yield ""
        yield f"![{_safe(caption)}]({path})"
    for group in comparison.groups or [None]:
        title = texts.group_title(group) if group else "reported only"
        yield from ("", f"**{_safe(title[0].upper() + title[1:])}**", "", *_grid(comparison, group))
    if comparison.measured:
        yield ""
        yield f"{texts.SPREADS[0].upper()}{texts.SPREADS[1:]}"
    yield from _claims(comparison)
    yield from _listed("Runs with overrides (they fill no cell)", texts.overridden_lines(comparison))
    yield from _listed("Remarks", comparison.remarks)
    yield from _listed("Notes", (*table.notes, *table.marks))


def _grid(comparison, group):
    table = comparison.table
    paired = group is not None
    heads = [f"{_safe(label)}: paper | ours" if paired else _safe(label) for label in table.columns.values()]
    yield f"| {_safe(table.row_title)} | {' | '.join(heads)} |"
    yield "|---|" + "---:|" * len(table.columns) * (2 if paired else 1)
    for row, label in table.rows.items():
        cells = []
        for column in table.columns:
            cells.append(_safe(texts.reported_text(table, (row, column))))
            if paired:
                mean, difference, draws = texts.measured_parts(comparison, group, (row, column))
                bold = f"**{mean}**" if (row, column) in group.cells else mean
                cells.append(bold + (f" ({difference})" if difference else "") + (f"<br>{draws}" if draws else ""))
        yield f"| {_safe(label)} | {' | '.join(cells)} |"


def _claims(comparison):
    found = list(claims.verdicts(comparison).values())
    if not found:
        return
    yield ""
    yield f"| Claim | {' | '.join(texts.scale_label(verdict.scale) for verdict in found[0])} |"
    yield "|---|" + "---|" * len(found[0])
    for line in found:
        claim = line[0].claim
        words = [f"**{verdict.verdict}**" if verdict.verdict == "fails" else verdict.verdict for verdict in line]
        yield f"| {_safe(claim.sentence)} ({_safe(claim.place)}) | {' | '.join(words)} |"
    fails = [verdict for line in found for verdict in line if verdict.verdict == "fails"]
    told = (
        f"{texts.scale_label(verdict.scale)}: {_safe(verdict.claim.sentence)} {_safe(texts.verdict_detail(verdict))}."
        + (f" {_safe(verdict.claim.note)}" if verdict.claim.note else "")
        for verdict in fails
    )
    yield from _listed("Where a claim fails", told)


def _records(comparisons, homeless):
    used = [record for comparison in comparisons for group in comparison.groups for record in group.records]
    extra = [record for comparison in comparisons for record in (*comparison.overridden, *comparison.superseded)]
    rows = sorted(
        (*used, *extra, *homeless), key=lambda r: (r.stem, tables.scale_order(r.scale), r.seed, r.finish_time)
    )
    if not rows:
        yield "None yet."
        return
    heads = list(texts.provenance(rows[0]))
    yield f"| {' | '.join(heads)} |"
    yield "|---|" + "---|" * (len(heads) - 1)
    for record in rows:
        yield f"| {' | '.join(_safe(text) for text in texts.provenance(record).values())} |"


def _listed(title, lines):
    lines = list(lines)
    if lines:
        yield ""
        yield f"{title}:"
        yield ""
        yield from (f"- {line}" for line in lines)


def _safe(text):
    """Text that cannot break out of a table's cell or be taken for HTML or emphasis."""
    for sign, harmless in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("*", "\\*"), ("\n", " ")):
        text = text.replace(sign, harmless)
    return text

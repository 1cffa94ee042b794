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
    for one in shown:
        title = f"## {one.table.name}: {_safe(one.table.title)}"
        lines += ["", title, "", *comparison(one, pictures.get(one.table.name, ()))]
    lines += ["", "## Not run yet", ""]
    for one in comparisons:
        if one.table.kind == "experiment" and one not in shown:
            lines += _folded(one)
    lines += ["", "## Numbers to know", "", "Reported by the papers or by others; no experiment here fills them.", ""]
    for one in comparisons:
        if one.table.kind == "reference":
            lines += _folded(one)
    lines += ["", "## Records", "", *_records(comparisons, homeless)]
    lines += _listed("Files that are no usable records", (f"`{name}`: {_safe(problem)}" for name, problem in problems))
    return "\n".join(lines).rstrip() + "\n"


def comparison(one, pictures=()):
    """The lines of one comparison: what it is, pictures, a table per scale, claims, remarks, notes."""
    table = one.table
    yield f"{_safe(table.caption)} Unit: {', '.join(table.units)}."
    yield ""
    yield f"{_safe(table.paper)} ([arXiv {table.arxiv}](https://arxiv.org/abs/{table.arxiv})), {_safe(table.place)}."
    for path, caption in pictures:
        yield ""
        yield f"![{_safe(caption)}]({path})"
    for group in one.groups or [None]:
        title = texts.group_title(group) if group else "reported only"
        yield from ("", f"**{_safe(title[0].upper() + title[1:])}**", "", *_grid(one, group))
    if one.measured:
        yield ""
        yield f"{texts.SPREADS[0].upper()}{texts.SPREADS[1:]}"
    yield from _claims(one)
    yield from _listed("Runs with overrides (they fill no cell)", map(_safe, texts.overridden_lines(one)))
    yield from _listed("Remarks", map(_safe, one.remarks))
    yield from _listed("Notes", map(_safe, (*table.notes, *table.marks)))


def _overview(comparisons):
    yield "| Experiment | What | Place | Reported numbers | Measured |"
    yield "|---|---|---|---:|---|"
    for one in comparisons:
        table = one.table
        if table.kind == "experiment":
            cells = (f"`{table.name}`", _safe(table.title), _safe(table.place), str(len(table.cells)))
            yield f"| {' | '.join(cells)} | {'<br>'.join(state(one))} |"


def state(comparison):
    """How far an experiment is: a line per scale ('cpu: 20 of 20 cells, seeds 0, 1, 2; ...'), or 'not run'."""
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


def _folded(one):
    table = one.table
    yield f"<details><summary><code>{table.name}</code>: {_safe(table.title)} ({_safe(table.place)})</summary>"
    yield ""
    yield from comparison(one)
    yield ""
    yield "</details>"


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
                mean, spread, difference, draws = texts.measured_parts(comparison, group, (row, column))
                ours = f"**{mean}** {spread}".rstrip() if (row, column) in group.cells else mean
                cells.append(ours + (f" ({difference})" if difference else "") + (f"<br>{draws}" if draws else ""))
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

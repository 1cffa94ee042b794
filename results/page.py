"""The comparison as one self-contained HTML page: style and pictures inside, nothing loaded from anywhere."""

import base64
from html import escape
from pathlib import Path

from results import claims, figures, markdown, tables, texts

STYLE = Path(__file__).with_name("page.css")


def generate(comparisons, homeless, problems, drawn):
    """The page as text; `drawn` maps a table's name to its figures, {kind: matplotlib Figure}."""
    shown = [one for one in comparisons if one.measured or one.overridden]
    waiting = [one for one in comparisons if one not in shown and one.table.kind == "experiment"]
    known = [one for one in comparisons if one not in shown and one.table.kind == "reference"]
    parts = [_header(comparisons, shown)]
    for comparison in shown:
        pictures = [_figure(comparison, kind, figure) for kind, figure in drawn.get(comparison.table.name, {}).items()]
        body = [*_body(comparison, pictures), _runs(comparison)]
        name = f'<span class="soft small">{escape(comparison.table.name)}</span>'
        head = f"<h2>{escape(comparison.table.title)} {name}</h2>{_source(comparison)}"
        parts.append(f"<section id={_id(comparison)}>{head}{''.join(body)}</section>")
    parts.append(_folded("Not run yet", "Experiments of the papers that have no record here.", waiting))
    parts.append(
        _folded("Numbers to know", "Reported by the papers or by others; no experiment here fills them.", known)
    )
    if homeless or problems:
        lines = [f"{texts.run_line(record)}: under no reported table" for record in homeless]
        lines += [f"{name}: {problem}" for name, problem in problems]
        parts.append(f"<section><h2>Records that no table shows</h2>{_list(lines)}</section>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Results beside the papers</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE.read_text(encoding='utf-8')}</style></head>\n<body>{chr(10).join(parts)}</body></html>\n"
    )


def _header(comparisons, shown):
    rows = []
    for comparison in comparisons:
        table = comparison.table
        if table.kind == "reference":
            continue
        state = "<br>".join(escape(line) for line in markdown.state(comparison))
        rows.append(
            f"<tr><td><a href=#{_id(comparison)}>{escape(table.name)}</a></td><td>{escape(table.title)}</td>"
            f"<td>{escape(table.place)}</td><td>{len(table.cells)}</td><td>{state}</td></tr>"
        )
    count = sum(len(group.records) for one in shown for group in one.groups)
    return (
        "<h1>Results beside the papers</h1>"
        f'<p class="soft">{count} records fill cells of {len(shown)} of {len(rows)} experiments. Scales are kept '
        "apart: <em>paper</em> is the paper's own setting, every other scale is a named reduction.</p>"
        '<div class="wide"><table class="text"><thead><tr><th>Experiment</th><th>What</th><th>Place</th>'
        f"<th>Numbers</th><th>Measured</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _source(comparison):
    table = comparison.table
    link = f'<a href="https://arxiv.org/abs/{escape(table.arxiv)}">arXiv {escape(table.arxiv)}</a>'
    return (
        f'<p class="soft small">{escape(table.paper)} ({link}), {escape(table.place)}</p><p>{escape(table.caption)}</p>'
    )


def _body(comparison, pictures=()):
    table = comparison.table
    for group in comparison.groups or [None]:
        title = texts.group_title(group) if group else "reported only"
        yield f"<h3>{escape(title[0].upper() + title[1:])}</h3>{_grid(comparison, group)}"
    if comparison.measured:
        legend = (
            f"{texts.SPREADS} A difference is blue where ours is better, orange where it is worse, by more than the "
            "spread and the paper's rounding."
        )
        yield f'<p class="soft small">{escape(legend)}</p>'
    yield from pictures
    yield _claims(comparison)
    for heading, lines in (
        ("Runs with overrides (they fill no cell)", texts.overridden_lines(comparison)),
        ("Remarks", comparison.remarks),
        ("Notes", (*table.notes, *table.marks)),
    ):
        lines = list(lines)
        if lines:
            yield f"<h3>{heading}</h3>{_list(lines)}"


def _grid(comparison, group):
    """One scale: under every column the paper's number, ours, and the difference."""
    table = comparison.table
    span = 3 if group else 1
    heads = "".join(f'<th class="first" colspan="{span}">{escape(label)}</th>' for label in table.columns.values())
    sub = '<th class="first">paper</th><th>ours</th><th>diff.</th>' * len(table.columns) if group else ""
    second = f'<tr class="sub"><th>{escape(", ".join(table.units))}</th>{sub}</tr>' if group else ""
    rows = []
    for row, label in table.rows.items():
        cells = "".join(_cells(comparison, group, (row, column)) for column in table.columns)
        rows.append(f"<tr><th>{escape(label)}</th>{cells}</tr>")
    return (
        f'<div class="wide"><table><thead><tr><th>{escape(table.row_title)}</th>{heads}</tr>{second}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cells(comparison, group, place):
    paper = f'<td class="first paper">{escape(texts.reported_text(comparison.table, place))}</td>'
    if group is None:
        return paper
    mean, spread, difference, draws = texts.measured_parts(comparison, group, place)
    if place not in group.cells:
        return f'{paper}<td class="none">{mean}</td><td></td>'
    more = "".join(f'<span class="more">{text}</span>' for text in (spread, draws) if text)
    return f'{paper}<td class="ours">{mean}{more}</td><td class="{_side(comparison, group, place)}">{difference}</td>'


def _side(comparison, group, place):
    """'better', 'worse', or 'close' if the difference is within the spread and the rounding of the paper's number."""
    cell, measured = comparison.table.cells.get(place), group.cells[place]
    if cell is None or measured.difference is None or cell.better == "none":
        return "close"
    rounding = 0.5 * 10.0 ** (1 - tables.decimals(comparison.table, place))
    if abs(measured.difference) <= max(rounding, measured.uncertainty):
        return "close"
    return "better" if (measured.difference > 0) == (cell.better == "higher") else "worse"


def _claims(comparison):
    found = list(claims.verdicts(comparison).values())
    if not found:
        return ""
    heads = "".join(f"<th>{escape(texts.scale_label(verdict.scale))}</th>" for verdict in found[0])
    rows = []
    for line in found:
        claim = line[0].claim
        cells = "".join(
            f'<td><span class="tag {verdict.verdict.split()[-1]}">{verdict.verdict}</span>'
            f'<span class="more">{escape(texts.verdict_detail(verdict))}</span></td>'
            for verdict in line
        )
        note = f'<span class="more">{escape(claim.note)}</span>' if claim.note else ""
        what = f'{escape(claim.sentence)} <span class="soft">({escape(claim.place)})</span>{note}'
        rows.append(f"<tr><td>{what}</td>{cells}</tr>")
    return (
        f'<h3>Claims</h3><div class="wide"><table class="text"><thead><tr><th>Claim</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _runs(comparison):
    """Provenance of every record behind the table, newest and overridden alike, each with its config."""
    used = [record for group in comparison.groups for record in group.records]
    records = [*used, *comparison.overridden, *comparison.superseded]
    heads = [f"<th>{escape(name)}</th>" for name in texts.provenance(records[0])]
    rows = []
    for record in records:
        cells = "".join(f"<td>{escape(text)}</td>" for text in texts.provenance(record).values())
        versions = escape(", ".join(f"{name} {version}" for name, version in record.versions.items()))
        config = (
            f"<details><summary>config and versions</summary><pre>{escape(record.config)}</pre>{versions}</details>"
        )
        rows.append(f'<tr class="lead">{cells}</tr><tr><td colspan="{len(heads)}">{config}</td></tr>')
    return (
        f"<h3>Where the numbers come from</h3><details><summary>{len(records)} records</summary>"
        f'<div class="wide"><table class="text small"><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _folded(title, text, comparisons):
    if not comparisons:
        return ""
    parts = []
    for one in comparisons:
        name = f"<code>{escape(one.table.name)}</code> {escape(one.table.title)}"
        summary = f'<summary>{name} <span class="soft small">{escape(one.table.place)}</span></summary>'
        parts.append(f"<details id={_id(one)}>{summary}{_source(one)}{''.join(_body(one))}</details>")
    return f'<section><h2>{title}</h2><p class="soft">{text}</p>{"".join(parts)}</section>'


def _figure(comparison, kind, figure):
    caption = escape(figures.describe(comparison)[kind][0])
    source = "data:image/svg+xml;base64," + base64.b64encode(figures.save(figure, "svg")).decode()
    return f'<figure><img alt="{caption}" src="{source}"><figcaption>{caption}</figcaption></figure>'


def _list(lines):
    return f'<ul class="small">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>'


def _id(comparison):
    return comparison.table.name.replace("/", "-")

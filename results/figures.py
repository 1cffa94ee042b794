"""Figures of a comparison, drawn with matplotlib without a display and without global state.

The same records give the same bytes: metadata and ids are fixed. Every picture carries a fingerprint of what it
shows, so that a test can tell a stale file without drawing it again (pixels may differ between drawing libraries).
"""

import hashlib
import io
import json

from results import texts

# Okabe and Ito's palette: distinguishable with any common colour vision; markers differ too, for grey prints.
COLOURS = ("#222222", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
MARKERS = "osD^vPX"
ROUNDS = {"lsh1": "1", "lsh2": "2", "lsh4": "4", "lsh8": "8", "full": "full"}
_PLACES = (0, 1, 2, 3, 4.5)  # where the columns stand: one step per doubling, full attention apart
# Wide enough for a page, small enough for a phone; 3.4 inches of height keep labels readable when both shrink.
_PANEL, _HEIGHT = 3.5, 3.5
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "svg.hashsalt": "results",
    "figure.facecolor": "white",
}


def describe(comparison):
    """What there is to draw, without drawing it: {kind: (caption, fingerprint of the numbers shown)}."""
    return {kind: (caption, fingerprint(data)) for kind, (_, caption, data) in _plan(comparison).items()}


def draw(comparison):
    """The figures that the comparison has data for: {kind: matplotlib Figure}, in reading order."""
    return {kind: drawing(comparison.table, data) for kind, (drawing, _, data) in _plan(comparison).items()}


def _plan(comparison):
    rounds, curves, title = _rounds_data(comparison), _curves_data(comparison), comparison.table.title
    plan = {}
    if rounds:
        caption = (
            f"{title}: accuracy against the number of hash rounds at evaluation, one line per kind of attention in "
            "training. Left the paper's numbers, then one panel per scale measured here. Bars: the larger of the "
            "spreads over seeds and over rotation draws. Markers stand slightly apart so that equal ones stay visible."
        )
        plan["rounds"] = (_rounds, caption, rounds)
    if curves:
        plan["curves"] = (_curves, f"{title}: training curves, one line per row and seed, one panel per scale.", curves)
    return plan


def save(figure, kind, description=""):
    """The figure as bytes; `kind` is 'png' or 'svg'. The same figure gives the same bytes."""
    import matplotlib

    # SVG's date and both kinds' program version would differ from one writing to the next.
    fixed = {"Software": None, "Description": description} if kind == "png" else {"Date": None, "Creator": None}
    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format=kind, dpi=130, metadata=fixed)
    return buffer.getvalue()


def fingerprint(data):
    """A short digest of the numbers a figure shows."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def _rounds_data(comparison):
    """{panel title: {row: [(value, uncertainty) or None per column in ROUNDS order]}} for Table 2, else None."""
    table = comparison.table
    if table.name != "reformer/table2":
        return None
    panels = {"reported by the paper": {}}
    for row in table.rows:
        panels["reported by the paper"][row] = [(float(table.cells[row, column].value), 0.0) for column in ROUNDS]
    for group in comparison.groups:
        if group.cells:
            lines = {}
            for row in table.rows:
                found = [group.cells.get((row, column)) for column in ROUNDS]
                if any(found):
                    lines[row] = [cell and (round(cell.mean, 6), round(cell.uncertainty, 6)) for cell in found]
            panels[f"measured, scale {group.scale} ({texts.seeds_text(group.seeds)})"] = lines
    return panels


def _rounds(table, panels):
    figure, axes = _panels(len(panels))
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for index, row in enumerate(table.rows):
            _line(axis, lines.get(row, []), (index - (len(table.rows) - 1) / 2) * 0.1, _look(index))
        axis.set_title(title, fontsize=10)
        axis.set_xticks(_PLACES, ROUNDS.values())
        axis.set_xlim(-0.4, 4.9)
        axis.set_ylim(-3, 104)
        axis.set_xlabel("hash rounds at evaluation")
    axes[0].set_ylabel("accuracy, %")
    _legend(figure, table, {row for lines in panels.values() for row in lines})
    return figure


def _line(axis, points, shift, look):
    """One training setting: a marker with its bar per column, moved aside by `shift`."""
    places = [(x + shift, *point) for x, point in zip(_PLACES, points, strict=False) if point]
    if not places:
        return
    x, value, spread = zip(*places, strict=True)
    axis.errorbar(x, value, yerr=spread if any(spread) else None, linestyle="none", capsize=3, **look)
    # Full attention is no number of rounds: it stands apart, joined by a dotted line.
    hashed = len(places) - bool(points[-1])
    axis.plot(x[:hashed], value[:hashed], color=look["color"], linewidth=1.8)
    axis.plot(x[hashed - 1 :], value[hashed - 1 :], color=look["color"], linewidth=1.1, linestyle=":")


def _curves_data(comparison):
    """{scale: {row: {seed: [steps, values]}}} of the table's metric (or else the loss) in the training curves."""
    table, panels = comparison.table, {}
    for group in comparison.groups:
        for record in group.records:
            row = record.stem.removeprefix(table.name + "/")
            metric = _curve_metric(comparison)
            if record.curve.get("step") and metric in record.curve:
                lines = panels.setdefault(f"scale {group.scale}", {}).setdefault(row, {})
                lines[str(record.seed)] = [record.curve["step"], [round(value, 6) for value in record.curve[metric]]]
    return panels


def _curve_metric(comparison):
    """The table's own metric where the curves have it, otherwise the loss."""
    own = next(iter(comparison.table.places.values()))[2]
    kept = {name for group in comparison.groups for record in group.records for name in record.curve}
    return own if own in kept else "nats_per_token"


def _curves(table, panels):
    figure, axes = _panels(len(panels))
    rows = {row.partition("+")[0]: index for index, row in enumerate(table.rows)}
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for row, seeds in lines.items():
            look = _look(rows[row.partition("+")[0]])
            for steps, values in seeds.values():
                axis.plot(steps, values, color=look["color"], linewidth=1.3, alpha=0.75)
                axis.plot(steps[-1:], values[-1:], clip_on=False, **look)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("training step")
        axis.set_xlim(left=0)
    metric = next(iter(table.places.values()))[2] or "nats_per_token"
    if metric.startswith("perplexity"):  # begins at the size of the vocabulary
        axes[0].set_yscale("log")
    axes[0].set_ylabel(f"training {metric.replace('_', ' ')}, {table.units[0]}")
    _legend(figure, table, {row.partition("+")[0] for lines in panels.values() for row in lines})
    return figure


def _panels(count):
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(max(1.0 + _PANEL * count, 5.0), _HEIGHT + 0.6), layout="constrained")
        axes = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    return figure, axes


def _legend(figure, table, rows):
    import matplotlib
    from matplotlib.lines import Line2D

    shown = [(index, row) for index, row in enumerate(table.rows) if row in rows]
    handles = [Line2D([], [], label=table.rows[row], **_look(index)) for index, row in shown]
    inches = 0.09 * (8 + max(len(handle.get_label()) for handle in handles))  # of an entry, about
    with matplotlib.rc_context(_STYLE):
        figure.legend(
            handles=handles,
            title=table.row_title.lower(),
            loc="outside lower center",
            ncols=min(len(handles), 4, max(1, int(figure.get_figwidth() / inches))),
            frameon=False,
            borderpad=0,
            borderaxespad=0.2,
        )


def _look(index):
    colour = COLOURS[index % len(COLOURS)]
    return {"color": colour, "marker": MARKERS[index % len(MARKERS)], "markersize": 5.5}

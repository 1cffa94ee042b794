"""Measurements of attention as files, a table and a plot: what `repro profile attention` leaves behind.

A cell is one (kind, length): a plain dictionary with its setting, seconds, ratios and bytes.
"""

import datetime
import json

from launch.errors import ConfigError, RunError

SCHEMA = 1
KINDS = {
    "full": "full attention, separate keys",
    "shared": "full attention, shared QK",
    "local": "local attention",
    "lsh1": "LSH, 1 round",
    "lsh2": "LSH, 2 rounds",
    "lsh4": "LSH, 4 rounds",
    "lsh8": "LSH, 8 rounds",
}


def write(cells, folder, what="attention"):
    """Writes one JSON line per cell, to `<what>-<device>-<time>.jsonl`. Returns the path."""
    device = next((cell["device"] for cell in cells if "device" in cell), {"kind": "nothing"})
    name = "".join(c if c.isalnum() else "-" for c in device["kind"].lower()).strip("-")
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{what}-{name}-{stamp}.jsonl"
        path.write_text("".join(json.dumps(cell) + "\n" for cell in cells))
    except OSError as error:
        raise RunError(f"cannot write the measurements to {folder}: {error.strerror}; choose another --out") from None
    return path


def read(path, *fields):
    """Cells of a file that `write` has written, all of them with these fields."""
    try:
        cells = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except OSError as error:
        raise ConfigError(f"--read {path}: {error.strerror}") from None
    except ValueError as error:  # not JSON, or not even text
        raise ConfigError(f"--read {path}: not one JSON object per line ({error})") from None
    wanted = {"schema", *fields}
    if not cells or not all(isinstance(c, dict) and wanted <= c.keys() and c["schema"] == SCHEMA for c in cells):
        which = f" with {', '.join(fields)}" if fields else ""
        raise ConfigError(f"--read {path}: no measurements of schema {SCHEMA}{which} in it")
    return cells


def table(cells):
    """The measurements as plain text: time, ratios, memory; kinds down, lengths across."""
    lengths = sorted({cell["length"] for cell in cells})
    kinds = [kind for kind in KINDS if any(cell["kind"] == kind for cell in cells)]
    by_place = {(cell["kind"], cell["length"]): cell for cell in cells}
    first = cells[0]
    device = next((cell["device"] for cell in cells if "device" in cell), {"kind": "?", "platform": "?", "cores": "?"})
    lines = [
        f"attention alone, forward and backward, {first['batch'] * first['length']} tokens a step,"
        f" {first['heads']} heads of {first['head_width']}, {first['dtype']}, LSH chunk {first['chunk']}",
        f"{device['kind']} ({device['platform']}), {device['cores']} cores",
    ]
    views = [
        ("ms a step (median)", "seconds", lambda x: f"{1e3 * x:.1f}"),
        ("times faster than full shared-QK attention (median of paired ratios)", "faster_than_full", "{:.2f}".format),
        (f"time against length {lengths[0]} (median of paired ratios)", "against_shortest", "{:.2f}".format),
        ("temporary memory, MiB (XLA's account)", "temp_bytes", lambda x: f"{x / 2**20:.0f}"),
        ("peak memory of the process or device while steps ran, MiB", "peak_bytes", lambda x: f"{x / 2**20:.0f}"),
    ]
    for title, field, show in views:
        lines += ["", title, f"{'':30}" + "".join(f"{length:>10}" for length in lengths)]
        for kind in kinds:
            values = (by_place.get((kind, length), {}).get(field) for length in lengths)
            lines.append(f"{KINDS[kind]:30}" + "".join(f"{'-' if x is None else show(x):>10}" for x in values))
    lines += [f"- {c['kind']} at {c['length']}: {c['missing']}" for c in cells if "missing" in c]
    return "\n".join(lines)


def picture(paint, path):
    """Saves the figure that `paint(pyplot)` makes beside `path`, as .svg and .png. [] where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = paint(pyplot)
    paths = [path.with_suffix(".svg"), path.with_suffix(".png")]
    for place in paths:
        figure.savefig(place, dpi=150)
    pyplot.close(figure)
    return paths


def draw(cells, path):
    """Seconds a step against length on logarithmic axes, beside `path` as .svg and .png. Returns the paths."""

    def paint(pyplot):
        figure, axes = pyplot.subplots(figsize=(6.5, 4.2), layout="constrained")
        for kind, title in KINDS.items():
            points = sorted((c["length"], c["seconds"]) for c in cells if c["kind"] == kind and "seconds" in c)
            if points:
                style = {"full": "s--", "shared": "s-", "local": "^-"}.get(kind, "o-")
                axes.plot(*zip(*points, strict=True), style, label=title)
        lengths = sorted({cell["length"] for cell in cells})
        tokens = cells[0]["batch"] * cells[0]["length"]
        axes.set(xscale="log", yscale="log", xlabel="length / batch", ylabel="seconds a step, forward and backward")
        axes.set_xticks(lengths, [f"{length}/{tokens // length}" for length in lengths])
        axes.set_xticks([], minor=True)
        device = next((cell["device"]["kind"] for cell in cells if "device" in cell), "")
        axes.set_title(f"Attention, {tokens} tokens a step, {device} (compare Reformer, Figure 5 right)", fontsize=9)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        return figure

    return picture(paint, path)

"""`repro profile complexity`: Tables 1 and 3 of Reformer as measurements, beside the formulas printed there.

Five models from the Transformer to the Reformer, each differing from the one before in one idea, against length,
depth, width of the feed-forward layer and hash rounds. Memory is XLA's account of a compiled training step, without the
gradients of the parameters; time against length is measured by running the step. A formula has no constant, so each is
drawn through the first point of its own model.
"""

import contextlib
import statistics
import sys

from launch import arguments
from launch.children import start
from launch.errors import ConfigError
from launch.measurements import SCHEMA, picture, read, write

# What each model sets; the rest is BASE. A chunk of the length is no chunk.
MODELS = {
    "transformer": {"residual": "single", "backward": "store", "attention": "dense"},
    "reversible": {"residual": "reversible", "backward": "invert", "attention": "dense", "feedforward_chunk": "length"},
    "chunked_reversible": {"residual": "reversible", "backward": "invert", "attention": "dense"},
    "lsh_transformer": {"residual": "single", "backward": "store", "attention": "lsh"},
    "reformer": {"residual": "reversible", "backward": "invert", "attention": "lsh"},
}
BASE = {"length": 1024, "layers": 3, "hidden": 1024, "rounds": 4}
FIXED = {"batch": 1, "width": 256, "heads": 4, "head_width": None, "vocabulary": 256, "chunk": 32,
         "positions": "axial", "dtype": "float32", "feedforward_chunk": 64, "loss_chunk": 64}  # fmt: skip
SWEEPS = {
    "length": (256, 512, 1024, 2048, 4096),
    "layers": (1, 3, 6, 12, 24),
    "hidden": (256, 1024, 4096, 16_384),
    "rounds": (1, 2, 4, 8),
}
# Table 1: attention alone, dense, memory-efficient (exact, in blocks) and LSH.
ATTENTIONS = {"dot_product": "dense", "memory_efficient": "full", "lsh": "lsh4"}


def add_arguments(parser):
    """Registers the command's arguments on an argparse parser."""
    parser.add_argument("--sweeps", type=arguments.names(SWEEPS), default=tuple(SWEEPS), metavar="NAME,...",
                        help=f"of {', '.join(SWEEPS)} (default: all)")  # fmt: skip
    parser.add_argument(
        "--largest", type=arguments.number, default=4096, metavar="N", help="longest length (default 4096)"
    )
    parser.add_argument(
        "--repeats", type=arguments.whole(0), default=3, help="measured steps per length; 0 measures no time"
    )
    arguments.output(parser, "complexity")


def run(args):
    """Compiles and runs the models of Reformer's complexity tables and draws memory and time beside the formulas."""
    if args.read:
        cells, path = read(args.read, "sweep", "model"), args.read
    else:
        cells = measure(args.sweeps, args.largest, args.repeats)
        if not cells:
            raise ConfigError(f"--largest {args.largest} leaves no length; they begin at {SWEEPS['length'][0]}")
        path = write(cells, args.out, "complexity")
    print(table(cells))
    print(f"\nmeasured: {path}")
    drawn = draw(cells, path)
    print(f"drawn: {', '.join(map(str, drawn))}" if drawn else "not drawn: matplotlib is not installed here")
    return 0 if any("activation_bytes" in cell for cell in cells) else 1


def measure(sweeps, largest, repeats):
    """One dictionary per model and point of a sweep, and per attention and length."""
    cells = []
    for sweep in sweeps:
        for value in SWEEPS[sweep]:
            point = {**BASE, sweep: value}
            if point["length"] > largest:
                continue
            for model in MODELS:
                cell = {"schema": SCHEMA, "sweep": sweep, "model": model, **point}
                cells.append(_measured(cell, setting(model, point), repeats if sweep == "length" else 0))
            if sweep == "length":
                for name, kind in ATTENTIONS.items():
                    alone = {"what": "attention", "kind": kind, "head_width": 64, "length": value}
                    cell = {"schema": SCHEMA, "sweep": "attention", "model": name, **point}
                    cells.append(_measured(cell, {**FIXED, **alone}, 0))
    return cells


def setting(model, point):
    """What `launch.workloads.training` is told for a model of MODELS at a point of a sweep."""
    chosen = {"what": "training", **FIXED, **point, **MODELS[model]}
    if chosen["attention"] == "lsh":
        chosen["attention"] = f"lsh{point['rounds']}"
    if chosen["feedforward_chunk"] == "length" or chosen["backward"] == "store":
        chosen["feedforward_chunk"] = point["length"]
    return chosen


def _measured(cell, setting, repeats):
    name = f"{cell['sweep']}: {cell['model']}, " + ", ".join(f"{k} {cell[k]}" for k in BASE)
    with contextlib.ExitStack() as stack:
        child = start(stack, cell, setting, name, lambda text: print(text, file=sys.stderr, flush=True))
        if child is None:
            return cell
        cell.setdefault("activation_bytes", cell["temp_bytes"])
        if repeats:
            cell["seconds"] = statistics.median(child.step() for _ in range(repeats))
            cell["peak_bytes"] = child.peak
    return cell


# ---- the paper's formulas, without constants -----------------------------------------------

C = 128**2  # as printed: (4 l / nc)^2 with nc = l / 32


def formula(model, what, p):
    """Table 3 (or 1) as printed: memory or time of a model at the point p, up to a constant."""
    l, nl, dff, nr = p["length"], p["layers"], p["hidden"], p["rounds"]  # noqa: E741
    b, nh, dmodel = FIXED["batch"], FIXED["heads"], FIXED["width"]
    exact, hashed, dk = b * nh * l * l, b * nh * l * nr * C, b * nh * l * 64
    memory = {
        "transformer": max(b * l * dff, exact) * nl,
        "reversible": max(b * l * dff, exact),
        "chunked_reversible": max(b * l * dmodel, exact),
        "lsh_transformer": max(b * l * dff, hashed) * nl,
        "reformer": max(b * l * dmodel, hashed),
        "dot_product": max(dk, exact),
        "memory_efficient": max(dk, exact),
        "lsh": max(dk, hashed),
    }
    time = {
        "transformer": (b * l * dff + exact) * nl,
        "reversible": (b * nh * l * dff + exact) * nl,
        "chunked_reversible": (b * nh * l * dff + exact) * nl,
        "lsh_transformer": (b * l * dff + hashed) * nl,
        "reformer": (b * l * dff + hashed) * nl,
    }
    return {"memory": memory, "time": time}[what][model]


# ---- table and picture ---------------------------------------------------------------------


def panels(cells):
    """(title, x, field, what, cells) of every panel that has something to show."""
    found = []
    for sweep, title in (("length", "length"), ("layers", "layers"), ("hidden", "d_ff"), ("rounds", "hash rounds")):
        mine = [c for c in cells if c["sweep"] == sweep]
        found.append((f"activation memory against {title} (Table 3)", sweep, "activation_bytes", "memory", mine))
    mine = [c for c in cells if c["sweep"] == "attention"]
    found.append(("attention alone: memory against length (Table 1)", "length", "temp_bytes", "memory", mine))
    mine = [c for c in cells if c["sweep"] == "length"]
    found.append(("seconds a training step against length (Table 3)", "length", "seconds", "time", mine))
    return [p for p in found if any(p[2] in c for c in p[4])]


def table(cells):
    """Every panel as text: models down, points across."""
    lines = []
    for title, x, field, _, mine in panels(cells):
        points = sorted({c[x] for c in mine})
        unit = 1 if field == "seconds" else 2**20
        lines += ["", title + ("" if unit == 1 else ", MiB"), f"{'':22}" + "".join(f"{p:>10}" for p in points)]
        for model in dict.fromkeys(c["model"] for c in mine):
            at = {c[x]: c.get(field) for c in mine if c["model"] == model}
            values = ("-" if at.get(p) is None else f"{at[p] / unit:.3g}" for p in points)
            lines.append(f"{model:22}" + "".join(f"{v:>10}" for v in values))
    lines += [f"- {c['model']} ({c['sweep']}): {c['missing']}" for c in cells if "missing" in c]
    return "\n".join(lines).strip()


def draw(cells, path):
    """All panels in one picture beside `path`, as .svg and .png: measured solid, the printed formula dotted."""

    def paint(pyplot):
        shown = panels(cells)
        rows = max(1, -(-len(shown) // 2))
        figure, grid = pyplot.subplots(rows, 2, figsize=(11, 3.8 * rows), layout="constrained", squeeze=False)
        for axes, (title, x, field, what, mine) in zip(grid.flat, shown, strict=False):
            for at, model in enumerate(dict.fromkeys(c["model"] for c in mine)):
                points = sorted((c[x], c[field], formula(model, what, c)) for c in mine
                                if c["model"] == model and field in c)  # fmt: skip
                if points:
                    xs, measured, printed = zip(*points, strict=True)
                    axes.plot(xs, measured, "o-", color=f"C{at}", label=model.replace("_", " "))
                    scaled = [f * measured[0] / printed[0] for f in printed]
                    axes.plot(xs, scaled, ":", color=f"C{at}", alpha=0.7)
            axes.set(xscale="log", yscale="log", title=title, xlabel=x, ylabel="s" if field == "seconds" else "bytes")
            axes.set_xticks(sorted({c[x] for c in mine}), sorted({c[x] for c in mine}))
            axes.set_xticks([], minor=True)
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
        for axes in list(grid.flat)[len(shown) :]:
            axes.set_visible(False)
        device = next((c["device"]["kind"] for c in cells if "device" in c), "")
        figure.suptitle(f"measured (solid) beside the formulas as printed (dotted), {device}", fontsize=10)
        return figure

    return picture(paint, path)

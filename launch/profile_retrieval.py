"""`repro profile retrieval`: the search for the k best keys, against its floor and against other implementations.

One step answers all queries of all groups, each group from a memory of its own, in random unit vectors. `floor` is
matmul-and-max alone: the products in the same blocks and tiles, and one maximum per query; `plain` has the products
of a whole memory at once. `faiss` (flat index) and `scann` (brute force) are rows where requirements/bench.txt is
installed. Every cell is a process of its own; those of one setting take turns, and ratios are medians over the turns,
of wall time and of processor time, which other work on the machine touches less.
"""

import contextlib
import json
import statistics
import sys

from launch import arguments
from launch.children import start
from launch.errors import ConfigError
from launch.measurements import SCHEMA, picture, read, write

METHODS = {
    "floor": "matmul and max alone",
    "plain": "the same, untiled",
    "exact": "exact, tournament",
    "sorted": "exact, lax.top_k",
    "buckets": "buckets",
    "approximate": "lax.approx_max_k",
    "faiss": "FAISS flat index",
    "scann": "ScaNN brute force",
}
RATIOS = {"against_floor": "floor", "against_plain": "plain", "against_faiss": "faiss", "against_scann": "scann"}


def add_arguments(parser):
    """Registers the command's arguments on an argparse parser."""
    parser.add_argument("--methods", type=arguments.names(METHODS), default=tuple(METHODS), metavar="NAME,...",
                        help=f"of {', '.join(METHODS)} (default: all)")  # fmt: skip
    parser.add_argument("--widths", type=arguments.numbers, default=(64, 128), metavar="N,...",
                        help="features of queries and keys (default 64,128)")  # fmt: skip
    parser.add_argument("--entries", type=arguments.numbers, default=(8192, 65_536), metavar="N,...",
                        help="entries of each memory (default 8192,65536)")  # fmt: skip
    for name, value, help in (
        ("--groups", 16, "memories: slots times heads"),
        ("--queries", 512, "queries of each memory"),
        ("--neighbours", 32, "k"),
        ("--repeats", 7, "turns per setting; medians are reported"),
    ):
        parser.add_argument(name, type=arguments.number, default=value, metavar="N", help=f"{help} (default {value})")
    parser.add_argument("--recall-target", type=arguments.amount(0, 1), default=0.9, metavar="SHARE",
                        help="of buckets and approximate, at least (default 0.9)")  # fmt: skip
    parser.add_argument("--limit", type=arguments.amount(), default=30.0, metavar="SECONDS",
                        help="leave out a method whose step is expected to take longer (default 30)")  # fmt: skip
    arguments.output(parser, "retrieval")


def run(args):
    """Measures the search for the k best keys: time, temporary memory, recall; prints one JSON line per setting.

    Returns the exit status: 1 if nothing could be measured.
    """
    if args.read:
        cells, path = read(args.read, "method", "neighbours"), args.read
    else:
        cells = []
        for entries in sorted(set(args.entries)):
            if args.neighbours > entries:
                raise ConfigError(f"--entries: {entries} are fewer than the {args.neighbours} neighbours searched")
            for width in args.widths:
                settings = [_setting(args, method, width, entries) for method in args.methods]
                long = {setting["method"]: _too_long(setting, cells, args.limit) for setting in settings}
                say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
                for cell in measure(settings, args.repeats, say, long):
                    print(json.dumps(cell), flush=True)
                    cells.append(cell)
        path = write(cells, args.out, "retrieval")
    print(table(cells), file=sys.stderr)
    print(f"\nmeasured: {path}", file=sys.stderr)
    pictures = draw(cells, path)
    drawn = f"drawn: {', '.join(map(str, pictures))}" if pictures else "not drawn: matplotlib is not installed here"
    print(drawn, file=sys.stderr)
    return 0 if any("seconds" in cell for cell in cells) else 1


def _setting(args, method, width, entries):
    setting = {"what": "retrieval", "kind": method, "method": method, "width": width, "entries": entries}
    return setting | {name: getattr(args, name) for name in ("groups", "queries", "neighbours", "recall_target")}


def _too_long(setting, cells, limit):
    """Why a method is left out, or None: its step at fewer entries says how long this one would take."""
    for cell in cells:
        same = (cell["method"], cell["width"]) == (setting["method"], setting["width"])
        expected = cell.get("seconds", 0.0) * setting["entries"] / cell["entries"] if same else 0.0
        if expected > limit:
            return f"a step would take about {expected:.0f} s (--limit {limit:g})"
    return None


def measure(settings, repeats, say, left_out=()):
    """Lets the methods of one setting take turns. One dictionary per method; left_out: methods -> reasons, or None.

    `seconds` and `processor_seconds` are medians; `against_floor`, `against_faiss`, `against_scann` medians over the
    turns of this method's wall time by the other's, and `processor_against_...` the same of processor time.
    """
    cells = {setting["method"]: {"schema": SCHEMA, **setting} for setting in settings}
    with contextlib.ExitStack() as stack:
        children = {}
        for setting in settings:
            cell = cells[setting["method"]]
            name = f"{setting['method']:>11}, width {setting['width']}, {setting['entries']} entries"
            if reason := dict(left_out).get(setting["method"]):
                cell["missing"] = reason
                say(f"{name}: left out: {reason}")
            elif child := start(stack, cell, setting, name, say):
                children[setting["method"]] = child
        turns = [{method: _both(child) for method, child in children.items()} for _ in range(repeats)]
        for method, child in children.items():
            cell = cells[method]
            for at, field in enumerate(("seconds", "processor_seconds")):
                cell[field] = statistics.median(turn[method][at] for turn in turns)
                prefix = "processor_" if at else ""
                for name, other in RATIOS.items():
                    if other in children:
                        ratios = (turn[method][at] / turn[other][at] for turn in turns)
                        cell[prefix + name] = statistics.median(ratios)
            cell.update(all_seconds=[turn[method][0] for turn in turns], peak_bytes=child.peak)
    return list(cells.values())


def _both(child):
    child.step()  # not counted: the turns of the others have emptied the caches
    return child.step(), child.processor_seconds


def table(cells):
    """The measurements as plain text, one table per setting."""
    device = next((cell["device"] for cell in cells if "device" in cell), {"kind": "?", "platform": "?", "cores": "?"})
    first = cells[0]
    lines = [
        f"the {first['neighbours']} best of {first['queries']} queries in each of {first['groups']} memories",
        f"{device['kind']} ({device['platform']}), {device['cores']} cores; ratios (x) are of processor time",
    ]
    columns = {
        "ms": ("seconds", lambda x: f"{1e3 * x:.1f}"),
        "processor ms": ("processor_seconds", lambda x: f"{1e3 * x:.1f}"),
        **{f"x {name}": (f"processor_against_{name}", "{:.2f}".format) for name in RATIOS.values()},
        "temp MiB": ("temp_bytes", lambda x: f"{x / 2**20:.1f}"),
        "recall": ("recall", "{:.3f}".format),
        "in theory": ("closed_form", "{:.3f}".format),
    }
    for entries, width in _settings(cells):
        lines += ["", f"{entries} entries of width {width}", f"{'':22}" + "".join(f"{name:>13}" for name in columns)]
        for cell in cells:
            if (cell["entries"], cell["width"]) == (entries, width) and "seconds" in cell:
                values = ("-" if cell.get(field) is None else show(cell[field]) for field, show in columns.values())
                lines.append(f"{METHODS[cell['method']]:22}" + "".join(f"{value:>13}" for value in values))
    lines += [f"- {c['method']}, {c['entries']} of {c['width']}: {c['missing']}" for c in cells if "missing" in c]
    return "\n".join(lines)


def _settings(cells):
    return list(dict.fromkeys((cell["entries"], cell["width"]) for cell in cells))


def draw(cells, path):
    """Time of every method as bars, one panel per setting, beside `path` as .svg and .png. Returns the paths."""

    def paint(pyplot):
        settings = _settings(cells)
        figure, grid = pyplot.subplots(
            1, len(settings), figsize=(3.2 * len(settings), 3.2), layout="constrained", squeeze=False
        )
        for axes, (entries, width) in zip(grid.flat, settings, strict=True):
            mine = [c for c in cells if (c["entries"], c["width"]) == (entries, width) and "seconds" in c]
            names = [METHODS[c["method"]] for c in mine]
            colours = [
                {"floor": "0.7", "plain": "0.7", "faiss": "C1", "scann": "C1"}.get(c["method"], "C0") for c in mine
            ]
            bars = axes.barh(names, [1e3 * c["seconds"] for c in mine], color=colours)
            axes.bar_label(bars, [f"{1e3 * c['seconds']:.0f}" for c in mine], padding=2, fontsize=7)
            axes.invert_yaxis()
            axes.margins(x=0.2)
            axes.set_title(f"{entries} entries, width {width}", fontsize=9)
            axes.set_xlabel("ms")
            axes.tick_params(labelsize=8)
            if axes is not grid.flat[0]:
                axes.set_yticklabels([])
        device = next((cell["device"]["kind"] for cell in cells if "device" in cell), "")
        what = "k = {neighbours}, {groups} memories, {queries} queries each".format(**cells[0])
        figure.suptitle(f"{what}, {device}", fontsize=9)
        return figure

    return picture(paint, path)

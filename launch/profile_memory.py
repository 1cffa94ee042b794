"""`repro profile memory`: a training step of the Memorizing Transformer against the size of its memory.

One JSON line per size; size 0 (no memory) is always measured, and `against_none` is the median over the turns of a
size's time by that of size 0 (paper: 0.2 s a step without, 0.25 s with 8192 entries, 0.6 s with 65,536). Memories are
full. `processor_...` is processor time instead of wall time, which other work on the machine touches less.
"""

import contextlib
import json
import statistics
import sys

from launch import arguments
from launch.children import start
from launch.measurements import SCHEMA, write

# The second has the paper's layers (section 4.2), where a memory costs the share of a step that it does in the paper.
PRESETS = {
    "small": {
        "layers": 6,
        "memory_layer": 4,
        "width": 256,
        "hidden": 1024,
        "heads": 4,
        "head_width": 64,
        "vocabulary": 2048,
        "batch": 4,
    },
    "paper": {
        "layers": 12,
        "memory_layer": 9,
        "width": 1024,
        "hidden": 4096,
        "heads": 8,
        "head_width": 128,
        "vocabulary": 32_128,
        "batch": 1,
    },
}
SHARED = {"segment": 512, "cache": 512, "neighbours": 32}
SIZES = {
    "vocabulary": "ids",
    "batch": "slots",
    "segment": "tokens a slot",
    "cache": "length of the XL cache, 0 for none",
    "neighbours": "k",
    "layers": "layers",
    "memory_layer": "which of them, counted from 1",
    "width": "d_model",
    "hidden": "d_ff",
    "heads": "heads",
    "head_width": "features of a head",
}


def add_arguments(parser):
    """Registers the command's arguments on an argparse parser."""
    parser.add_argument("--memories", type=arguments.numbers, default=(8192, 32_768, 65_536), metavar="N,...",
                        help="entries of the memory, besides 0 (default 8192,32768,65536)")  # fmt: skip
    parser.add_argument("--preset", choices=tuple(PRESETS), default="small",
                        help="small: 6 layers of width 256; paper: 12 of 1024, one slot (default small)")  # fmt: skip
    for name, help in SIZES.items():
        default = SHARED.get(name, "the preset's")
        kind = arguments.whole(0 if name == "cache" else 1)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N", help=f"{help} (default {default})")
    parser.add_argument("--search", default="auto", help="auto, exact, sorted, buckets or approximate (default auto)")
    parser.add_argument(
        "--recall", type=arguments.amount(0, 1), default=0.9, help="of buckets and approximate, at least (default 0.9)"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--memory-dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument(
        "--repeats", type=arguments.number, default=5, metavar="N", help="turns; medians are reported (default 5)"
    )
    arguments.output(parser, "memory", drawn=False)


def run(args):
    """Measures training steps of the Memorizing Transformer without and with memories; prints one JSON line per size.

    `temp_bytes` is XLA's account of temporary memory and `temp_growth_bytes` what a memory adds to it, `state_bytes`
    what memories and caches hold, `peak_bytes` what the process (on CPU) or the device held at most while steps ran,
    `compile_peak_bytes` what the process held before.
    """
    setting = {"what": "memory", "kind": "memory", **PRESETS[args.preset], **SHARED}
    setting.update({name: getattr(args, name) for name in SIZES if getattr(args, name) is not None})
    setting.update({name: getattr(args, name) for name in ("search", "recall", "dtype", "memory_dtype")})
    settings = [{**setting, "memory": memory} for memory in (0, *args.memories)]
    cells = measure(settings, args.repeats, lambda text: print(text, file=sys.stderr, flush=True))
    for cell in cells:
        print(json.dumps(cell), flush=True)
    print(f"measured: {write(cells, args.out, 'memory')}", file=sys.stderr)
    return 0 if any("seconds" in cell for cell in cells) else 1


def measure(settings, repeats, say):
    """Compiles every setting in a process of its own and lets them take turns; ratios are to the first."""
    cells = [{"schema": SCHEMA, **setting} for setting in settings]
    with contextlib.ExitStack() as stack:
        children = {}
        for at, cell in enumerate(cells):
            if child := start(stack, cell, settings[at], f"memory {cell['memory']}", say):
                children[at] = child
        turns = [
            {at: (child.step(), child.processor_seconds) for at, child in children.items()} for _ in range(repeats)
        ]
        for at, child in children.items():
            cell = cells[at]
            for part, prefix in enumerate(("", "processor_")):
                cell[prefix + "seconds"] = statistics.median(turn[at][part] for turn in turns)
                if 0 in children:
                    cell[prefix + "against_none"] = statistics.median(turn[at][part] / turn[0][part] for turn in turns)
            cell["all_seconds"] = [turn[at][0] for turn in turns]
            cell["tokens_per_second"] = cell["batch"] * cell["segment"] / cell["seconds"]
            cell["peak_bytes"] = child.peak
            if 0 in children:
                cell["temp_growth_bytes"] = cell["temp_bytes"] - cells[0]["temp_bytes"]
    return cells

"""`repro profile training`: a whole training step of a decoder-only model, one JSON line per setting.

Settings are all combinations of the lists given. Those that differ only in `--backward` take turns, and
`against_first` is the median over the turns of a setting's time against the first one's. `--swap` adds every setting
once more with parameters and optimiser state in the host's memory (`launch.swapping`): what copying costs is its time
against the other's, what could be hidden is `copy_seconds`. Not measured on an accelerator yet.
"""

import contextlib
import itertools
import json
import statistics
import sys

from launch import arguments
from launch.children import start
from launch.errors import ConfigError
from launch.measurements import SCHEMA, write

BACKWARDS = ("invert", "remat", "store", "single")
ATTENTIONS = ("lsh1", "lsh2", "lsh4", "lsh8", "lsh16", "local", "shared", "full", "dense")


def add_arguments(parser):
    """Registers the command's arguments on an argparse parser."""

    def one(name, value, help, least=1):
        parser.add_argument(name, type=arguments.whole(least), default=value, metavar="N",
                            help=f"{help} (default {value})")  # fmt: skip

    def many(name, value, help):
        parser.add_argument(name, type=arguments.numbers, default=(value,), metavar="N,...",
                            help=f"{help} (default {value})")  # fmt: skip

    parser.add_argument("--lengths", type=arguments.numbers, default=(1024, 4096, 16_384), metavar="N,...",
                        help="sequence lengths (default 1024,4096,16384)")  # fmt: skip
    one("--tokens", 16_384, "tokens of one step, at every length; a longer sequence makes a step alone")
    parser.add_argument("--attention", type=arguments.names(ATTENTIONS), default=("lsh4",), metavar="NAME,...",
                        help=f"of {', '.join(ATTENTIONS)} (default lsh4)")  # fmt: skip
    parser.add_argument("--backward", type=arguments.names(BACKWARDS), default=("invert",), metavar="NAME,...",
                        help="invert, remat or store: reversible streams; single: one, plain autodiff")  # fmt: skip
    parser.add_argument("--swap", action="store_true", help="each setting also with parameters in the host's memory")
    many("--layers", 6, "layers")
    one("--width", 256, "d_model")
    one("--hidden", 1024, "d_ff")
    one("--heads", 4, "heads")
    parser.add_argument("--head-width", type=arguments.number, metavar="N", help="default: width / heads")
    one("--vocabulary", 256, "ids")
    one("--chunk", 64, "chunk of LSH and local attention")
    parser.add_argument("--positions", choices=("normal", "axial"), default="axial", help="default axial")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    one("--repeats", 5, "measured steps; medians are reported; 0 measures the first step, for very long ones", least=0)
    arguments.output(parser, "training", drawn=False)


def run(args):
    """Measures training steps: tokens a second, peak memory, compile time; prints one JSON line per setting.

    `temp_bytes` is XLA's account of temporary memory, `activation_bytes` the same without the gradients of the
    parameters, `peak_bytes` what the process (on CPU) or the device held at most while steps ran, `compile_peak_bytes`
    what the process held before.
    """
    cells = []
    for length, attention, layers in itertools.product(args.lengths, args.attention, args.layers):
        if args.tokens % length and length < args.tokens:
            raise ConfigError(
                f"--lengths: {length} does not divide the {args.tokens} tokens of a step; change --tokens"
            )
        ways = itertools.product(args.backward, (False, True) if args.swap else (False,))
        group = [_setting(args, length, attention, layers, *way) for way in ways]
        for cell in measure(group, args.repeats, lambda text: print(text, file=sys.stderr, flush=True)):
            print(json.dumps(cell), flush=True)
            cells.append(cell)
    print(f"measured: {write(cells, args.out, 'training')}", file=sys.stderr)
    return 0 if any("seconds" in cell for cell in cells) else 1


def _setting(args, length, attention, layers, backward, swap):
    names = ("width", "hidden", "heads", "head_width", "vocabulary", "chunk", "positions", "dtype")
    single = backward == "single"
    return {
        "what": "training",
        "attention": attention,
        "length": length,
        "batch": max(1, args.tokens // length),
        "layers": layers,
        "residual": "single" if single else "reversible",
        "backward": "store" if single else backward,
        "swap": swap,
        **{name: getattr(args, name) for name in names},
    }


def measure(settings, repeats, say):
    """Compiles every setting in a process of its own and lets them take turns. One dictionary per setting."""
    cells = [{"schema": SCHEMA, **setting} for setting in settings]
    with contextlib.ExitStack() as stack:
        children = []
        for cell, setting in zip(cells, settings, strict=True):
            name = f"{setting['attention']} {setting['residual']} {setting['backward']} {'swapped ' * setting['swap']}"
            name += f"{setting['layers']} layers, length {setting['length']}"
            # A hundred tokens a second is a slow machine, not a stuck process.
            children.append(start(stack, cell, setting, name, say, 1200 + cell["batch"] * cell["length"] / 100))
            if "note" in cell:
                say(f"  {cell['note']}")
        turns = [[child and child.step() for child in children] for _ in range(repeats)]
        for at, (cell, child) in enumerate(zip(cells, children, strict=True)):
            if child is None:
                continue
            seconds = [turn[at] for turn in turns] or [child.facts["first_seconds"]]
            cell.update(seconds=statistics.median(seconds), all_seconds=seconds, peak_bytes=child.peak)
            cell["tokens_per_second"] = cell["batch"] * cell["length"] / cell["seconds"]
            if turns and children[0] is not None:
                cell["against_first"] = statistics.median(turn[at] / turn[0] for turn in turns)
    return cells

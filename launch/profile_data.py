"""`repro profile data`: the input pipeline alone, without a model: how fast batches come, one JSON line a setting.

What makes batches is what a run reads: the experiment's task, its batch size, its seed. The first batch, which may have
to open files and fill buffers, is told apart.
"""

import itertools
import json
import os
import statistics
import sys
import time

from launch import arguments
from launch.measurements import SCHEMA, write


def add_arguments(parser):
    """Registers the command's arguments on an argparse parser."""
    from launch.composition import FULL_SCALE

    parser.add_argument("stem", metavar="STEM", help="an experiment of `repro list`, a folder of them, or a gin file")
    parser.add_argument("--scale", default=FULL_SCALE, help="'paper' (default) or a named reduction")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="'NAME = VALUE'",
                        help="a gin assignment, such as \"DATA = '/path/to/isabelle'\"; may be repeated")  # fmt: skip
    parser.add_argument("--split", default="train", choices=("train", "validation", "test"), help="(default: train)")
    parser.add_argument("--batches", type=arguments.number, default=200, metavar="N",
                        help="batches a turn (default 200)")  # fmt: skip
    parser.add_argument("--repeats", type=arguments.number, default=5, metavar="N",
                        help="turns, of which the median counts (default 5)")  # fmt: skip
    arguments.output(parser, "data", drawn=False)


def run(args):
    """Measures the input pipeline alone: tokens and batches a second, the first batch, memory. One JSON line a stem.

    Needs the data, but neither a model nor an accelerator. Opening a corpus for the first time tokenises it, which
    `open_seconds` shows.
    """
    from launch import composition

    cells = []
    for stem in composition.select(args.stem):
        cell = measure(composition.compose(stem, args.scale, None, args.overrides), args)
        print(json.dumps(cell), flush=True)
        cells.append(cell)
    print(f"measured: {write(cells, args.out, 'data')}", file=sys.stderr)


def measure(composed, args):
    """What came out of one experiment's pipeline, as a dictionary."""
    from launch import config
    from launch.devices import peak_memory_bytes

    begun = time.perf_counter()
    experiment = config.build(composed)
    task, size = experiment.task, experiment.batch_size
    opened = time.perf_counter()
    feed = task.feed(args.split, size, experiment.seed)
    next(feed)
    first = time.perf_counter()
    turns = [_turn(feed, args.batches) for _ in range(args.repeats)]
    turns = [(batches, seconds) for batches, seconds in turns if batches]
    cell = {
        "schema": SCHEMA,
        "what": "data",
        "stem": composed.stem,
        "scale": composed.scale,
        "task": task.name,
        "fingerprint": task.fingerprint(),
        "split": args.split,
        "batch": size,
        "length": task.length,
        "open_seconds": opened - begun,
        "first_seconds": first - opened,
        "peak_bytes": peak_memory_bytes(),
        "device": {"platform": "cpu", "kind": "cpu", "cores": os.cpu_count()},
    }
    if turns:  # a small set may end with its first batch
        seconds = statistics.median(spent / batches for batches, spent in turns)
        cell.update(seconds=seconds, all_seconds=[spent / batches for batches, spent in turns])
        cell["tokens_per_second"] = size * task.length / seconds
    return cell


def _turn(feed, most):
    """(batches read, seconds for them): `most`, or fewer where the set ends."""
    begun = time.perf_counter()
    batches = sum(1 for _ in itertools.islice(feed, most))
    return batches, time.perf_counter() - begun

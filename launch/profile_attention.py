"""`repro profile attention`: time and peak memory of attention against length (Reformer, Figure 5 right).

The number of tokens of a step stays the same while the length grows, so flat means linear. One step is the forward and
the backward pass of attention alone. Needs jax and reformer; TensorFlow, seqio and gin are never imported.

Every cell (kind, length) lives in a child process of its own, so that peak memory is its own. The children of one
length and those of the shortest length take turns, and a ratio is the median over the turns of the ratio within a turn:
what else the machine does then touches both sides alike.
"""

import contextlib
import statistics
import sys

from launch import arguments
from launch.children import start
from launch.errors import ConfigError
from launch.measurements import KINDS, SCHEMA, draw, read, table, write

REFERENCE = "shared"
LENGTHS = (1024, 2048, 4096, 8192, 16_384)


def add_arguments(parser):
    """Registers the command's arguments on an argparse parser."""
    parser.add_argument("--kinds", type=arguments.names(KINDS), default=tuple(KINDS), metavar="NAME,...",
                        help=f"of {', '.join(KINDS)} (default: all)")  # fmt: skip
    parser.add_argument("--lengths", type=arguments.numbers, default=LENGTHS, metavar="N,...",
                        help="sequence lengths (default: 1024 to 16384)")  # fmt: skip
    parser.add_argument("--tokens", type=arguments.number, default=16_384, help="tokens of one step, at every length")
    parser.add_argument("--heads", type=arguments.number, default=2)
    parser.add_argument("--head-width", type=arguments.number, default=64)
    parser.add_argument(
        "--chunk", type=arguments.number, default=32, help="LSH chunk; the paper's Table 3 counts with 32"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--repeats", type=arguments.number, default=7, help="turns per length; medians are reported")
    parser.add_argument("--limit", type=arguments.amount(), default=60.0, metavar="SECONDS",
                        help="leave out a cell whose step is expected to take longer")  # fmt: skip
    arguments.output(parser, "attention")


def run(args):
    """Measures time and peak memory of attention against length, at the same number of tokens a step (Figure 5 right).

    Returns the exit status: 1 if nothing could be measured.
    """
    if args.read:
        cells, path = read(args.read, "kind", "length", "heads", "chunk"), args.read
    else:
        say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
        cells = profile_attention(
            kinds=args.kinds,
            lengths=args.lengths,
            tokens=args.tokens,
            heads=args.heads,
            head_width=args.head_width,
            chunk=args.chunk,
            dtype=args.dtype,
            repeats=args.repeats,
            limit=args.limit,
            say=say,
        )
        path = write(cells, args.out)
    print(table(cells))
    print(f"\nmeasured: {path}")
    pictures = draw(cells, path)
    print(f"drawn: {', '.join(map(str, pictures))}" if pictures else "not drawn: matplotlib is not installed here")
    return 0 if any("seconds" in cell for cell in cells) else 1


def profile_attention(
    *,
    kinds=tuple(KINDS),
    lengths=LENGTHS,
    tokens=16_384,
    heads=2,
    head_width=64,
    chunk=32,
    dtype="float32",
    repeats=7,
    limit=60.0,
    say=lambda text: None,
):
    """Measures every kind at every length.

    Args:
      kinds: names of `KINDS`. lengths: each must divide `tokens`, which makes the batch.
      repeats: turns per length. limit: seconds that a step may be expected to take, from the length before it.
      say: called with a line of progress.

    Returns:
      One dict per cell, as written to the .jsonl file: the setting; `seconds` (median) and `all_seconds`;
      `faster_than_full` (median over turns of shared-QK full / this, at the same length); `against_shortest` (median
      over turns of this / itself at the shortest length); `temp_bytes` (XLA's account of temporary memory),
      `peak_bytes` (device memory in use, or on CPU the child's resident set, at most while it ran); or `missing`, a
      reason.
    """
    lengths = sorted(set(lengths))
    for length in lengths:
        if tokens % length:
            raise ConfigError(f"--lengths: {length} does not divide the {tokens} tokens of a step; change --tokens")
    cells = {}
    with contextlib.ExitStack() as alive:
        anchors = {}
        for length in lengths:
            with contextlib.ExitStack() as here:
                children = {}
                for kind in kinds:
                    setting = {
                        "what": "attention",
                        "kind": kind,
                        "length": length,
                        "batch": tokens // length,
                        "heads": heads,
                        "head_width": head_width,
                        "chunk": chunk,
                        "dtype": dtype,
                    }
                    cell = cells[kind, length] = {"schema": SCHEMA, **setting}
                    expected = _expected(cells, kind, length, lengths)
                    if expected > limit:
                        cell["missing"] = f"a step would take about {expected:.0f} s (--limit {limit:g})"
                        say(f"{kind:>7} {length:>8}: left out: {cell['missing']}")
                        continue
                    stack = alive if length == lengths[0] else here
                    if child := start(stack, cell, setting, f"{kind:>7} {length:>8}", say):
                        children[kind] = child
                anchors = anchors or children
                _measure(cells, length, lengths[0], children, anchors, repeats)
    return list(cells.values())


def _expected(cells, kind, length, lengths):
    """Seconds that a step should take if time grows with length, as that of full attention does."""
    if length == lengths[0]:
        return 0.0
    shorter = lengths[lengths.index(length) - 1]
    cell = cells[kind, shorter]
    if "seconds" not in cell:
        return float("inf")
    return cell["seconds"] * (length / shorter if kind in ("full", "shared") else 1.2)


def _measure(cells, length, shortest, children, anchors, repeats):
    """Lets the children take turns; fills in medians and medians of ratios."""
    turns = []
    for _ in range(repeats):
        turn = {}
        for kind, child in children.items():  # what is compared stands close together in time
            turn[kind, length] = child.step()
            if length != shortest and kind in anchors:
                turn[kind, shortest] = anchors[kind].step()
        turns.append(turn)

    def ratio(top, bottom):
        if top in turns[0] and bottom in turns[0]:
            return statistics.median(turn[top] / turn[bottom] for turn in turns)
        return None

    for kind, child in children.items():
        seconds = [turn[kind, length] for turn in turns]
        cells[kind, length].update(
            seconds=statistics.median(seconds),
            all_seconds=seconds,
            faster_than_full=ratio((REFERENCE, length), (kind, length)),
            against_shortest=ratio((kind, length), (kind, shortest)),
            peak_bytes=child.peak,
        )

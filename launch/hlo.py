"""What one run of a compiled program costs, read from its text, with the bodies of loops counted as often as they run.

XLA's own report (`cost_analysis`) counts the body of a loop once, and here everything is scanned: layers, heads, blocks
of queries. The length of a loop is in its text, or it counts up to a constant. Counted are multiplications and
additions of products (two for each pair of factors, as is usual), bytes read and written outside the on-chip memory,
cycles as the compiler estimated them, and collectives. Slices of a larger array are counted as what is read of it.
"""

import math
import re
from functools import cached_property
from typing import NamedTuple

from launch.hlo_text import parse

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")
# Instructions that move nothing by themselves: names for parts, or frames whose contents are counted on their own.
FREE = (
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call", "conditional", "after-all"),
    *("partition-id", "replica-id", "iota", "opt-barrier", "async-start", "async-update", "async-done"),
    *(f"{name}-done" for name in (*COLLECTIVES, "copy", "send", "recv")),
)
SLICES = ("dynamic-slice", "slice", "gather")


class Costs(NamedTuple):
    """Of one run on one device. ``silent``: those of the bytes for whose moving the compiler estimated no cycles.
    ``collectives``: kind -> (how many, bytes of their results)."""

    flops: float
    bytes: float
    cycles: float
    silent: float
    collectives: dict

    def plus(self, other, times=1):
        """These costs and ``times`` those of ``other``."""
        kinds = {**self.collectives}
        for kind, (count, size) in other.collectives.items():
            before = kinds.get(kind, (0, 0.0))
            kinds[kind] = (before[0] + times * count, before[1] + times * size)
        return Costs(*(a + times * b for a, b in zip(self[:4], other[:4], strict=True)), kinds)


NOTHING = Costs(0.0, 0.0, 0.0, 0.0, {})


class Program:
    """A compiled program.

    Args:
      text: of the optimised module, as ``compiled.as_text()`` gives it.
      unknown_trips: how often loops run whose length is not in the text, since it depends on data.
    """

    def __init__(self, text, unknown_trips=1):
        self.text, self.unknown_trips = text, unknown_trips
        self.computations, self.entry = parse(text)
        self.unknown = 0  # loops of unknown length that were counted
        self._known = {}

    @cached_property
    def costs(self):
        """``Costs`` of a run from beginning to end, on one of the devices."""
        return self._costs_of(self.entry)

    @property
    def partial_reduces(self):
        """How many places reduce partially: the approximate search as the TPU's own operation."""
        return len(re.findall(r'custom_call_target="PartialReduce"|\bpartial-reduce\(', self.text))

    def _costs_of(self, name):
        if name not in self._known:
            total = NOTHING
            for one in self.computations[name].values():
                total = total.plus(self._costs(one, self.computations[name]))
            self._known[name] = total
        return self._known[name]

    def _costs(self, one, around):
        """Costs of one instruction with all that it calls."""
        if one.opcode == "while":
            trips = one.setting("known_trip_count")
            if trips is None:
                trips = self._trips(one, around)
            if trips is None:
                self.unknown += 1
                trips = self.unknown_trips
            body, condition = (self._costs_of(one.called(part)[0]) for part in ("body", "condition"))
            return NOTHING.plus(body, trips).plus(condition, trips)
        if one.opcode == "conditional":
            branches = one.called("branch_computations") or [
                *one.called("true_computation"),
                *one.called("false_computation"),
            ]
            return max((self._costs_of(branch) for branch in branches), key=lambda costs: (costs.cycles, costs.flops))
        inner = NOTHING
        if one.opcode in ("fusion", "call", "async-start"):
            for name in one.called("calls") + one.called("to_apply"):
                inner = inner.plus(self._costs_of(name))
        if one.opcode == "fusion":  # what passes between its parts is never written
            inner = inner._replace(bytes=0.0, silent=0.0)
        collectives = {}
        kind = one.opcode.removesuffix("-start")
        if kind in COLLECTIVES:
            # The start of an asynchronous one gives its operands too.
            shapes = one.shapes[len(one.shapes) // 2 :] if one.opcode.endswith("-start") else one.shapes
            collectives[kind] = (1, float(sum(shape.bytes for shape in shapes)))
        moved, cycles = self._bytes(one, around), one.setting("estimated_cycles") or 0.0
        silent = 0.0 if cycles or collectives else moved
        return inner.plus(Costs(_flops(one, around), moved, cycles, silent, collectives))

    def _trips(self, loop, around):
        """How often a loop runs that counts up to a constant, as JAX's do; None for any other."""
        condition, body = (self.computations[loop.called(part)[0]] for part in ("condition", "body"))
        test = next(one for one in condition.values() if one.root)
        if test.opcode != "compare" or "direction=LT" not in test.rest:
            return None
        counter, limit = (condition[name] for name in test.operands)
        if counter.opcode != "get-tuple-element" or limit.number is None:
            return None
        place = counter.index
        after = next(one for one in body.values() if one.root)
        # The counter begins at a constant and grows by one; where the text hides that, JAX's zero and one are taken.
        first, step = 0, 1
        inputs = around.get(loop.operands[0])
        if (
            inputs
            and inputs.opcode == "tuple"
            and (begin := _origin(around, inputs.operands[place])).number is not None
        ):
            first = begin.number
        if after.opcode == "tuple" and (grown := _origin(body, after.operands[place])).opcode == "add":
            steps = [number for name in grown.operands if (number := _origin(body, name).number) is not None]
            step = steps[0] if len(steps) == 1 else 1
        return max(0, -(-(limit.number - first) // step)) if step > 0 else None

    def _bytes(self, one, around):
        if one.opcode in FREE or 'custom_call_target="AllocateBuffer"' in one.rest:
            return 0.0
        size = lambda name: sum(shape.bytes for shape in around[name].shapes) if name in around else 0.0  # noqa: E731
        result = sum(shape.bytes for shape in one.shapes)
        if one.opcode in SLICES:
            return 2 * result
        if one.opcode in ("dynamic-update-slice", "scatter"):
            return 2 * size(one.operands[1 if one.opcode == "dynamic-update-slice" else -1])
        if one.opcode == "fusion" and one.called("calls"):
            return _bytes_of_fusion(self.computations[one.called("calls")[0]], [size(name) for name in one.operands])
        return result + sum(size(name) for name in one.operands)


def _origin(around, name):
    """The instruction that made a value, behind copies and bitcasts."""
    one = around[name]
    while one.opcode in ("copy", "bitcast") and one.operands and one.operands[0] in around:
        one = around[one.operands[0]]
    return one


def _bytes_of_fusion(inside, operands):
    """Read: each parameter, or the slices of it if nothing else is read. Written: the result, or the slice replaced."""
    users = {}
    for one in inside.values():
        for place, name in enumerate(one.operands):
            users.setdefault(name, []).append((one, place))
    size = lambda one: sum(shape.bytes for shape in one.shapes)  # noqa: E731
    through = lambda name: [  # noqa: E731, users of an array, seen through bitcasts
        pair
        for user, place in users.get(name, [])
        for pair in (through(user.name) if user.opcode == "bitcast" else [(user, place)])
    ]
    total = 0.0
    for one in inside.values():
        if one.opcode == "parameter":
            reads = []
            for user, place in through(one.name):
                if user.opcode in SLICES and place == 0:
                    reads.append(size(user))
                elif user.opcode == "dynamic-update-slice" and place == 0:
                    reads.append(0.0)
                else:
                    reads = None
                    break
            number = int(re.match(r"\d+", one.rest)[0]) if re.match(r"\d+", one.rest) else None
            whole = operands[number] if number is not None and number < len(operands) else size(one)
            total += whole if reads is None else min(sum(reads), whole)
        elif one.root:
            for result in [inside[name] for name in one.operands] if one.opcode == "tuple" else [one]:
                while result.opcode == "bitcast" and result.operands[0] in inside:
                    result = inside[result.operands[0]]
                if result.opcode == "dynamic-update-slice":
                    total += size(inside[result.operands[1]])
                elif result.opcode != "parameter":
                    total += size(result)
    return total


def _flops(one, around):
    """Of a product: two for each pair of factors. Others are not counted."""
    if one.opcode not in ("dot", "convolution") or not all(name in around for name in one.operands[:2]):
        return 0.0
    left, right = (around[name].shapes[0].dims for name in one.operands[:2])
    out = one.shapes[0].dims
    if one.opcode == "dot":
        return 2.0 * math.prod(out) * math.prod(left[n] for n in one.numbers("lhs_contracting_dims"))
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.rest)
    window = dict(re.findall(r"(\w+)=([\dx_\-]+)", (re.search(r"window={([^}]*)}", one.rest) or ["", ""])[1]))
    pairs = 1
    for axis in filter(str.isdigit, labels[3]):
        length, size = left[labels[1].index(axis)], right[labels[2].index(axis)]
        pick = lambda name, default, n=int(axis): (  # noqa: E731
            window[name].split("x")[n] if name in window else default
        )
        low = int(pick("pad", "0_0").split("_")[0])
        stride, spread, apart = (int(pick(name, "1")) for name in ("stride", "lhs_dilate", "rhs_dilate"))
        pairs *= _meetings(out[labels[3].index(axis)], size, length, stride, low, spread, apart)
    batch_groups = re.search(r"batch_group_count=(\d+)", one.rest)
    batch = left[labels[1].index("b")] // (int(batch_groups[1]) if batch_groups else 1)
    return 2.0 * batch * right[labels[2].index("i")] * right[labels[2].index("o")] * pairs


def _meetings(out, size, length, stride, low, spread, apart):
    """Pairs of a window's place and an entry under it, along one axis: padding and gaps do not count."""
    if size == 1 and spread == 1 and low == 0:
        return min(out, -(-length // stride))
    count = 0
    for k in range(size):
        first = k * apart - low
        # Places n < out with first + n stride in [0, (length - 1) spread] and a multiple of spread.
        begin = max(0, -(first // stride))
        end = ((length - 1) * spread - first) // stride
        period = spread // math.gcd(stride, spread)
        hit = next((n for n in range(begin, min(begin + period, out)) if (first + n * stride) % spread == 0), None)
        if hit is not None and hit <= min(end, out - 1):
            count += (min(end, out - 1) - hit) // period + 1
    return count


def names_of(collectives):
    """Collectives as JSON keeps them: {kind: {"count": how many, "bytes": of their results}}."""
    return {kind: {"count": count, "bytes": int(size)} for kind, (count, size) in sorted(collectives.items())}

"""The text of a compiled program as instructions: `compiled.as_text()`, XLA's HLO, read line by line."""

import math
import re
from typing import NamedTuple

WIDTHS = {"pred": 1, "token": 0, "opaque": 0, "s4": 0.5, "u4": 0.5, "bf16": 2, "c64": 8, "c128": 16}


class Shape(NamedTuple):
    """An array; ``bytes`` is 0 for those in on-chip memory."""

    dims: tuple
    bytes: float


class Instruction(NamedTuple):
    """One line of a computation. ``shapes``: of its result, one for an array, several for a tuple."""

    name: str
    shapes: list
    opcode: str
    operands: list
    rest: str  # what follows the operands
    root: bool

    def called(self, attribute):
        """Names of the computations under an attribute, such as ``calls=%name`` or ``branch_computations={%a, %b}``."""
        found = re.search(rf"\b{attribute}=(?:{{([^}}]*)}}|(%?[\w.\-]+))", self.rest)
        return [name.strip().lstrip("%") for name in (found[1] or found[2]).split(",")] if found else []

    @property
    def number(self):
        """The value of a constant that is a whole number, else None."""
        found = re.match(r"(-?\d+)\)", self.rest) if self.opcode == "constant" else None
        return int(found[1]) if found else None

    @property
    def index(self):
        """Which element of a tuple it takes."""
        return int(re.search(r"\bindex=(\d+)", self.rest)[1])

    def setting(self, name):
        """A whole number in the instruction's ``backend_config``, or None."""
        found = re.search(rf'"{name}":(?:{{"n":)?"?(\d+)', self.rest)
        return int(found[1]) if found else None

    def numbers(self, name):
        """The whole numbers of an attribute such as ``lhs_contracting_dims={1,2}``."""
        found = re.search(rf"\b{name}={{([\d,]*)}}", self.rest)
        return [int(n) for n in found[1].split(",") if n] if found else []


def parse(text):
    """{computation: {instruction: Instruction}}, and the name of the one that is run."""
    computations, current, entry = {}, None, None
    for line in text.splitlines():
        if current is None or not line.startswith(" "):
            head = re.match(r"(ENTRY )?%?([\w.\-]+) .*{$|(ENTRY )?%?([\w.\-]+) {$", line)
            if head and not line.startswith("HloModule"):
                current = computations.setdefault(head[2] or head[4], {})
                entry = head[2] or head[4] if line.startswith("ENTRY") else entry
            continue
        one = _instruction(line.strip())
        if one:
            current[one.name] = one
    if entry is None:
        raise ValueError("the text has no ENTRY computation; wanted that of a compiled program, compiled.as_text()")
    return computations, entry


def _instruction(line):
    head = re.match(r"(ROOT )?%?([\w.\-]+) = ", line)
    if not head:
        return None
    kind, rest = _up_to_space(line[head.end() :])
    opcode, _, rest = rest.partition("(")
    depth, end = 1, 0
    for end, sign in enumerate(rest):  # noqa: B007
        depth += (sign == "(") - (sign == ")")
        if not depth:
            break
    inside, after = rest[:end], rest[end + 1 :]
    operands = re.findall(r"%([\w.\-]+)", inside)
    # A parameter's number and a constant's value stand where others have operands.
    return Instruction(
        head[2], _shapes(kind), opcode.strip(), operands, after if operands else f"{inside}){after}", bool(head[1])
    )


def _up_to_space(text):
    """(the type at the beginning of ``text``, the rest). Types of tuples are in brackets and have spaces."""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in "({[") - (sign in ")}]")
        if sign == " " and not depth:
            return text[:place], text[place + 1 :]
    return text, ""


def _shapes(text):
    shapes = []
    for kind, dims, layout in re.findall(r"([a-z]\w*)\[([\d,<=]*)\](?:{([^}]*)})?", text):
        dims = tuple(int(n.lstrip("<=")) for n in dims.split(",") if n)
        width = WIDTHS.get(kind, int(re.search(r"\d+", kind)[0]) / 8 if re.search(r"\d", kind) else 0)
        if kind.startswith("f8"):
            width = 1
        outside = not re.search(r"S\([1-9]", layout)
        shapes.append(Shape(dims, math.prod(dims) * width * outside))
    return shapes

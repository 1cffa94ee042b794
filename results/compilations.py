"""Rows compiled ahead of time and not run: what the compiler says that a training step needs and does.

One JSON file per row and topology, `compiled/<stem>/<topology>.json`, validated when written and when read. Nothing
here was measured on a device: memory is the compiler's plan, operations and bytes are read from the program it made,
and the time is its own estimate. Nothing outside the standard library.
"""

import dataclasses
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from results.schema import Problem
from results.validation import RecordError, build, point_in_time, wanted

VERSION = 1
COMPILED = Path(__file__).parent / "compiled"
PAGE = Path(__file__).parent / "compiled.md"
GIB = 2**30
# Of one device as JAX counts them: bytes of memory, cycles a second, bytes a second. Two v2 or v3 cores share a chip.
CHIPS = {
    "v2": (8 * GIB, 700e6, 350e9),
    "v3": (16 * GIB, 940e6, 450e9),
    "v4": (32 * GIB, 1050e6, 1200e9),
    "v5e": (16 * GIB, 1500e6, 819e9),
}
SHARE = 0.9  # of the memory: what a step may use


@dataclass(frozen=True)
class Collective:
    """How often one step runs it on each device, and the bytes of all its results there."""

    count: int
    bytes: int


@dataclass(frozen=True)
class Compilation:
    """One row compiled for one topology. All figures are of one device and one training step.

    `program` is the digest of what went to the compiler: rows with equal programs share one compilation, and `same_as`
    names the row it was made for. `hbm_bytes` is what the step needs; where it does not fit, what the compiler said
    it would need, with its words in `problem`, and the figures of the program are missing. `state_bytes` are the parts
    of parameters, optimiser and model (caches, memories) that lie on a device. `flops` counts products, two for each
    pair of factors. Loops whose length is not in the program (`unknown_loops`) count as `assumed_trips` rounds: the
    blocks of a full memory, or the mean number of blocks of keys that causal attention visits. `silent_bytes` are moved
    without an estimate of cycles. `processor_seconds` of compiling, all cores together, feel other work on the machine
    less than wall time does. `compiler_bytes`: that process's peak memory.
    """

    stem: str
    topology: str
    config: str
    commit: str
    dirty: bool
    finished: str
    versions: dict[str, str]
    program: str
    devices: int
    mesh: dict[str, int]
    parameters: int
    tokens: int
    state_bytes: dict[str, int]
    fits: bool
    hbm_bytes: int
    lower_seconds: float
    compile_seconds: float
    compiler_bytes: int
    processor_seconds: float = field(default=0.0, metadata={"optional": True})
    memory: dict[str, int] = field(default_factory=dict, metadata={"optional": True})
    flops: float = field(default=0.0, metadata={"optional": True})
    bytes: float = field(default=0.0, metadata={"optional": True})
    cycles: float = field(default=0.0, metadata={"optional": True})
    silent_bytes: float = field(default=0.0, metadata={"optional": True})
    collectives: dict[str, Collective] = field(default_factory=dict, metadata={"optional": True})
    partial_reduces: int = field(default=0, metadata={"optional": True})
    unknown_loops: int = field(default=0, metadata={"optional": True})
    assumed_trips: float = field(default=1, metadata={"optional": True})
    problem: str = field(default="", metadata={"optional": True})
    same_as: str = field(default="", metadata={"optional": True})
    schema: int = VERSION

    def check(self, where=""):
        wanted(where + "schema", self.schema, self.schema == VERSION, f"{VERSION}")
        wanted(where + "devices", self.devices, self.devices >= 1, "at least 1")
        for name in ("hbm_bytes", "parameters", "tokens", "flops", "bytes", "cycles", "compile_seconds"):
            wanted(where + name, getattr(self, name), getattr(self, name) >= 0, "at least 0")
        wanted(where + "fits", self.fits, self.fits or self.problem, "true, or a problem that says why not")
        point_in_time(where + "finished", self.finished)

    @property
    def limit(self):
        """Bytes of a device's memory, or None for a kind that is not in `CHIPS`."""
        return self._chip[0]

    @property
    def green(self):
        """Whether a step fits with something to spare."""
        return self.fits and (self.limit is None or self.hbm_bytes <= SHARE * self.limit)

    @property
    def over(self):
        """Whether a step needs more than there is, whatever the compiler let pass."""
        return not self.fits or (self.limit is not None and self.hbm_bytes > self.limit)

    @property
    def seconds(self):
        """The compiler's estimate of a step; None where it gives none. Waiting for other devices is not in it."""
        return self.cycles / self._chip[1] if self._chip[1] and self.cycles else None

    @property
    def silent_seconds(self):
        """What has no estimate (gathers, sorts, partial reductions), were it bound by memory alone."""
        return self.silent_bytes / self._chip[2] if self._chip[2] and self.cycles else None

    @property
    def _chip(self):
        return CHIPS.get(self.topology.partition(":")[0], (None, None, None))


def path_of(stem, topology, folder=COMPILED):
    """Where the record of a row and a topology lies."""
    return Path(folder) / stem / f"{topology.replace(':', '-')}.json"


def made(plain):
    """A `Compilation` of a dict of its fields; raises RecordError."""
    return build(Compilation, {"schema": VERSION, **plain}, "")


def plain(one):
    """A `Compilation` as plain dicts, without what says nothing."""
    optional = {item.name for item in dataclasses.fields(one) if item.metadata.get("optional")}
    return {name: value for name, value in dataclasses.asdict(one).items() if name not in optional or value}


def write(record, folder=COMPILED):
    """Writes a `Compilation`, or a dict of its fields, whole or not at all; returns the path."""
    one = made(record) if isinstance(record, dict) else record
    path = path_of(one.stem, one.topology, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=".compiled-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(plain(one), file, indent=1, allow_nan=False)
            file.write("\n")
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return path


def read(path):
    """Reads and validates one record; raises RecordError or OSError."""
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as problem:
        raise RecordError(f"not readable as JSON: {problem}") from problem
    wanted("", fields, isinstance(fields, dict), "a JSON object")
    return build(Compilation, fields, "")


def read_all(folder=COMPILED):
    """All usable records below a folder, by stem and topology, and a `Problem` for each of the other files."""
    found, problems = [], []
    for path in sorted(Path(folder).rglob("*.json")):
        try:
            one = read(path)
            wanted("stem", one.stem, path == path_of(one.stem, one.topology, folder), "the place it lies in")
            found.append(one)
        except (RecordError, OSError) as problem:
            problems.append(Problem(path, str(problem)))
    return sorted(found, key=lambda one: (one.stem, one.topology)), problems

"""The record of one finished run: what ran, on what, and what came out.

A record is one JSON file, `records/<stem>/<scale>-seed<k>-<finish time>.json` (-2, -3 ... before the dot, should
that name be taken). It is validated when it is written and
again when it is read, so that whatever a table prints has passed the same gate. Nothing outside the standard library.
"""

import dataclasses
import itertools
import json
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from results.validation import RecordError, build, point_in_time, short, wanted

VERSION = 1
RECORDS = Path(__file__).parent / "records"
MAX_CURVE_POINTS = 300

_STEM = re.compile(r"[a-z0-9_]+(/[a-z0-9_]+)+(\+[a-z0-9_]+)*")
_NAME = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True)
class Metric:
    """One figure of one evaluation, in `unit`; `spread` is the standard deviation of `per_draw`, 0 for one draw."""

    value: float
    unit: str
    better: str  # 'higher', 'lower', or 'none' for a figure that only describes
    spread: float
    per_draw: list[float]

    def check(self, where):
        wanted(where + "better", self.better, self.better in ("higher", "lower", "none"), "'higher', 'lower' or 'none'")
        wanted(where + "spread", self.spread, self.spread >= 0, "at least 0")
        wanted(where + "spread", self.spread, len(self.per_draw) > 1 or self.spread == 0, "0 for a single draw")


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of the trained parameters: `draws` passes over `examples` sequences, `weight` positions.

    `signatures`, where a metric has settings of its own (BLEU): metric -> what it was computed with.
    """

    split: str
    draws: int
    examples: int
    weight: float
    metrics: dict[str, Metric]
    signatures: dict[str, str] = field(default_factory=dict, metadata={"optional": True})

    def check(self, where):
        wanted(where + "draws", self.draws, self.draws >= 1, "at least 1")
        wanted(where + "examples", self.examples, self.examples >= 1, "at least 1")
        wanted(where + "weight", self.weight, self.weight > 0, "above 0")
        for name, metric in self.metrics.items():
            count = len(metric.per_draw)
            wanted(
                f"{where}metrics.{name}.per_draw",
                f"{count} values",
                count == self.draws,
                f"{self.draws}, as draws says",
            )
        for name in self.signatures:
            wanted(f"{where}signatures", name, name in self.metrics, f"names of metrics: {', '.join(self.metrics)}")


@dataclass(frozen=True)
class Data:
    """Which data was read: the task's name and its fingerprint."""

    task: str
    fingerprint: str


@dataclass(frozen=True)
class Devices:
    """What the run ran on, as JAX names it."""

    platform: str
    kind: str
    count: int


@dataclass(frozen=True)
class Record:
    """One finished run. Units: seconds, bytes, tokens per second; times are ISO 8601 with their offset from UTC.

    `overrides` are command-line bindings; a record that has any is listed below its table but never fills a cell.
    `peak_memory_bytes` is 0 where the platform cannot tell. `curve` holds training metrics: equally long lists under
    the metrics' names, and the steps they belong to under 'step'.
    """

    stem: str
    scale: str
    seed: int
    steps: int
    overrides: list[str]
    commit: str
    dirty: bool
    config: str
    data: Data
    devices: Devices
    started: str
    finished: str
    wall_seconds: float
    peak_memory_bytes: int
    parameters: int
    tokens_per_second: float
    evaluations: dict[str, Evaluation]
    curve: dict[str, list[float]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    schema: int = VERSION

    def check(self, where=""):
        wanted("stem", self.stem, _STEM.fullmatch(self.stem), "a path such as 'reformer/table2/lsh4'")
        wanted("scale", self.scale, _NAME.fullmatch(self.scale), "letters a-z, digits and '_', such as 'cpu'")
        for name in ("seed", "steps", "peak_memory_bytes", "parameters", "wall_seconds", "tokens_per_second"):
            wanted(name, getattr(self, name), getattr(self, name) >= 0, "at least 0")
        wanted("devices.count", self.devices.count, self.devices.count >= 1, "at least 1")
        # Their order is not checked: a clock that was set back must not cost a run its record.
        point_in_time("started", self.started)
        point_in_time("finished", self.finished)
        self._check_curve()

    def _check_curve(self):
        lengths = {name: len(values) for name, values in self.curve.items()}
        if lengths:
            steps = self.curve.get("step")
            wanted("curve", sorted(lengths), steps is not None, "a list named 'step' among them")
            wanted("curve", lengths, len(set(lengths.values())) == 1, "lists of equal length")
            wanted("curve", f"{len(steps)} points", len(steps) <= MAX_CURVE_POINTS, f"at most {MAX_CURVE_POINTS}")
            rising = all(a < b for a, b in itertools.pairwise(steps))
            wanted("curve.step", steps, rising, "steps in rising order")

    @property
    def finish_time(self):
        """When the run ended, as a datetime in UTC; of the records of one (stem, scale, seed) the newest counts."""
        return point_in_time("finished", self.finished)

    def to_dict(self):
        """The record as plain dicts and lists, `schema` first, as it is written."""
        plain = dataclasses.asdict(self)
        for evaluation in plain["evaluations"].values():
            if not evaluation["signatures"]:
                del evaluation["signatures"]
        return {"schema": plain.pop("schema"), **plain}

    @staticmethod
    def from_dict(plain):
        """Builds and validates a record from parsed JSON; raises RecordError."""
        if not isinstance(plain, dict):
            raise RecordError(f"received {short(plain)}; wanted a JSON object")
        wanted("schema", plain.get("schema"), type(plain.get("schema")) is int, "a version number: is this a record?")
        newer = "an older program cannot read it: update" if plain["schema"] > VERSION else "run the experiment again"
        wanted("schema", plain["schema"], plain["schema"] == VERSION, f"{VERSION} ({newer})")
        return build(Record, plain, "")


@dataclass(frozen=True)
class Problem:
    """A file among the records that cannot be used, and why."""

    path: Path
    text: str

    def __str__(self):
        return f"{self.path}: {self.text}"


def path_of(record, records_dir=RECORDS):
    """Where a record belongs: `<records_dir>/<stem>/<scale>-seed<k>-<finish time in UTC>.json`."""
    name = f"{record.scale}-seed{record.seed}-{record.finish_time:%Y%m%dT%H%M%SZ}.json"
    return Path(records_dir) / record.stem / name


def write(record, path=None):
    """Writes a Record, or a dict of the same form, to `path` (default: where it belongs), whole or not at all.

    Returns the path. Raises RecordError if the record would not pass reading (a non-finite value, say), and OSError
    from the file system; in both cases what was there before is unchanged.
    """
    record = Record.from_dict(record if isinstance(record, dict) else record.to_dict())
    path = Path(path or path_of(record))
    path.parent.mkdir(parents=True, exist_ok=True)
    # Same folder, so that the rename stays on one file system; a hidden name, so that no reader takes it for a record.
    handle, temporary = tempfile.mkstemp(prefix=".record-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(record.to_dict(), file, indent=1, allow_nan=False, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp keeps it private; a record is there to be read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
    return path


def add(record, records_dir=RECORDS):
    """Puts a Record, or a dict of the same form, where it belongs below `records_dir`; returns the path.

    A record that is there already is left. Another one of the same name (two runs of one stem, scale and seed that
    end in the same second) keeps its name, and this one gets a number. Raises as `write` does.
    """
    record = Record.from_dict(record if isinstance(record, dict) else record.to_dict())
    home = path_of(record, records_dir)
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".record-", dir=home.parent) as folder:
        draft = write(record, Path(folder) / "draft")
        content = draft.read_bytes()
        for number in itertools.count(1):
            path = home if number == 1 else home.with_stem(f"{home.stem}-{number}")
            try:
                _appear(draft, path)
                break
            except FileExistsError:
                if path.read_bytes() == content:
                    break
    _sync_folder(home.parent)
    return path


def _appear(draft, path):
    """Gives a finished file its name, whole and at once; FileExistsError if the name is taken."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links; there, two processes in the same instant are not kept apart
        if path.exists():
            raise FileExistsError(path) from None
        os.replace(draft, path)


def read(path):
    """Reads and validates one record; raises RecordError or OSError."""
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as problem:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise RecordError(f"not readable as JSON: {problem}") from problem
    return Record.from_dict(plain)


def read_all(records_dir=RECORDS):
    """All usable records below `records_dir`, oldest first, and a Problem for each of the other files.

    One bad file never costs the good ones; a folder that is not there holds no records.
    """
    records, problems = [], []
    records_dir = Path(records_dir)
    for path in sorted(records_dir.rglob("*.json")):
        try:
            record = read(path)
            home = path.parent.relative_to(records_dir).as_posix()
            wanted("stem", record.stem, record.stem == home, f"{home!r}, as its folder says")
            records.append(record)
        except (RecordError, OSError) as problem:
            problems.append(Problem(path, str(problem)))
    records.sort(key=lambda record: (record.finish_time, record.stem, record.seed))
    return records, problems


def _refuse_constant(name):
    raise ValueError(f"{name} is not a finite number")


def _sync_folder(folder):
    """Makes the rename itself durable, where the system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass  # some network file systems refuse; the record itself has been synced
    finally:
        os.close(handle)

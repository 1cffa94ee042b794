"""From the name of a table row to one flat gin text, without importing JAX or TensorFlow.

A *stem* such as ``reformer/table2/lsh4`` names ``configs/reformer/table2/lsh4.gin``, always the paper's own setting.
Where the columns of a table are tasks, ``+task`` follows the row, as in ``memorizing/table4/ctx512+isabelle``, and adds
``configs/memorizing/isabelle.gin``, or ``configs/tasks/isabelle.gin`` where the paper has nothing of its own to say.
A *scale* such as ``cpu`` adds ``configs/scales/reformer/table2/cpu.gin`` after it, a named reduction. Bindings from the
command line come last. Later bindings win, as in gin; the result remembers which file each came from.

Only syntax is read here, with gin's own parser. What the names mean is checked by ``launch.config``.
"""

import dataclasses
import difflib
import functools
import hashlib
import re
import tokenize
from pathlib import Path

from launch.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs"
NOT_ROWS = ("tasks", "scales")  # folders of configs/ whose files are parts, not experiments
FULL_SCALE = "paper"
PLACES = ("DATA", "VOCABULARY")  # macros that say where files lie; what the files are is told by the data's fingerprint


def nearest(word, choices, what="did you mean"):
    """A short tail for an error message: the close spellings of ``word``, or a full stop."""
    lowered = {c.lower(): c for c in choices}
    close = difflib.get_close_matches(word.lower(), lowered, n=3, cutoff=0.5)
    return f"; {what} {' or '.join(repr(lowered[c]) for c in close)}?" if close else "."


@dataclasses.dataclass(frozen=True)
class Header:
    """The comment block at the top of a row file: a title and ``Key: value`` lines."""

    title: str
    fields: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Binding:
    """One gin assignment. ``value`` is gin text; ``origin`` says where it was written."""

    value: str
    origin: str


@dataclasses.dataclass(frozen=True)
class Composition:
    """Everything gin needs for one run, flat: ``bindings`` maps a gin key to its last value."""

    stem: str
    scale: str
    seed: int
    overrides: tuple[str, ...]
    bindings: dict[str, Binding]

    @functools.cached_property
    def text(self):
        """The whole config as gin text, one binding a line, in a fixed order (macros first)."""
        keys = sorted(self.bindings, key=lambda k: ("." in k, k))
        return "".join(f"{key} = {self.bindings[key].value}\n" for key in keys)

    @property
    def portable_text(self):
        """``text`` without the places of files, which mean nothing on another machine: what a record keeps."""
        return re.sub(rf"^({'|'.join(PLACES)}) = .*$", r"\1 = None", self.text, flags=re.MULTILINE)

    @property
    def changes(self):
        """The overrides that change what is run, as a tuple; where the data lies does not."""
        return tuple(line for line in self.overrides if line.split("=")[0].strip() not in PLACES)

    @property
    def run_name(self):
        """Folder of this run below the run directory; overrides get a tag so that runs never share a folder."""
        tag = ""
        if self.overrides:
            words = re.sub(r"[^A-Za-z0-9.]+", "-", " ".join(self.overrides)).strip("-")[:40]
            digest = hashlib.sha256("\n".join(self.overrides).encode()).hexdigest()[:6]
            tag = f"+{words}-{digest}"
        return f"{self.stem}/{self.scale}/seed{self.seed}{tag}"


def rows():
    """Row files, sorted: ``configs/<paper>/<table>/<row>.gin`` without the suffix."""
    found = (p.relative_to(CONFIGS).with_suffix("") for p in CONFIGS.glob("*/*/*.gin"))
    return sorted(p.as_posix() for p in found if p.parts[0] not in NOT_ROWS)


def stems():
    """All experiments: every row, or every ``row+task`` for the tasks that the row's header names."""
    columns = {row: re.findall(r"\w+", header(path_of(row)).fields.get("Tasks", "")) for row in rows()}
    return [stem for row, tasks in columns.items() for stem in ([f"{row}+{task}" for task in tasks] or [row])]


def select(name):
    """The stems meant by ``name``: one experiment, all those of a row, folder or column, or the path of a gin file.

    Raises:
      ConfigError: nothing has this name; the nearest names are in the message.
    """
    known = stems()
    plain = name.rstrip("/").removesuffix(".gin")
    plain, task = plain.partition("+")[::2]
    place = plain.removeprefix("configs/")
    if place in rows():
        plain = place
    below = [s for s in known if s == plain or s.startswith((plain + "/", plain + "+"))]
    if below and task:  # also a task that no table has a column for
        return [s for s in below if s.endswith(f"+{task}")] or [f"{row}+{task}" for row in rows() if row == plain]
    if below:
        return below
    if name.endswith(".gin") and Path(name).is_file():
        return [name]
    groups = sorted({s.rsplit("/", k)[0] for s in known for k in (1, 2)})
    raise ConfigError(f"no experiment is called {name!r}{nearest(plain, known + groups)} `repro list` shows them all")


def scales(stem):
    """The scales a stem can run at, ``paper`` first. A file from elsewhere includes what it wants reduced."""
    if stem.endswith(".gin"):
        return [FULL_SCALE]
    folder = CONFIGS / "scales" / Path(stem).parent
    return [FULL_SCALE, *sorted(p.stem for p in folder.glob("*.gin"))]


def path_of(stem):
    """The row file of a stem; a stem ending in ``.gin`` is a path already."""
    return Path(stem) if stem.endswith(".gin") else CONFIGS / f"{stem.partition('+')[0]}.gin"


def _column_of(stem):
    """The file that ``+task`` adds to a row, or None for a stem without."""
    row, _, task = stem.partition("+")
    if not task or stem.endswith(".gin"):
        return None
    own = CONFIGS / row.partition("/")[0] / f"{task}.gin"
    return own if own.exists() else CONFIGS / "tasks" / f"{task}.gin"


def header(path):
    """The leading comment block of a gin file, parsed."""
    lines = []
    for line in _text_of(path).splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    fields, last = {}, None
    for line in lines[1:]:
        match = re.match(r"([A-Z][A-Za-z ]*): +(.*)", line)
        if match:
            last = match[1]
            fields[last] = match[2]
        elif line and last:
            fields[last] += " " + line
        else:
            last = None
    return Header(title=lines[0] if lines else "", fields=fields)


def compose(stem, scale=FULL_SCALE, seed=None, overrides=()):
    """Reads the files of one run into a ``Composition``.

    Args:
      stem: a name from ``stems()``, or the path of a gin file.
      scale: ``paper`` or the name of a file in ``configs/scales/<paper>/<table>/``.
      seed: integer bound to the macro ``SEED``, over whatever the files say.
      overrides: gin assignments such as ``"STEPS = 200"``.

    Raises:
      ConfigError: unknown scale, missing file, or a line that is not gin.
    """
    bindings = {}
    _read_file(path_of(stem), bindings, ())
    if column := _column_of(stem):
        _read_file(column, bindings, ())
    if scale != FULL_SCALE:
        known = scales(stem)
        if scale not in known:
            raise ConfigError(f"{stem} has no scale {scale!r}; it has {', '.join(known)}")
        _read_file(CONFIGS / "scales" / Path(stem).parent / f"{scale}.gin", bindings, ())
    for line in overrides:
        _check_override(line, bindings)
        _read_text(line, "--set", bindings, ())
    if seed is not None:
        bindings["SEED"] = Binding(str(int(seed)), "--seed")
    if "SEED" not in bindings:
        raise ConfigError(f"{path_of(stem)} sets no SEED; include 'train.gin' or add SEED = 0")
    if stem.endswith(".gin"):  # a name as records allow it
        stem = "local/" + re.sub(r"[^a-z0-9_]", "_", Path(stem).stem.lower())
    if not re.fullmatch(r"\d+", bindings["SEED"].value):
        where, value = bindings["SEED"].origin, bindings["SEED"].value
        raise ConfigError(f"{where}: SEED is {value}; it must be a whole number of at least 0, such as SEED = 3")
    seed = int(bindings["SEED"].value)
    return Composition(stem, scale, seed, tuple(overrides), bindings)


def _check_override(line, bindings):
    """A macro set on the command line must be one that the files know: a typo would otherwise change nothing."""
    key = line.split("=")[0].strip()
    if "=" not in line:
        raise ConfigError(f"--set got {line!r}; it wants a gin assignment such as 'STEPS = 200'")
    macros = [k for k in bindings if "." not in k]
    if re.fullmatch(r"\w+", key) and key not in macros:
        raise ConfigError(f"--set {line!r}: no macro is called {key!r}{nearest(key, macros)}")


def _read_file(path, bindings, parents):
    path = Path(path)
    if path in parents:
        raise ConfigError(f"{_short(path)} includes itself, through {' -> '.join(_short(p) for p in parents)}")
    try:
        text = _text_of(path)
    except OSError as error:
        folder = path.parent if path.parent.is_dir() else CONFIGS
        names = [p.name for p in folder.glob("*.gin")]
        hint = nearest(path.name, names)
        asked = f", included by {_short(parents[-1])}" if parents else ""
        raise ConfigError(f"cannot read {_short(path)}{asked}: {error.strerror}{hint}") from None
    _read_text(text, _short(path), bindings, (*parents, path))


def _text_of(path):
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{_short(path)} is not text: byte {error.start} is no UTF-8; is it a gin file?") from None


def _same(key, bindings):
    """The key in ``bindings`` that sets what ``key`` sets: gin names may be shortened from the left, and of two
    spellings in one text the later line would win, wherever they came from. ``key`` itself if there is none."""
    scope, _, name = key.rpartition("/")
    spelt = {other: other.removeprefix(f"{scope}/") for other in bindings if other.rpartition("/")[0] == scope}
    same = [o for o, s in spelt.items() if "." in s and (f".{s}".endswith(f".{name}") or f".{name}".endswith(f".{s}"))]
    return same[0] if "." in name and len(same) == 1 else key  # of several, gin's door asks for the longer name


def _read_text(text, origin, bindings, parents):
    # gin's import alone costs 50 ms, so commands that compose nothing do not pay for it.
    from gin import config_parser

    parser = config_parser.ConfigParser(text, _Verbatim())
    try:
        for statement in parser:
            if isinstance(statement, config_parser.IncludeStatement):
                _read_file(CONFIGS / statement.filename, bindings, parents)
            elif isinstance(statement, config_parser.BindingStatement):
                key = statement.selector
                key += f".{statement.arg_name}" if statement.arg_name else ""
                key = f"{statement.scope}/{key}" if statement.scope else key
                before = _same(key, bindings)
                bindings.pop(before, None)
                place = f"{origin}:{statement.location.line_num}"
                bindings[max(key, before, key=len)] = Binding(repr(statement.value), place)
            elif isinstance(statement, config_parser.ImportStatement):
                raise ConfigError(f"{origin}:{statement.location.line_num}: 'import' is not used here; {_OPEN_NAMES}")
    except tokenize.TokenError as error:
        line, last = error.args[1][0], text.strip().splitlines()[-1]
        raise ConfigError(f"{origin}:{line}: not gin: a bracket or a string is never closed: {last}") from None
    except SyntaxError as error:
        raise ConfigError(f"{origin}:{error.lineno}: not gin: {error.msg}: {(error.text or text).strip()}") from None


_OPEN_NAMES = "gin reaches only what launch/config.py registers"


def _short(path):
    path = Path(path)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


class _Text:
    """A value whose repr is the gin text it was read from."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


class _Verbatim:
    """Keeps references and macros as text; the meaning is looked up later, by gin itself."""

    def configurable_reference(self, scoped_configurable_name, evaluate):
        return _Text(f"@{scoped_configurable_name}{'()' if evaluate else ''}")

    def macro(self, macro_name):
        return _Text(f"%{macro_name}")

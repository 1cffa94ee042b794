"""gin's one door: the only place where names in gin files meet Python objects.

Gin builds configs, tasks, optimisers and evaluations, and nothing inside them: a binding on a Flax module is lost
without a word under ``nn.remat`` and its kin, and a binding on anything that Python code calls has no effect.
"""

import ast
import inspect
import re
import sys
import types
import typing
from collections.abc import Sequence

import gin

import memorizing
import reformer
import tasks
from launch import optimizers
from launch.composition import nearest
from launch.errors import ConfigError
from launch.experiment import Evaluation, Experiment, Translation
from launch.sharding import Sharding

_DOOR = {
    "": (Experiment, Evaluation, Translation, Sharding),
    "reformer": (reformer.Model, reformer.Seq2Seq, reformer.Full, reformer.Local, reformer.LSH),
    "memorizing": (memorizing.Model, memorizing.Search),
    "tasks": (
        tasks.duplication,
        tasks.copyreverse,
        tasks.enwik8,
        tasks.imagenet64,
        tasks.wmt14,
        tasks.arxiv,
        tasks.pg19,
        tasks.c4_4k,
        tasks.github,
        tasks.isabelle,
        tasks.definitions,
    ),
    "optimizers": (
        optimizers.Adam,
        optimizers.Adafactor,
        optimizers.WarmupDecay,
        optimizers.Multifactor,
        optimizers.Cosine,
    ),
}
NAMES = {}  # gin name -> the Python object, for messages and `--help`
for _module, _objects in _DOOR.items():
    for _object in _objects:
        _name = f"{_module}.{_object.__name__}" if _module else _object.__name__
        gin.external_configurable(_object, name=_object.__name__, module=_module or None)
        NAMES[_name] = _object


def build(composition):
    """The ``Experiment`` that a composition describes.

    Raises:
      ConfigError: an unknown name, an unknown or missing parameter, an unset macro, or a value that a config refuses;
        the message names the file and line.
    """
    experiment = _build(composition, "Experiment")
    if not experiment.evaluations:
        place = (
            composition.bindings["EVALUATIONS"].origin if "EVALUATIONS" in composition.bindings else composition.stem
        )
        raise ConfigError(
            f"{place}: Experiment.evaluations is {{}}, so nothing would be measured; it wants names and evaluations, "
            "such as {'test': @Evaluation()}"
        )
    return experiment


def build_task(composition):
    """The task alone, which a composition binds to TASK as ``@tasks.name()``. Raises ``ConfigError`` as ``build``."""
    return _build(composition, composition.bindings["TASK"].value.strip("@()"))


def _build(composition, name):
    _check_names(composition)
    gin.clear_config()
    try:
        gin.parse_config(composition.text)
        return gin.get_configurable(name)()
    except tasks.DataError:
        raise
    except (ValueError, TypeError, SyntaxError) as error:
        raise ConfigError(f"{composition.stem}: {_first_line(error)}{_where(error, composition)}") from error


def operative():
    """The gin text of what the last ``build`` used, enough to build it again."""
    return gin.operative_config_str(max_line_length=120)


def _check_names(composition):
    """Every binding must reach something, and every macro that is asked for must be set."""
    macros = {key for key in composition.bindings if "." not in key}
    asked = {}
    for key, binding in composition.bindings.items():
        code = re.sub(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", "''", binding.value)
        for macro in re.findall(r"%(\w[\w.]*)", code):
            asked.setdefault(macro, binding.origin)
        for name in re.findall(r"@([\w./]+)", code):
            _find(name.rsplit("/", 1)[-1], binding.origin)
        if "." in key:
            selector, parameter = key.rsplit("/", 1)[-1].rsplit(".", 1)
            target = _find(selector, binding.origin)
            known = list(inspect.signature(target).parameters)
            if parameter not in known:
                raise ConfigError(
                    f"{binding.origin}: {selector} has no parameter {parameter!r}{nearest(parameter, known)} "
                    f"It has {', '.join(known)}"
                )
    _check_scopes(composition.bindings)
    for macro, origin in asked.items():
        if macro not in macros:
            raise ConfigError(
                f"{origin} needs the macro {macro}, which nothing sets{nearest(macro, macros)} "
                f"Set it in a gin file, or with --set '{macro} = ...'"
            )
    for key in composition.bindings:
        _check_type(key, composition.bindings)


_BUILT = object()  # stands for what gin will build; no such thing is a plain value


def _check_type(key, bindings):
    """A value must be of the type that its parameter has: gin hands over any, and 'no' would count as True."""
    if "." not in key:
        return
    selector, parameter = key.rsplit("/", 1)[-1].rsplit(".", 1)
    wanted = inspect.signature(_find(selector, bindings[key].origin)).parameters[parameter].annotation
    name, passed = key, set()
    while (value := bindings[name].value).startswith("%") and value[1:] in bindings and value not in passed:
        passed.add(value)
        name = value[1:]
    try:
        given = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        if value[0] in "([{":  # what is in it may be anything
            return
        given = _BUILT
    if not _fits(given, wanted):
        kind = inspect.formatannotation(wanted).replace("collections.abc.", "")
        of = f", which is {selector}.{parameter}," if name != key else ""
        raise ConfigError(f"{bindings[name].origin}: {name}{of} is {value}; its type is {kind}")


def _fits(value, kind):
    """Whether a plain value is of a type; of other types this cannot be said: their objects look at what they get."""
    if kind in (bool, str):
        return isinstance(value, kind)
    if kind in (int, float):
        return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(kind))
    if (typing.get_origin(kind) or kind) in (tuple, list, Sequence):
        item = (typing.get_args(kind) or (typing.Any,))[0]
        return isinstance(value, list | tuple) and all(_fits(one, item) for one in value)
    return value is None if kind in (None, types.NoneType) else True


def _check_scopes(bindings):
    """Says which scopes keep their own value of what the command line sets for all others: gin says nothing."""
    for key, binding in bindings.items():
        if binding.origin.startswith("--set") and "." in key and "/" not in key:
            scopes = [other.rsplit("/", 1)[0] for other in bindings if other.endswith("/" + key)]
            if scopes:
                print(
                    f"note: {key} has a value of its own in {', '.join(scopes)}; to change it there write "
                    f"--set '{scopes[0]}/{key} = {binding.value}'",
                    file=sys.stderr,
                )


def _find(selector, origin):
    """The registered object a (possibly shortened) gin name means."""
    matches = [name for name in NAMES if name == selector or name.endswith("." + selector)]
    if len(matches) == 1:
        return NAMES[matches[0]]
    if matches:
        raise ConfigError(f"{origin}: {selector!r} could be {' or '.join(matches)}; write the longer name")
    raise ConfigError(f"{origin}: nothing is called {selector!r}{nearest(selector, NAMES)} Known: {', '.join(NAMES)}")


def _first_line(error):
    # Gin appends its own call trail to messages; the first line is the one written for a reader.
    return str(error).strip().splitlines()[0]


def _where(error, composition):
    """File and line of the parameters that the message names, of what gin was building, if its trail tells."""
    trail = re.findall(r"In call to configurable '(\w+)'[^\n]*?(?:in scope '([\w/]+)')?\n?", str(error))
    if not trail:
        return ""
    name, scope = trail[0]
    words = set(re.findall(r"\w+", _first_line(error)))
    lines = [
        f"{binding.origin} ({key})"
        for key, binding in composition.bindings.items()
        if re.fullmatch(rf"(?:{re.escape(scope)}/)?(?:\w+\.)?{name}\.\w+", key) and key.rsplit(".", 1)[-1] in words
    ]
    return f"  [{name}: {', '.join(lines)}]" if lines else f"  [{name}]"

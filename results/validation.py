"""Validation of plain JSON against dataclasses: every field is there, known, and of the type its annotation says."""

import dataclasses
from datetime import UTC, datetime
from difflib import get_close_matches


class RecordError(ValueError):
    """A record that cannot be used; the message names the field, what stood there, and what is wanted."""


def build(kind, plain, where):
    """Turns the dict `plain` into the dataclass `kind`; `where` is the path of field names that leads to it.

    Annotations may be int, float, str, bool, dataclasses, and list or dict of these. A dataclass's own `check(where)`
    is called last. Raises RecordError.
    """
    fields = {item.name: item for item in dataclasses.fields(kind)}
    for name in plain:
        if name not in fields:
            near = get_close_matches(name, fields, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise RecordError(f"field {where + str(name)!r}: no such field{hint}")
    values = {}
    for name, item in fields.items():
        if name not in plain:
            if item.metadata.get("optional"):  # its default says that there is none
                continue
            raise RecordError(f"field {where + name!r}: missing")
        values[name] = _convert(item.type, plain[name], where + name)
    built = kind(**values)
    if hasattr(built, "check"):
        built.check(where)
    return built


def _convert(kind, value, where):
    if dataclasses.is_dataclass(kind):
        wanted(where, value, isinstance(value, dict), "an object")
        return build(kind, value, where + ".")
    origin = getattr(kind, "__origin__", None)
    if origin is list:
        wanted(where, value, isinstance(value, list), "a list")
        return [_convert(kind.__args__[0], item, f"{where}[{place}]") for place, item in enumerate(value)]
    if origin is dict:
        wanted(where, value, isinstance(value, dict), "an object")
        wanted(where, value, all(isinstance(key, str) and key for key in value), "names as keys")
        return {key: _convert(kind.__args__[1], item, f"{where}.{key}") for key, item in value.items()}
    if kind is float:
        # bool is an int to Python, never a measurement.
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        wanted(where, value, number and _finite(value), "a finite number below 1e100")
        # Counts and steps stay integers, so that a record reads back as it was written.
        return value if isinstance(value, int) else float(value)
    if kind is int:
        # Bounded, so that no later arithmetic or formatting can overflow.
        wanted(where, value, type(value) is int and abs(value) < 2**63, "a whole number below 2^63")
        return value
    wanted(where, value, type(value) is kind, {str: "text", bool: "true or false"}[kind])
    return value


def wanted(where, received, holds, what):
    """Raises RecordError, saying what was received and what is wanted, unless `holds`."""
    if not holds:
        raise RecordError(f"field {where!r}: received {short(received)}; wanted {what}")


def short(value):
    """A value as it is quoted in a message: never longer than a line."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _finite(value):
    # Far below the largest float, so that sums and squares of accepted numbers are finite too. NaN compares false.
    return abs(value) < 1e100


def point_in_time(where, text):
    """An ISO time with its offset as a datetime in UTC."""
    try:
        time = datetime.fromisoformat(text)
        utc = time.astimezone(UTC) if time.tzinfo else None
    except (ValueError, OverflowError):  # the edge of year 1 or 9999
        utc = None
    wanted(where, text, utc is not None, "an ISO time with its offset, such as '2026-01-31T09:00:00+00:00'")
    return utc

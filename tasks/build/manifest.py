"""What a build says about itself, and whether what lies there is still that.

manifest.json     counts, licences, rules, options, what was left out and why, checksums of all the other files
documents.jsonl   a line for each document: name, split, bytes, tokens, checksum, licence, where it is from
inputs.jsonl      a line for each unit that was read: name, size
"""

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from tasks.build import records
from tasks.build.parts import Entry, whole
from tasks.build.plan import Plan
from tasks.build.source import Notes, Unit
from tasks.task import DataError

FORMAT = 1
MANIFEST, DOCUMENTS, INPUTS = "manifest.json", "documents.jsonl", "inputs.jsonl"
# What is read of a manifest, whoever wrote it: keys, or `str` for any, and types; a list has one element's.
COUNTS = {"documents": int, "bytes": int}
SHAPE = {
    "corpus": str,
    "outputs": {str: {"bytes": int, "sha256": str}},
    "notes": [{"what": str, "reason": str, "count": int}],
}
OF_DOCUMENTS = {
    "features": {"text": str, "name": str},
    "vocabulary": str | None,
    "splits": {str: {**COUNTS, "tokens": int | None, "files": [str]}},
    "licences": {str: COUNTS},
    "alike": {"documents": int},
}
LINE = {"split": str, "name": str, "bytes": int, "tokens": int | None, "sha256": str, "licence": str}
DECISIVE = ("numpy", "apache-beam")  # packages whose versions may decide bytes


def counts(plan: Plan, counted: bool) -> dict[str, dict[str, int | None]]:
    """Documents, bytes of text, and tokens (None if these were not counted) of each split."""
    return {
        split: {
            "documents": len(members),
            "bytes": sum(entry.bytes for _, entry in members),
            "tokens": sum(entry.tokens or 0 for _, entry in members) if counted else None,
        }
        for split, members in plan.splits.items()
    }


def licences(plan: Plan) -> dict[str, dict[str, int]]:
    """Documents and bytes by licence; '' stands for those of which the source says nothing."""
    found: dict[str, Counter[str]] = {}
    for members in plan.splits.values():
        for _, entry in members:
            found.setdefault(entry.licence, Counter()).update(documents=1, bytes=entry.bytes)
    return {licence: dict(found[licence]) for licence in sorted(found)}


def told(notes: Notes) -> list[dict[str, Any]]:
    return [{"what": what, "reason": reason, "count": count} for (what, reason), count in sorted(notes.items())]


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in DECISIVE:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return found


def write_documents(plan: Plan, folder: Path) -> None:
    with whole(folder / DOCUMENTS) as out:
        for split, members in plan.splits.items():
            for _, entry in members:
                out.write(_line({"split": split, **_facts(entry), "with": plan.first.get(entry.name, "")}))


def _facts(entry: Entry) -> dict[str, Any]:
    names = ("name", "bytes", "tokens", "sha256", "licence", "source", "group", "parts")
    return {name: getattr(entry, name) for name in names}


def write_inputs(units: list[Unit], folder: Path) -> None:
    with whole(folder / INPUTS) as out:
        for unit in units:
            out.write(_line({"name": unit.name, "size": unit.size}))


def write(facts: dict[str, Any], folder: Path) -> None:
    """The manifest of everything that lies in a folder."""
    outputs = {path.name: checksum(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST}
    with whole(folder / MANIFEST) as out:
        text = json.dumps({"format": FORMAT, **facts, "outputs": outputs}, indent=1, ensure_ascii=False)
        out.write((text + "\n").encode())


def checksum(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def find(place: str | Path) -> Path:
    """The folder of the one manifest at or below a place. DataError if there is none, or several."""
    top = Path(place).expanduser()
    if not top.is_dir():
        raise DataError(f"no directory at {place}")
    patterns = [f"{'*/' * depth}{MANIFEST}" for depth in range(3)]
    found = sorted(path.parent for pattern in patterns for path in top.glob(pattern) if not _hidden(path, top))
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{place} holds several corpora; name one: {', '.join(map(str, found))}")
    unfinished = any(top.glob(".*.part")) or any(top.glob("*/.*.part"))
    hint = "an unfinished build; the same `repro data build` command continues it" if unfinished else "no corpus"
    raise DataError(f"{place} holds {hint}: there is no {MANIFEST}")


def _hidden(path: Path, top: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(top).parts)


def load(folder: Path) -> dict[str, Any]:
    """The manifest of a folder. DataError if there is none that can be used."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{folder / MANIFEST} cannot be read ({error}); build the corpus again") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{folder / MANIFEST} is of another format than {FORMAT}; build the corpus again")
    if wrong := _misfit(manifest, {**SHAPE, **(OF_DOCUMENTS if "features" in manifest else {})}):
        raise DataError(f"{folder / MANIFEST} is damaged: {wrong}; build the corpus again")
    return manifest


def listed(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of documents.jsonl."""
    with (folder / DOCUMENTS).open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                held = json.loads(line)
            except (ValueError, RecursionError):
                held = None
            if _misfit(held, LINE):
                raise DataError(
                    f"{folder / DOCUMENTS} is damaged: line {number} is no document; build the corpus again"
                )
            yield held


def _misfit(value: Any, shape: Any, name: str = "it") -> str:
    """What does not have the shape that it should have; '' if all does."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{name} is no object"
        if str in shape:
            shape = dict.fromkeys(value, shape[str])
        found = (_misfit(value[key], one, key) if key in value else f"{key} is missing" for key, one in shape.items())
        return next(filter(None, found), "")
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{name} is no list"
        return next(filter(None, (_misfit(one, shape[0], f"an entry of {name}") for one in value)), "")
    return "" if isinstance(value, shape) else f"{name} is {json.dumps(value)[:40]}"


def documents(folder: Path, manifest: dict[str, Any], split: str) -> Iterator[dict[str, str]]:
    """The documents of a split as they stand in its record files: text, name, licence, source."""
    names = {feature: name for name, feature in manifest["features"].items()}
    for file in manifest["splits"][split]["files"]:
        with (folder / file).open("rb") as stream:
            try:
                for data in records.read(stream):
                    held = records.features(data)
                    yield {names.get(feature, feature): value.decode() for feature, value in held.items()}
            except records.DamagedRecord as error:
                raise DataError(f"{folder / file} {error}; build the corpus again") from None


def _line(values: dict[str, Any]) -> bytes:
    # Names of units that are no UTF-8 hold half surrogates, which JSON can only escape.
    return (json.dumps(values, ensure_ascii=False) + "\n").encode(errors="backslashreplace")

"""Data that are no documents: checked, brought into the layout that their task reads, and described by a manifest.

Nothing here is cut into shards: the files are few, they are copied once, and the task that reads them knows best what
makes them right.
"""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.build import drafts, folders, manifest
from tasks.build.flow import FAULTS, TooFar
from tasks.build.source import Notes
from tasks.task import DataError

Published = Mapping[str, tuple[int, str]]  # name of a file -> its bytes and SHA-256


class Draft:
    """A folder that is being filled.

    notes    what was left out
    inputs   what is known of each file that was checked
    reading  the file that is being read, for people
    """

    def __init__(self, name: str, folder: Path):
        self.name, self.folder = name, folder
        self.notes: Notes = Counter()
        self.inputs: list[dict[str, Any]] = []
        self.reading = "an input"

    def check(self, file: Path, published: Published, sample: bool) -> None:
        """Notes a file's size and SHA-256, which must be the published ones if those are known, but for a sample's."""
        self.reading = file.name
        found = manifest.checksum(file)
        wanted = published.get(file.name)
        known = "unknown" if wanted is None else "equal" if wanted == (found["bytes"], found["sha256"]) else "different"
        if wanted is not None and known == "different" and not sample:
            raise DataError(
                f"{self.name}: {file} has {found['bytes']:,} bytes, SHA-256 {found['sha256'][:16]}...; published are "
                f"{wanted[0]:,} and {wanted[1][:16]}.... Fetch it again, or take it as a sample with --sample"
            )
        self.inputs.append({"name": file.name, **found, "published": known})

    def beside(self, place: Path, read: Iterable[Path]) -> None:
        """Notes the files of a source that are not read, if it is a folder."""
        known = {*map(os.fspath, read)}
        for _, file in folders.files(os.fspath(place), self.notes, links=True) if place.is_dir() else ():
            if file not in known and self.folder not in Path(file).resolve().parents:
                self.notes["files", "beside those that are read"] += 1

    def write(self, name: str, parts: Iterable[bytes]) -> Path:
        """A file of these bytes."""
        path = self._new(name)
        with path.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        return path

    def link(self, name: str, file: Path) -> Path:
        """A file that is there already: a second name for it, or a copy where that cannot be."""
        path = self._new(name)
        try:
            os.link(file.resolve(), path)
        except OSError:
            shutil.copyfile(file, path)
        return path

    def _new(self, name: str) -> Path:
        path = self.folder / name
        if "/" in name or path.exists():
            raise DataError(f"{self.name}: two files called {name}; rename one, or move it out of the source")
        return path


def lay_out(
    name: str, inputs: Sequence[Path], out: str | Path, options: dict[str, Any], fill: Callable[[Draft], None]
) -> Path:
    """The folder <out>/<name>, filled by `fill` and described by a manifest; it appears when it is whole.

    The same inputs and options find it done. DataError for another build in its place, and for damaged inputs.
    """
    final = Path(out).expanduser().resolve() / name
    listed = sorted((file.name, file.stat().st_size) for file in inputs)
    identity = hashlib.sha256(json.dumps([manifest.FORMAT, name, options, listed]).encode()).hexdigest()
    with drafts.draft(final) as folder:
        try:
            if not drafts.standing(final, identity, inputs):
                for left in folder.iterdir():  # by a build that was killed
                    left.unlink()
                _fill(Draft(name, folder), fill, identity, options)
                folder.rename(final)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return final


def _fill(draft: Draft, fill: Callable[[Draft], None], identity: str, options: dict[str, Any]) -> None:
    name, folder = draft.name, draft.folder
    try:
        fill(draft)
    except DataError as error:  # which may tell of the draft, where nobody can look
        told = str(error).replace(f"{folder}/", "").replace(str(folder), "the source")
        raise DataError(told if told.startswith(name) else f"{name}: {told}") from None
    except TooFar:
        raise DataError(f"{name}: {draft.reading} expands beyond all bounds; fetch it again") from None
    except FAULTS as error:
        raise DataError(f"{name}: {draft.reading} is damaged or cannot be read ({error}); fetch it again") from error
    facts = {"notes": manifest.told(draft.notes), "options": options, "inputs": draft.inputs}
    manifest.write({"identity": identity, "corpus": name, **facts, "versions": manifest.versions()}, folder)

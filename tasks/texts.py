"""The documents of a corpus, from wherever they lie: folders of files, C4's JSON shards, TFDS.

Each place is an object with two methods, so that another kind is added by writing one and naming it in `find_texts`:

    files()                   every file whose contents matter
    documents(split, notes)   (name, text) of each document, in a fixed order, one at a time

Whatever cannot be used is left out and counted in `notes`, a Counter of (what, reason): files with NUL bytes, documents
that are not JSON. What makes the rest doubtful as well, such as an archive that breaks off, is a DataError.
"""

import gzip
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tasks.prepared import prepared
from tasks.task import SPLITS, DataError

Notes = Counter[tuple[str, str]]
Part = tuple[str, str]  # path inside its document, text


@dataclass(frozen=True)
class Layout:
    """How a corpus is laid out.

    suffixes  endings of the files that are its text
    arrange   the order of a document's files, which come by path, those of a folder before its sub-folders
    inside    a folder between the split's and the documents, if it is there
    dataset   TFDS's name, and the feature that holds the text
    shards    beginning of the names of JSON shards, where the corpus comes in such
    splits    those that it has
    """

    suffixes: tuple[str, ...]
    arrange: Callable[[list[Part]], list[Part]] = list
    inside: str = ""
    dataset: tuple[str, str] | None = None
    shards: str = ""
    splits: tuple[str, ...] = SPLITS


class Texts(Protocol):
    def files(self) -> list[Path]: ...

    def documents(self, split: str, notes: Notes) -> Iterator[tuple[str, str]]: ...


def find_texts(path: str, name: str, layout: Layout) -> Texts:
    """What lies at `path`. DataError with one line if it is nothing that corpus `name` can be read from."""
    place, splits = Path(path).expanduser(), layout.splits
    if not place.exists():
        raise DataError(f"{name}: no directory at {path}")
    if not place.is_dir():
        raise DataError(f"{name}: {path} is a file; give the directory that holds the corpus")
    if layout.shards and (shards := sorted(place.glob(f"{layout.shards}-*.json*"))):
        return Shards(layout, tuple(shards), name)
    missing = [split for split in splits if not (place / split).is_dir()]
    if not missing:
        return Folders(layout, place)
    if len(missing) < len(splits):
        raise DataError(f"{name}: {place} lacks {', '.join(f'{one}/' for one in missing)}: {_wanted(layout)}")
    datasets = prepared(place, layout.dataset[0]) if layout.dataset else []
    if layout.dataset and len(datasets) == 1:
        return Prepared(datasets[0], layout.dataset[1], name)
    if datasets:
        raise DataError(f"{name}: {place} holds several TFDS datasets; name one: {', '.join(map(str, datasets))}")
    hint = f"; it is itself called {place.name}: did you mean {place.parent}?" if place.name in splits else ""
    raise DataError(f"{name}: nothing to read in {place}: {_wanted(layout)}{hint}")


def _wanted(layout: Layout) -> str:
    folders = ", ".join(f"{split}/" for split in layout.splits)
    ways = [f"{folders} with documents (folders of {', '.join(layout.suffixes)} files, such files, or .jsonl)"]
    if layout.shards:
        ways.append(f"files {layout.shards}-<split>.NNNNN-of-NNNNN.json.gz")
    if layout.dataset:
        ways.append(f"a prepared TFDS dataset called {layout.dataset[0]}")
    return "wanted are " + ", or ".join(ways)


@dataclass(frozen=True)
class Folders:
    """<split>/<document>: a folder of files, one file, or a .jsonl(.gz) of {"path", "text"} lines, one a file."""

    layout: Layout
    place: Path

    def files(self) -> list[Path]:
        return [
            Path(folder) / file
            for split in self.layout.splits
            for folder, _, files in os.walk(self.place / split)
            for file in files
        ]

    def documents(self, split: str, notes: Notes) -> Iterator[tuple[str, str]]:
        folder = self.place / split
        if self.layout.inside and (folder / self.layout.inside).is_dir():
            folder /= self.layout.inside
        for entry in sorted(folder.iterdir()):
            if entry.name.startswith(".") or not (entry.is_dir() or entry.is_file()):
                continue
            if entry.is_dir():
                parts = self._folder(entry, notes)
            elif entry.name.endswith((".jsonl", ".jsonl.gz")):
                parts = project_files(entry, notes, lambda name: name.endswith(self.layout.suffixes))
            elif entry.name.endswith(self.layout.suffixes):
                parts = _file(entry, entry.name, notes)
            else:
                continue
            yield entry.name, joined(self.layout.arrange(list(parts)))

    def _folder(self, top: Path, notes: Notes) -> Iterator[Part]:
        for folder, folders, files in os.walk(top):
            folders.sort()
            for file in sorted(files):
                path = Path(folder) / file
                if file.endswith(self.layout.suffixes) and path.is_file():
                    yield from _file(path, path.relative_to(top).as_posix(), notes)


@dataclass(frozen=True)
class Shards:
    """C4's own form: <name>-<split>.NNNNN-of-NNNNN.json.gz, a JSON object with 'text' and 'url' on each line."""

    layout: Layout
    shards: tuple[Path, ...]
    name: str

    def files(self) -> list[Path]:
        return list(self.shards)

    def documents(self, split: str, notes: Notes) -> Iterator[tuple[str, str]]:
        shards = [path for path in self.shards if path.name.startswith(f"{self.layout.shards}-{split}.")]
        if not shards:
            raise DataError(f"{self.name}: no {self.layout.shards}-{split}.*.json.gz in {self.shards[0].parent}")
        self._complete(split, shards)
        for path in shards:
            if not path.stat().st_size:
                raise DataError(f"{self.name}: {path} is empty (0 bytes); fetch it again")
            for number, item in json_lines(path, "documents", notes):
                url = item.get("url")
                yield (url if isinstance(url, str) and url else f"{path.name}:{number}"), item["text"]

    def _complete(self, split: str, shards: list[Path]) -> None:
        wanted = {int(found[1]) for path in shards if (found := re.search(r"-of-(\d+)\.json", path.name))}
        if wanted and wanted != {len(shards)}:
            raise DataError(
                f"{self.name}: {len(shards)} {split} shards in {shards[0].parent}, but their names say "
                f"{' and '.join(map(str, sorted(wanted)))}; fetch the missing ones, or rename those of a sample"
            )


@dataclass(frozen=True)
class Prepared:
    """A TFDS version directory."""

    place: Path
    feature: str
    name: str

    def files(self) -> list[Path]:
        return [path for path in self.place.iterdir() if path.is_file()]

    def documents(self, split: str, notes: Notes) -> Iterator[tuple[str, str]]:
        from tasks.registry import library

        _, tf = library()  # TensorFlow is about to start: quietly, and off the accelerators
        import tensorflow_datasets as tfds

        builder = tfds.builder_from_directory(self.place)
        for kind, held, wanted in (
            ("feature", builder.info.features, self.feature),
            ("split", builder.info.splits, split),
        ):
            if wanted not in held:
                raise DataError(
                    f"{self.name}: the TFDS dataset in {self.place} has no {kind} {wanted!r} ({list(held)})"
                )
        title = next((key for key in ("book_title", "url", "name") if key in builder.info.features), None)
        try:
            examples = tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False))
            for number, example in enumerate(examples):
                name = example[title].decode(errors="replace") if title else str(number)
                for _, text in _decoded(example[self.feature], name, "documents", notes):
                    yield name, text
        except tf.errors.OpError as error:
            reason = type(error).__name__.removesuffix("Error")
            raise DataError(f"{self.name}: record files of {split} in {self.place} are damaged ({reason}); build or "
                            "prepare it again") from None  # fmt: skip


def project_files(path: Path, notes: Notes, wanted: Callable[[str], bool]) -> Iterator[Part]:
    """The wanted files of a project that is a .jsonl(.gz) of {"path", "text"} lines."""
    seen = set()

    def is_wanted(item: dict) -> bool:
        return not isinstance(item.get("path"), str) or wanted(item["path"])

    for _, item in json_lines(path, "files", notes, is_wanted):
        name, text = item.get("path"), item["text"]
        if not isinstance(name, str) or not name:
            notes["files", "without a path"] += 1
        elif name.startswith("/") or ".." in name.split("/"):
            notes["files", "outside the project"] += 1
        elif name in seen:
            notes["files", "under a path seen before"] += 1
        elif text:
            seen.add(name)
            yield name, text


def json_lines(
    path: Path, what: str, notes: Notes, wanted: Callable[[dict], bool] = lambda item: True, key: str = "text"
) -> Iterator[tuple[int, dict]]:
    """(line number, object) of each line that holds a wanted object with a usable text under `key`, cleaned as 'text'.

    Lines end at LF only: Unicode has other line ends, and texts contain them.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            yield from json_objects(lines, what, notes, wanted, key)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}); fetch it again") from None


def json_objects(
    lines: Iterable[bytes],
    what: str,
    notes: Notes,
    wanted: Callable[[dict], bool] = lambda item: True,
    key: str = "text",
) -> Iterator[tuple[int, dict]]:
    """`json_lines` of lines that are at hand."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            notes[what, "blank"] += 1
            continue
        try:
            item = json.loads(line.decode("utf-8-sig"))
        except UnicodeDecodeError:
            notes[what, "not UTF-8"] += 1
            continue
        except (ValueError, RecursionError):
            notes[what, "not JSON"] += 1
            continue
        if isinstance(item, dict) and not wanted(item):
            continue
        if not isinstance(item, dict) or not isinstance(item.get(key), str):
            notes[what, "without text"] += 1
        elif reason := flaw(item[key]):
            notes[what, reason] += 1
        else:
            yield number, {**item, "text": clean(item[key])}


def _file(path: Path, name: str, notes: Notes) -> Iterator[Part]:
    yield from _decoded(path.read_bytes(), name, "files", notes)


def _decoded(data: bytes, name: str, what: str, notes: Notes) -> Iterator[Part]:
    """(name, text) of bytes in UTF-8, in UTF-16 with its mark, or else in Latin-1; nothing if they are no text."""
    try:
        utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        notes[what, "read as Latin-1"] += 1
    if reason := flaw(text):
        notes[what, reason] += 1
    elif text:
        yield name, clean(text)


def flaw(text: str) -> str | None:
    """Why a string is no text, if it is none."""
    if "\0" in text:
        return "with NUL bytes"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "with half a surrogate pair"
    return None


def clean(text: str) -> str:
    """Line ends as LF, whatever they were."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def joined(parts: list[Part]) -> str:
    """One text of a document's files; each begins on a line of its own."""
    ended = [text if text.endswith("\n") else text + "\n" for _, text in parts[:-1]]
    return "".join([*ended, *(text for _, text in parts[-1:])])

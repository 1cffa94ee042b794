"""PG-19: books published before 1919, from its published layout or as TFDS prepared it.

    train/, validation/, test/     a .txt for each book, called by its number at Project Gutenberg
    metadata.csv                   number, short title, year, address; need not be there
    pg19/<version>/                of TFDS

Each book is one document and stays in its split. The texts are taken as they were published, which is without Project
Gutenberg's notices. PG-19 has 28,602 books to train, 50 to validate and 100 to test; other numbers are taken only as a
sample, and then folders of .txt files will do that are not split.
"""

import csv
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tasks.build import folders, tfds
from tasks.build.flow import MEBI
from tasks.build.source import Document, Notes, Unit, option
from tasks.build.text import decode
from tasks.corpora import BOOKS
from tasks.task import SPLITS, DataError

METADATA = "metadata.csv"
BOOK = 64 * MEBI  # bytes of one; the longest of PG-19 has some 20
LICENCE = "LicenseRef-public-domain-US"
ORIGIN = "PG-19 is in the public bucket deepmind-gutenberg of Google Cloud Storage, or TFDS's pg19"


@dataclass(frozen=True)
class PG19:
    """Books."""

    sample: bool = option(False, f"take other numbers of books than {', '.join(f'{n:,}' for n in BOOKS.values())}")

    name: ClassVar[str] = "pg19"

    def units(self, path: str, notes: Notes) -> list[Unit]:
        """One for each book, or for each of TFDS's record files."""
        top = Path(path).expanduser()
        if not top.is_dir():
            raise DataError(f"pg19: no directory at {path}. {ORIGIN}")
        splits = [split for split in SPLITS if (top / split).is_dir()]
        if not splits and (found := tfds.units(top, "pg19", self.name)):
            return found  # whose numbers of books TFDS has checked
        if splits and len(splits) < len(SPLITS):
            raise DataError(f"pg19: {path} has only {', '.join(splits)} of {', '.join(SPLITS)}; fetch the others")
        for entry in folders.entries(top, notes) if splits else ():
            if entry.name not in (*splits, METADATA):
                notes["entries", f"beside {', '.join(splits)}"] += 1
        found = [unit for split in splits or [""] for unit in _books(top / split, split, notes)]
        counts = {split: sum(unit.name.startswith(f"{split}/") for unit in found) for split in SPLITS}
        if not found or (counts != BOOKS and not self.sample):
            held, wanted = (" / ".join(f"{count:,}" for count in one.values()) for one in (counts, BOOKS))
            raise DataError(
                f"pg19: {path} has {held} books (train / validation / test) where PG-19 has {wanted}. {ORIGIN}; with "
                "--sample, fewer will do"
            )
        return sorted(found)

    def read(self, unit: Unit, notes: Notes) -> Iterator[Document]:
        split = next((part for part in unit.name.split("/")[:-1] if part in SPLITS), "")
        if tfds.is_unit(unit):
            for example in tfds.examples(unit, notes):
                if text := decode(example.get("book_text", b""), notes, "books"):
                    link = example.get("book_link", b"").decode("utf-8", "replace")
                    title = example.get("book_title", b"").decode("utf-8", "replace")
                    yield Document(f"{split}/{link.rsplit('/', 1)[-1] or title}", text, LICENCE, link, split=split)
            return
        data = folders.content(unit.place, notes, BOOK)
        if data is not None and (text := decode(data, notes, "books")):
            name = unit.name.removesuffix(".txt")
            place = Path(unit.place)
            addresses = _addresses(place.parent.parent / METADATA) if split else {}
            yield Document(name, text, LICENCE, addresses.get(place.stem, unit.name), split=split)


def _books(top: Path, split: str, notes: Notes) -> Iterator[Unit]:
    for name, place in folders.files(str(top), notes, links=True):
        if name.endswith(".txt"):
            yield Unit(f"{split}/{name}" if split else name, place, folders.size(place))
        else:
            notes["files", "beside the books"] += 1


@functools.lru_cache(maxsize=4)
def _addresses(file: Path) -> dict[str, str]:
    """Book's number -> address, of the rows that have both; of none if there is no such file."""
    try:
        with file.open(encoding="utf-8", errors="replace", newline="") as rows:
            return {row[0]: row[3] for row in csv.reader(rows) if len(row) == 4}
    except (OSError, csv.Error):
        return {}

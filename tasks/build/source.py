"""What a corpus is built from: units to open, documents read from them, and notes of everything left out.

A reader of a corpus is a `Source`: a frozen dataclass whose fields are its options, so that it travels to workers as it
is and the manifest can say how it was set. It finds units (a file, an archive, a folder) on the machine that starts
the build, and reads each of them on whichever worker gets it. The pipeline (`tasks.build.pipeline`) does the rest: near
duplicates, splits, records, manifest.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

# (what, reason) -> how many: everything left out or doubtful, as in `tasks.texts`: ("files", "with NUL bytes"),
# ("documents", "no licence found"). Reasons that begin with "read as" or "kept" tell of what stayed.
Notes = Counter[tuple[str, str]]


@dataclass(frozen=True, order=True)
class Unit:
    """Something that a worker opens: a file, an archive, a folder.

    name   its identity: the path from the source's root on, with '/', whatever machine it lies on; units sort by it
    place  what to open
    size   bytes, roughly, by which units are spread over shards; 0 if that is not known cheaply
    """

    name: str
    place: str
    size: int = 0


@dataclass(frozen=True)
class Document:
    """One document of a corpus.

    name     stable and distinct in the corpus; alphabetical order is the order of ties
    text     not empty; lines end with LF; can be encoded as UTF-8
    licence  SPDX identifier, or '' where the source does not say
    source   where it is from, for people: a path from the source's root on, an arXiv identifier, an address
    group    documents of one group never straddle a split, whatever their texts; '' for none
    parts    files that it was made of
    split    the split that the publisher put it in, which is kept; '' where ours has to be made
    """

    name: str
    text: str
    licence: str = ""
    source: str = ""
    group: str = ""
    parts: int = 1
    split: str = ""


def option(default: Any, help: str) -> Any:
    """A field of a source that `repro data build` offers as an option of the same name, with `help` as its line."""
    return field(default=default, metadata={"help": help})


class Source(Protocol):
    """A reader of one corpus. A frozen dataclass of plain values, which are its options (see `option`).

    Options that are paths are named in `files`, a class variable that may be missing.
    """

    name: ClassVar[str]  # of the corpus, which is its task's: 'arxiv', 'github', ...

    def units(self, path: str, notes: Notes) -> list[Unit]:
        """What lies at `path`, sorted by name. Opens no more than it must; what is no unit is noted.

        DataError with one line if there is nothing at `path` that the corpus can be built from.
        """
        ...

    def read(self, unit: Unit, notes: Notes) -> Iterator[Document]:
        """The documents of a unit, one at a time; memory is bounded by the largest one.

        Never fails for what it finds in the unit: that is noted instead. Same unit, same documents, same order.
        """
        ...

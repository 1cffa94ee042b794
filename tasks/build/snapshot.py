"""arXiv's metadata as it is published: one JSON object a line, with a paper's id, categories and licence."""

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.build.source import Notes
from tasks.task import DataError

# What an address holds -> SPDX identifier; the licence that lets only arXiv distribute a paper has none of its own.
LICENCES = {
    "licenses/nonexclusive-distrib": "LicenseRef-arXiv-nonexclusive",
    "licenses/assumed-1991-2003": "LicenseRef-arXiv-assumed",
    "publicdomain/zero/1.0": "CC0-1.0",
    "licenses/publicdomain": "LicenseRef-public-domain",
    "licenses/by/3.0": "CC-BY-3.0",
    "licenses/by/4.0": "CC-BY-4.0",
    "licenses/by-sa/4.0": "CC-BY-SA-4.0",
    "licenses/by-nc-sa/3.0": "CC-BY-NC-SA-3.0",
    "licenses/by-nc-sa/4.0": "CC-BY-NC-SA-4.0",
    "licenses/by-nc-nd/4.0": "CC-BY-NC-ND-4.0",
}


@dataclass(frozen=True)
class Snapshot:
    """What is known of the papers of the wanted categories.

    licences  id -> SPDX identifier, or '' where the snapshot names none that is known here
    notes     lines that name a wanted category, and cannot be used
    """

    licences: Mapping[str, str]
    notes: Notes


@functools.lru_cache(maxsize=1)
def snapshot(path: str, categories: tuple[str, ...], primary: bool) -> Snapshot:
    """The papers of which a category is wanted: one of `categories`, or in an archive that stands there, such as math.

    primary  only the first category of a paper counts
    Only those papers are held, about 100 bytes each; reading the whole of arXiv takes a minute, once in each process.
    """
    notes: Notes = Counter()
    licences: dict[str, str] = {}
    marks = tuple(one.encode() for one in categories)
    try:
        with Path(path).expanduser().open("rb") as lines:
            for line in lines:
                if any(mark in line for mark in marks):  # most lines need not be parsed
                    licences.update(_line(line, categories, primary, notes))
    except OSError as error:
        raise DataError(f"arxiv: cannot read the metadata {path}: {error.strerror or error}") from None
    if not licences:
        raise DataError(
            f"arxiv: {path} names no paper of {', '.join(categories)}; wanted is arXiv's metadata snapshot, one JSON "
            "object a line with 'id', 'categories' and 'license'"
        )
    return Snapshot(licences, notes)


def _line(line: bytes, categories: tuple[str, ...], primary: bool, notes: Notes) -> Iterator[tuple[str, str]]:
    """(id, licence) of a wanted paper, or nothing."""
    try:
        paper = json.loads(line)
        name, labels = paper["id"], paper["categories"].split()[: 1 if primary else None]
        licence = paper.get("license") or ""
        if not (isinstance(name, str) and isinstance(licence, str)):
            raise TypeError
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        notes["metadata lines", "not usable"] += 1
        return
    if any(label == one or label.startswith(f"{one}.") for label in labels for one in categories):
        yield name, next((spdx for part, spdx in LICENCES.items() if part in licence), "")

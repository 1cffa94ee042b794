"""Which document goes into which split, and which is left out: decided between the two passes, from facts alone.

    1. Of several documents of one name the first stays.
    2. Documents of equal text, of one group, or of near the same words belong together.
    3. Those that belong together go into one split, which a hash of the first name among them decides: no document's
       place depends on where it stood, or on what else was added, as long as nothing joins its company.
    4. Of equal texts, the one whose name comes first stays.

Documents whose publisher has split them stay where they are, equal or not. Others that belong with them join them, the
first by name if they are in several splits, and go if they are equal to one.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tasks.build.duplicates import RULE, clusters
from tasks.build.parts import Entry
from tasks.build.source import Notes
from tasks.task import SPLITS, DataError

SCALE = 2**64


@dataclass(frozen=True)
class Splitting:
    """How documents are split that their publisher has not.

    validation, test  share of the documents' hashes that each gets, training having the rest
    similar           similarity of words from which on two documents are near duplicates; above 1 for none
    """

    validation: float = 0.05
    test: float = 0.05
    similar: float = 0.7

    def __post_init__(self):
        if not (self.validation >= 0 and self.test >= 0 and self.validation + self.test < 1):
            raise DataError(
                f"shares of validation and test must be 0 or more and leave something for training, got "
                f"{self.validation} and {self.test}"
            )
        if not self.similar > 0:
            raise DataError(f"similarity of near duplicates must be above 0, got {self.similar}")

    def rule(self) -> dict[str, object]:
        """For the manifest: enough to do it again."""
        return {
            "hash": "u = first 8 bytes of SHA-256 of the first name (in code point order) among those that belong "
            "together, as a big-endian fraction of 2**64",
            "test": f"u < {self.test}",
            "validation": f"{self.test} <= u < {self.test + self.validation}",
            "train": "the rest",
            "empty": "a split with a share that nothing fell to gets what has the smallest u in train",
            "together": "equal texts, one group, or near duplicates",
            "near": f"estimated Jaccard similarity of at least {self.similar}: {RULE}",
            "published": "splits of the publisher are kept, duplicates or not; what belongs with one goes there",
        }

    def split(self, name: str) -> str:
        share = place(name)
        return "test" if share < self.test else "validation" if share < self.test + self.validation else "train"


@dataclass(frozen=True)
class Plan:
    """splits  the documents of each as (number of the part, entry), in the order of the parts
    first   document that stays -> the first one that it belongs with, where that is another
    notes   what was left out
    """

    splits: dict[str, list[tuple[int, Entry]]]
    first: dict[str, str]
    notes: Notes


def place(name: str) -> float:
    """A name's place in [0, 1)."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / SCALE


def plan(parts: list[list[Entry]], splitting: Splitting) -> Plan:
    """Decides about the documents of all parts."""
    notes: Notes = Counter()
    splits: dict[str, list[tuple[int, Entry]]] = {split: [] for split in SPLITS}
    seen, ours = set(), []
    for number, part in enumerate(parts):
        for entry in part:
            if entry.split not in ("", *SPLITS):
                raise DataError(f"{entry.name}: split {entry.split!r} is none of {', '.join(SPLITS)}")
            if entry.name in seen:
                notes["documents", "under a name seen before"] += 1
            elif entry.split:
                splits[entry.split].append((number, entry))
            else:
                ours.append((number, entry))
            seen.add(entry.name)
    ours.sort(key=lambda one: one[1].name)
    published = [entry for members in splits.values() for _, entry in members] if ours else []
    everyone = sorted([*published, *(entry for _, entry in ours)], key=lambda entry: entry.name)
    firsts = dict(zip((entry.name for entry in everyone), _firsts(everyone, splitting.similar), strict=True))
    bound: dict[str, str] = {}  # company -> split of those in it that are published
    for entry in everyone:
        if entry.split:
            bound.setdefault(firsts[entry.name], entry.split)
    chosen = _chosen([firsts[entry.name] for _, entry in ours], splitting, bound)
    texts, others = {entry.sha256 for entry in published}, {}
    for number, entry in ours:
        if entry.sha256 in texts:
            notes["documents", "equal to another"] += 1
            continue
        texts.add(entry.sha256)
        splits[chosen[firsts[entry.name]]].append((number, entry))
        if entry.name != firsts[entry.name]:
            others[entry.name] = firsts[entry.name]
    for members in splits.values():
        members.sort(key=lambda one: (one[0], one[1].offset))
    return Plan(splits, others, notes)


def _firsts(entries: list[Entry], similar: float) -> list[str]:
    """For each document, which come by name, the name of the first one that it belongs with."""
    if not entries:
        return []
    keys = [[entry.sha256, *([f"group {entry.group}"] if entry.group else [])] for entry in entries]
    signatures = np.stack([entry.numbers() for entry in entries])
    return [entries[number].name for number in clusters(signatures, keys, similar)]


def _chosen(firsts: list[str], splitting: Splitting, bound: dict[str, str]) -> dict[str, str]:
    """The split of each company of documents: the one that it is bound to, or by its first name."""
    chosen = {first: bound.get(first) or splitting.split(first) for first in firsts}
    for split, share in (("test", splitting.test), ("validation", splitting.validation)):
        train = sorted((name for name in chosen if chosen[name] == "train" and name not in bound), key=place)
        if share and split not in (*chosen.values(), *bound.values()) and len(train) > 1:
            chosen[train[0]] = split
    return chosen

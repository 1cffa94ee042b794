"""Whether a built corpus is still what its manifest says."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks.build import licences, manifest
from tasks.task import DataError


def faults(folder: Path) -> Iterator[str]:
    """What is wrong, a line each; nothing if all is right.

    Every file has its size and checksum; every record is read, and is the document that documents.jsonl lists in its
    place, with that checksum and licence; the counts of splits and licences are those of the documents; and no licence
    of a corpus that takes permissive ones only is another.
    """
    held = manifest.load(folder)
    wrong = list(_files(folder, held))
    yield from wrong
    if wrong or "features" not in held:  # data that are no documents
        return
    try:
        yield from _documents(folder, held)
    except DataError as error:
        yield str(error)


def _files(folder: Path, held: dict[str, Any]) -> Iterator[str]:
    for name, wanted in held["outputs"].items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif path.stat().st_size != wanted["bytes"]:
            yield f"{name} has {path.stat().st_size:,} bytes, the manifest says {wanted['bytes']:,}"
        elif manifest.checksum(path)["sha256"] != wanted["sha256"]:
            yield f"{name} has another checksum than the manifest says"
    known = {*held["outputs"], manifest.MANIFEST}
    for path in sorted(folder.iterdir()):
        if path.name not in known:
            yield f"{path.name} is not in the manifest"


def _documents(folder: Path, held: dict[str, Any]) -> Iterator[str]:
    told = dict.fromkeys(("documents", "bytes", *(("tokens",) if held["vocabulary"] else ())), 0)
    counted: dict[str, Counter[str]] = {split: Counter(told) for split in held["splits"]}
    said: dict[str, Counter[str]] = {}
    listed = manifest.listed(folder)
    for split in held["splits"]:
        for document in manifest.documents(folder, held, split):
            line = next(listed, {})
            data = document["text"].encode()
            name = document["name"]
            if (line.get("split"), line.get("name")) != (split, name):
                yield f"{name} of {split} is not where {manifest.DOCUMENTS} lists it"
                return
            if line["sha256"] != hashlib.sha256(data).hexdigest():
                yield f"{name} has another text than {manifest.DOCUMENTS} says"
            if line["licence"] != document["licence"]:
                yield f"{name} has licence {document['licence']!r}, {manifest.DOCUMENTS} says {line['licence']!r}"
            if held["corpus"] == "github" and not licences.permissive(document["licence"].split(" AND ")):
                yield f"{name} has licence {document['licence']!r}, which is not permissive"
            counted[split].update({"documents": 1, "bytes": len(data), "tokens": line["tokens"] or 0})
            said.setdefault(document["licence"], Counter()).update(documents=1, bytes=len(data))
    if rest := next(listed, None):
        yield f"{rest['name']} is listed in {manifest.DOCUMENTS} and not there"
    for split, counts in counted.items():
        for what in told:
            if held["splits"][split][what] != counts[what]:
                yield f"{split} has {counts[what]:,} {what}, the manifest says {held['splits'][split][what]}"
    if {name: dict(counts) for name, counts in said.items()} != held["licences"]:
        yield "the licences are not those of the manifest"

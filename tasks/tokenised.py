"""Tokenised corpora on disk: made once, mapped into memory ever after.

One folder holds one corpus under one vocabulary; its name is a checksum of what decides its contents (the files' paths,
sizes and times, the vocabulary, the filter). It is written under another name and renamed when it is complete, so it is
there whole or not at all. For each split:

    <split>.ids     the tokens of all documents, one after the other, uint16 or int32
    <split>.bounds  int64 [documents + 1], where each document begins and the last one ends
    <split>.names   JSON list of the documents' names

and facts.json: counts, checksums of the texts, and what was left out and why.
"""

import contextlib
import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.codecs import Codec
from tasks.task import DataError
from tasks.texts import Notes, Texts

FORMAT = 1
CACHE = Path(__file__).parent.parent / ".cache"


@dataclass(frozen=True, eq=False)
class Tokens:
    """One split: ids uint16 or int32 [t] of all documents, bounds int64 [n + 1], and its facts (see `tokenise`)."""

    ids: np.ndarray
    bounds: np.ndarray
    facts: dict[str, Any]
    folder: Path
    split: str

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """int64 [n], in tokens."""
        return np.diff(self.bounds)

    @property
    def names(self) -> list[str]:
        return json.loads((self.folder / f"{self.split}.names").read_text())


def cache_folder() -> Path:
    """Where tokenised corpora are kept: below REPRO_CACHE, or .cache in the checkout."""
    return Path(os.environ.get("REPRO_CACHE", CACHE)).expanduser() / "documents"


def open_tokens(texts: Texts, splits: tuple[str, ...], codec: Codec, least: int, name: str) -> dict[str, Tokens]:
    """The tokens of each split, from the cache, or made now if it has not got them.

    Documents under `least` tokens are left out; least is 1 or more, so empty ones always are. DataError for texts that
    cannot be read, a split without a usable document, and a cache that cannot be written.
    """
    try:
        stamps = sorted((str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in texts.files())
        decisive = [FORMAT, type(texts).__name__, name, stamps, splits, codec.name, least]
        key = hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:32]
        folder = cache_folder() / key
        if not _whole(folder, splits):
            with _draft(folder) as draft:
                facts = {split: tokenise(texts, split, codec, least, name, draft) for split in splits}
                (draft / "facts.json").write_text(json.dumps(facts))
        return _map(folder, splits)
    except OSError as error:
        raise DataError(
            f"{name}: {error.filename or 'data'}: {error.strerror or error}. Tokens are kept in {cache_folder()}; set "
            "REPRO_CACHE to another folder if it is that one"
        ) from None


def tokenise(texts: Texts, split: str, codec: Codec, least: int, name: str, folder: Path) -> dict[str, Any]:
    """Writes one split's files into `folder`; only one document is in memory at a time.

    Returns its facts: documents, tokens, bytes (of text as UTF-8), unknown (tokens), type (of the ids), sha256 (of the
    texts), notes.
    """
    notes: Notes = Counter()
    kind = "<u2" if codec.size <= 2**16 else "<i4"
    names, bounds = [], [0]
    size = unknown = 0
    digest = hashlib.sha256()
    with (folder / f"{split}.ids").open("wb") as out:
        for document, text in texts.documents(split, notes):
            ids = codec.encode(text) if text.strip() else np.zeros(0, np.int32)
            if len(ids) < least:
                notes["documents", f"under {least} tokens" if len(ids) else "empty"] += 1
                continue
            if int(ids.min()) < 0 or int(ids.max()) >= codec.size:
                raise DataError(f"{name}: {document}: ids {ids.min()} to {ids.max()}, the vocabulary has {codec.size}")
            data = text.encode()
            digest.update(len(data).to_bytes(8, "little") + data)
            out.write(ids.astype(kind).tobytes())
            names.append(document)
            bounds.append(bounds[-1] + len(ids))
            size += len(data)
            unknown += 0 if codec.unknown is None else int(np.count_nonzero(ids == codec.unknown))
    if not names:
        raise DataError(f"{name}: no document to use in {split}" + (f" ({told(notes)})" if notes else ""))
    np.array(bounds, "<i8").tofile(folder / f"{split}.bounds")
    (folder / f"{split}.names").write_text(json.dumps(names))
    counts = {"documents": len(names), "tokens": bounds[-1], "bytes": size, "unknown": unknown, "type": kind}
    plain = [[what, reason, count] for (what, reason), count in sorted(notes.items())]
    return {**counts, "sha256": digest.hexdigest(), "notes": plain}


def told(notes: Notes) -> str:
    """One line of counts by (what, reason): '1 document empty, 2 files not UTF-8 left out; 5 files read as Latin-1'."""
    kept = {key: count for key, count in notes.items() if key[1].startswith(("read as", "kept"))}
    lost = {key: count for key, count in notes.items() if key not in kept}

    def line(some: dict[tuple[str, str], int]) -> str:
        return ", ".join(f"{n} {what if n > 1 else _one(what)} {reason}" for (what, reason), n in sorted(some.items()))

    return "; ".join(part for part in (line(lost) + " left out" * bool(lost), line(kept)) if part)


def _one(what: str) -> str:
    return f"{what[:-3]}y" if what.endswith("ies") else what[:-1]


@contextlib.contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `folder` if nothing fails, and vanishes otherwise."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{folder.name}.draft-", dir=folder.parent))
    try:
        yield draft
        for file in draft.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        with contextlib.suppress(OSError):  # another process was faster, and wrote the same
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _whole(folder: Path, splits: tuple[str, ...]) -> bool:
    """Whether the cache has this corpus; a damaged one is removed, so that it can be made again."""
    if not folder.is_dir():
        return False
    try:
        facts = json.loads((folder / "facts.json").read_text())
        sizes = {
            split: (facts[split]["tokens"] * int(facts[split]["type"][2:]), facts[split]["documents"] * 8 + 8)
            for split in splits
        }
        found = {
            split: tuple((folder / f"{split}.{end}").stat().st_size for end in ("ids", "bounds")) for split in splits
        }
        if sizes == found:
            return True
    except (OSError, ValueError, KeyError, TypeError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    return False


def _map(folder: Path, splits: tuple[str, ...]) -> dict[str, Tokens]:
    facts = json.loads((folder / "facts.json").read_text())
    return {
        split: Tokens(
            np.memmap(folder / f"{split}.ids", facts[split]["type"], "r"),
            np.fromfile(folder / f"{split}.bounds", "<i8"),
            facts[split],
            folder,
            split,
        )
        for split in splits
    }

"""C4(4K+): web pages of at least 4096 tokens, from C4's published files or as TFDS prepared it.

    c4-train.NNNNN-of-NNNNN.json.gz, c4-validation...     an object with text, url, timestamp on each line
    c4/en/<version>/                                      of TFDS

Pages stay in their split; C4 holds out one, which the task also tests on. Length is counted in the vocabulary that is
given: a filter by another vocabulary, or by characters, gives another corpus. Other .json(.gz) files of such lines are
taken as a sample.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tasks.build import folders, tfds
from tasks.build.lines import lines
from tasks.build.source import Document, Notes, Unit, option
from tasks.build.text import decode
from tasks.codecs import Codec, codec
from tasks.task import DataError, check_integer
from tasks.texts import json_objects

ENDINGS = (".json", ".json.gz", ".jsonl", ".jsonl.gz")
ORIGIN = "C4 is the data set allenai/c4 (folder en), or TFDS's c4/en"

_SHARD = re.compile(r"(?:.*/)?c4-(train|validation)\.(\d{5})-of-(\d{5})\.json(?:\.gz)?")


@dataclass(frozen=True)
class C4:
    """Long web pages."""

    vocabulary: str | None = option(None, "'bytes', which None stands for, or a SentencePiece model")
    least: int = option(4096, "tokens that a page must have")
    sample: bool = option(False, "take some of C4's files, or other files of such lines")

    name: ClassVar[str] = "c4_4k"

    def __post_init__(self):
        check_integer("c4_4k: least", self.least, least=1)

    def units(self, path: str, notes: Notes) -> list[Unit]:
        """One for each file."""
        top = Path(path).expanduser()
        if not top.is_dir():
            raise DataError(f"c4_4k: no directory at {path}. {ORIGIN}")
        _codec(self.vocabulary)  # a wrong one should be told now
        every = list(folders.files(str(top), notes, links=True))
        found = [(name, place) for name, place in every if name.endswith(ENDINGS)]
        shards = [(name, place) for name, place in found if _SHARD.fullmatch(name)]
        if not shards and (prepared := tfds.units(top, "c4", self.name)):
            return prepared
        if not self.sample:
            _check_complete(path, [name for name, _ in shards])
        if beside := len(every) - len(shards or found):
            notes["files", "beside C4's own" if shards else "beside the pages"] += beside
        if not found:
            raise DataError(f"c4_4k: {path} holds no {', '.join(ENDINGS)} file. {ORIGIN}")
        return sorted(Unit(name, place, folders.size(place)) for name, place in shards or found)

    def read(self, unit: Unit, notes: Notes) -> Iterator[Document]:
        words = _codec(self.vocabulary)
        shard = _SHARD.fullmatch(unit.name)
        split = unit.name.rsplit("/", 2)[-2] if tfds.is_unit(unit) else shard[1] if shard else ""
        for number, text, address in _pages(unit, notes):
            tokens = len(words.encode(text)) if text.strip() else 0
            if tokens < self.least:
                notes["documents", f"under {self.least} tokens" if tokens else "empty"] += 1
            else:
                yield Document(f"{unit.name}:{number}", text, "ODC-By-1.0", address, split=split)


def _pages(unit: Unit, notes: Notes) -> Iterator[tuple[int, str, str]]:
    """(number in its file, text, address) of each page that is one."""
    if tfds.is_unit(unit):
        for number, example in enumerate(tfds.examples(unit, notes), 1):
            if text := decode(example.get("text", b""), notes, "documents", otherwise=None):
                yield number, text, example.get("url", b"").decode("utf-8", "replace")
    else:
        for number, page in json_objects(lines(unit.place, notes, "documents"), "documents", notes):
            address = page.get("url")
            yield number, page["text"], address if isinstance(address, str) else ""


def _check_complete(path: str, shards: list[str]) -> None:
    """DataError unless both splits have all the files that their names count."""
    for split in ("train", "validation"):
        found = [one for name in shards if (one := _SHARD.fullmatch(name)) and one[1] == split]
        wanted = {int(one[3]) for one in found}
        if wanted != {len({one[2] for one in found})}:
            raise DataError(
                f"c4_4k: {path} has {len(found)} {split} files where their names say "
                f"{' and '.join(map(str, sorted(wanted))) or 'nothing'}. {ORIGIN}; with --sample, some will do"
            )


@functools.lru_cache(maxsize=2)
def _codec(vocabulary: str | None) -> Codec:
    return codec(vocabulary or "bytes")

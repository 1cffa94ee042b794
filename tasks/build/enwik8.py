"""enwik8 from its zip, checked byte by byte, as the three parts of its customary split.

    repro data build enwik8 --source enwik8.zip --out data      ->  data/enwik8/{train,valid,test}.txt

No login is needed: the zip is at mattmahoney.net/dc/enwik8.zip. `tasks.bytefiles` says what else the source may be.
"""

from pathlib import Path
from typing import Any

from tasks.build.flow import CHUNK
from tasks.build.laidout import Draft, lay_out
from tasks.bytefiles import PART_FILES, files_of
from tasks.enwik8 import enwik8

OPTIONS = {"sample": "take other bytes than enwik8's"}


def build(source: str, out: str, sample: bool = False) -> Path:
    """Returns the folder. DataError for other bytes than enwik8's, unless they are taken as a sample."""
    # The task reads and checks whatever lies there.
    corpus: Any = enwik8(source, length=2, sample=sample).source
    files = files_of(source, "enwik8")

    def fill(draft: Draft) -> None:
        for file in files:
            draft.check(file, {}, sample)
        draft.beside(Path(source).expanduser(), files)
        for name, part in zip(PART_FILES, corpus.corpus.parts, strict=True):
            draft.write(name, (part[at : at + CHUNK].tobytes() for at in range(0, len(part), CHUNK)))

    return lay_out("enwik8", files, out, {"sample": sample}, fill)

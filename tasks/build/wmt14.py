"""WMT 2014, English to German, from the archives of the Workshop on Machine Translation: the texts that the task reads.

    training-parallel-europarl-v7.tgz       statmt.org/wmt13
    training-parallel-commoncrawl.tgz       statmt.org/wmt13
    training-parallel-nc-v13.tgz            data.statmt.org/wmt18/translation-task
    dev.tgz                                 data.statmt.org/wmt19/translation-task: newstest2013 and newstest2014-deen

No login is needed. Texts are copied as they are. As a sample, line-aligned files <stem>.en and <stem>.de, perhaps
gzipped, will do, below the source in whatever folders: pairs of files that do not fit are then left out and noted.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tasks.build import folders
from tasks.build.archives import members, pieces
from tasks.build.flow import CHUNK, MEBI, Limit
from tasks.build.laidout import Draft, lay_out
from tasks.spans import of_lines
from tasks.task import DataError
from tasks.tokenised import told
from tasks.wmt14 import LANGUAGES, TRAIN, wmt14

# As TensorFlow Datasets records them.
PUBLISHED = {
    "training-parallel-europarl-v7.tgz": (
        657_632_379,
        "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    "training-parallel-commoncrawl.tgz": (
        918_311_367,
        "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    "training-parallel-nc-v13.tgz": (113_157_482, "17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91"),
    "dev.tgz": (38_654_961, "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7"),
}
LIMIT = Limit(member=2048 * MEBI)
ORIGIN = "fetch them from statmt.org (`repro data build wmt14 --help` says where)"

_TEXTS = re.compile(
    rf"(?:{'|'.join(map(re.escape, TRAIN))})\.(?:en|de)|"
    r"newstest2013(?:\.(?:en|de)|-src\.en\.sgm|-ref\.de\.sgm)|newstest2014-deen-(?:src\.en|ref\.de)\.sgm"
)
OPTIONS = {"sample": "take other texts than the published ones"}


def build(source: str, out: str, sample: bool = False) -> Path:
    """Returns the folder. DataError for other files than the published ones, unless they are taken as a sample."""
    place = Path(source).expanduser()
    if not place.is_dir():
        raise DataError(f"wmt14: no directory at {source}; it must hold {', '.join(PUBLISHED)}: {ORIGIN}")
    archives = [place / name for name in PUBLISHED if (place / name).is_file()]
    if len(archives) < len(PUBLISHED) and not sample:
        missing = [name for name in PUBLISHED if not (place / name).is_file()]
        raise DataError(
            f"wmt14: {source} lacks {', '.join(missing)}: {ORIGIN}; with --sample, line-aligned files will do"
        )
    texts = [] if archives else _texts(place)
    if not archives and not texts:
        raise DataError(f"wmt14: nothing in {source} that can be read; wanted are {', '.join(PUBLISHED)}: {ORIGIN}")

    def fill(draft: Draft) -> None:
        for file in [*archives, *texts]:
            draft.check(file, PUBLISHED, sample)
        draft.beside(place, [*archives, *texts])
        for file in archives:
            _unpack(file, draft)
        for file in texts:
            _copy(file, draft)
        if texts:
            _drop_unfit(draft)
        else:
            wmt14(str(draft.folder), sample=sample)  # its own checks

    return lay_out("wmt14", [*archives, *texts], out, {"sample": sample}, fill)


def _unpack(file: Path, draft: Draft) -> None:
    draft.reading = file.name
    for name, parts in pieces(file, draft.notes, LIMIT):
        if _TEXTS.fullmatch(inner := name.rsplit("/", 1)[-1]):
            draft.write(inner, parts)
        else:
            draft.notes["files", "that the task does not read"] += 1


def _texts(place: Path) -> list[Path]:
    """Files of sentences, one language each, below a folder."""
    endings = tuple(f".{language}{packed}" for language in LANGUAGES for packed in ("", ".gz"))
    return sorted(
        Path(file) for name, file in folders.files(str(place), Counter(), links=True) if name.endswith(endings)
    )


def _copy(file: Path, draft: Draft) -> None:
    draft.reading = file.name
    if file.suffix == ".gz":
        for name, data in members(file, draft.notes, LIMIT):
            draft.write(name, [data])
    else:
        with file.open("rb") as text:
            draft.write(file.name, iter(lambda: text.read(CHUNK), b""))


def _drop_unfit(draft: Draft) -> None:
    """Removes pairs of files that are none, and notes them."""
    for stem in sorted({file.name.rsplit(".", 1)[0] for file in draft.folder.iterdir()}):
        pair = [draft.folder / f"{stem}.{language}" for language in LANGUAGES]
        if fault := _fault(pair):
            draft.notes["file pairs", fault] += 1
            for file in pair:
                file.unlink(missing_ok=True)
    if not any(draft.folder.iterdir()):
        raise DataError(f"wmt14: not one pair of files can be used: {told(draft.notes)}")


def _fault(pair: Sequence[Path]) -> str:
    """Why two files are not sentences of two languages, line by line; '' if they are."""
    if not all(file.is_file() for file in pair):
        return "without the other language"
    if not all(file.stat().st_size for file in pair):
        return "empty"
    for file in pair:
        with file.open("rb") as text:
            if any(b"\0" in part for part in iter(lambda text=text: text.read(CHUNK), b"")):  # type: ignore[misc]
                return "with NUL bytes"
    try:
        source, target = map(of_lines, pair)
    except DataError:  # what it says about a file that has bytes
        return "not UTF-8"
    return "" if len(source) == len(target) else "of different lengths"

"""imagenet64 from its archives, so laid out that pictures are read by mapping files.

    train_64x64.tar, valid_64x64.tar       PNGs (arXiv 1601.06759), what figures are comparable on: kept as they are
    Imagenet64_train_part{1,2}_npz.zip,    arrays of another down-sampling (arXiv 1707.08819), a sample to us: each is
    Imagenet64_val_npz.zip                 stored without compression; the single .npz files will do as well

The archives are at image-net.org, and a login is needed: register there, accept the terms, and fetch them from
'Download', 'Downsampled image data'. This command fetches nothing.
"""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tasks.build.archives import pieces
from tasks.build.flow import MEBI, Limit
from tasks.build.laidout import Draft, lay_out
from tasks.imagenet64 import imagenet64
from tasks.images import open_array, png_fault
from tasks.spans import of_tar
from tasks.task import DataError

# As TensorFlow Datasets records them.
PUBLISHED = {
    "train_64x64.tar": (12_112_588_800, "e2a2c1947a748d0d256e98e6d82800d855441dc9e4de2e71a773f1324c4524d7"),
    "valid_64x64.tar": (477_255_680, "eeac03ec4f585baf871d2b4cb9c974bfe345e74878a74e5820fe6eb1041629cd"),
    "Imagenet64_train_part1_npz.zip": (
        6_783_426_789,
        "9422dc1dc5d092e9814a70a1cb7fc74880d2db5d88a0cb8a34ee363b12bde3f1",
    ),
    "Imagenet64_train_part2_npz.zip": (
        6_780_506_068,
        "9fafc115afb7e6c301e66dc16b2d737152b427bd5dab26e1293487a6819c7f30",
    ),
    "Imagenet64_val_npz.zip": (529_522_927, "e1e75133158a1924135a9c6f97a80d2d237b158945e0b34074e58e6c8430eeb8"),
}
LIMIT = Limit(member=4096 * MEBI, total=1 << 50)
ORIGIN = "log in at image-net.org and fetch 'Downsampled image data'; wanted are train_64x64.tar and valid_64x64.tar"

_ARRAY = re.compile(r"(?:train|valid)_64x64\.npz|train_data_batch_\d+\.npz|val_data\.npz")
OPTIONS = {"sample": "take other pictures than the published ones"}


def build(source: str, out: str, sample: bool = False) -> Path:
    """Returns the folder. DataError for other files than the published ones, unless they are taken as a sample."""
    place = Path(source).expanduser()
    if not place.is_dir():
        raise DataError(f"imagenet64: no directory at {source}; {ORIGIN}")
    files = sorted(file for file in place.iterdir() if file.name in PUBLISHED or _ARRAY.fullmatch(file.name))
    arrays = {file.stem for file in files if file.suffix == ".npz"}
    files = [file for file in files if not (file.suffix == ".tar" and file.stem in arrays)]  # the same pictures twice
    if not files:
        raise DataError(f"imagenet64: {source} holds none of {', '.join(PUBLISHED)}, nor their arrays; {ORIGIN}")

    def fill(draft: Draft) -> None:
        for file in files:
            draft.check(file, PUBLISHED, sample)
            if file.suffix == ".tar":
                _tar(file, draft)
            elif file.suffix == ".npz":
                _array(file, file.name, draft)
            else:
                _batches(file, draft)
        draft.beside(place, files)
        imagenet64(str(draft.folder), sample=sample)  # its own checks

    return lay_out("imagenet64", files, out, {"sample": sample}, fill)


def _tar(file: Path, draft: Draft) -> None:
    if draft.inputs[-1]["published"] != "equal":  # the task will leave these out
        spans, others = of_tar(file, ".png")
        draft.notes["files", "not called .png"] += others
        for index in range(len(spans)):
            if fault := png_fault(spans[index]):
                draft.notes["pictures", fault] += 1
    draft.link(file.name, file)


def _batches(file: Path, draft: Draft) -> None:
    """The arrays in a zip of .npz files."""
    for name, parts in pieces(file, draft.notes, LIMIT):
        inner = name.rsplit("/", 1)[-1]
        if _ARRAY.fullmatch(inner):
            packed = draft.write(f".{inner}", parts)
            _array(packed, inner, draft)
            packed.unlink()
        else:
            draft.notes["files", "that are no arrays of pictures"] += 1


def _array(file: Path, name: str, draft: Draft) -> None:
    """The array `data` of a .npz, stored in another without compression, which can be mapped."""
    path = draft.folder / name
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED) as archive:
        for _, parts in pieces(file, draft.notes, LIMIT, lambda inner: inner == "data.npy"):
            _store(archive, parts)
    open_array(path)


def _store(archive: zipfile.ZipFile, parts: Iterator[bytes]) -> None:
    with archive.open(zipfile.ZipInfo("data.npy"), "w", force_zip64=True) as member:
        for part in parts:
            member.write(part)

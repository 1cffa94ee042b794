"""The second pass: the documents of a split into record files, and the description by which TFDS reads them.

    <corpus>-<split>.tfrecord-00000-of-00003
    dataset_info.json, features.json

Records were made in the first pass; here they are copied, in the order of the plan, whatever part they lie in.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.build.parts import Entry, records_file, whole

FILE_BYTES = 2**27
OVERHEAD = 16  # bytes of a record that are not data
VERSION = "1.0.0"


@dataclass(frozen=True)
class File:
    """A record file: its name, its documents, and where they lie, as (part, offset, bytes) of runs."""

    name: str
    documents: int
    runs: tuple[tuple[int, int, int], ...]

    @property
    def size(self) -> int:
        return sum(length for _, _, length in self.runs)


def files(corpus: str, split: str, members: list[tuple[int, Entry]]) -> list[File]:
    """A split as record files of about FILE_BYTES, none of which is empty."""
    cuts, size = [0], 0
    for number, (_, entry) in enumerate(members):
        if size and size + entry.length > FILE_BYTES:
            cuts.append(number)
            size = 0
        size += entry.length
    pieces = [members[begin:end] for begin, end in zip(cuts, [*cuts[1:], len(members)], strict=True)]
    pieces = [piece for piece in pieces if piece]
    return [
        File(f"{corpus}-{split}.tfrecord-{number:05}-of-{len(pieces):05}", len(piece), tuple(_runs(piece)))
        for number, piece in enumerate(pieces)
    ]


def _runs(members: list[tuple[int, Entry]]) -> Iterator[tuple[int, int, int]]:
    """Neighbours in a part as one run."""
    begin: tuple[int, int, int] | None = None
    for part, entry in members:
        if begin and begin[0] == part and begin[1] + begin[2] == entry.offset:
            begin = (part, begin[1], begin[2] + entry.length)
        else:
            if begin:
                yield begin
            begin = (part, entry.offset, entry.length)
    if begin:
        yield begin


def pack(file: File, parts: Path, folder: Path) -> None:
    """Writes a record file, and then its checksum beside the parts. Runs on a worker.

    Beside the parts it grows, too: where it goes, nothing is ever half written.
    """
    digest = hashlib.sha256()
    with whole(parts / file.name) as out:
        for part, offset, length in file.runs:
            with records_file(parts, part).open("rb") as records:
                records.seek(offset)
                while length:
                    data = records.read(min(length, 2**20))
                    if not data:
                        raise OSError(f"{records_file(parts, part)} breaks off")
                    out.write(data)
                    digest.update(data)
                    length -= len(data)
    (parts / file.name).rename(folder / file.name)
    with whole(_told(file, parts)) as out:
        out.write(digest.hexdigest().encode())


def done(file: File, parts: Path) -> bool:
    """Whether a record file is written already."""
    return _told(file, parts).exists()


def _told(file: File, parts: Path) -> Path:
    return parts / f"{file.name}.sha256"


def describe(corpus: str, splits: dict[str, list[File]], features: tuple[str, ...], folder: Path) -> None:
    """TFDS's own description of the record files; `tfds.builder_from_directory` and seqio need nothing else."""
    kind = "tensorflow_datasets.core.features."
    text = {"pythonClassName": f"{kind}text_feature.Text", "text": {}}
    held = {
        "featuresDict": {"features": dict.fromkeys(sorted(features), text)},
        "pythonClassName": f"{kind}features_dict.FeaturesDict",
    }
    info = {
        "description": "Built by `repro data build`; manifest.json says of what.",
        "fileFormat": "tfrecord",
        "moduleName": "tensorflow_datasets.core.dataset_builders.adhoc_builder",
        "name": corpus,
        "splits": [
            {
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "name": split,
                "numBytes": str(sum(file.size - OVERHEAD * file.documents for file in held_files)),
                "shardLengths": [str(file.documents) for file in held_files],
            }
            for split, held_files in splits.items()
            if held_files
        ],
        "version": VERSION,
    }
    for name, value in (("features.json", held), ("dataset_info.json", info)):
        with whole(folder / name) as out:
            out.write((json.dumps(value, indent=1) + "\n").encode())

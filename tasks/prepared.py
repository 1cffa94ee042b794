"""Prepared TFDS datasets on disk, found without TensorFlow."""

from pathlib import Path


def prepared(place: Path, name: str) -> list[Path]:
    """Version directories of prepared TFDS datasets: `place` itself, or those below it whose path names `name`.

    TFDS writes <data_dir>/<dataset>/[<config>/]<version>/dataset_info.json; `name` is 'dataset' or 'dataset/config'.
    """
    if (place / "dataset_info.json").is_file():
        return [place]
    found = (info for depth in range(1, 4) for info in place.glob("/".join(["*"] * depth + ["dataset_info.json"])))
    # What is hidden is being built (`tasks.build`).
    below = [info.parent for info in found if not any(part[0] == "." for part in info.relative_to(place).parts)]
    # The last two parts of `place` count as well: a user may name the dataset's or the config's own directory.
    own = Path(*place.resolve().parts[-2:])
    return sorted(found for found in below if name in (own / found.relative_to(place)).as_posix())


def record_files(place: Path, split: str) -> list[Path]:
    """The TFRecord files of a split in a version directory, in the order of their numbers; none if there is none."""
    return sorted(place.glob(f"*-{split}.tfrecord*"))

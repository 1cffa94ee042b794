"""enwik8, imagenet64 and WMT 2014: what their archives hold, checked, where the tasks read it."""

import gzip
import hashlib
import io
import json
import tarfile
import zipfile

import numpy as np
import pytest
from build_stand_ins import wrote
from PIL import Image

import tasks
from tasks.build import enwik8, imagenet64, laidout, wmt14
from tasks.task import DataError


def manifest(folder):
    """The manifest, whose checksums are found right, and that nothing else lies there."""
    held = json.loads((folder / "manifest.json").read_text())
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}
    sums = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in found.items()}
    assert held["outputs"] == sums
    return held, {(note["what"], note["reason"]): note["count"] for note in held["notes"]}


WIKI = bytes(range(256)) * 4


def zipped(**files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def test_enwik8_from_its_zip_is_split_as_is_customary(tmp_path):
    source = str(wrote(tmp_path, {"enwik8.zip": zipped(enwik8=WIKI)}) / "enwik8.zip")
    folder = enwik8.build(source, str(tmp_path / "out"), sample=True)
    assert folder == tmp_path / "out/enwik8"
    parts = [(folder / f"{name}.txt").read_bytes() for name in ("train", "valid", "test")]
    assert b"".join(parts) == WIKI and [len(part) for part in parts] == [922, 51, 51]
    held, notes = manifest(folder)
    assert held["inputs"][0]["name"] == "enwik8.zip" and held["inputs"][0]["published"] == "unknown" and not notes
    built, read = (tasks.enwik8(str(path), length=4, sample=True).source.identity() for path in (folder, source))
    assert built == read

    stamp = (folder / "manifest.json").stat().st_mtime_ns
    assert enwik8.build(source, str(tmp_path / "out"), sample=True) == folder
    assert (folder / "manifest.json").stat().st_mtime_ns == stamp, "it was done, and is not done again"
    other = wrote(tmp_path / "b", {"enwik8": WIKI[:100]})
    with pytest.raises(DataError, match=r"or of other inputs; remove it, or choose another --out"):
        enwik8.build(str(other), str(tmp_path / "out"), sample=True)


def test_other_bytes_than_enwik8s_are_told_and_leave_nothing(tmp_path):
    wrote(tmp_path, {"enwik8": WIKI, "bad.zip": zipped(enwik8=WIKI)[:-30], "empty": b""})
    for name, message in (
        ("enwik8", "it is cut short"),
        ("bad.zip", "bad.zip"),
        ("empty", "is empty"),
        ("gone", "no file"),
    ):
        with pytest.raises(DataError, match=message):
            enwik8.build(str(tmp_path / name), str(tmp_path / "out"), sample=name == "bad.zip")
    assert not (tmp_path / "out").exists()


def test_a_zip_is_not_expanded_without_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.bytefiles.ZIPPED_AT_MOST", 1000)
    wrote(tmp_path, {"enwik8.zip": zipped(enwik8=WIKI)})
    with pytest.raises(DataError, match="would expand to 1,024 bytes"):
        enwik8.build(str(tmp_path / "enwik8.zip"), str(tmp_path / "out"), sample=True)


def pictures(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, 64, 64, 3), np.uint8)


def npz(**arrays):
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def test_arrays_in_zips_become_arrays_that_can_be_mapped(tmp_path):
    train, valid = pictures(24, 0), pictures(3, 1)
    flat = [array.transpose(0, 3, 1, 2).reshape(len(array), -1) for array in (train[:12], train[12:], valid)]
    inner = [npz(data=array, labels=np.ones(len(array))) for array in flat]
    wrote(
        tmp_path / "in",
        {
            "Imagenet64_train_part1_npz.zip": zipped(**{"Imagenet64/train_data_batch_1.npz": inner[0], "read.me": b""}),
            "Imagenet64_train_part2_npz.zip": zipped(**{"train_data_batch_2.npz": inner[1]}),
            "Imagenet64_val_npz.zip": zipped(**{"val_data.npz": inner[2]}),
        },
    )
    with pytest.raises(
        DataError, match=r"Imagenet64_train_part1_npz.zip has .* published are 6,783,426,789 and 9422dc1d"
    ):
        imagenet64.build(str(tmp_path / "in"), str(tmp_path / "out"))
    assert not list((tmp_path / "out").iterdir())
    folder = imagenet64.build(str(tmp_path / "in"), str(tmp_path / "out"), sample=True)
    held, notes = manifest(folder)
    assert sorted(held["outputs"]) == ["train_data_batch_1.npz", "train_data_batch_2.npz", "val_data.npz"]
    assert [one["published"] for one in held["inputs"]] == ["different"] * 3
    assert notes == {("files", "that are no arrays of pictures"): 1}
    archive = tasks.imagenet64(str(folder), sample=True).source.archive
    assert isinstance(archive.train.arrays[0], np.memmap)
    np.testing.assert_array_equal([archive.train[row] for row in range(24)], train)
    np.testing.assert_array_equal([archive.valid[row] for row in range(3)], valid)


def png(array):
    out = io.BytesIO()
    Image.fromarray(array).save(out, "PNG")
    return out.getvalue()


def test_tars_of_pictures_stay_and_what_is_wrong_in_them_is_counted(tmp_path):
    for name, array in (("train", pictures(24, 0)), ("valid", pictures(3, 1))):
        out = io.BytesIO()
        files = {f"{number:05}.png": png(picture) for number, picture in enumerate(array)}
        if name == "valid":
            files |= {"cut.png": files["00000.png"][:-9], "grey.png": png(array[0, :63, :, 0]), "list.txt": b"x"}
        with tarfile.open(fileobj=out, mode="w") as archive:
            for file, data in files.items():
                info = tarfile.TarInfo(f"{name}_64x64/{file}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        wrote(tmp_path / "in", {f"{name}_64x64.tar": out.getvalue()})
    folder = imagenet64.build(str(tmp_path / "in"), str(tmp_path / "out"), sample=True)
    _, notes = manifest(folder)
    assert notes == {
        ("files", "not called .png"): 1,
        ("pictures", "cut short"): 1,
        ("pictures", "64x63 pixels, 64x64 wanted"): 1,
    }
    assert tasks.imagenet64(str(folder), sample=True).source.archive.counts == (24, 3)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds none of train_64x64.tar.*log in at image-net.org"),
        (
            {"train_64x64.npz": npz(data=np.zeros((30, 64, 64, 3)))},
            "imagenet64: train_64x64.npz holds float64 numbers; uint8 wanted",
        ),
        ({"train_64x64.npz": b"no zip"}, "damaged or cannot be read|not a usable"),
        (
            {"train_64x64.npz": npz(data=np.zeros((30, 64, 64, 3), np.uint8))},
            "imagenet64: the source holds train_64x64 but no valid_64x64",
        ),
    ],
)
def test_pictures_that_are_not_usable_are_told_and_leave_nothing(tmp_path, files, message):
    (tmp_path / "in").mkdir()
    with pytest.raises(DataError, match=message):
        imagenet64.build(str(wrote(tmp_path / "in", files)), str(tmp_path / "out"), sample=True)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


TEXTS = {
    "training-parallel-europarl-v7.tgz": {"training/europarl-v7.de-en": 5, "training/europarl-v7.fr-en": 2},
    "training-parallel-commoncrawl.tgz": {"commoncrawl.de-en": 4},
    "training-parallel-nc-v13.tgz": {"training-parallel-nc-v13/news-commentary-v13.de-en": 3},
    "dev.tgz": {"dev/newstest2013": 2},
}
SGM = '<doc><seg id="1">A &amp; B</seg>\n<seg id="2"> two\nlines </seg></doc>'


def test_the_archives_of_wmt_become_the_texts_of_the_task(tmp_path):
    for name, stems in TEXTS.items():
        files = {f"{stem}.{end}": f"{end} {stem}\n" * n for stem, n in stems.items() for end in ("en", "de")}
        if name == "dev.tgz":
            files |= {"dev/newstest2014-deen-src.en.sgm": SGM, "dev/newstest2014-deen-ref.de.sgm": SGM, "dev/x.cs": ""}
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for file, data in files.items():
                info = tarfile.TarInfo(file)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data.encode()))
        wrote(tmp_path / "in", {name: out.getvalue()})
    with pytest.raises(DataError, match=r"europarl-v7.tgz has .* published are 657,632,379 and 0224c7c710c8a063"):
        wmt14.build(str(tmp_path / "in"), str(tmp_path / "out"))
    folder = wmt14.build(str(tmp_path / "in"), str(tmp_path / "out"), sample=True)
    held, notes = manifest(folder)
    assert len(held["outputs"]) == 10 and notes == {("files", "that the task does not read"): 3}
    texts = tasks.wmt14(str(folder), sample=True).bitexts
    assert [len(text) for text in texts] == [12, 2, 2]
    first = "training-parallel-nc-v13/news-commentary-v13.de-en"
    assert next(iter(texts[0])) == (f"en {first}", f"de {first}")
    (tmp_path / "in/dev.tgz").unlink()
    with pytest.raises(DataError, match=r"lacks dev.tgz"):
        wmt14.build(str(tmp_path / "in"), str(tmp_path / "other"))


def test_pairs_of_files_that_do_not_fit_are_left_out_of_a_sample(tmp_path):
    files = {
        "train/good.en": "one\r\ntwo",
        "train/good.de": "eins\nzwei\n",
        "train/packed.en.gz": gzip.compress(b"one\n"),
        "dev/packed.de.gz": gzip.compress(b"eins\n"),
        "count.en": "one\ntwo\n",
        "count.de": "eins\n",
        "latin.en": "one\n",
        "latin.de": "für\n".encode("latin-1"),
        "nul.en": b"a\0b\n",
        "nul.de": "a\n",
        "empty.en": "",
        "empty.de": "",
        "alone.en": "one\n",
        "cut.en.gz": gzip.compress(b"one\n" * 99)[:-9],
        "cut.de": "eins\n",
        "README.md": "",
    }
    folder = wmt14.build(str(wrote(tmp_path / "in", files)), str(tmp_path / "out"), sample=True)
    held, notes = manifest(folder)
    assert sorted(held["outputs"]) == ["good.de", "good.en", "packed.de", "packed.en"]
    assert notes == {
        ("file pairs", "of different lengths"): 1,
        ("file pairs", "not UTF-8"): 1,
        ("file pairs", "with NUL bytes"): 1,
        ("file pairs", "empty"): 1,
        ("file pairs", "without the other language"): 2,
        ("archives", "that are damaged"): 1,
        ("files", "beside those that are read"): 1,
    }
    wrote(tmp_path / "twice", {"a/x.en": "1\n", "a/x.de": "1\n", "b/x.en": "2\n"})
    with pytest.raises(DataError, match=r"two files called x.en; rename one"):
        wmt14.build(str(tmp_path / "twice"), str(tmp_path / "more"), sample=True)
    wrote(tmp_path / "none", {"x.en": ""})
    with pytest.raises(DataError, match="not one pair of files can be used: 1 file pair without the other language"):
        wmt14.build(str(tmp_path / "none"), str(tmp_path / "more"), sample=True)


def test_files_beside_those_that_are_read_are_counted(tmp_path):
    """Also where the result lies in the source, whose files are none of it."""
    parts = {"train.txt": WIKI[:922], "valid.txt": WIKI[922:973], "test.txt": WIKI[973:]}
    top = wrote(tmp_path, {**parts, "README.md": "", "nasty/empty.bin": "", "enwik8.zip": zipped(enwik8=WIKI)})
    held, notes = manifest(enwik8.build(str(top), str(top / "out"), sample=True))
    read = [one["name"] for one in held["inputs"]]
    assert notes == {("files", "beside those that are read"): 6 - len(read)} and len(read) in (1, 3)
    wrote(tmp_path, {"p/train_64x64.npz": npz(data=pictures(24, 0)), "p/valid_64x64.npz": npz(data=pictures(3, 1))})
    wrote(tmp_path, {"p/nasty/grey.png": "", "p/train_64x64.tar": ""})
    _, notes = manifest(imagenet64.build(str(tmp_path / "p"), str(tmp_path / "o"), sample=True))
    assert notes == {("files", "beside those that are read"): 2}
    wrote(tmp_path, {"p/valid_64x64.npz": npz(data=pictures(3, 1))[:-99]})
    with pytest.raises(DataError, match=r"imagenet64: valid_64x64.npz is damaged or cannot be read \("):
        imagenet64.build(str(tmp_path / "p"), str(tmp_path / "q"), sample=True)


def test_a_layout_appears_whole_or_not_at_all(tmp_path):
    wrote(tmp_path / "out/.x.part", {"left by a killed build": b""})

    def fill(draft):
        draft.write("a", [b"1", b"2"])
        assert not (tmp_path / "out/x").exists()
        raise EOFError("the disk is gone")

    with pytest.raises(
        DataError, match=r"x: an input is damaged or cannot be read \(the disk is gone\); fetch it again"
    ):
        laidout.lay_out("x", [], tmp_path / "out", {}, fill)
    assert not list((tmp_path / "out").iterdir())
    folder = laidout.lay_out("x", [], tmp_path / "out", {}, lambda draft: draft.write("a", [b"1", b"2"]))
    assert (folder / "a").read_bytes() == b"12" and manifest(folder)[0]["corpus"] == "x"

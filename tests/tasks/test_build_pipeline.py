"""Builds: the same bytes whoever works, whole or not there, and a manifest that counts what is there."""

import dataclasses
import hashlib
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
from build_stand_ins import Killed, OneByOne

import tasks
from tasks.build import manifest, pack, parts, pipeline, verify
from tasks.build.github import GitHub
from tasks.build.pipeline import Job, build
from tasks.build.plan import Splitting
from tasks.build.source import Document, Unit
from tasks.build.workers import Workers
from tasks.task import DataError

RULE = Splitting(validation=0.2, test=0.2)


@dataclasses.dataclass(frozen=True)
class Books:
    """One document of each .txt; those called 'vanished' are gone when they are read."""

    shout: bool = False
    name: ClassVar[str] = "arxiv"

    def units(self, path, notes):
        return [
            Unit(entry.name, entry.path, entry.stat().st_size)
            for entry in sorted(os.scandir(path), key=lambda e: e.name)
        ]

    def read(self, unit, notes):
        if "vanished" in unit.name:
            os.stat(unit.place + "?")
        text = Path(unit.place).read_text(errors="surrogateescape")
        if "odd" in unit.name:
            notes["files", "odd"] += 1
        yield Document(unit.name, text.upper() if self.shout else text, "MIT" if "odd" in unit.name else "", unit.name)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    top = tmp_path_factory.mktemp("books")
    for number in range(24):
        words = " ".join(f"{number}x{word}" for word in range(100 + 20 * number))
        (top / f"book{number}{'odd' * (number % 3 == 0)}.txt").write_text(f"größer {words}\r\n")
    shutil.copy(top / "book7.txt", top / "copy of 7.txt")
    (top / "empty.txt").write_text(" \n")
    (top / "nul.txt").write_text("a\0b")
    (top / "vanished.txt").write_text("soon")
    (top / os.fsdecode(b"caf\xe9.txt")).write_text("a name that is no UTF-8")
    return top


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    return build(Job(Books(), (str(source),), RULE, "bytes"), tmp_path_factory.mktemp("out"))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def facts(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_the_manifest_equals_a_recount(source, built):
    texts = {
        path.name: path.read_bytes().decode().replace("\r\n", "\n") for path in source.iterdir() if path.name[0] == "b"
    }
    held = facts(built)
    assert sum(split["documents"] for split in held["splits"].values()) == len(texts) + 1
    size = sum(len(text.encode()) for text in texts.values()) + len("a name that is no UTF-8")
    assert sum(split["bytes"] for split in held["splits"].values()) == size
    assert sum(split["tokens"] for split in held["splits"].values()) == size
    assert {(note["what"], note["reason"]): note["count"] for note in held["notes"]} == {
        ("documents", "empty"): 1,
        ("documents", "with NUL bytes"): 1,
        ("documents", "equal to another"): 1,
        ("files", "odd"): 8,
        ("units", "that could not be read (No such file or directory)"): 1,
    }
    odd = [text for name, text in texts.items() if "odd" in name]
    assert held["licences"]["MIT"] == {"documents": len(odd), "bytes": sum(len(text.encode()) for text in odd)}
    assert held["inputs"] == {"units": 29, "bytes": sum(path.stat().st_size for path in source.iterdir())}
    for name, told in held["outputs"].items():
        data = (built / name).read_bytes()
        assert told == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert set(held["outputs"]) == {path.name for path in built.iterdir()} - {"manifest.json"}


@pytest.mark.filterwarnings("ignore:label:DeprecationWarning")  # tensorflow_datasets, reading its own files
def test_the_task_reads_it(source, built, tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path))
    task = tasks.arxiv(str(built.parent.parent))
    for split, told in facts(built)["splits"].items():
        names = task.source.names(split)
        assert len(names) == told["documents"] == task.source.size(split)
        for number, name in enumerate(names):
            ids = task.source.example(split, number, None)["targets"]
            if "caf" not in name:
                assert task.source.text(ids) == (source / name).read_bytes().decode().replace("\r\n", "\n")
    assert {"caf\\udce9.txt"} < {name for split in tasks.task.SPLITS for name in task.source.names(split)}


@pytest.mark.filterwarnings("ignore:label:DeprecationWarning")
def test_seqio_reads_it(built):
    import seqio

    seqio.TaskRegistry.add(
        "built_arxiv",
        seqio.TfdsDataSource("arxiv:1.0.0", tfds_data_dir=str(built.parent.parent)),
        preprocessors=[seqio.preprocessors.tokenize],
        output_features={"text": seqio.Feature(seqio.ByteVocabulary(), add_eos=False)},
    )
    try:
        for split, told in facts(built)["splits"].items():
            found = seqio.get_mixture_or_task("built_arxiv").get_dataset({"text": None}, split, shuffle=False)
            names = [example["name"].decode() for example in found.as_numpy_iterator()]
            assert len(names) == told["documents"]
            assert names == [line["name"] for line in manifest.listed(built) if line["split"] == split]
    finally:
        seqio.TaskRegistry.remove("built_arxiv")


def test_cuts_order_and_rest_change_no_byte(source, built, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "SMALLEST", 10_000)

    class Backwards(Workers):
        def map(self, function, elements, fault):
            super().map(function, list(elements)[::-1], fault)

    again = build(Job(Books(), (str(source),), RULE, "bytes"), tmp_path, Backwards())
    assert files(again) == files(built)


@pytest.mark.slow
def test_processes_change_no_byte(tmp_path):
    """With a reader that other processes can import."""
    licence = (
        "This is free and unencumbered software released into the public domain. Anyone is free to copy, modify, "
        "publish, use, compile, sell, or distribute this software"
    )
    for number in range(12):
        folder = tmp_path / f"source/p{number}"
        folder.mkdir(parents=True)
        (folder / "LICENSE").write_text(licence)
        for file in range(3):
            (folder / f"{file}.py").write_text(f"x{number} = {file}\n" * 30_000)
    job = Job(GitHub(), (str(tmp_path / "source"),), RULE)
    one, two = (build(job, tmp_path / str(count), Workers(count)) for count in (1, 2))
    assert files(one) == files(two) and not list(verify.faults(two))


def test_record_files_are_cut_by_size(source, tmp_path, monkeypatch, built):
    monkeypatch.setattr(pack, "FILE_BYTES", 8000)
    folder = build(Job(Books(), (str(source),), RULE, "bytes"), tmp_path)
    train = facts(folder)["splits"]["train"]["files"]
    assert len(train) > 3 and train[1] == f"arxiv-train.tfrecord-00001-of-{len(train):05}"
    assert not list(verify.faults(folder))
    assert (folder / "documents.jsonl").read_bytes() == (built / "documents.jsonl").read_bytes()
    assert (
        b"".join((folder / name).read_bytes() for name in train)
        == (built / facts(built)["splits"]["train"]["files"][0]).read_bytes()
    )


@pytest.mark.parametrize("when", range(4))
def test_a_killed_build_is_continued(source, built, tmp_path, monkeypatch, when):
    monkeypatch.setattr(parts, "SMALLEST", 15_000)
    job = Job(Books(), (str(source),), RULE, "bytes")
    shards = len(parts.cut(job.units(Counter())))
    left = (0, 1, shards, shards + 2)[when]
    with pytest.raises(Killed):
        build(job, tmp_path, first := OneByOne(left))
    assert not (tmp_path / "arxiv/1.0.0").exists()
    with pytest.raises(DataError, match="an unfinished build"):
        manifest.find(tmp_path)
    with pytest.raises(DataError, match="nothing to read"):
        tasks.arxiv(str(tmp_path))
    again = build(job, tmp_path, second := OneByOne())
    assert files(again) == files(built)
    read = Counter(one.number if isinstance(one, parts.Shard) else one.name for one in first.begun + second.begun)
    assert set(read.values()) == {1}  # nothing was done twice
    assert [path.name for path in (tmp_path / "arxiv").iterdir()] == ["1.0.0"]


def test_a_half_written_part_is_not_taken_for_a_whole(source, built, tmp_path, monkeypatch):
    job = Job(Books(), (str(source),), RULE, "bytes")

    def half(*args, **more):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(parts, "astuple", half)  # between the records and their facts
        with pytest.raises(Killed):
            build(job, tmp_path, OneByOne())
    draft = tmp_path / "arxiv/.1.0.0.part/parts"
    assert [path.name for path in draft.iterdir()] == ["00000.records"]
    (draft / "00000.records").write_bytes(b"half")
    assert files(build(job, tmp_path, OneByOne())) == files(built)


def test_what_is_done_stays(source, tmp_path):
    job = Job(Books(), (str(source),), RULE)
    folder = build(job, tmp_path, OneByOne())
    stamp = (folder / "manifest.json").stat().st_mtime_ns
    assert build(job, tmp_path, None) == folder and (folder / "manifest.json").stat().st_mtime_ns == stamp
    for other in (dataclasses.replace(job, source=Books(shout=True)), dataclasses.replace(job, splitting=Splitting())):
        with pytest.raises(DataError, match="holds a build with other options or of other inputs"):
            build(other, tmp_path, OneByOne())


def test_other_options_begin_anew(source, tmp_path):
    with pytest.raises(Killed):
        build(Job(Books(shout=True), (str(source),), RULE, "bytes"), tmp_path, Stops())
    folder = build(Job(Books(), (str(source),), RULE, "bytes"), tmp_path, OneByOne())
    assert not any(document["text"].isupper() for document in manifest.documents(folder, facts(folder), "train"))


class Stops(OneByOne):
    def map(self, function, elements, fault):
        super().map(function, elements, fault)
        raise Killed


def test_several_sources(source, tmp_path):
    other = tmp_path / "more"
    other.mkdir()
    for number in range(4):
        (other / f"book{number}.txt").write_text(f"another book {number}")
    folder = build(Job(Books(), (str(source), str(other)), RULE), tmp_path / "out", OneByOne())
    names = {line["name"] for line in manifest.listed(folder)}
    assert {"more/book0.txt", f"{source.name}/book1.txt"} < names
    with pytest.raises(DataError, match="need distinct names"):
        build(Job(Books(), (str(source), str(source))), tmp_path / "o2", OneByOne())


def test_what_cannot_be_built_is_one_line(source, tmp_path, monkeypatch):
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "blank.txt").write_text(" ")
    for job, out, message in (
        (Job(Books(), (str(empty),)), tmp_path / "a", "nothing to use in .*: 1 document empty left out"),
        (Job(Books(), (str(source),)), source, "lies in the source"),
        (Job(Books(), (str(source),)), source / "below", "lies in the source"),
    ):
        with pytest.raises(DataError, match=message):
            build(job, out, OneByOne())

    def fault(self, unit, notes):
        raise KeyError(unit.name)
        yield

    monkeypatch.setattr(Books, "read", fault)
    for workers in (OneByOne(), Workers()):
        with pytest.raises(DataError, match="^arxiv: reading book0odd.txt failed: KeyError: 'book0odd.txt'$"):
            build(Job(Books(), (str(source),)), tmp_path / "b", workers)


def test_without_beam_there_is_a_way_out(source, tmp_path, monkeypatch):
    import sys

    from tasks.build import workers

    monkeypatch.setitem(sys.modules, "apache_beam", None)
    workers.library.cache_clear()
    with pytest.raises(DataError, match=r"needs Apache Beam: .* requirements/beam.txt"):
        build(Job(Books(), (str(source),)), tmp_path)


def test_options_of_the_pipeline_stand_in_the_manifest(built):
    held = facts(built)
    assert held["options"] == {"shout": False} and held["vocabulary"] == "bytes"
    assert held["splitting"]["test"] == "u < 0.2" and held["features"] == {"text": "text", "name": "name"}
    assert pipeline.TEXT["pg19"] == tasks.corpora.LAYOUTS["pg19"].dataset[1]

"""arXiv, PG-19 and C4 built whole: the manifest equals a recount, and the tasks read what was built."""

import gzip
import io
import json
import tarfile

import pytest

import tasks
from tasks.build.arxiv import Arxiv
from tasks.build.c4 import C4
from tasks.build.pg19 import PG19
from tasks.build.pipeline import Job, build
from tasks.build.verify import faults

DOC = "\\documentclass{amsart}\n\\begin{document}\n%s\n\\end{document}\n"


def words(seed):
    """Text unlike that of other seeds, so that nothing is taken for a near duplicate."""
    return " ".join(f"{seed}w{number * number}" for number in range(60))


def papers(top):
    """A bulk tar of 30 papers. Returns their texts."""
    texts = []
    with tarfile.open(top / "arXiv_src_1001_001.tar", "w") as bulk:
        for number in range(30):
            texts.append(DOC % words(number))
            data = gzip.compress(texts[-1].replace("\n", "\r\n").encode())
            info = tarfile.TarInfo(f"1001/1001.{number:04}.gz")
            info.size = len(data)
            bulk.addfile(info, io.BytesIO(data))
    return {"": texts}


def books(top):
    texts = {split: [words(f"{split}{n}") + " é" for n in range(count)] for split, count in tasks.corpora.BOOKS.items()}
    texts["train"] = texts["train"][:3]
    for split, some in texts.items():
        (top / split).mkdir()
        for number, text in enumerate(some):
            (top / split / f"{number}.txt").write_bytes(text.encode("latin-1" if number % 2 else "utf-8"))
    return texts


def pages(top):
    texts = {"train": [words(f"t{number}") for number in range(6)], "validation": [words("v")]}
    for split, some in texts.items():
        lines = [json.dumps({"text": text, "url": "", "timestamp": ""}) for text in [*some, "short", ""]]
        with gzip.open(top / f"c4-{split}.00000-of-00001.json.gz", "wt") as file:
            file.write("\n".join(lines))
    return texts


CORPORA = {
    "arxiv": (Arxiv(), papers, {}),
    "pg19": (PG19(sample=True), books, {"sample": True}),
    "c4_4k": (C4(least=200), pages, {"least": 200}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.filterwarnings("ignore:label:DeprecationWarning")  # tensorflow_datasets, reading its own files
def test_a_corpus_is_built_counted_and_read(tmp_path, monkeypatch, name):
    source, make, settings = CORPORA[name]
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "in").mkdir()
    texts = make(tmp_path / "in")
    folder = build(Job(source, (str(tmp_path / "in"),), vocabulary="bytes"), tmp_path / "out")
    assert not list(faults(folder))
    held = json.loads((folder / "manifest.json").read_text())["splits"]
    for split, some in texts.items() if "" not in texts else ():
        size = sum(len(text.encode()) for text in some)
        assert (held[split]["documents"], held[split]["bytes"], held[split]["tokens"]) == (len(some), size, size)
    everything = sorted(text for some in texts.values() for text in some)
    assert sum(found["documents"] for found in held.values()) == len(everything)
    assert sum(found["bytes"] for found in held.values()) == sum(len(text.encode()) for text in everything)

    task = getattr(tasks, name)(str(tmp_path / "out"), length=32, **settings)
    read = {split: list(task.source.texts(split)) for split in held if held[split]["documents"]}
    assert sorted(text for some in read.values() for text in some) == everything
    assert {split: sorted(some) for split, some in read.items()} == {
        split: sorted(texts.get(split, read[split])) for split in read
    }
    batch = next(iter(task.feed("train", batch_size=2)))
    assert batch["decoder_target_tokens"].shape == (2, 32)

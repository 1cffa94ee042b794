"""`repro data build`, `stats`, `verify`, `show`, and `repro profile data`, as a user types them."""

import json
import shlex
import shutil

import pytest

import tasks
from launch import data_build
from launch.cli import main
from tasks.build import catalogue

pytestmark = pytest.mark.filterwarnings("ignore:label:DeprecationWarning")  # tensorflow_datasets, reading its own files
ENTRIES = {f"Entry{n}": [f"T{n}_{m}" for m in range(3)] for n in range(8)}
STEM = "memorizing/table4/ctx512_mem8192_xl512+isabelle"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    top = tmp_path_factory.mktemp("afp")
    for entry, names in ENTRIES.items():
        (top / "thys" / entry).mkdir(parents=True)
        (top / "thys" / entry / "ROOT").write_text(f"chapter AFP session {entry} = HOL + theories {names[0]}")
        for name, needed in zip(names, [*names[1:], "Main"], strict=True):
            words = " ".join(f"{name}_{word}" for word in range(40))
            (top / "thys" / entry / f"{name}.thy").write_text(
                f"theory {name} imports {needed} begin (* {words} *) end\n"
            )
    return top


@pytest.fixture(scope="module")
def corpora(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("corpora")
    words = ["--source", str(source), "--out", str(out), "--workers", "1", "--test", "0.2"]
    assert main(["data", "build", "isabelle", *words]) == 0
    return out


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))


def held(out):
    return json.loads((out / "isabelle/1.0.0/manifest.json").read_text())


def test_a_build_says_what_it_did_and_is_done_once(source, corpora, capsys):
    words = ["data", "build", "isabelle", "--source", str(source), "--out", str(corpora), "--test", "0.2"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert f"isabelle: {corpora}/isabelle/1.0.0" in out and "train" in out
    assert sum(split["documents"] for split in held(corpora)["splits"].values()) == len(ENTRIES)
    assert main([*words, "--vocabulary", "bytes"]) == 1
    error = capsys.readouterr().err
    assert "holds a build with other options" in error and error.count("\n") == 1


def test_words_behind_two_dashes_are_beams(source, corpora, tmp_path):
    words = ["data", "build", "isabelle", "--source", str(source), "--out", str(tmp_path), "--test", "0.2"]
    runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    assert main([*words, "--", f"--runner={runner}"]) == 0
    assert held(tmp_path) == held(corpora)


def test_runners_that_are_none_are_one_line(source, tmp_path, capsys):
    words = ["data", "build", "isabelle", "--source", str(source), "--out", str(tmp_path)]
    assert main([*words, "--", "--runner=Nobody"]) == 1
    err = capsys.readouterr().err
    assert "Unexpected pipeline runner: Nobody. Valid values are" in err and err.count("\n") == 1


def test_damaged_records_are_one_line(corpora, tmp_path, capsys):
    shutil.copytree(corpora, tmp_path / "copy")
    (records,) = (tmp_path / "copy").rglob("isabelle-train.tfrecord*")
    records.write_bytes(records.read_bytes()[:-9])
    assert main(["data", "show", str(tmp_path / "copy")]) == 1
    assert "1.0.0 are damaged (DataLoss); build or prepare it again" in capsys.readouterr().err
    records.unlink()
    assert main(["data", "show", str(tmp_path / "copy")]) == 1
    assert "1.0.0 are damaged (NotFound); build or prepare it again" in capsys.readouterr().err


def test_verification(corpora, tmp_path, capsys):
    assert main(["data", "verify", str(corpora)]) == 0
    assert "all as the manifest says" in capsys.readouterr().out
    shutil.copytree(corpora, tmp_path / "copy")
    (tmp_path / "copy/isabelle/1.0.0/inputs.jsonl").write_text("")
    assert main(["data", "verify", str(tmp_path / "copy")]) == 1
    assert "inputs.jsonl has 0 bytes" in capsys.readouterr().out


def test_statistics_and_picture(corpora, tmp_path, capsys):
    assert main(["data", "stats", str(corpora), "--out", str(tmp_path / "lengths.png")]) == 0
    out = capsys.readouterr().out
    assert (tmp_path / "lengths.png").read_bytes().startswith(b"\x89PNG")
    lines = [json.loads(line) for line in (corpora / "isabelle/1.0.0/documents.jsonl").read_text().splitlines()]
    sizes = [line["bytes"] for line in lines if line["split"] == "train"]
    assert f"least {min(sizes):,}" in out and f"most {max(sizes):,}" in out and "(not said)" in out


def test_a_document_as_the_model_sees_it(corpora, capsys):
    task = tasks.isabelle(str(corpora), length=64)
    name = task.source.names("train")[1]
    length = int(task.source.lengths("train")[1])
    last = (length - 1) // 64
    words = ["data", "show", str(corpora), "--document", name, "--length", "64", "--segments", f"0,{last}"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert f"{name}: {length:,} tokens, {last + 1} segments" in out
    assert "document_start  1 (yes: caches and memory are reset)" in out and "document_start  0 (no)" in out
    first = "theory T" + name[-1]  # the piece before the first one is the start of the document
    assert f"    <pad>|{'|'.join(first)}" in out and f"\n    {'|'.join(first)}" in out
    padding = 64 * (last + 1) - length
    assert f"segment {last}: {64 - padding} tokens, {64 - padding} predicted, {padding} padding" in out


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("build isabelle --source {0}/nowhere --out {0}/out", 1, "isabelle: no directory at"),
        ("build github --source {0}/empty --out {0}/out", 1, "github: no project in"),
        ("build isabelle --source {1} --out {0}/out --test 1", 1, "shares of validation and test must be"),
        ("build isabelle --source {1} --out {0}/out -- --flink_master=x:1", 2, "wanted is --runner=NAME, got --flink"),
        ("build enwik8 --source {1} --out {0}/out -- --runner=x", 2, "leave out the words behind --"),
        (
            "build enwik8 --source {0}/short --out {0}/out",
            1,
            "it is cut short. Fetch it again, or give --sample to use",
        ),
        ("show {1} --segments 99", 2, "--segments: 99 is none of the"),
        ("show {1} --document Entry", 2, "--document: train has documents 0 to"),
        ("stats {0}", 1, "holds no corpus"),
        ("verify {0}/nowhere", 1, "no directory at"),
    ],
)
def test_what_is_wrong_is_one_line(corpora, tmp_path, capsys, words, status, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "short").write_bytes(b"x" * 99)
    assert main(["data", *shlex.split(words.format(tmp_path, corpora))]) == status
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_every_corpus_says_which_options_it_has(capsys):
    assert data_build.NAMES == catalogue.NAMES
    for name in catalogue.NAMES:
        with pytest.raises(SystemExit, match="0"):
            main(["data", "build", name, "--help"])
        out = capsys.readouterr().out
        assert "--source" in out and "--out" in out and ("--similar" in out) == (name in catalogue.SOURCES)


def test_the_pipeline_alone_is_measured(corpora, tmp_path, capsys):
    words = ["profile", "data", STEM, "--scale", "tiny", "--set", f"DATA = {str(corpora)!r}", "--batches", "3"]
    assert not main([*words, "--repeats", "2", "--out", str(tmp_path)])
    cell = json.loads(capsys.readouterr().out)
    assert (cell["what"], cell["stem"], cell["batch"], cell["length"]) == ("data", STEM, 4, 16)
    assert len(cell["all_seconds"]) == 2 and cell["tokens_per_second"] == pytest.approx(64 / cell["seconds"])
    assert json.loads(next(tmp_path.glob("data-*.jsonl")).read_text()) == cell

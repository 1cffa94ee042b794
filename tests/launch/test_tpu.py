"""`repro check --tpu`: records of compilations, for TPUs where libtpu is and for devices of this machine always."""

import dataclasses
import importlib.util
import json

import jax
import pytest

from launch import cli, compiling, tpu
from launch import composition as files
from launch.errors import ConfigError, RunError
from results import compilations

STEM = "memorizing/acceptance/definitions"
SMALL = ("BATCH = 8", "MEMORY = 64", "LENGTH = 16", "CACHE = 16", "WIDTH = 16", "HIDDEN = 32", "STEPS = 3")
needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")


def facts(**changes):
    """What a child process would say."""
    made = {
        "program": "a" * 64,
        "devices": 8,
        "mesh": {"data": 8},
        "parameters": 1000,
        "tokens": 128,
        "state_bytes": {"params": 4000, "optimizer": 8000, "model": 100},
        "lower_seconds": 1.0,
        "versions": {"jax": jax.__version__},
        "fits": True,
        "hbm_bytes": 20_000,
        "memory": {"arguments": 12_100, "results": 0, "temporaries": 7_000, "code": 900},
        "flops": 1e9,
        "bytes": 1e8,
        "cycles": 940e6 / 4,
        "silent_bytes": 45e9,
        "collectives": {"all-reduce": {"count": 3, "bytes": 4000}},
        "partial_reduces": 1,
        "unknown_loops": 0,
        "assumed_trips": 1,
        "compile_seconds": 2.0,
        "compiler_bytes": 10**9,
    }
    return {**made, **changes}


def test_rows_are_compiled_once_recorded_and_passed_over(tmp_path, monkeypatch):
    asked, said = [], []

    def run(setting):
        asked.append(setting)
        return facts()

    monkeypatch.setattr(tpu, "run", run)
    columns = ["memorizing/table4/ctx512+arxiv", "memorizing/table4/ctx512+github"]  # one row, one program
    assert tpu.check(columns, "cpu:8", tmp_path, say=said.append) == 0
    assert [setting["stem"] for setting in asked] == ["memorizing/table4/ctx512+arxiv"]
    one = compilations.read(tmp_path / "memorizing/table4/ctx512/cpu-8.json")
    assert (one.stem, one.topology, one.tokens) == ("memorizing/table4/ctx512", "cpu:8", 128)
    assert one.config == files.compose(columns[0]).portable_text
    assert tpu.check(columns, "cpu:8", tmp_path, say=said.append) == 0
    assert len(asked) == 1 and "(recorded)" in said[-1]
    assert tpu.check(columns, "cpu:8", tmp_path, again=True, say=said.append) == 0
    assert len(asked) == 2
    # With a setting of one's own the row is shown, and the record stays what it is.
    assert tpu.check(columns, "cpu:8", tmp_path, overrides=["LAYERS = 3"], say=said.append) == 0
    assert asked[-1]["overrides"] == ["LAYERS = 3"]
    assert compilations.read(tmp_path / "memorizing/table4/ctx512/cpu-8.json").config == one.config


def test_rows_with_the_same_program_share_a_compilation(tmp_path, monkeypatch):
    def run(setting):
        return (
            facts()
            if facts()["program"] not in setting["known"]
            else {
                name: value for name, value in facts().items() if name not in ("fits", "hbm_bytes", "flops", "memory")
            }
        )

    monkeypatch.setattr(tpu, "run", run)
    tpu.check(["memorizing/step_time/none", "memorizing/table4/ctx512_xl512+arxiv"], "cpu:8", tmp_path, say=list)
    first, second = compilations.read_all(tmp_path)[0]
    assert second.same_as == first.stem == "memorizing/step_time/none"
    assert (second.flops, second.memory, second.stem) == (first.flops, first.memory, "memorizing/table4/ctx512_xl512")


def test_what_does_not_compile_or_fit_is_said_and_fails(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(tpu, "run", lambda setting: facts(fits=False, hbm_bytes=20 * 2**30, problem="too much"))
    assert tpu.check(["reformer/table2/full"], "cpu:8", tmp_path, say=said.append) == 1
    assert said[-1].startswith("OVER") and not compilations.read_all(tmp_path)[0][0].green

    def broken(setting):
        raise RunError("exit status 1: no such thing")

    monkeypatch.setattr(tpu, "run", broken)
    assert tpu.check(["reformer/table2/lsh1"], "cpu:8", tmp_path, say=said.append) == 1
    assert said[-1].startswith("FAIL") and "no such thing" in said[-1]


def test_a_missing_compiler_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["check", "--tpu", "reformer/table2/full"]) == 2
    assert "pip install --no-deps -r requirements/tpu.txt" in capsys.readouterr().err
    assert cli.main(["check", "--topology", "v3:2x2", "reformer/table2/full"]) == 2
    assert "belong to --tpu" in capsys.readouterr().err


def test_each_paper_has_its_topology_and_a_row_may_name_another(tmp_path):
    assert tpu.topology_of("reformer/table2/full") == "v3:2x2"
    assert tpu.topology_of("memorizing/table4/ctx512") == "v3:4x4"
    (tmp_path / "row.gin").write_text("# A row.\n# Topology: v4:2x2x4 (larger)\n")
    assert tpu.topology_of(str(tmp_path / "row.gin")) == "v4:2x2x4"
    (tmp_path / "bare.gin").write_text("# A row.\n")
    with pytest.raises(ConfigError, match="names no topology"):
        tpu.topology_of(str(tmp_path / "bare.gin"))


@pytest.mark.slow
def test_the_step_that_is_compiled_is_the_one_that_runs(tmp_path):
    """For eight simulated devices, in a child process: memory by slot, and products against a closed form."""
    found = tpu.run({"stem": STEM, "scale": "paper", "overrides": list(SMALL), "topology": "cpu:8", "known": []})
    from launch import config

    made = config.build(files.compose(STEM, overrides=SMALL))
    state = jax.eval_shape(lambda: made.model.start(8))
    assert found["devices"] == 8 and found["tokens"] == 8 * 16
    assert found["state_bytes"]["model"] == sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state)) / 8
    assert found["parameters"] == sum(
        x.size for x in jax.tree.leaves(jax.eval_shape(made.model.init, jax.random.key(0)))
    )
    assert found["fits"] and found["collectives"]["all-reduce"]["count"] >= 1
    assert compilations.made({**found, **tpu.about(files.compose(STEM), STEM, "cpu:8")}).green
    again = tpu.run({"stem": STEM, "scale": "paper", "overrides": list(SMALL), "topology": "cpu:8",
                     "known": [found["program"]]})  # fmt: skip
    assert again["program"] == found["program"] and "fits" not in again


def test_a_child_that_fails_is_quoted():
    with pytest.raises(RunError, match=r"exit status 1: .*NO_SUCH"):
        tpu.run({"stem": STEM, "scale": "paper", "overrides": ["NO_SUCH.macro = 3"], "topology": "cpu:8", "known": []})


def test_what_the_compiler_says_of_memory_that_is_not_there():
    text = "RESOURCE_EXHAUSTED: compile error. Used 20.50G of 15.75G hbm. Exceeded hbm capacity by 4.75G."
    found = compiling.overflow(text)
    assert not found["fits"] and found["hbm_bytes"] == int(20.5 * 2**30) and "Exceeded" in found["problem"]


@needs_libtpu
@pytest.mark.slow
def test_a_row_compiled_for_a_tpu_reduces_partially():
    overrides = ["BATCH = 32", "MEMORY = 1024", "LAYERS = 2", "MEMORY_LAYERS = (1,)", "WIDTH = 128", "HIDDEN = 256"]
    setting = {"stem": "memorizing/step_time/mem8192", "scale": "paper", "overrides": overrides, "known": []}
    found = tpu.run({**setting, "topology": "v3:4x4"})
    assert found["devices"] == 32 and found["partial_reduces"] >= 1 and found["cycles"] > 0


def test_the_page_shows_what_fits_what_does_not_and_the_ratios(tmp_path):
    from results import compiled_page

    common = {"commit": "c" * 40, "dirty": False, "finished": "2026-01-31T09:00:00+00:00", "config": ""}
    rows = {"none": 1.0, "mem8192": 1.2, "mem65k": 2.5}
    for row, times in rows.items():
        record = facts(stem=f"memorizing/step_time/{row}", topology="v3:4x4", cycles=940e6 * times, silent_bytes=0.0)
        compilations.write({**record, **common}, tmp_path)
    over = facts(stem="reformer/table2/full", topology="v3:2x2", fits=False, hbm_bytes=18 * 2**30, problem="too much")
    compilations.write({**over, **common}, tmp_path)
    (tmp_path / "odd.json").write_text(json.dumps({"stem": 3}))
    page = compiled_page.generate(tmp_path)
    assert "3 of 3 green" in page and "0 of 1 green" in page
    assert "| 8K : none | 1.25 | 1.20 |" in page and "| 65K : none | 3.00 | 2.50 |" in page
    assert "does not fit, by 2.00 GiB: too much" in page
    assert "odd.json" in page


def test_a_record_reads_back_as_it_was_written_and_odd_ones_are_named(tmp_path):
    record = {**facts(), **tpu.about(files.compose("reformer/table2/full"), "reformer/table2/full", "v3:2x2")}
    path = compilations.write(record, tmp_path)
    one = compilations.read(path)
    assert one == compilations.made(record)
    assert dataclasses.replace(one, hbm_bytes=15 * 2**30).green is False  # more than nine tenths of a core
    path.rename(path.with_name("v3-4x4.json"))
    (tmp_path / "broken.json").write_text("{")
    found, problems = compilations.read_all(tmp_path)
    assert not found and len(problems) == 2
    assert "the place it lies in" in "".join(map(str, problems))


def test_the_committed_page_is_what_the_records_say():
    from results import compiled_page

    if compilations.PAGE.exists():
        assert compilations.PAGE.read_text() == compiled_page.generate()
    found, problems = compilations.read_all()
    assert not problems
    assert compilations.PAGE.exists() or not found

"""`repro profile retrieval` and `memory`: what they print, write and draw. Nothing here judges a time."""

import json

import numpy as np
import pytest
from stand_ins import profile_arguments as parse

from launch import children, memory_workloads, profile, profile_retrieval
from launch.errors import ConfigError, RunError

SEARCHES = ("--widths=8", "--entries=160", "--groups=2", "--queries=24", "--neighbours=4", "--repeats=2")
STEPS = ("--layers=2", "--memory-layer=2", "--width=8", "--hidden=8", "--heads=2", "--head-width=4", "--segment=16",
         "--cache=16", "--batch=2", "--vocabulary=8", "--neighbours=4", "--repeats=2")  # fmt: skip


@pytest.mark.slow
def test_retrieval_is_lines_of_json_a_table_and_a_picture(tmp_path, capsys):
    methods = "--methods=floor,exact,buckets"
    assert profile.run(parse("retrieval", methods, f"--out={tmp_path}", *SEARCHES)) == 0
    said = capsys.readouterr()
    cells = [json.loads(line) for line in said.out.splitlines()]
    assert [cell["method"] for cell in cells] == ["floor", "exact", "buckets"]
    for cell in cells:
        assert min(cell["seconds"], cell["processor_seconds"], cell["temp_bytes"], cell["against_floor"]) > 0
    assert cells[0]["against_floor"] == cells[0]["processor_against_floor"] == 1
    assert cells[1]["recall"] == cells[1]["closed_form"] == 1
    assert cells[2]["recall"] > 0.8 and 0.9 <= cells[2]["closed_form"] < 1
    (path,) = tmp_path.glob("retrieval-*.jsonl")
    assert path.with_suffix(".png").exists()
    assert profile.run(parse("retrieval", f"--read={path}")) == 0
    assert "matmul and max alone" in capsys.readouterr().err


@pytest.mark.slow
def test_steps_with_and_without_memory_are_lines_of_json(tmp_path, capsys):
    assert profile.run(parse("memory", "--memories=64", f"--out={tmp_path}", *STEPS)) == 0
    none, some = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert none["memory"] == 0 and some["memory"] == 64
    assert none["against_none"] == 1 and some["against_none"] > 0
    assert some["temp_growth_bytes"] == some["temp_bytes"] - none["temp_bytes"]
    # Keys and values of 2 slots x 2 heads x 64 entries x 4 features, and of the segment that waits; which of it is
    # real; how much was written.
    assert some["state_bytes"] - none["state_bytes"] == 2 * 4 * (64 + 16) * 4 * 4 + 2 * 16 + 2 * 4
    assert some["parameters"] == none["parameters"] + 2  # the gates


class Answers:
    """A child that needs no process: `exact` takes twice the time of `floor` in every turn, while both get slower."""

    def __init__(self, setting, patience):
        if setting["method"] == "faiss":
            raise RunError("No module named 'faiss'")
        self.facts, self.peak, self.turn = {"temp_bytes": 1 << 20, "compile_seconds": 1.0}, 5, 0
        self.pace = {"floor": 1.0, "exact": 2.0}[setting["method"]]

    def step(self):
        self.turn += 1
        self.processor_seconds = self.pace * 3 ** (self.pace - 1)
        return self.pace * self.turn

    def close(self):
        pass


def test_ratios_are_medians_within_turns_and_missing_rows_are_said(monkeypatch):
    monkeypatch.setattr(children, "Child", Answers)
    args = parse("retrieval", "--methods=floor,exact,faiss", "--widths=8", "--entries=64")
    settings = [profile_retrieval._setting(args, method, 8, 64) for method in args.methods]
    floor, exact, faiss = cells = profile_retrieval.measure(settings, 3, lambda text: None)
    assert exact["all_seconds"] == [4, 8, 12]  # every second step counts
    assert exact["seconds"] == 8 and floor["seconds"] == 4
    assert exact["against_floor"] == 2 and exact["processor_against_floor"] == 6
    assert "seconds" not in faiss and "against_faiss" not in exact
    shown = profile_retrieval.table(cells)
    assert "- faiss, 64 of 8: No module named 'faiss'" in shown and "1.0" in shown


def test_a_method_that_would_take_too_long_is_left_out(monkeypatch):
    monkeypatch.setattr(children, "Child", Answers)
    floor = profile_retrieval._setting(parse("retrieval"), "floor", 8, 640)
    measured = [{"method": "floor", "width": 8, "entries": 64, "seconds": 2.0}]
    assert profile_retrieval._too_long(floor, measured, 21.0) is None
    reason = profile_retrieval._too_long(floor, measured, 19.0)
    (cell,) = profile_retrieval.measure([floor], 1, lambda text: None, {"floor": reason})
    assert "about 20 s (--limit 19)" in cell["missing"] and "seconds" not in cell


def test_recall_counts_what_is_among_the_best():
    q, keys = memory_workloads._vectors({"groups": 2, "queries": 16, "entries": 40, "width": 8})
    np.testing.assert_allclose(np.linalg.norm(q, axis=-1), 1, rtol=1e-6)
    best = np.argsort(-np.einsum("gld,gnd->gln", q, keys), axis=-1)
    assert memory_workloads._recall(q, keys, best[..., :4], 4) == 1
    assert memory_workloads._recall(q, keys, best[..., 1:5], 4) == 0.75
    assert memory_workloads._recall(q, keys, best[..., 4:8], 4) == 0


def test_wrong_use_is_explained(tmp_path):
    with pytest.raises(ConfigError, match="fewer than the 32 neighbours"):
        profile.run(parse("retrieval", "--entries=16", f"--out={tmp_path}"))
    with pytest.raises(ConfigError, match="absent"):
        profile.run(parse("retrieval", f"--read={tmp_path / 'absent'}"))

"""`repro profile training` and `complexity`: what they print, write and draw. Nothing here judges a time."""

import json
import types

import pytest
from stand_ins import profile_arguments as parse

from launch import children, profile, profile_complexity, profile_training
from launch.errors import ConfigError

SMALL = ("--layers=1", "--width=8", "--hidden=8", "--heads=2", "--vocabulary=8", "--chunk=8", "--repeats=2")


@pytest.mark.slow
def test_training_steps_are_lines_of_json(tmp_path, capsys):
    words = ("training", "--lengths=16", "--tokens=32", "--backward=single,invert", f"--out={tmp_path}", *SMALL)
    assert profile.run(parse(*words)) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(x["residual"], x["backward"], x["batch"]) for x in lines] == [
        ("single", "store", 2),
        ("reversible", "invert", 2),
    ]
    for line in lines:
        assert min(line["tokens_per_second"], line["peak_bytes"], line["temp_bytes"], line["parameters"]) > 0
        assert len(line["all_seconds"]) == 2
    assert lines[0]["against_first"] == 1
    (path,) = tmp_path.glob("training-*.jsonl")
    assert [json.loads(line) for line in path.read_text().splitlines()] == lines


def test_very_long_steps_are_measured_once(monkeypatch):
    facts = {"compile_seconds": 9.0, "first_seconds": 4.0, "peak_bytes": 7}
    child = types.SimpleNamespace(facts=facts, peak=7, close=lambda: None)
    asked = []
    monkeypatch.setattr(children, "Child", lambda setting, patience: asked.append(patience) or child)
    args = parse("training", "--lengths=1048576", "--tokens=1048576")
    setting = profile_training._setting(args, 2**20, "lsh4", 6, "invert", False)
    (cell,) = profile_training.measure([setting], 0, lambda text: None)
    assert (cell["seconds"], cell["peak_bytes"], cell["tokens_per_second"]) == (4.0, 7, 2**18)
    assert asked[0] > 2**20 / 100  # seconds: a hundred tokens in each are slow, not stuck


@pytest.mark.slow
def test_complexity_is_measured_and_drawn(tmp_path, capsys, monkeypatch):
    small = {"length": 64, "layers": 1, "hidden": 16, "rounds": 1}
    monkeypatch.setattr(profile_complexity, "BASE", small)
    monkeypatch.setattr(profile_complexity, "SWEEPS", {"length": (64,)})
    monkeypatch.setitem(profile_complexity.FIXED, "width", 8)
    assert profile.run(parse("complexity", "--sweeps=length", "--repeats=1", f"--out={tmp_path}")) == 0
    shown = capsys.readouterr().out
    assert "chunked_reversible" in shown and "dot_product" in shown
    (path,) = tmp_path.glob("complexity-*.jsonl")
    assert path.with_suffix(".png").exists()
    assert profile.run(parse("complexity", f"--read={path}")) == 0


def test_formulas_are_those_printed():
    """Table 3 by hand at l = 1024, three layers, d_ff 4096, two rounds; b = 1, 4 heads, d_model 256."""
    point = {"length": 1024, "layers": 3, "hidden": 4096, "rounds": 2}
    memory = {m: profile_complexity.formula(m, "memory", point) for m in profile_complexity.MODELS}
    assert memory == {
        "transformer": 4096 * 1024 * 3,
        "reversible": 4096 * 1024,
        "chunked_reversible": 4 * 1024 * 1024,
        "lsh_transformer": 4 * 1024 * 2 * 16_384 * 3,
        "reformer": 4 * 1024 * 2 * 16_384,
    }


def test_wrong_use_is_explained(tmp_path):
    with pytest.raises(ConfigError, match="does not divide"):
        profile.run(parse("training", "--lengths=24", "--tokens=32", f"--out={tmp_path}"))
    with pytest.raises(ConfigError, match="--largest 100 leaves no length; they begin at 256"):
        profile.run(parse("complexity", "--sweeps=length", "--largest=100", f"--out={tmp_path}"))
    wrong = ("training --layers=0", "training --repeats=-1", "training --tokens=0", "complexity --repeats=-1",
             "retrieval --recall-target=2", "memory --neighbours=0")  # fmt: skip
    for words in wrong:
        with pytest.raises(SystemExit):
            parse(*words.split())
    with pytest.raises(ConfigError, match="absent"):
        profile.run(parse("complexity", f"--read={tmp_path / 'absent'}"))

"""`repro profile attention`: what it writes, reads back and says. Nothing here judges a time."""

import json

import pytest
from stand_ins import profile_arguments

from launch import measurements, profile, profile_attention
from launch.errors import ConfigError


def parse(*words):
    return profile_arguments("attention", *words)


def test_small_profile_is_written_read_and_drawn(tmp_path, capsys):
    args = parse("--kinds=shared,lsh2", "--lengths=64", "--tokens=128", "--repeats=2", f"--out={tmp_path}")
    assert profile.run(args) == 0
    shown = capsys.readouterr().out
    assert "LSH, 2 rounds" in shown
    (path,) = tmp_path.glob("*.jsonl")
    assert path.with_suffix(".svg").exists()
    cells = {cell["kind"]: cell for cell in profile_attention.read(path)}
    assert cells["shared"]["faster_than_full"] == cells["lsh2"]["against_shortest"] == 1
    for cell in cells.values():
        assert cell["batch"] * cell["length"] == 128
        assert len(cell["all_seconds"]) == 2
        assert min(cell["seconds"], cell["temp_bytes"], cell["peak_bytes"]) > 0
        assert cell["device"]["platform"] == "cpu"
    assert profile.run(parse(f"--read={path}")) == 0
    assert capsys.readouterr().out.startswith(shown.split("\n\nmeasured:")[0])


def test_the_axis_of_times_has_numbers_even_within_a_decade(tmp_path):
    rest = {"kind": "lsh1", "batch": 1, "device": {"kind": "cpu"}}
    cells = [{**rest, "length": length, "seconds": seconds} for length, seconds in ((64, 0.02), (128, 0.04))]
    svg, _ = measurements.draw(cells, tmp_path / "drawn.jsonl")
    assert r"\times10^{-2}" in svg.read_text().replace(" ", "")


def test_cells_that_would_take_too_long_are_left_out():
    cells = {("full", 1024): {"seconds": 20.0}, ("lsh1", 1024): {"seconds": 20.0}, ("shared", 1024): {}}
    expected = {
        kind: profile_attention._expected(cells, kind, 4096, [1024, 4096]) for kind in ("full", "lsh1", "shared")
    }
    assert expected["full"] == 80
    assert expected["lsh1"] < 30
    assert expected["shared"] == float("inf")


def test_ratios_are_medians_of_ratios_within_a_turn():
    class Child:
        peak = 7

        def __init__(self, *seconds):
            self.seconds = iter(seconds)

        def step(self):
            return next(self.seconds)

    cells = {(kind, length): {} for kind in ("shared", "lsh1") for length in (8, 16)}
    here = {"shared": Child(4.0, 40.0, 5.0), "lsh1": Child(2.0, 20.0, 1.0)}
    anchors = {"shared": Child(2.0, 20.0, 1.0), "lsh1": Child(2.0, 10.0, 1.0)}
    profile_attention._measure(cells, 16, 8, here, anchors, 3)
    assert cells["lsh1", 16] == {
        "seconds": 2.0,
        "all_seconds": [2.0, 20.0, 1.0],
        "faster_than_full": 2.0,
        "against_shortest": 1.0,
        "peak_bytes": 7,
    }
    assert cells["shared", 16]["against_shortest"] == 2.0


def test_wrong_use_is_explained(tmp_path, capsys):
    with pytest.raises(ConfigError, match="does not divide"):
        profile_attention.profile_attention(lengths=(100,), tokens=128)
    with pytest.raises(SystemExit):
        parse("--kinds=lsh3")
    assert "'lsh3' is not one of full, shared" in capsys.readouterr().err
    for word, message in (
        ("--repeats=0", "'0' is not one of the whole numbers from 1"),
        ("--heads=-2", "'-2' is not one of the whole numbers from 1"),
        ("--limit=nan", "'nan' is not a number from 0 to inf"),
    ):
        with pytest.raises(SystemExit):
            parse(word)
        assert message in capsys.readouterr().err
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{")
    with pytest.raises(ConfigError, match="not one JSON object per line"):
        profile_attention.read(broken)
    for other in ({"schema": 99}, [1], {"schema": 1, "what": "training", "length": 8}):
        broken.write_text(json.dumps(other))
        for what in ("attention", "complexity", "retrieval"):
            with pytest.raises(ConfigError, match="no measurements of schema 1 with"):
                profile.run(profile_arguments(what, f"--read={broken}"))
    broken.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not one JSON object per line"):
        profile_attention.read(broken)
    with pytest.raises(ConfigError, match="No such file"):
        profile_attention.read(tmp_path / "absent.jsonl")

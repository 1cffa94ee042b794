"""The command line as a user meets it: speed of look-ups, messages, exit status."""

import subprocess
import sys

import pytest

from launch import composition as files
from launch.cli import main


@pytest.mark.parametrize("words", [["list"], ["show", "reformer/table2/lsh4"], ["compare"], ["--help"]])
def test_looking_things_up_imports_neither_jax_nor_tensorflow(words):
    code = f"""
import sys
from launch.cli import main
try:
    main({words!r})
except SystemExit:
    pass
heavy = [name for name in ("jax", "tensorflow", "seqio", "matplotlib") if name in sys.modules]
sys.exit(f"imported {{heavy}}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=files.ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_list_and_show_tell_what_a_reader_needs(capsys, tmp_path):
    assert main(["list", "reformer", "--records", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert all(f"reformer/table2/{row}" in out for row in ("full", "lsh4", "lsh2", "lsh1"))
    assert "cpu (not run)" in out
    assert main(["show", "reformer/table2/lsh1", "--scale", "cpu", "--records", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "LENGTH = 256" in out
    assert "configs/scales/reformer/table2/cpu.gin" in out
    assert "77.9" in out
    assert "Records: none yet" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "reformer/table2/lhs4"], "did you mean"),
        (["run", "reformer/table2/lsh4", "--scale", "cpuu"], "it has paper, cpu, short, tiny"),
        (["run", "reformer/table2/lsh4", "--set", "STEPZ = 3"], "did you mean 'STEPS'"),
        (["list", "reformre"], "no experiment begins with"),
        (["compare", "reformer/table22"], "table2"),
        (["compare", "reformer/table2", "--records", "nowhere"], "--records: nowhere is no directory"),
        (["run", "reformer/table2/lsh4", "--scale", "tiny", "--set", "STEPS = 0"], "Experiment.steps is 0"),
    ],
)
def test_wrong_use_is_one_line_with_the_nearest_name_and_status_2(capsys, words, message):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "x", "--seed", "one"],
        ["nothing"],
        ["eval", "x", "--draws", "0"],
        ["eval", "x", "--split", "train"],
    ],
)
def test_argument_errors_have_status_2(words):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2


def test_check_passes_on_good_files_and_fails_on_bad_ones(capsys, tmp_path):
    assert main(["check", "reformer/table2/full"]) == 0
    assert "657,536 parameters" in capsys.readouterr().out
    (tmp_path / "bad.gin").write_text("include 'reformer/duplication.gin'\nHEADS = 3\n")
    assert main(["check", str(tmp_path / "bad.gin")]) == 1
    assert "width 256 is not a multiple of heads 3" in capsys.readouterr().out


def test_data_that_cannot_be_used_and_places_that_cannot_be_written_are_one_line(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    row = ["run", "reformer/table2/lsh4", "--scale", "tiny", "--workdir", str(tmp_path / "runs")]
    for words, message in (
        ([*row, "--set", "LENGTH = 7"], "length must be even"),
        (["report", "--records", str(tmp_path), "--out", str(tmp_path / "file/x")], "file/x"),
        (["run", "reformer/table2/lsh4", "--scale", "tiny", "--workdir", str(tmp_path / "file")], "cannot write in"),
    ):
        assert main(words) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.startswith("repro: ") and error.count("\n") == 1


def test_eval_without_a_run_says_so(capsys, tmp_path):
    assert main(["eval", "reformer/table2/full", "--scale", "tiny", "--workdir", str(tmp_path)]) == 1
    assert "has not been trained here" in capsys.readouterr().err

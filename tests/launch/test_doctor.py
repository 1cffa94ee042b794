"""The doctor's findings, and the set-up script's refusals: one clear line each."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from launch import doctor

ROOT = Path(__file__).parents[2]


def findings(folder=ROOT):
    """(status, all lines)."""
    lines = []
    status = doctor.doctor(lines.append, folder)
    return status, lines


def line_of(check, lines):
    return next(line for line in lines if line.split()[1] == check)


def test_a_sound_environment_has_no_failure():
    status, lines = findings()
    assert status == 0, lines
    checks = ["python", "packages", "nightlies", "devices", "memory", "disk", "commit"]
    assert [line.split()[1] for line in lines] == checks
    assert "all 1" in line_of("packages", lines)


def test_pins_follow_the_markers_of_this_interpreter(tmp_path):
    lines = ("# a comment", "--constraint never.txt", "A_b==1.0  # why", "c==2 ; python_version < '3'", "c==3")
    (tmp_path / "some.txt").write_text("\n".join(lines))
    assert doctor.pins(tmp_path / "some.txt") == {"a-b": "1.0", "c": "3"}


@pytest.mark.parametrize(
    ("absent", "level", "text"),
    [
        (
            {"jax", "optax"},
            "FAIL",
            "not installed: jax, optax; install the pins: make venv, or pip install --no-deps -r",
        ),
        ({"seqio", "clu", "t5"}, "warn", "bare box: 3 packages of cpu.txt are not installed"),
        ({"ruff"}, "warn", "not installed: ruff"),
    ],
)
def test_lacking_packages_fail_only_where_nothing_runs_without_them(monkeypatch, absent, level, text):
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: None if name in absent else real(name))
    status, lines = findings()
    assert line_of("packages", lines).startswith(level)
    assert text in line_of("packages", lines)
    assert status == (level == "FAIL")


def test_another_version_is_named_beside_the_pinned_one(monkeypatch):
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: "0.1" if name == "numpy" else real(name))
    status, lines = findings()
    assert status == 0
    assert "other versions than pinned: numpy 0.1 (pinned 2." in line_of("packages", lines)


def test_a_nightly_twin_is_a_failure(monkeypatch):
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: "1" if name == "tfds-nightly" else real(name))
    status, lines = findings()
    assert status == 1
    assert "tfds-nightly installed, which overwrites" in line_of("nightlies", lines)


def test_an_overwritten_release_is_a_failure(monkeypatch, tmp_path):
    class File:
        size = 10

        def __init__(self, name):
            self.name = name

        def __str__(self):
            return self.name

        def locate(self):
            return tmp_path / self.name

    (tmp_path / "whole").write_bytes(bytes(10))
    (tmp_path / "foreign").write_bytes(bytes(11))
    files = [File("whole"), File("foreign"), File("lost")]
    monkeypatch.setattr(doctor.metadata, "files", lambda name: files if name == "seqio" else [])
    status, lines = findings()
    assert status == 1
    assert "seqio has 2 foreign or lost files (foreign); rebuild the environment" in line_of("nightlies", lines)


def test_disk_and_interpreter_and_checkout(monkeypatch, tmp_path):
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=2**20))
    monkeypatch.setattr(doctor, "PYTHONS", ((4, 0), (4, 1)))
    monkeypatch.setenv("REPRO_RUNS", str(tmp_path / "not" / "made"))
    status, lines = findings(tmp_path)
    assert status == 1
    assert line_of("python", lines).startswith("FAIL")
    assert f"0.0 GiB free at {tmp_path}; delete old folders" in line_of("disk", lines)
    assert "no git checkout; records would not name their commit" in line_of("commit", lines)


def test_a_check_that_breaks_does_not_hide_the_others(monkeypatch):
    def memory(folder):
        raise OSError("no such value")

    monkeypatch.setattr(doctor, "memory", memory)
    status, lines = findings()
    assert status == 1
    assert "OSError: no such value; the check itself broke" in line_of("memory", lines)
    assert line_of("disk", lines)


@pytest.fixture
def checkout(tmp_path):
    """A folder with what the set-up script reads, and a half-finished environment in it."""
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv").mkdir()
    return tmp_path


def setup(folder, **environment):
    command = ["sh", str(folder / "requirements" / "venv.sh")]
    return subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)


def interpreter(folder, code):
    """An executable that runs ``code`` before whatever Python it is given on standard input."""
    folder.mkdir(exist_ok=True)
    path = folder / "python3"
    (folder / "before.py").write_text(code + "\nexec(sys.stdin.read())\n")
    path.write_text(f"#!/bin/sh\nexec {sys.executable} {folder}/before.py\n")
    path.chmod(0o755)
    return str(path)


OLD = "import sys; sys.version_info = (3, 10, 13)"
NO_VENV = "import sys; sys.modules['ensurepip'] = None; sys.version_info = (3, 12, 1)"
NO_COMPILER = "import os, sys; sys.version_info = (3, 13, 0); os.environ.update(CC='no-cc', CXX='no-c++ -O')"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (OLD, "needs Python 3.11, 3.12 or 3.13, found Python 3.10.13"),
        (NO_VENV, "has no venv module: on Debian or Ubuntu, apt install python3.12-venv"),
        (NO_COMPILER, "needs a C++ compiler and Python.h, lacking here: no-cc, no-c++"),
        ("import sys; sys.exit(127)", "does not run; give the path of a Python 3.11, 3.12 or 3.13"),
    ],
)
def test_an_interpreter_that_does_not_fit_gets_one_line(checkout, code, text):
    done = setup(checkout, PATH=os.environ["PATH"], PYTHON=interpreter(checkout / "bin", code))
    assert done.returncode == 1
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_interpreters_are_looked_for_and_the_nearest_miss_is_explained(checkout):
    tools = checkout / "tools"
    tools.mkdir()
    for name in ("cat", "cksum", "dirname", "sh"):
        (tools / name).symlink_to(shutil.which(name))
    assert "found none: install one" in setup(checkout, PATH=str(tools)).stderr
    interpreter(checkout / "old", OLD)
    interpreter(checkout / "bin", NO_VENV)
    done = setup(checkout, PATH=f"{checkout}/old:{checkout}/bin:{tools}")
    assert done.returncode == 1
    assert "apt install python3.12-venv" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="not run from the environment that make builds")
def test_an_environment_in_place_is_left_alone():
    before = (ROOT / ".venv" / "pyvenv.cfg").stat()
    done = setup(ROOT, PATH=os.environ["PATH"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (ROOT / ".venv" / "pyvenv.cfg").stat() == before

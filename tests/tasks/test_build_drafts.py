"""Where a build goes: one at a time, nothing half written in it, and never what was there before its source changed."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from build_stand_ins import Killed, OneByOne

from tasks.build import drafts, laidout, parts
from tasks.build.isabelle import Isabelle
from tasks.build.pipeline import Job, build
from tasks.task import DataError


@pytest.fixture
def source(tmp_path):
    for number in range(6):
        entry = tmp_path / f"source/E{number}"
        entry.mkdir(parents=True)
        (entry / "ROOT").write_text(f"session E{number} = HOL + theories A")
        (entry / "A.thy").write_text(f"theory A imports Main begin {number}x end\n")
        os.utime(entry / "A.thy", (0, 0))
    return tmp_path / "source"


def job(source):
    return Job(Isabelle(), (str(source),))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_a_killed_worker_left_is_no_part_of_a_build(source, tmp_path):
    """A process that is killed cannot clear up what it was writing."""
    whole = files(build(job(source), tmp_path / "a", OneByOne()))
    with pytest.raises(Killed):
        build(job(source), tmp_path / "b", OneByOne(2))
    draft = tmp_path / "b/isabelle/.1.0.0.part"
    for left in ("ready/.isabelle-train.tfrecord-00000-of-00001.7-abc", "parts/.00000.json.7-abc", "ready/.x.7-abc"):
        (draft / left).write_bytes(b"half")
    assert files(build(job(source), tmp_path / "b", OneByOne())) == whole
    assert os.listdir(tmp_path / "b/isabelle") == ["1.0.0"]


def test_what_was_written_since_is_read_again(source, tmp_path, monkeypatch):
    """Though its size is as before, by which a build knows its inputs otherwise."""
    monkeypatch.setattr(parts, "MOST_UNITS", 1)
    changed = source / "E3/A.thy"
    with pytest.raises(Killed):
        build(job(source), tmp_path / "out", OneByOne(6 + 1))  # all is read, and one file written
    changed.write_text(changed.read_text().replace("3x", "9x"))
    os.utime(changed)
    found = build(job(source), tmp_path / "out", OneByOne())
    assert files(found) == files(build(job(source), tmp_path / "other", OneByOne()))
    assert b"9x" in b"".join(files(found).values())
    os.utime(changed, (2**32, 2**32))
    assert build(job(source), tmp_path / "out", OneByOne()) == found  # nobody has written it yet
    os.utime(changed)
    with pytest.raises(DataError, match=r"was built before .*/E3 was last written; remove it to build again, or"):
        build(job(source), tmp_path / "out", OneByOne())


HOLDS = "import sys; from pathlib import Path; from tasks.build import drafts\n" + (
    "with drafts.draft(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
)


def test_one_build_at_a_time_in_one_place(source, tmp_path):
    place = tmp_path / "out/isabelle/1.0.0"
    command = [sys.executable, "-c", HOLDS, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(DataError, match=r"another build of .*/isabelle/1.0.0 is running; wait for it, or choose"):
            build(job(source), tmp_path / "out", OneByOne())
        assert place.with_name(".1.0.0.part").is_dir()  # the other one's still
        other.send_signal(signal.SIGKILL)
    assert build(job(source), tmp_path / "out", OneByOne()) == place


def test_layouts_are_built_one_at_a_time_too(tmp_path):
    with drafts.draft(tmp_path / "x"), pytest.raises(DataError, match="another build of"):
        laidout.lay_out("x", [], tmp_path, {}, lambda draft: None)


def test_workers_end_with_the_one_who_leads_them():
    """Killed, it cannot tell them; they would wait for ever."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as leader:
        code = f"from tasks.build.workers import follow; follow({leader.pid}, 0.05); print(flush=True); input()"
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()) as worker:
            assert worker.stdout.readline() == b"\n" and worker.poll() is None
            leader.kill()
            leader.wait()
            assert worker.wait(60) == 1


def test_what_is_in_the_way_is_told(source, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(DataError, match=r"/file is a file, where a folder is wanted; move it away, or choose"):
            build(job(source), out, OneByOne())
    (tmp_path / "out/isabelle/1.0.0").mkdir(parents=True)
    with pytest.raises(DataError, match=r"1.0.0 is there and was not built by this command; move it away, or choose"):
        build(job(source), tmp_path / "out", OneByOne())
    assert list((tmp_path / "out/isabelle/1.0.0").iterdir()) == []


def test_what_git_keeps_for_itself_is_not_written(tmp_path):
    from tasks.build.folders import touched

    (tmp_path / ".git").mkdir()
    (tmp_path / "a").write_text("")
    os.utime(tmp_path / "a", ns=(5, 5))
    (tmp_path / ".git/index").write_text("")
    assert touched(tmp_path) == 5 and touched(tmp_path / "a") == 5 and touched(tmp_path / "gone") == 0


def test_a_model_may_lie_anywhere(tmp_path):
    """Where a vocabulary lies is no part of a corpus, also where its reader measures by it."""
    from tasks.build.c4 import C4

    (tmp_path / "c").mkdir()
    (tmp_path / "c/a.json").write_text('{"text": "page"}\n')
    made = Job(C4("bytes", least=1, sample=True), (str(tmp_path / "c"),), vocabulary="bytes")
    assert made.options() == {"vocabulary": "bytes", "least": 1, "sample": True}
    assert made.units(Counter())

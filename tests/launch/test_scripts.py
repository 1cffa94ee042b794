"""The scripts that start runs elsewhere: what they would do, and the worker that does it."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch import cli
from launch.composition import ROOT

SCRIPTS = ROOT / "launch" / "scripts"
STEM = ["memorizing/table4/ctx512+arxiv", "--set", "DATA = '/mnt/a \"b\"'"]


def dry(script, *words):
    done = subprocess.run(
        [SCRIPTS / script, "--dry-run", *words], capture_output=True, text=True, check=True, cwd="/", env=clean()
    )
    return done.stdout.strip().splitlines()


def clean(**more):
    """This environment without what would change the scripts."""
    return {name: value for name, value in os.environ.items() if not name.startswith("REPRO_")} | more


def accepted(words):
    """The words behind worker.sh are a command that `repro run` takes, the stem and its setting whole."""
    arguments = cli._parser().parse_args(["run", *words])
    assert [arguments.stem, "--set", *arguments.overrides] == STEM


def after_worker(text):
    words = shlex.split(text)
    return words[words.index("launch/scripts/worker.sh") + 1 :]


def test_a_tpu_pod_gets_the_same_command_on_all_machines():
    (line,) = dry("tpu_pod.sh", "run", "pod", "zone-a", "/mnt/r s", *STEM)
    words = shlex.split(line)
    assert " ".join(words[:8]) == "gcloud compute tpus tpu-vm ssh pod --zone=zone-a --worker=all"
    remote = words[8].removeprefix("--command=")
    assert "REPRO_PROCESSES=auto" in remote
    assert "REPRO_RUNS=/mnt/r s" in shlex.split(remote)
    accepted(after_worker(remote))
    lines = dry("tpu_pod.sh", "setup", "pod", "zone-a")
    assert [line.split()[0] for line in lines] == ["git", "gcloud", "gcloud"]
    assert "requirements/tpu.txt" in lines[-1]


def test_slurm_is_asked_for_a_process_for_each_gpu():
    (line,) = dry("slurm.sh", "4", "8", *STEM)
    words = shlex.split(line)
    assert {"sbatch", "--nodes=4", "--ntasks-per-node=8", "--requeue"} <= set(words)
    (wrapped,) = (word.removeprefix("--wrap=") for word in words if word.startswith("--wrap="))
    assert wrapped.startswith("srun ")
    accepted(after_worker(wrapped))


def test_kubernetes_gets_a_job_set_in_which_each_pod_knows_its_number():
    text = "\n".join(dry("jobset.sh", "tables", "image:1", "4", "disk", *STEM))
    accepted(json.loads(re.search(r"args: (\[.*\])", text)[1]))
    assert "value: $(NUMBER)/4@tables-workers-0-0.tables:8476" in text
    assert len(re.findall(r": 4$", text, re.MULTILINE)) == 2  # parallelism and completions
    assert "claimName: disk" in text


def test_one_machine_needs_no_processes():
    (line,) = dry("gpu_box.sh", *STEM)
    assert "-u REPRO_PROCESSES" in line
    accepted(after_worker(line))


@pytest.mark.parametrize("script", ["tpu_pod.sh", "slurm.sh", "jobset.sh", "gpu_box.sh"])
def test_wrong_use_shows_the_form(script):
    done = subprocess.run([SCRIPTS / script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert f"{script} [--dry-run]" in done.stderr


def test_the_worker_begins_again_after_a_failure_and_not_after_wrong_use(tmp_path):
    """A stand-in for Python counts its calls, and ends with the status it is told."""
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexit $STATUS\n')
    stand_in.chmod(0o755)
    for status, calls in ((0, 1), (1, 3), (2, 1), (143, 1)):
        (tmp_path / "calls").unlink(missing_ok=True)
        environment = clean(PYTHON=str(stand_in), STATUS=str(status), RESTARTS="2", PAUSE="0")
        done = subprocess.run([SCRIPTS / "worker.sh", *STEM], env=environment, capture_output=True, text=True)
        assert done.returncode == status
        assert (tmp_path / "calls").read_text().splitlines() == [f"-m launch run {' '.join(STEM)}"] * calls


@pytest.mark.parametrize("place", [0, 1, 3])
def test_dry_run_may_stand_anywhere(place):
    words = ["run", "pod", "zone", "/runs", *STEM]
    words.insert(place, "--dry-run")
    done = subprocess.run(
        [SCRIPTS / "tpu_pod.sh", *words], env=clean(PATH="/usr/bin:/bin"), capture_output=True, text=True
    )
    assert done.returncode == 0 and "gcloud compute tpus tpu-vm ssh pod" in done.stdout, done.stderr
    assert "--dry-run" not in done.stdout


def stopped_worker(tmp_path, program, signals, **environment):
    """(exit status, what the program wrote) of a worker that gets signals, each after a number of seconds."""
    stand_in = tmp_path / "python"
    stand_in.write_text(f"#!/bin/bash\nexec >> {tmp_path}/said\n{program}\n")
    stand_in.chmod(0o755)
    worker = subprocess.Popen([SCRIPTS / "worker.sh", *STEM], env=clean(PYTHON=str(stand_in), **environment))
    while not (tmp_path / "said").exists() or not (tmp_path / "said").read_text():
        time.sleep(0.02)
    for pause, number in signals:
        time.sleep(pause)
        worker.send_signal(number)
    return worker.wait(30), (tmp_path / "said").read_text().split()


def test_the_worker_waits_for_what_saves_however_often_it_is_told(tmp_path):
    saves = "for i in 1 2 3 4 5; do sleep 0.2; done\necho saved\nexit 143"
    program = f"trap 'echo told' TERM\necho begun\nsleep 1 & wait\n{saves}"
    told = [(0.3, signal.SIGTERM), (0.3, signal.SIGTERM), (0.1, signal.SIGHUP)]
    status, said = stopped_worker(tmp_path, program, told, RESTARTS="3")
    assert status == 143
    assert said[0] == "begun" and said[-1] == "saved" and said.count("begun") == 1


def test_the_worker_stops_in_its_pause(tmp_path):
    status, said = stopped_worker(tmp_path, "echo begun\nexit 1", [(1.0, signal.SIGTERM)], RESTARTS="3", PAUSE="20")
    assert (status, said) == (143, ["begun"])


def test_the_worker_refuses_what_is_no_number():
    done = subprocess.run([SCRIPTS / "worker.sh", *STEM], env=clean(RESTARTS="abc"), capture_output=True, text=True)
    assert done.returncode == 2 and "RESTARTS and PAUSE are whole numbers, got 'abc'" in done.stderr


@pytest.mark.slow
def test_the_worker_runs_and_saves_when_it_is_told_to_stop(tmp_path):
    words = ["reformer/table2/lsh2", "--scale", "tiny", "--records", str(tmp_path / "records")]
    environment = clean(PYTHON=sys.executable, REPRO_RUNS=str(tmp_path / "runs"))
    subprocess.run([SCRIPTS / "worker.sh", *words], env=environment, check=True, capture_output=True)
    assert len(list((tmp_path / "records").rglob("*.json"))) == 1
    long = [*words, "--set", "STEPS = 100000", "--set", "SAVE_EVERY = 0"]
    worker = subprocess.Popen([SCRIPTS / "worker.sh", *long], env=environment, stdout=subprocess.PIPE, text=True)
    for line in worker.stdout:  # the first line of progress
        if "step" in line:
            worker.terminate()
            break
    worker.communicate(timeout=120)  # a pipe closed before its end would be a failure of its own
    assert worker.returncode == 143
    assert list((tmp_path / "runs").rglob("checkpoints/[0-9]*"))


SHELLCHECK = shutil.which("shellcheck", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))


@pytest.mark.skipif(not SHELLCHECK, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_to_say():
    scripts = sorted(SCRIPTS.glob("*.sh"))
    done = subprocess.run([SHELLCHECK, "--external-sources", *scripts], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout

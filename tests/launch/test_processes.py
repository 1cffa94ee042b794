"""Several processes on one machine, over loopback: one run together, one lost, one stopped, continued."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from launch import processes
from launch.composition import ROOT
from launch.errors import ConfigError

PROGRAM = Path(__file__).parent / "one_of_many.py"
REFORMER, MEMORY = "reformer/table2/full", "memorizing/acceptance/definitions"
PATIENCE = int(os.environ.get("REPRO_PATIENCE", 300))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(count, folder, stem, *overrides, devices=4, pause=0.0, **sharding):
    """So many processes of one run, with the devices dealt out among them."""
    port, started = free_port(), []
    for number in range(count):
        setting = {"stem": stem, "folder": str(folder), "sharding": sharding, "pause": pause,
                   "overrides": ["BATCH = 4", "LOG_EVERY = 1", "EVAL_EVERY = 0", *overrides],
                   "who": f"{number}/{count}@127.0.0.1:{port}" if count > 1 else ""}  # fmt: skip
        # On a busy machine one process still compiles what another waits for; XLA gives up after 40 s.
        patient = [f"--xla_cpu_collective_{name}timeout_seconds={PATIENCE}" for name in ("", "call_terminate_")]
        flags = " ".join((f"--xla_force_host_platform_device_count={devices // count}", *patient))
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        command = [sys.executable, str(PROGRAM), json.dumps(setting)]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        )
    return started


def answers(started):
    """What each process said last, and its exit status."""
    found = []
    for one in started:
        try:
            out, err = one.communicate(timeout=PATIENCE)
        finally:
            for other in started:
                if sys.exc_info()[0]:
                    other.kill()
        said = [line for line in out.splitlines() if line.startswith("{")]  # Gloo's own lines may come last
        assert said, err[-3000:]
        found.append((json.loads(said[-1]), one.returncode))
    return found


def wait_for(holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def saved(folder):
    return {int(path.name) for path in Path(folder).glob("checkpoints/*") if path.name.isdigit()}


@pytest.mark.slow
def test_two_processes_train_as_one_each_with_its_own_slots(tmp_path):
    """Losses within 1e-5 of one process's, relative; the same parameters, bit for bit, on both."""
    steps = ("STEPS = 4", "SAVE_EVERY = 2")
    ((alone, status),) = answers(start(1, tmp_path / "one", MEMORY, *steps, fully=2))
    assert status == 0
    both = answers(start(2, tmp_path / "two", MEMORY, *steps, fully=2))
    assert [status for _, status in both] == [0, 0]
    first, second = (answer for answer, _ in both)
    assert first["devices"] == alone["devices"] == 4
    assert first["params"] == second["params"]
    assert first["examples"] == second["examples"] == alone["examples"]
    np.testing.assert_allclose(first["curve"]["nats_per_token"], alone["curve"]["nats_per_token"], rtol=1e-5)
    np.testing.assert_allclose([first["value"], second["value"]], alone["value"], rtol=1e-5)
    # Another number of processes and devices goes on from there, and finds everything done.
    ((again, status),) = answers(start(1, tmp_path / "two", MEMORY, *steps, devices=2))
    assert status == 0
    np.testing.assert_allclose(again["value"], first["value"], rtol=1e-5)


@pytest.mark.slow
def test_one_is_lost_the_others_say_so_and_all_continue_from_the_last_whole_checkpoint(tmp_path):
    steps = ("STEPS = 6", "SAVE_EVERY = 2")
    whole = answers(start(2, tmp_path / "whole", REFORMER, *steps, devices=2))
    started = start(2, tmp_path / "lost", REFORMER, *steps, devices=2, pause=1.0)
    wait_for(lambda: 2 in saved(tmp_path / "lost"))
    started[1].kill()
    started[1].communicate()
    ((said, status),) = answers(started[:1])
    assert status == 1
    assert "process 0 of 2 lost the others" in said["error"] and said["error"].endswith("start all again")
    assert saved(tmp_path / "lost") and max(saved(tmp_path / "lost")) < 6
    again = answers(start(2, tmp_path / "lost", REFORMER, *steps, devices=2))
    assert [answer["params"] for answer, _ in again] == [answer["params"] for answer, _ in whole]
    assert again[0][0]["curve"] == whole[0][0]["curve"]


@pytest.mark.slow
def test_one_is_told_to_stop_and_all_save_and_stop_together(tmp_path):
    started = start(2, tmp_path, REFORMER, "STEPS = 2000", "SAVE_EVERY = 0", devices=2, pause=0.1)
    metrics = tmp_path / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 2)
    started[1].send_signal(signal.SIGTERM)
    found = answers(started)
    assert [status for _, status in found] == [143, 143]
    steps = {answer["error"] for answer, _ in found}
    assert len(steps) == 1 and "the same command continues" in steps.pop()
    (step,) = saved(tmp_path)
    assert step % processes.AGREE_EVERY == 0


@pytest.mark.slow
def test_folders_that_are_not_one_are_noticed_before_anything_is_trained(tmp_path):
    port, started = free_port(), []
    for number in range(2):
        places = ["--workdir", str(tmp_path / str(number)), "--records", str(tmp_path / "records")]
        words = ["run", REFORMER, "--scale", "tiny", "--processes", f"{number}/2@127.0.0.1:{port}", *places]
        command = [sys.executable, "-m", "launch", *words]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT))
    said = [one.communicate(timeout=PATIENCE)[1] for one in started]
    assert [one.returncode for one in started] == [1, 1]
    assert all("another folder for process 1 than for the first one" in text for text in said)
    assert not list(tmp_path.rglob("checkpoints/*"))


def test_patience_is_a_number(monkeypatch):
    monkeypatch.setenv("REPRO_PATIENCE", "soon")
    with pytest.raises(ConfigError, match="REPRO_PATIENCE is 'soon'; wants seconds"):
        processes.join("0/2@127.0.0.1:1")


@pytest.mark.parametrize("text", ["3", "4/4@host:1", "0/2@host", "0/2@:80:", "a/2@host:80"])
def test_who_a_process_is_must_be_said_clearly(text):
    with pytest.raises(ConfigError, match=r"--processes is .*; wants 'auto' .* or NUMBER/COUNT@HOST:PORT"):
        processes.join(text)


def test_a_process_on_its_own_needs_nobody():
    processes.join("")
    assert processes.first() and processes.agreed(True) and not processes.agreed(False, 10)
    processes.meet("nowhere")
    processes.leave(ConfigError("told"))
    with pytest.raises(KeyError), processes.together("advice"):
        raise KeyError("ours")

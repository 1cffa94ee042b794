"""Training: exact resumption, one result for any device count, and clear ends when something goes wrong."""

import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from stand_ins import Killed, Silent

from launch import composition as files
from launch import config, sharding
from launch.errors import CheckpointError, NonFiniteLoss, RunError, Stopped
from launch.evaluate import evaluate
from launch.history import History
from launch.run import run
from launch.train import restore_params, train

ROW = "reformer/table2/lsh2"


def experiment(*overrides):
    """The tiny scale of one row, with two of its evaluations: compiling is what costs here."""
    made = config.build(files.compose(ROW, "tiny", overrides=overrides))
    return dataclasses.replace(made, evaluations={name: made.evaluations[name] for name in ("full", "lsh2")})


def trained(folder, hooks=(), **changes):
    folder.mkdir(exist_ok=True)
    return train(dataclasses.replace(experiment(), **changes), folder, Silent(), hooks)


def same(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)


@pytest.mark.parametrize("at", [2, 5, 7, 11])
def test_a_killed_run_ends_bit_identical(tmp_path, at):
    whole = trained(tmp_path / "whole")

    def kill(step):
        if step == at:
            raise Killed

    with pytest.raises(Killed):
        trained(tmp_path / "killed", (kill,))
    again = trained(tmp_path / "killed")
    same(whole.params, again.params)
    assert whole.curve == again.curve
    lines = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "killed")]
    assert lines[0] == lines[1]
    steps = [json.loads(line)["step"] for line in lines[0].splitlines() if '"train"' in line]
    assert steps == [3, 6, 9, 12]


def test_stop_signal_saves_and_the_same_command_continues(tmp_path):
    whole = trained(tmp_path / "whole")

    def ask(step):
        if step == 6:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped, match="stopped at step 7 of 12; the same command continues") as stopped:
        trained(tmp_path / "stopped", (ask,))
    assert stopped.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    same(whole.params, trained(tmp_path / "stopped").params)


def test_stop_signal_at_the_last_step_is_not_lost(tmp_path):
    def ask(step):
        if step == 12:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped, match="stopped at step 12 of 12"):
        trained(tmp_path / "run", (ask,))
    assert trained(tmp_path / "run").curve["step"] == [3, 6, 9, 12]


@pytest.mark.slow
def test_devices_sharding_and_micro_batches_give_one_result(tmp_path, monkeypatch):
    # Exact attention: micro-batches would draw other rotations. LSH on eight devices is in the next test.
    model = config.build(files.compose("reformer/table2/full", "tiny")).model
    changes = {"batch_size": 8, "steps": 3, "evaluations": {}, "model": model}
    assert sharding.Sharding().mesh(8).size == 8
    many = trained(tmp_path / "many", **changes)
    sharded = trained(tmp_path / "sharded", sharding="fsdp", **changes)
    # Under fsdp some parameter must really be spread, or this would test nothing.
    assert any(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(sharded.params))
    monkeypatch.setattr(jax, "devices", lambda: jax.local_devices()[:1])
    one = trained(tmp_path / "one", **changes)
    micro = trained(tmp_path / "micro", accumulate=4, **changes)
    for other in (many, sharded, micro):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), other.params, one.params)


@pytest.mark.slow
def test_restoring_on_another_number_of_devices(tmp_path, monkeypatch):
    def kill(step):
        if step == 5:
            raise Killed

    with pytest.raises(Killed):
        trained(tmp_path / "run", (kill,), batch_size=8, sharding="fsdp", evaluations={})
    monkeypatch.setattr(jax, "devices", lambda: jax.local_devices()[:2])
    again = trained(tmp_path / "run", batch_size=8, sharding="fsdp", evaluations={})
    whole = trained(tmp_path / "whole", batch_size=8, evaluations={})
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), whole.params, again.params)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_good_checkpoint(tmp_path):
    rate = "optimizers.WarmupDecay.peak = 1e38"
    broken = experiment(rate, "optimizers.WarmupDecay.warmup = 1", "optimizers.WarmupDecay.decay = 'none'")
    tmp_path = tmp_path / "run"
    tmp_path.mkdir()
    with pytest.raises(NonFiniteLoss, match=r"became (nan|inf) in step \d+ .*learning rate"):
        train(dataclasses.replace(broken, save_every=1), tmp_path, Silent())
    kept = sorted(int(p.name) for p in (tmp_path / "checkpoints").iterdir() if p.name.isdigit())
    assert kept


@pytest.mark.slow
def test_a_failing_disk_is_one_line_and_leaves_the_last_checkpoint_whole(tmp_path):
    """A real limit on file sizes in a child process, from the second checkpoint on."""
    code = f"""
import resource, sys
sys.path[:0] = {[str(files.ROOT), str(files.ROOT / "tests" / "launch")]!r}
import test_training as t, pathlib
from launch.errors import UserError
def limit(step):
    if step == 7:  # after the lines of step 6, before the checkpoint of step 8
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
try:
    t.trained(pathlib.Path({str(tmp_path / "run")!r}), (limit,))
except UserError as error:  # the checkpoint's, or that of the next line of metrics.jsonl, whichever comes first
    print("LINE", error)
    raise SystemExit(0)
raise SystemExit(1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("LINE"))
    assert "cannot write" in line
    assert "checkpoint" in line
    assert "whole" in line
    assert "Traceback" not in done.stderr, "Orbax's own traces, one for each array"
    assert [p.name for p in (tmp_path / "run/checkpoints").iterdir() if p.name.isdigit()] == ["4"]
    assert trained(tmp_path / "run").curve["step"][-1] == 12


def test_unwritable_place_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write in .*--workdir"):
        run(files.compose(ROW, "tiny"), tmp_path / "file", tmp_path, Silent())


def short(seed):
    """One evaluation, and none on the way: the rest of a run is what is tested."""
    return files.compose(ROW, "tiny", seed, ["EVALUATIONS = {'lsh2': @lsh2/Evaluation()}", "EVAL_EVERY = 0"])


def test_run_writes_a_record_then_says_it_is_done_and_refuses_another_config(tmp_path):
    from results import schema

    composition = short(3)
    path = run(composition, tmp_path / "runs", tmp_path / "records", Silent())
    records, problems = schema.read_all(tmp_path / "records")
    assert not problems
    (record,) = records
    assert (record.stem, record.scale, record.seed, record.steps) == (ROW, "tiny", 3, 12)
    assert record.overrides == list(composition.overrides)
    assert set(record.evaluations) == {"lsh2"}
    assert record.evaluations["lsh2"].draws == 2
    assert path.is_relative_to(tmp_path / "records" / ROW)
    monitor = Silent()
    assert run(composition, tmp_path / "runs", tmp_path / "records", monitor) == path
    assert "already done" in monitor.notes[0]
    assert schema.read_all(tmp_path / "records")[0] == [record]
    # A record that is missing among the records comes back from the run's folder.
    path.unlink()
    assert run(composition, tmp_path / "runs", tmp_path / "records", Silent()) == path
    assert schema.read(path) == record
    # One that cannot be read there is named and made again; training is not.
    folder = tmp_path / "runs" / composition.run_name
    (folder / "record.json").write_text("{")
    monitor = Silent()
    run(composition, tmp_path / "runs", tmp_path / "records", monitor)
    assert "record.json is unusable" in monitor.notes[0]
    assert schema.read(folder / "record.json").evaluations == record.evaluations
    assert schema.read(folder / "record.json").curve == record.curve
    (folder / "config.gin").write_text(composition.text.replace("STEPS = 12", "STEPS = 13"))
    with pytest.raises(RunError, match=r"(?s)another config.*-STEPS = 13.*\+STEPS = 12"):
        run(composition, tmp_path / "runs", tmp_path / "records", Silent())


def test_stop_signal_in_the_final_evaluation_keeps_the_training(tmp_path, monkeypatch):
    from launch import evaluate as module

    def stopped(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(*_, **__)

    with monkeypatch.context() as patch:
        patch.setattr(module, "evaluate", stopped)
        with pytest.raises(Stopped, match=r"SIGTERM; training is done and saved, .* repeats the evaluation") as found:
            run(short(3), tmp_path / "runs", tmp_path / "records", Silent())
    assert found.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not (tmp_path / "records").exists()
    path = run(short(3), tmp_path / "runs", tmp_path / "records", Silent())
    assert path.exists()


def test_a_record_that_finds_no_room_is_kept_with_its_run(tmp_path):
    (tmp_path / "full").write_text("")
    with pytest.raises(RunError, match=r"cannot write a record in .*the run is done .*record.json"):
        run(short(3), tmp_path / "runs", tmp_path / "full", Silent())
    assert run(short(3), tmp_path / "runs", tmp_path / "records", Silent()).exists()


def test_lines_of_metrics_cut_off_by_a_kill_are_dropped_and_foreign_ones_named(tmp_path):
    path, task = tmp_path / "metrics.jsonl", experiment().task
    lines = [json.dumps({"step": step, "split": "train", "accuracy": 1.0, "nats_per_token": 2.0}) for step in (3, 6, 9)]

    def steps():
        with contextlib.closing(History(tmp_path, task)) as history:
            history.restore(6, None)
            return history.curve()["step"]

    for odd in ('{"step": 12, "spl', "\0\0\0", "[1]", '{"a": 2}', "\udcff"):
        path.write_text("\n".join([*lines, odd]), errors="surrogateescape")
        assert steps() == [3, 6]
        assert path.read_text() == "\n".join([*lines[:2], ""])
        path.write_text("\n".join([lines[0], odd, *lines[1:], ""]), errors="surrogateescape")
        bad = path.read_bytes()
        with pytest.raises(RunError, match=r"metrics.jsonl:2 is no line of metrics"):
            steps()
        assert path.read_bytes() == bad


def test_evaluation_is_the_same_for_any_batch_size_and_device_count():
    made = experiment()
    params = made.model.init(jax.random.key(0))
    for name in ("full", "lsh2"):
        results = []
        for size, count in ((1, 1), (8, 8), (3, 2)):
            mesh = sharding.Sharding().mesh(count)
            assert mesh.size == count
            everywhere = jax.device_put(params, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
            chosen = dataclasses.replace(made.evaluations[name], batch_size=size)
            results.append(evaluate(everywhere, chosen, seed=0))
        first = results[0]
        assert first["examples"] == 6
        assert first["weight"] == 6 * 15  # 15 scored symbols in each example of length 32
        for other in results[1:]:
            assert other["metrics"]["accuracy"]["per_draw"] == first["metrics"]["accuracy"]["per_draw"]
            np.testing.assert_allclose(
                other["metrics"]["nats_per_token"]["per_draw"],
                first["metrics"]["nats_per_token"]["per_draw"],
                rtol=1e-6,
            )


def test_evaluation_against_numpy():
    made = experiment()
    params = made.model.init(jax.random.key(0))
    chosen = made.evaluations["full"]
    batch = next(made.task.feed("test", 6))
    logits = np.asarray(made.evaluations["full"].model.logits(
        params, made.evaluations["full"].model.hidden_states(params, batch)), np.float64)  # fmt: skip
    nats = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(
        logits, batch["decoder_target_tokens"][..., None], axis=-1
    ).squeeze(-1)
    weights = batch["decoder_loss_weights"]
    right = logits.argmax(-1) == batch["decoder_target_tokens"]
    result = evaluate(params, chosen, seed=0)["metrics"]
    np.testing.assert_allclose(result["nats_per_token"]["value"], (nats * weights).sum() / weights.sum(), rtol=1e-6)
    np.testing.assert_allclose(result["accuracy"]["value"], 100 * (right * weights).sum() / weights.sum())


@pytest.mark.slow
@pytest.mark.parametrize("stem", [ROW, "memorizing/acceptance/definitions"])  # the second has caches and a memory
def test_sigkill_of_the_real_command_ends_bit_identical(tmp_path, stem):
    """Killed once when something is saved, and then KILLS - 1 times at random moments of a run's life."""
    overrides = ("STEPS = 60",)

    def command(folder):
        words = ["run", stem, "--scale", "tiny", "--set", *overrides]
        places = ["--workdir", str(tmp_path / folder), "--records", str(tmp_path / f"records-{folder}")]
        return [sys.executable, "-m", "launch", *words, *places]

    def found(folder, pattern):
        return list((tmp_path / folder).rglob(pattern))

    began = time.monotonic()
    subprocess.run(command("whole"), check=True, cwd=files.ROOT, capture_output=True)
    life = time.monotonic() - began
    dice, killed = random.Random(), 0
    for number in range(int(os.environ.get("KILLS", "1"))):
        process = subprocess.Popen(
            command("killed"), cwd=files.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + (dice.uniform(0, life) if number else 240)
        while time.monotonic() < end and process.poll() is None:
            if not number and any(path.name.isdigit() for path in found("killed", "checkpoints/*")):
                break
            time.sleep(0.02)
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        assert number or killed, "the run ended before it could be killed"
    print(f"{stem}: killed {killed} times, a whole run takes {life:.1f} s")
    subprocess.run(command("killed"), check=True, cwd=files.ROOT, capture_output=True)
    whole, mended = (found(name, "metrics.jsonl")[0].read_text() for name in ("whole", "killed"))
    assert whole == mended
    records = (json.loads(found(f"records-{name}", "*.json")[0].read_text()) for name in ("whole", "killed"))
    first, second = (record["evaluations"] for record in records)
    assert first == second
    chosen = config.build(files.compose(stem, "tiny", 0, overrides))
    params = (restore_params(chosen, found(name, "metrics.jsonl")[0].parent)[1] for name in ("whole", "killed"))
    jax.tree.map(np.testing.assert_array_equal, *params)


def test_checkpoint_of_another_shape_is_named(tmp_path):
    trained(tmp_path / "run")
    with pytest.raises(
        CheckpointError, match=r"cannot read checkpoint 12: .* is shape \[.*16.*\] in the file and shape .*24"
    ):
        trained(tmp_path / "run", model=dataclasses.replace(experiment().model, hidden=24))


def test_what_is_said_of_a_damaged_checkpoint_repairs_the_run(tmp_path):
    whole = trained(tmp_path)
    for file in (tmp_path / "checkpoints/12/state").rglob("d/*"):
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(
        CheckpointError, match=r"checkpoint 12: .* Move .*checkpoints/12 away to go on from checkpoint 8"
    ):
        trained(tmp_path)
    (tmp_path / "checkpoints/12").rename(tmp_path / "away")
    same(whole.params, trained(tmp_path).params)

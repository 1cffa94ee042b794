"""Training with parameters in the host's memory. On a CPU there is one memory, so swapping is forced here."""

import dataclasses

import jax
import numpy as np
import pytest
from stand_ins import Killed, Silent

from launch import composition as files
from launch import config, swapping
from launch.errors import ConfigError
from launch.evaluate import evaluate
from launch.train import restore_params, train


def experiment():
    return config.build(files.compose("reformer/table2/full", "tiny"))


def trained(folder, hooks=(), **changed):
    folder.mkdir(exist_ok=True)
    return train(dataclasses.replace(experiment(), **changed), folder, Silent(), hooks)


def same(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)


@pytest.fixture
def forced(monkeypatch):
    monkeypatch.setattr(swapping, "one_memory", lambda: None)


def changes(**more):
    made = experiment()
    model = dataclasses.replace(made.evaluations["full"].model, layers=2, residual="reversible")
    evaluations = {"full": dataclasses.replace(made.evaluations["full"], model=model)}
    return {"model": model, "evaluations": evaluations, "steps": 4, "save_every": 2, "eval_every": 0, **more}


def kinds(tree):
    return {leaf.sharding.memory_kind for leaf in jax.tree.leaves(tree)}


@pytest.mark.slow
def test_training_does_not_depend_on_swapping(tmp_path, forced):
    """A swapped run is killed and goes on; compared with a plain run. Two programs may round otherwise than one."""

    def kill(step):
        if step == 3:
            raise Killed

    plain = trained(tmp_path / "plain", **changes())
    whole = trained(tmp_path / "whole", **changes(swap=True))
    with pytest.raises(Killed):
        trained(tmp_path / "killed", (kill,), **changes(swap=True))
    again = trained(tmp_path / "killed", **changes(swap=True))
    same(whole.params, again.params)
    assert whole.curve == again.curve
    assert kinds(whole.params) == kinds(again.params) == {"pinned_host"}
    assert kinds(plain.params) == {"device"}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), plain.params, whole.params)
    # Another placement reads the same checkpoint, and evaluation takes parameters from either.
    swapped = dataclasses.replace(experiment(), **changes(swap=True))
    step, there = restore_params(swapped, tmp_path / "killed")
    _, here = restore_params(dataclasses.replace(swapped, swap=False), tmp_path / "killed")
    assert (step, kinds(there), kinds(here)) == (4, {"pinned_host"}, {"device"})
    same(there, here)
    results = [evaluate(params, swapped.evaluations["full"], seed=0) for params in (there, here)]
    assert results[0] == results[1]


@pytest.mark.slow
def test_sharded_parameters_and_micro_batches(tmp_path, forced):
    changed = changes(batch_size=16, evaluations={})
    plain = trained(tmp_path / "plain", **changed)
    swapped = trained(tmp_path / "swapped", **changed, swap=True, sharding="fsdp", accumulate=2)
    assert kinds(swapped.params) == {"pinned_host"}
    assert any(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(swapped.params))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), plain.params, swapped.params)


def test_where_there_is_one_memory_a_line_says_so_and_nothing_changes():
    notes = []
    assert not swapping.wanted(dataclasses.replace(experiment(), swap=True), notes.append)
    (note,) = notes
    assert note.startswith("swap: CPU has one memory")
    assert not swapping.wanted(experiment(), notes.append) and len(notes) == 1


def test_wrong_use_is_explained(forced, monkeypatch):
    class Fixed:
        init = start = apply = len

    with pytest.raises(ValueError, match="Fixed cannot stream its parameters"):
        dataclasses.replace(experiment(), model=Fixed(), swap=True)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ConfigError, match="2 processes"):
        swapping.wanted(dataclasses.replace(experiment(), swap=True))

"""Where arrays lie: rules by path, against what they say; and that lying elsewhere changes no number."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from stand_ins import Silent

from launch import composition as files
from launch import config, sharding
from launch.evaluate import evaluate
from launch.sharding import DATA, ENTRIES, FULLY, ROWS, TENSOR, Sharding
from launch.train import prepare, train

ROWS_OF = {"reformer": "reformer/table2/full", "memorizing": "memorizing/acceptance/definitions"}
# Devices along (data, fully, entries, tensor) that eight simulated ones give.
SETTINGS = {
    "data": (Sharding(), (8, 1, 1, 1)),
    "fully": (Sharding(fully=4), (2, 4, 1, 1)),
    "all": (Sharding(fully=2, entries=2, tensor=2), (1, 2, 2, 2)),
}


def experiment(paper, **changes):
    made = config.build(files.compose(ROWS_OF[paper], "tiny"))
    return dataclasses.replace(made, **{"batch_size": 8, "steps": 4, "log_every": 1, **changes})


def specs(paper, setting, batch=8):
    """{path: PartitionSpec} of a whole training state, and {path: shape}."""
    made = experiment(paper, batch_size=batch, sharding=setting)
    mesh = setting.mesh(batch)
    prepared = prepare(made, mesh)
    named = lambda tree: {  # noqa: E731
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }
    return {path: one.spec for path, one in named(prepared.shardings).items()}, named(prepared.shapes)


@pytest.mark.parametrize("name", SETTINGS)
def test_meshes_have_the_sizes_asked_for(name):
    setting, sizes = SETTINGS[name]
    assert tuple(setting.mesh(8).shape.values()) == sizes


def test_what_does_not_fit_the_devices_is_said():
    with pytest.raises(ValueError, match=r"does not fit 8 devices and 8 rows"):
        Sharding(fully=3).mesh(8)
    with pytest.raises(ValueError, match=r"does not fit 8 devices"):
        Sharding(tensor=3).mesh(8)
    with pytest.raises(ValueError, match=r"Sharding.entries is 0; it must be a whole number of at least 1"):
        Sharding(entries=0)
    with pytest.raises(ValueError, match=r"axes \['rows'\]; known are data, fully, entries, tensor"):
        Sharding(rules=(("query", ("rows", None)),))
    assert Sharding().mesh(6).size == 2, "as many devices as divide the rows"
    assert sharding.of("fsdp").mesh(8).shape[FULLY] == 8


def test_data_parallel_keeps_parameters_whole_and_splits_what_belongs_to_rows():
    found, _ = specs("memorizing", Sharding())
    assert all(not any(spec) for path, spec in found.items() if not path.startswith("model/"))
    mine = {path: spec for path, spec in found.items() if path.startswith("model/")}
    assert any("rings" in path for path in mine) and any("caches" in path for path in mine)
    assert all(spec[0] == ROWS and not any(spec[1:]) for spec in mine.values())


def test_rules_by_path():
    found, shapes = specs("memorizing", Sharding(fully=2, entries=2, tensor=2))
    expected = {
        "params/layers/0/projections/query": {-2: TENSOR},
        "params/layers/0/out": {-3: TENSOR},
        "params/layers/0/feedforward/in/kernel": {-1: TENSOR},
        "params/layers/0/feedforward/out/kernel": {-2: TENSOR},
        "params/embedding": {0: TENSOR},
        "model/rings/0/keys": {0: ROWS, 1: TENSOR, 2: ENTRIES},
        "model/caches/0/0": {0: ROWS, 2: TENSOR},
        "model/waiting/0/0": {0: ROWS, 1: TENSOR},
    }
    for path, axes in expected.items():
        spec = found[path] + (None,) * (len(shapes[path].shape) - len(found[path]))
        for place, axis in axes.items():
            assert spec[place] == axis, (path, spec)
        if path.startswith("params/"):
            assert FULLY in spec, (path, spec)
    # Statistics of a parameter lie as it does.
    for path, spec in found.items():
        if path.startswith("optimizer/") and (own := "params/" + path.partition("mu/")[2]) in found:
            assert spec == found[own]
    reformer, _ = specs("reformer", Sharding(tensor=2))
    by_end = lambda end: next(spec for path, spec in reformer.items() if path.endswith(end))  # noqa: E731
    assert by_end("heads/query")[-2] == TENSOR
    assert by_end("heads/out")[-3] == TENSOR
    assert by_end("in/kernel")[-1] == TENSOR
    assert by_end("head/out")[-1] == TENSOR


def test_fully_sharded_state_takes_a_part_of_the_memory_on_each_device():
    made = experiment("memorizing")
    total, held = {}, {}
    for name, setting in (("whole", Sharding()), ("parts", Sharding(fully=8))):
        prepared = prepare(made, setting.mesh(8))
        leaves = list(
            zip(jax.tree.leaves(prepared.shapes.params), jax.tree.leaves(prepared.shardings.params), strict=True)
        )
        total[name] = sum(leaf.size for leaf, _ in leaves)
        held[name] = sum(int(np.prod(one.shard_shape(leaf.shape))) for leaf, one in leaves)
    assert held["whole"] == total["whole"]
    assert held["parts"] < 0.2 * total["parts"]


def test_gin_sets_it():
    lines = ("Experiment.sharding = @Sharding()", "Sharding.fully = 2", "Sharding.rules = [('norm$', ['data'])]")
    made = config.build(files.compose(ROWS_OF["reformer"], "tiny", overrides=lines))
    assert made.sharding == Sharding(fully=2, rules=(("norm$", (DATA,)),))


def test_own_rules_come_first():
    found, _ = specs("memorizing", Sharding(fully=2, rules=(("params/embedding$", (None, DATA)),)))
    assert found["params/embedding"] == PartitionSpec(None, DATA)
    assert FULLY in found["params/layers/0/out"]


@pytest.mark.slow
@pytest.mark.parametrize("paper", ROWS_OF)
def test_eight_devices_give_the_curve_of_one(paper, tmp_path, monkeypatch):
    """Losses of four steps within 1e-4, relative; parameters afterwards within 2e-4."""
    made = experiment(paper, evaluations={})
    curves, ends = {}, {}
    for name, (setting, _) in SETTINGS.items():
        (tmp_path / name).mkdir()
        done = train(dataclasses.replace(made, sharding=setting), tmp_path / name, Silent())
        curves[name], ends[name] = done.curve, jax.device_get(done.params)
        assert len(jax.tree.leaves(done.params)[0].sharding.device_set) == 8
    monkeypatch.setattr(jax, "devices", lambda: jax.local_devices()[:1])
    (tmp_path / "one").mkdir()
    one = train(made, tmp_path / "one", Silent())
    for name in SETTINGS:
        np.testing.assert_allclose(curves[name]["nats_per_token"], one.curve["nats_per_token"], rtol=1e-4)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), ends[name], one.params)


@pytest.mark.slow
def test_evaluation_with_a_memory_over_several_devices(tmp_path):
    """Memories split by slot, by entry and by head give what one device gives."""
    made = experiment("memorizing")
    evaluation = next(iter(made.evaluations.values()))
    params = made.model.init(jax.random.key(0))
    values = []
    for setting, devices in ((Sharding(), 1), (Sharding(), 8), (Sharding(fully=2, entries=2, tensor=2), 8)):
        mesh = setting.mesh(8, jax.devices()[:devices])
        everywhere = jax.device_put(params, jax.sharding.NamedSharding(mesh, PartitionSpec()))
        chosen = dataclasses.replace(evaluation, batch_size=8)
        values.append(evaluate(everywhere, chosen, seed=0)["metrics"]["nats_per_token"]["value"])
    np.testing.assert_allclose(values, values[0], rtol=1e-5)

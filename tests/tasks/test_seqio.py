"""What users of seqio find in the registry."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tasks
from tasks.registry import converter_class, library, metric_fn, register

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seqio():
    pytest.importorskip("seqio")
    return library()[0]


def run(script, *arguments):
    """A fresh interpreter: what is imported, hidden and printed can only be seen there."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    command = [sys.executable, *arguments, "-c", script]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False, timeout=300)


def test_tasks_need_neither_tensorflow_nor_seqio():
    script = """
import sys
for name in ("tensorflow", "seqio", "tensorflow_datasets", "jax"):
    sys.modules[name] = None
import importlib, pkgutil, tasks
for module in pkgutil.iter_modules(tasks.__path__):
    importlib.import_module("tasks." + module.name)
feed = tasks.duplication(length=8).feed("validation", 4, pipeline="numpy")
assert next(feed)["decoder_target_tokens"].shape == (4, 8)
"""
    done = run(script)
    assert done.returncode == 0, done.stderr


def test_reading_is_quiet_leaves_the_accelerators_alone_and_ends_with_the_interpreter(seqio):
    # The feed is alive when the interpreter ends, with TensorFlow's threads reading ahead: the script must end still.
    script = """
import tasks
feed = tasks.duplication(length=8).feed("train", 2, pipeline="seqio")
next(feed)
import tensorflow as tf
assert not tf.config.get_visible_devices("GPU") and not tf.config.get_visible_devices("TPU")
"""
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and done.stdout == ""


def test_the_registered_task(seqio):
    task = tasks.duplication(length=16, symbols=7, examples=6)
    assert task.register() is task.register() is seqio.get_mixture_or_task(task.name)
    registered = seqio.get_mixture_or_task("duplication.length16.symbols7.examples6")
    assert registered.output_features["targets"].vocabulary.vocab_size == 8
    assert registered.output_features["targets"].add_eos is False
    assert [fn.__name__ for fn in registered.predict_metric_fns] == ["accuracy"]
    assert [fn.__name__ for fn in registered.score_metric_fns] == ["nats_per_token"]
    assert registered.num_input_examples("train") is None and registered.num_input_examples("test") == 6
    assert tuple(registered.source.splits) == ("train", "validation", "test")


def test_get_dataset_gives_the_feeds_batches(seqio):
    task = tasks.duplication(length=16, symbols=7, examples=6)
    task.register()
    for split in ("train", "test"):
        dataset = seqio.get_dataset(
            task.name,
            {"targets": 16, "weights": 16},
            converter_class()(),
            dataset_split=split,
            shuffle=split == "train",
            seed=2,
        )
        batch = next(dataset.batch(6).as_numpy_iterator())
        np.testing.assert_equal(batch, next(task.feed(split, 6, seed=2, pipeline="numpy")))


def test_get_dataset_makes_one_pass_and_shuffles_only_when_asked(seqio, tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(100)))
    task = tasks.enwik8(str(path), length=8, sample=True)
    registered = task.register()

    def firsts(**arguments):
        dataset = registered.get_dataset({"targets": 8, "weights": 8}, split="train", **arguments)
        return [int(example["targets"][0]) - 2 for example in dataset.as_numpy_iterator()]

    stored = list(range(0, 90, 8))
    assert firsts(shuffle=False) == stored
    one, again, other = firsts(seed=1), firsts(seed=1), firsts(seed=2)
    assert sorted(one) == sorted(other) == stored and one == again != other
    assert sorted(firsts()) == stored
    halves = [firsts(shuffle=False, shard_info=seqio.ShardInfo(index, 2)) for index in (0, 1)]
    assert halves == [stored[::2], stored[1::2]]


def test_two_tasks_cannot_share_a_name(seqio):
    task = tasks.duplication(length=16, symbols=3)
    task.register()
    other = tasks.Task(task.name, 8, 4, task.metrics, tasks.duplication(length=8, symbols=3).source)
    with pytest.raises(tasks.DataError, match="already holds another task"):
        register(other)


def test_seqios_evaluator_computes_the_metrics(seqio, tmp_path):
    task = tasks.duplication(length=8, symbols=5, examples=4)
    task.register()
    evaluator = seqio.Evaluator(
        task.name,
        feature_converter=converter_class()(),
        eval_split="test",
        sequence_length={"targets": 8, "weights": 8},
        logger_cls=[],
        log_dir=str(tmp_path),
    )

    def predict(dataset, *_):  # right but for one counted position of example 2, and wrong where nothing counts
        answers = []
        for index, example in dataset.as_numpy_iterator():
            tokens = example["decoder_target_tokens"].copy()
            tokens[:5] = 7
            tokens[6] += index == 2
            answers.append((int(index), tokens.tolist()))
        return answers

    def score(dataset, *_):  # log likelihoods of the three positions that count
        return [(int(index), -1.5) for index, _ in dataset.as_numpy_iterator()]

    future, _ = evaluator.evaluate(compute_metrics=True, predict_fn=predict, score_fn=score, step=0)
    assert future.result()[task.name] == {"accuracy": pytest.approx(100 * 11 / 12), "nats_per_token": 0.5}


def test_metric_functions_on_lists():
    accuracy, nats = (metric_fn(metric) for metric in tasks.duplication().metrics)
    targets = [np.array([1, 2, 3]), np.array([4])]
    assert accuracy(targets, [np.array([1, 2, 0]), np.array([4])]) == {"accuracy": 75.0}
    assert nats(targets, [-3.0, -1.0]) == {"nats_per_token": 1.0}

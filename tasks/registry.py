"""The seqio side of a task: data source, feature converter, registration.

seqio and TensorFlow are imported inside the functions, on first use: they cost five seconds and are not everywhere.
"""

import atexit
import functools
import os
import secrets
import weakref
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from tasks.metrics import Metric
from tasks.task import SPLITS, DataError, Source, Task


@functools.cache
def library():
    """(seqio, tensorflow), with TensorFlow's start-up lines hidden and the accelerators left to JAX."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # announces itself past the log level; nothing here needs it
    import seqio
    import tensorflow as tf

    for kind in ("GPU", "TPU"):
        try:
            tf.config.set_visible_devices([], kind)
        except RuntimeError:  # somebody has used TensorFlow's devices already; it is too late to hide them
            pass
    return seqio, tf


@functools.cache
def source_class():
    """seqio.DataSource over a `tasks.task.Source`."""
    seqio, tf = library()

    class PositionSource(seqio.DataSource):
        """Examples by position: a counter and a function, so that starting anywhere is free and nothing is buffered.

        start None: one pass, as seqio's callers expect. start p: from position p on, endless for training data, each
        pass in its own order. `performs_internal_shuffling`: seqio adds no shuffle buffer.
        """

        def __init__(self, source: Source, start: int | None = None):
            # Sizes are told only for the one pass: seqio keeps data of known, small size in memory and would repeat it.
            sizes = {split: source.size(split) for split in SPLITS} if start is None else None
            super().__init__(SPLITS, sizes, caching_permitted=False, performs_internal_shuffling=True)
            self.source, self.start = source, start

        @property
        def supports_arbitrary_sharding(self) -> bool:
            return True

        def list_shards(self, split: str) -> list[str]:
            return [split]

        def get_dataset(self, split="train", shuffle=True, seed=None, shard_info=None, **unused):
            """Dataset of {'targets': int32 [t], 'weights': float32 [t]}."""
            order = None
            if shuffle:
                order = secrets.randbits(63) if seed is None else int(seed)
            shard = shard_info or seqio.ShardInfo(index=0, num_shards=1)
            endless = self.start is not None and split == "train"
            size = None if endless else self.source.size(split)
            end = tf.int64.max if size is None else size
            positions = tf.data.Dataset.range((self.start or 0) + shard.index, end, shard.num_shards)

            def read(position):
                example = self.source.example(split, int(position), order)
                return example["targets"].astype(np.int32), example["weights"].astype(np.float32)

            def load(position):
                targets, weights = tf.numpy_function(read, [position], (tf.int32, tf.float32), stateful=False)
                return {"targets": tf.ensure_shape(targets, [None]), "weights": tf.ensure_shape(weights, [None])}

            return positions.map(load)

    return PositionSource


@functools.cache
def converter_class():
    """seqio.FeatureConverter that makes the batches' features (tasks/feeds.py) of 'targets' and 'weights'."""
    seqio, tf = library()
    spec = seqio.FeatureConverter.FeatureSpec

    class DecoderFeatureConverter(seqio.FeatureConverter):
        """Like seqio's LMFeatureConverter, but weights come from the task and an id of 0 is not taken for padding."""

        TASK_FEATURES: ClassVar = {"targets": spec(dtype=tf.int32), "weights": spec(dtype=tf.float32)}
        MODEL_FEATURES: ClassVar = {
            "decoder_target_tokens": spec(dtype=tf.int32),
            "decoder_input_tokens": spec(dtype=tf.int32),
            "decoder_loss_weights": spec(dtype=tf.float32),
            "decoder_segment_ids": spec(dtype=tf.int32),
        }
        PACKING_FEATURE_DTYPES = None

        def __init__(self):
            # The length check would be two more maps over every example; rows are trimmed and padded to length anyway.
            super().__init__(pack=False, apply_length_check=False)

        def get_model_feature_lengths(self, task_feature_lengths):
            return dict.fromkeys(self.MODEL_FEATURES, task_feature_lengths["targets"])

        def _convert_features(self, ds, task_feature_lengths):
            def convert(example):
                targets = example["targets"]
                return {
                    "decoder_target_tokens": targets,
                    "decoder_input_tokens": seqio.autoregressive_inputs(targets),
                    "decoder_loss_weights": example["weights"],
                    "decoder_segment_ids": tf.ones_like(targets),
                }

            # Shifted before padding, so that padding holds zeros only.
            ds = ds.map(convert, num_parallel_calls=tf.data.AUTOTUNE)
            return self._pack_or_pad(ds, self.get_model_feature_lengths(task_feature_lengths))

    return DecoderFeatureConverter


def register(task: Task, preprocessors=(), features=None):
    """The seqio Task of `task`, added to the registry unless it stands there already.

    preprocessors  functions of a dataset of the source's examples (and of sequence_length, if they take it)
    features       output features beside 'targets' and 'weights': name -> seqio.Feature
    """
    seqio, tf = library()
    if task.name in seqio.TaskRegistry.names():
        registered = seqio.TaskRegistry.get(task.name)
        known = getattr(registered.source, "source", None)
        if known is None or known.identity() != task.source.identity():
            raise DataError(
                f"seqio's registry already holds another task called {task.name!r}; remove it or rename one"
            )
        return registered
    ids = seqio.PassThroughVocabulary(size=task.vocabulary)
    return seqio.TaskRegistry.add(
        task.name,
        source=source_class()(task.source),
        preprocessors=list(preprocessors),
        output_features={
            "targets": seqio.Feature(ids, add_eos=False, dtype=tf.int32),
            "weights": seqio.Feature(seqio.PassThroughVocabulary(size=2), add_eos=False, dtype=tf.float32),
            **(features or {}),
        },
        postprocess_fn=counted_ids,
        # seqio's functions see an example's ids and score, not the bytes behind them.
        metric_fns=[metric_fn(metric) for metric in task.metrics if metric.per == "weights"],
        shuffle_buffer_size=None,  # the source shuffles
    )


def counted_ids(ids, example, is_target: bool = False) -> np.ndarray:
    """int [n]: the ids at the positions of an example that count, for targets and predictions alike."""
    weights = np.asarray(example["weights"])
    return np.asarray(ids)[: len(weights)][weights > 0]


def metric_fn(metric: Metric):
    """The metric as seqio's Evaluator calls it, on what `counted_ids` left.

    Accuracy compares predicted ids (same length as the targets); the others take an example's score to be its log
    likelihood in nats, summed over the positions that count.
    """

    def of_predictions(targets, predictions) -> dict[str, float]:
        correct = sum(int(np.sum(target == guess)) for target, guess in zip(targets, predictions, strict=True))
        return {metric.name: metric.compute({"correct": correct, "weights": sum(map(len, targets))})}

    def of_scores(targets, scores) -> dict[str, float]:
        return {metric.name: metric.compute({"nats": -float(np.sum(scores)), "weights": sum(map(len, targets))})}

    function = {"correct": of_predictions, "nats": of_scores}[metric.reads]
    function.__name__ = function.__qualname__ = metric.name
    return function


def seqio_batches(
    task: Task, split: str, batch_size: int, seed: int, reader: int, readers: int, position: int
) -> Iterator[dict[str, np.ndarray]]:
    """Batches of the registered Task from a position of its stream on; the last of a fixed set may have fewer rows."""
    seqio, _ = library()
    registered = register(task)
    dataset = seqio.get_dataset(
        registered.replace(source=source_class()(task.source, start=position)),
        task_feature_lengths={"targets": task.length, "weights": task.length},
        feature_converter=converter_class()(),
        dataset_split=split,
        shuffle=split == "train",
        seed=seed,
        shard_info=seqio.ShardInfo(index=reader, num_shards=readers),
        verbose=False,
    )
    return _reading(dataset.batch(batch_size).prefetch(2))


_READING: weakref.WeakSet = weakref.WeakSet()


def _reading(dataset) -> Iterator[dict[str, np.ndarray]]:
    """The dataset's elements, by a generator that is closed before the interpreter ends.

    TensorFlow's threads read ahead and call Python for examples. Were they still at it while the interpreter is taken
    down, they would wait for its lock, and the interpreter for them, for ever.
    """

    def read():
        yield from dataset.as_numpy_iterator()

    reading = read()
    _READING.add(reading)
    return reading


@atexit.register
def _stop_reading() -> None:
    for reading in list(_READING):
        reading.close()

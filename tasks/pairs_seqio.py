"""The seqio side of a task of sentence pairs: its Task in the registry, and a feature converter."""

import functools
from typing import ClassVar

from tasks.bleu import bleu
from tasks.pairs import FEATURES, PairTask
from tasks.registry import library
from tasks.task import SPLITS, DataError


def register(task: PairTask):
    """The seqio Task of `task`, added to the registry unless it stands there already.

    'inputs' and 'targets' are tokenised by seqio's SentencePieceVocabulary and ended by EOS; pairs that the feed leaves
    out are left out here too. The metric is BLEU of decoded sentences.
    """
    seqio, tf = library()
    words, fingerprint = task.words(), task.fingerprint()
    if task.name in seqio.TaskRegistry.names():
        registered = seqio.TaskRegistry.get(task.name)
        if getattr(registered, "fingerprint", None) != fingerprint:
            raise DataError(
                f"seqio's registry already holds another task called {task.name!r}; remove it or rename one"
            )
        return registered

    def dataset(split, shuffle_files=False, seed=None):
        del shuffle_files, seed  # seqio shuffles what it reads
        used = set(task.tokens(split).rows.tolist())

        def pairs():
            for number, (source, target) in enumerate(task.bitext(split)):
                if number in used:
                    yield {"inputs": source, "targets": target}

        signature = {side: tf.TensorSpec([], tf.string) for side in ("inputs", "targets")}
        return tf.data.Dataset.from_generator(pairs, output_signature=signature)

    vocabulary = seqio.SentencePieceVocabulary(words.path, extra_ids=0)
    feature = seqio.Feature(vocabulary, add_eos=True, dtype=tf.int32)
    registered = seqio.TaskRegistry.add(
        task.name,
        source=seqio.FunctionDataSource(dataset, splits=SPLITS),
        preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
        output_features={"inputs": feature, "targets": feature},
        metric_fns=[bleu_metrics],
    )
    registered.fingerprint = fingerprint
    return registered


def bleu_metrics(targets, predictions) -> dict[str, float]:
    """BLEU as seqio's Evaluator calls it, on lists of decoded sentences: the three columns of Table 4."""
    return {name: score.value for name, score in bleu(predictions, targets).items()}


@functools.cache
def converter_class():
    """seqio.FeatureConverter that makes the batches' features (tasks/pairs.py) of 'inputs' and 'targets'."""
    seqio, tf = library()
    spec = seqio.FeatureConverter.FeatureSpec

    class PairFeatureConverter(seqio.FeatureConverter):
        """Like seqio's EncDecFeatureConverter, but padding is told apart by segment ids and holds zeros only."""

        TASK_FEATURES: ClassVar = {name: spec(dtype=tf.int32) for name in ("inputs", "targets")}
        MODEL_FEATURES: ClassVar = {name: spec(dtype=tf.as_dtype(kind)) for name, kind in FEATURES.items()}
        PACKING_FEATURE_DTYPES = None

        def __init__(self):
            # The length check would be two more maps over every example; rows are trimmed and padded to length anyway.
            super().__init__(pack=False, apply_length_check=False)

        def get_model_feature_lengths(self, task_feature_lengths):
            sides = {"encoder": task_feature_lengths["inputs"], "decoder": task_feature_lengths["targets"]}
            return {name: sides[name.partition("_")[0]] for name in self.MODEL_FEATURES}

        def _convert_features(self, ds, task_feature_lengths):
            def convert(example):
                source, target = example["inputs"], example["targets"]
                return {
                    "encoder_input_tokens": source,
                    "encoder_segment_ids": tf.ones_like(source),
                    "decoder_target_tokens": target,
                    "decoder_input_tokens": seqio.autoregressive_inputs(target),
                    "decoder_loss_weights": tf.ones_like(target, tf.float32),
                    "decoder_segment_ids": tf.ones_like(target),
                }

            # Shifted before padding, which would otherwise begin with the end mark.
            ds = ds.map(convert, num_parallel_calls=tf.data.AUTOTUNE)
            return self._pack_or_pad(ds, self.get_model_feature_lengths(task_feature_lengths))

    return PairFeatureConverter

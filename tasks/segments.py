"""The seqio side of documents in order: a preprocessor that cuts documents into segments, and a feature converter.

    seqio.get_dataset(task.name, dict.fromkeys(FEATURES, length), document_converter_class()(), "test", shuffle=False)

gives the segments of one document after another, with a batch's features: the rows that a `DocumentFeed` of one slot
gives. Slots and a place to resume from are beyond a dataset, so training and evaluation read `DocumentFeed`.
"""

import functools
from typing import ClassVar

from tasks.documents import DocumentTask
from tasks.registry import library, register

FEATURES = ("targets", "inputs", "weights", "document_start")


def register_documents(task: DocumentTask):
    """The seqio Task of a task on documents; its examples are segments with FEATURES, 'document_start' int32 [1]."""
    seqio, tf = library()
    ids = seqio.PassThroughVocabulary(size=task.vocabulary)
    flag = seqio.Feature(seqio.PassThroughVocabulary(size=2), add_eos=False, dtype=tf.int32)
    features = {"inputs": seqio.Feature(ids, add_eos=False, dtype=tf.int32), "document_start": flag}
    return register(task, [functools.partial(split_documents, predict_first=task.predict_first)], features)


def split_documents(dataset, sequence_length, predict_first: bool):
    """Dataset of segments of sequence_length['targets'] tokens from one of documents {'targets', 'weights'}."""
    _, tf = library()
    length = sequence_length["targets"]

    def split(document):
        tokens, weights = document["targets"], document["weights"]
        starts = tf.range(0, tf.size(tokens), length)

        def segment(start):
            here = tokens[start : start + length]
            if predict_first:
                targets, count = here, weights[start : start + length]
                inputs = tf.concat([[0], tokens], 0)[start : start + tf.size(here)]
            else:
                inputs, targets = here, tf.concat([here[1:], [0]], 0)
                count = tf.concat([weights[start + 1 : start + length], [0.0]], 0)
            return dict(zip(FEATURES, (targets, inputs, count, tf.cast([start == 0], tf.int32)), strict=True))

        return tf.data.Dataset.from_tensor_slices(starts).map(segment)

    return dataset.flat_map(split)


@functools.cache
def document_converter_class():
    """seqio.FeatureConverter that makes a batch's features (`tasks.documents`) of segments."""
    seqio, tf = library()
    spec = seqio.FeatureConverter.FeatureSpec

    class DocumentFeatureConverter(seqio.FeatureConverter):
        """Pads segments; nothing is packed, since a row belongs to one document."""

        TASK_FEATURES: ClassVar = {
            "targets": spec(dtype=tf.int32),
            "inputs": spec(dtype=tf.int32),
            "weights": spec(dtype=tf.float32),
            "document_start": spec(dtype=tf.int32),
        }
        MODEL_FEATURES: ClassVar = {
            "decoder_target_tokens": spec(dtype=tf.int32),
            "decoder_input_tokens": spec(dtype=tf.int32),
            "decoder_loss_weights": spec(dtype=tf.float32),
            "decoder_segment_ids": spec(dtype=tf.int32),
            "document_start": spec(dtype=tf.int32, rank=0),
        }
        PACKING_FEATURE_DTYPES = None

        def __init__(self):
            super().__init__(pack=False, apply_length_check=False)

        def get_model_feature_lengths(self, task_feature_lengths):
            return dict.fromkeys(self.MODEL_FEATURES, task_feature_lengths["targets"])

        def _convert_features(self, ds, task_feature_lengths):
            length = task_feature_lengths["targets"]

            def convert(segment):
                rows = {
                    "decoder_target_tokens": segment["targets"],
                    "decoder_input_tokens": segment["inputs"],
                    "decoder_loss_weights": segment["weights"],
                    "decoder_segment_ids": tf.ones_like(segment["targets"]),
                }
                padded = {name: tf.pad(row, [[0, length - tf.size(row)]]) for name, row in rows.items()}
                padded = {name: tf.ensure_shape(row, [length]) for name, row in padded.items()}
                return {**padded, "document_start": segment["document_start"][0]}

            return ds.map(convert)

    return DocumentFeatureConverter

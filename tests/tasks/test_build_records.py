"""Record files: TensorFlow reads what we write, we read what it writes, and nothing damaged passes."""

import io

import pytest

from tasks.build import records
from tasks.registry import library

FEATURES = (
    {"text": "größer\n".encode(), "name": b"a"},
    {"text": b"", "name": b"empty"},
    {"text": bytes(range(256)) * 300, "name": b"long enough for lengths of three bytes", "licence": b"MIT"},
)


def written(path, many=FEATURES):
    with path.open("wb") as file:
        sizes = [records.write(file, records.example(features)) for features in many]
    assert sum(sizes) == path.stat().st_size
    return path


def test_tensorflow_reads_them(tmp_path):
    _, tf = library()
    found = []
    for data in tf.data.TFRecordDataset(str(written(tmp_path / "ours"))).as_numpy_iterator():
        held = tf.train.Example.FromString(data).features.feature
        found.append({name: feature.bytes_list.value[0] for name, feature in held.items()})
    assert found == list(FEATURES)


def test_tensorflow_writes_the_same(tmp_path):
    _, tf = library()

    def feature(value):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for features in FEATURES:
            held = tf.train.Features(feature={name: feature(value) for name, value in sorted(features.items())})
            writer.write(tf.train.Example(features=held).SerializeToString(deterministic=True))
    assert written(tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    with (tmp_path / "theirs").open("rb") as file:
        assert [records.features(data) for data in records.read(file)] == list(FEATURES)


def test_no_damage_passes(tmp_path):
    data = written(tmp_path / "file", FEATURES[:2]).read_bytes()
    first = records.write(io.BytesIO(), records.example(FEATURES[0]))
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 4
        with pytest.raises(records.DamagedRecord):
            list(records.read(io.BytesIO(bytes(broken))))
        if place not in (0, first):
            with pytest.raises(records.DamagedRecord):
                list(records.read(io.BytesIO(data[:place])))


@pytest.mark.parametrize("data", [b"", b"\x0a", b"\x0a\x05abc", b"\x08\x01", b"\x0a\x02\x0a\x00", b"\x0a\xff"])
def test_what_is_no_example_is_refused(data):
    with pytest.raises(records.DamagedRecord, match="no Example"):
        records.features(data)

"""TFRecord files of tf.train.Example, written and read without TensorFlow, for which no worker should have to wait.

A record is  length uint64 | its checksum uint32 | data | its checksum uint32  (little-endian); the checksums are masked
CRC-32C. An Example whose features hold one byte string each is, in protocol buffers' wire format, nested fields of
known lengths; nothing else is written here, and nothing else is read.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import BinaryIO

HEAD, FOOT = struct.Struct("<QI"), struct.Struct("<I")
BYTES = 2  # the wire type of everything that has a length


class DamagedRecord(ValueError):
    """A record file that breaks off, or whose checksums do not fit. The message continues the file's name."""


def write(file: BinaryIO, data: bytes) -> int:
    """Appends a record. Returns the bytes written."""
    length = struct.pack("<Q", len(data))
    file.write(length + FOOT.pack(_masked(length)))
    file.write(data)
    file.write(FOOT.pack(_masked(data)))
    return HEAD.size + len(data) + FOOT.size


def read(file: BinaryIO) -> Iterator[bytes]:
    """The records of a file from where it stands to its end."""
    while head := file.read(HEAD.size):
        if len(head) < HEAD.size:
            raise DamagedRecord("breaks off within a record's head")
        length, checksum = HEAD.unpack(head)
        if checksum != _masked(head[:8]):
            raise DamagedRecord("holds a record whose length does not fit its checksum")
        data, foot = file.read(length), file.read(FOOT.size)
        if len(data) < length or len(foot) < FOOT.size:
            raise DamagedRecord("breaks off within a record")
        if FOOT.unpack(foot)[0] != _masked(data):
            raise DamagedRecord("holds a record that does not fit its checksum")
        yield data


def example(features: Mapping[str, bytes]) -> bytes:
    """An Example with one byte string a feature; same features, same bytes, whatever their order."""
    # Example.features = 1 is a Features, whose feature = 1 is a map: entries of key = 1 and value = 2, a Feature, whose
    # bytes_list = 1 is a BytesList, whose value = 1 are the strings.
    entries = [
        _field(1, _field(1, name.encode()), _field(2, _field(1, _field(1, features[name]))))
        for name in sorted(features)
    ]
    return _field(1, *entries)


def features(data: bytes) -> dict[str, bytes]:
    """What `example` was given. DamagedRecord for anything else."""
    try:
        ((_, entries),) = _fields(memoryview(data))
        found = {}
        for _, entry in _fields(entries):
            parts = dict(_fields(entry))
            ((_, values),) = _fields(parts[2])
            ((_, value),) = _fields(values)
            found[bytes(parts[1]).decode()] = bytes(value)
        return found
    except (ValueError, KeyError, IndexError):
        raise DamagedRecord("holds a record that is no Example of byte strings") from None


def _field(number: int, *parts: bytes) -> bytes:
    return b"".join([bytes([number << 3 | BYTES]), _varint(sum(map(len, parts))), *parts])


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(number, contents) of a message's fields, all of which have a length."""
    place = 0
    while place < len(data):
        tag = data[place]
        length, shift, place = 0, 0, place + 1
        while True:
            digit = data[place]
            length, shift, place = length | (digit & 127) << shift, shift + 7, place + 1
            if digit < 128:
                break
        if tag & 7 != BYTES or tag > 127 or place + length > len(data):
            raise ValueError
        yield tag >> 3, data[place : place + length]
        place += length


def _masked(data: bytes) -> int:
    """TFRecord's masked CRC-32C."""
    import google_crc32c

    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

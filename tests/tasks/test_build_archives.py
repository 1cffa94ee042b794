"""Archives from strangers: what Python's own writers packed comes back, and nothing else gets out or grows."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import tracemalloc
import zipfile
from collections import Counter

import pytest
from build_stand_ins import tar
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.build import flow
from tasks.build.archives import NO_ARCHIVE, broken, members
from tasks.build.flow import Limit
from tasks.build.lines import lines

FILES = {"a.tex": b"\\input{b}\n", "sub/b.tex": b"", "sub/deep/c": bytes(range(256)) * 40, "é.tex": b"x" * 513}
LIMIT = Limit()
FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def zipped(files, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def read(data, limit=LIMIT, **more):
    """(members, notes) of an archive in memory."""
    notes = Counter()
    return list(members(io.BytesIO(data), notes, limit, **more)), dict(notes)


ARCHIVES = {
    "tar": tar(FILES),
    "tar.gz": tar(FILES, gzip.compress),
    "tar.bz2": tar(FILES, bz2.compress),
    "tar.xz": tar(FILES, lzma.compress),
    "zip": zipped(FILES),
    "stored zip": zipped(FILES, zipfile.ZIP_STORED),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_what_was_packed_comes_back_whatever_the_file_is_called(tmp_path, kind):
    path = tmp_path / "2001.00001"
    path.write_bytes(ARCHIVES[kind])
    notes = Counter()
    assert list(members(path, notes)) == list(FILES.items())
    assert not notes
    assert [name for name, _ in members(path, notes, wanted=lambda name: "sub" in name)] == ["sub/b.tex", "sub/deep/c"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_one_compressed_file_has_the_name_of_its_archive(tmp_path, pack):
    path = tmp_path / "2001.00002.gz"
    path.write_bytes(pack(b"\\bye"))
    assert list(members(path, Counter())) == [("2001.00002", b"\\bye")]
    assert read(pack(b"\\bye"))[0] == [("file", b"\\bye")]


def test_gzip_of_several_members_is_one_file():
    assert read(gzip.compress(b"one ") + gzip.compress(b"two"))[0] == [("file", b"one two")]


def test_what_leads_out_or_is_no_plain_file_is_left_out_and_counted():
    names = [
        "/etc/passwd",
        "../up",
        "a/../../up",
        "C:/x",
        "C:\\x",
        "..\\up",
        "\\\\host\\x",
        "./fine",
        "a/./b//c",
        "a..b/..c",
    ]
    files = {name: b"!" for name in names}
    more = {
        "hard": {"type": tarfile.LNKTYPE, "linkname": "../../etc/passwd"},
        "soft": {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        "device": {"type": tarfile.CHRTYPE},
        "pipe": {"type": tarfile.FIFOTYPE},
        "folder": {"type": tarfile.DIRTYPE},
    }
    found, notes = read(tar(files, **more))
    assert [name for name, _ in found] == ["fine", "a/b/c", "a..b/..c"]
    assert notes == {
        ("files", "outside the archive"): 7,
        ("links", "in archives"): 2,
        ("files", "that are not plain files"): 2,
    }

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            archive.writestr(name, "!")
        link = zipfile.ZipInfo("soft")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.mkdir("folder")
    found, notes = read(out.getvalue())
    assert [name for name, _ in found] == ["fine", "a/b/c", "a..b/..c"]
    assert notes == {("files", "outside the archive"): 7, ("links", "in archives"): 1}


def test_a_name_that_is_not_utf8_can_be_written_all_the_same():
    data = tar({"naive": b"x"})
    header = bytearray(data[:512].replace(b"naive", b"na\xefve"))
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    ((name, _),), _ = read(bytes(header) + data[512:])
    assert name == "na\ufffdve"


BOMB = {"before": b"kept", "bomb": bytes(24 << 20), "after": b"not reached"}


@pytest.mark.parametrize("kind", ["tar.gz", "tar.xz", "gz", "zip"])
def test_a_bomb_is_noticed_before_it_fills_the_memory(kind):
    data = {
        "tar.gz": lambda: tar(BOMB, gzip.compress),
        "tar.xz": lambda: tar(BOMB, lzma.compress),
        "gz": lambda: gzip.compress(BOMB["bomb"]),
        "zip": lambda: zipped(BOMB),
    }[kind]()
    tracemalloc.start()
    try:
        found, notes = read(data, Limit(member=1 << 20, free=1 << 20, ratio=10))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20, "half of what the bomb expands to; xz has a window of 8 MiB"
    if kind == "zip":  # its members are found without expanding others
        assert [name for name, _ in found] == ["before", "after"]
        assert notes == {("files", "over 1 MiB"): 1}
    elif kind == "gz":
        assert not found and notes == {("archives", "that expand too far"): 1}
    else:
        assert [name for name, _ in found] == ["before"]
        assert notes == {("files", "over 1 MiB"): 1, ("archives", "kept up to where they expand too far"): 1}


def test_many_members_under_the_limit_are_no_way_around_it():
    many = {f"{number}": bytes(1 << 19) for number in range(12)}
    for data in (tar(many, gzip.compress), zipped(many)):
        found, notes = read(data, Limit(member=1 << 20, total=4 << 20))
        assert 5 < len(found) < 9
        assert notes == {("archives", "kept up to where they expand too far"): 1}


def test_xz_may_not_ask_for_all_the_memory(monkeypatch):
    monkeypatch.setattr(flow, "DICTIONARY", 1 << 16)
    assert read(lzma.compress(b"x"))[1] == {("archives", "that are damaged"): 1}


def lying(kind=b"0", size=b"77777777777\0", data=b""):
    """A tar whose only header states some size."""
    header = bytearray(tarfile.TarInfo("liar").tobuf())
    header[124:136], header[156:157] = size, kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data


@pytest.mark.parametrize(
    "kind", [b"0", b"L", b"K", b"x", b"g", b"S"], ids=["file", "name", "link", "pax", "global", "sparse"]
)
@pytest.mark.parametrize(
    "size",
    [b"77777777777\0", b"\x80" + (1 << 62).to_bytes(11, "big"), b"\xff" + (-(10**6)).to_bytes(11, "big", signed=True)],
    ids=["8 GiB", "4 EiB", "negative"],
)
def test_sizes_that_lie_take_no_memory(kind, size):
    tracemalloc.start()
    try:
        found, notes = read(lying(kind, size, bytes(4096)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not found and peak < 4 << 20
    assert sum(notes.values()) >= 1


def test_a_member_that_is_damaged_in_a_zip_costs_the_others_nothing():
    data = zipped({"a": b"a" * 100, "b": b"b" * 100, "c": b"c" * 100}, zipfile.ZIP_STORED)
    found, notes = read(data.replace(b"b" * 100, b"b" * 99 + b"B"))
    assert [name for name, _ in found] == ["a", "c"]
    assert notes == {("files", "damaged in an archive"): 1}


def test_encrypted_members_are_counted():
    data = bytearray(zipped({"a": b"secret"}, zipfile.ZIP_STORED))
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        place = data.index(mark) + at
        data[place : place + 2] = struct.pack("<H", 1)
    assert read(bytes(data)) == ([], {("files", "encrypted"): 1})


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_that_breaks_off_gives_what_came_before(kind):
    data, whole = ARCHIVES[kind], list(FILES.items())
    for end in range(1, len(data) - 1, 37):
        found, notes = read(data[:end])
        assert found == whole[: len(found)]
        assert len(found) == len(whole) or broken(notes) or NO_ARCHIVE in notes


def test_a_bad_header_in_the_middle_is_not_the_end():
    data = bytearray(ARCHIVES["tar"])
    data[512 * 2 + 3] ^= 1  # in the second header, whose checksum then is wrong
    found, notes = read(bytes(data))
    assert found == [("a.tex", FILES["a.tex"])]
    assert notes == {("archives", "kept up to where they are damaged"): 1}


def test_a_wrong_checksum_of_a_compressed_tar_is_noticed():
    data = bytearray(ARCHIVES["tar.gz"])
    data[-6] ^= 1
    assert read(bytes(data)) == (list(FILES.items()), {("archives", "kept up to where they are damaged"): 1})


def test_what_is_no_archive_or_not_there_is_counted(tmp_path):
    assert read(b"") == ([], {("archives", "empty"): 1})
    assert read(b"%PDF-1.5 and so on" * 100) == ([], {NO_ARCHIVE: 1})
    notes = Counter()
    assert not list(members(tmp_path / "gone.tar", notes))
    assert notes == {("archives", "that cannot be read"): 1}


@st.composite
def damaged(draw):
    """An archive, or what a stranger may have made of it."""
    data = bytearray(draw(st.sampled_from(sorted(ARCHIVES.values()))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=12))
    return bytes(data[: draw(st.integers(1, len(data)))]) if data else b""


@FUZZ
@given(
    damaged()
    | st.binary(max_size=2000)
    | st.builds(lambda body: tar({"x": b""})[:512] + body, st.binary(max_size=1500))
)
def test_whatever_comes_in_nothing_fails_and_nothing_gets_out(data):
    found, notes = read(data)
    assert found or notes or set(data) <= {0} or NO_ARCHIVE not in notes
    for name, content in found:
        assert isinstance(content, bytes)
        assert name.encode() and not name.startswith("/") and ".." not in name.split("/") and "\\" not in name
    assert sum(len(content) for _, content in found) <= 16 << 20


@FUZZ
@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20),
    st.booleans(),
    st.integers(1, 20),
)
def test_lines_are_those_of_the_file(tmp_path_factory, texts, packed, most):
    path = tmp_path_factory.mktemp("lines") / "file"
    data = b"\n".join(texts)
    path.write_bytes(gzip.compress(data) if packed else data)
    notes = Counter()
    found = list(lines(str(path), notes, most=most))
    wanted = data.split(b"\n") if data else []
    wanted = wanted[:-1] if wanted and not wanted[-1] else wanted  # nothing follows the last line end
    assert found == [line if len(line) <= most else b"" for line in wanted]
    assert notes["lines", "over 0 MiB"] == sum(len(line) > most for line in wanted)


def test_lines_before_a_fault_are_kept(tmp_path):
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(b"\n".join(str(number).encode() * 9 for number in range(20000)))[:-5000])
    notes = Counter()
    found = list(lines(str(path), notes))
    assert 1000 < len(found) < 20000
    assert found == [str(number).encode() * 9 for number in range(len(found))]
    assert notes == {("archives", "kept up to where they are damaged"): 1}


def test_members_without_a_name_are_counted():
    data = zipped({"x": b"1", "y": b"2"}, zipfile.ZIP_STORED).replace(b"x", b"/")
    assert read(data) == ([("y", b"2")], {})  # a folder, to a zip
    data = bytearray(data)
    at = data.rindex(
        b"PK\1\2", 0, data.rindex(b"PK\1\2")
    )  # x's entry in the list: a name of no bytes, a comment of one
    data[at + 28 : at + 30], data[at + 32 : at + 34] = b"\0\0", b"\1\0"
    assert read(bytes(data)) == ([("y", b"2")], {("files", "without a name"): 1})

"""Repositories: the same document from every place, permissive ones only, in an order that keeps folders together."""

import gzip
import io
import json
import os
import random
import shutil
import subprocess
import tarfile
import zipfile
from collections import Counter

import pytest

from tasks.build.code import is_code, is_licence, is_vendored, made_by_a_program, shuffled
from tasks.build.github import GitHub
from tasks.task import DataError

MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to: The above copyright notice and this permission notice
shall be included. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED."""
GPL = "GNU GENERAL PUBLIC LICENSE Version 2"
FILES = {
    "LICENSE": MIT,
    "README.md": "not code",
    "setup.py": "setup()",
    "src/a.c": "int a;\n",
    "src/b.c": "int größe;\r\n",
    "src/deep/c.h": "int c;\n",
    "src/deep/d.hpp": "int d;\n",
    "app/main.go": "package main\n",
    "app/x.ts": "let x = 1\n",
}
CODE = [path for path in FILES if "." in path and path != "README.md"]


def tree(top, files):
    for path, text in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    return top


def lines(files, **more):
    return "".join(json.dumps({"path": path, "text": text, **more}) + "\n" for path, text in files.items()).encode()


def built(top, **options):
    """({name: document}, notes but for files that say licences) of everything at a place."""
    notes = Counter()
    reader = GitHub(**options)
    found = [document for unit in reader.units(str(top), notes) for document in reader.read(unit, notes)]
    assert len({document.name for document in found}) == len(found)
    del notes["files", "read as licences"]
    return {document.name: document for document in found}, dict(notes)


def files_of(document, files=FILES):
    """The order in which a document holds files, which all have distinct texts."""
    texts = {files[path].replace("\r\n", "\n").rstrip("\n"): path for path in files}
    return [texts[line] for line in document.text.splitlines()]


def test_a_repository_is_the_same_from_everywhere(tmp_path):
    top = tmp_path / "all"
    places = {name: "host/one" for name in ("tree", "tar", "zip", "lines", "packed")}
    for name in places:
        (top / name / "host").mkdir(parents=True)
    tree(top / "tree/host/one", FILES)
    with tarfile.open(top / "tar/host/one.tar.gz", "w:gz") as archive:
        archive.add(top / "tree/host/one", "one")
    with zipfile.ZipFile(top / "zip/host/one.zip", "w") as archive:
        for path in reversed(FILES):
            archive.writestr(f"one/{path}", FILES[path])
    (top / "lines/host/one.jsonl").write_bytes(lines(FILES))
    (top / "packed/host/one.jsonl.gz").write_bytes(gzip.compress(lines(FILES)))
    clone(top / "tree/host/one", top / "git/host/one.git")
    found, notes = built(top)
    assert len(found) == 6
    for document in found.values():
        assert sorted(files_of(document)) == sorted(CODE) and document.licence == "MIT" and document.parts == len(CODE)
    assert notes == {("files", "other than code"): 6}
    assert found["git/host/one.git"].source.startswith("git/host/one.git@")


def clone(place, target):
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    target.parent.mkdir(parents=True, exist_ok=True)
    names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    where = {
        "GIT_DIR": str(target),
        "GIT_WORK_TREE": str(place),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    for words in (["init", "-q", "--bare"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        here = {key: value for key, value in where.items() if words[0] != "init" or key != "GIT_WORK_TREE"}
        subprocess.run(["git", *words], cwd=place, env={**os.environ, **names, **here}, check=True)


def test_clones_have_links_and_may_be_damaged(tmp_path):
    place = tree(tmp_path / "work", {**FILES, "latin.c": b"int caf\xe9;\n"})
    (place / "link.c").symlink_to("/etc/passwd")
    clone(place, tmp_path / "all/good")
    clone(place, tmp_path / "all/headless")
    (tmp_path / "all/headless/HEAD").write_text("ref: refs/heads/gone\n")
    clone(place, tmp_path / "all/broken")
    for blob in (tmp_path / "all/broken/objects").glob("??/*"):
        blob.chmod(0o600)
        if b"int a" not in blob.read_bytes() and blob.stat().st_size < 60:
            blob.write_bytes(b"")
    found, notes = built(tmp_path / "all")
    assert list(found) == ["good"] and "int café;" in found["good"].text and "root:" not in found["good"].text
    assert notes["links", "in clones"] >= 1 and notes["files", "read as Latin-1"] == 1
    assert (
        sum(count for (what, reason), count in notes.items() if what == "documents" and "git cannot read" in reason)
        == 2
    )


@pytest.mark.parametrize("seed", range(5))
def test_every_folder_is_contiguous(seed):
    draw = random.Random(seed)
    paths = ["/".join(draw.choice("abc") for _ in range(draw.randint(1, 4))) + f"/{n}.c" for n in range(80)]
    order = shuffled(paths, seed, "repository")
    assert sorted(order) == sorted(paths)
    for folder in {path.rsplit("/", depth)[0] for path in paths for depth in range(1, path.count("/") + 1)}:
        places = [place for place, path in enumerate(order) if path.startswith(f"{folder}/")]
        assert places == list(range(places[0], places[0] + len(places)))


def test_orders_are_random_but_known():
    paths = [f"{folder}/{n}.c" for folder in "abcd" for n in range(6)]
    orders = {tuple(shuffled(paths, seed, name)) for seed in range(4) for name in ("one", "two")}
    assert len(orders) == 8  # another seed and another repository give another order
    assert shuffled(paths[::-1], 1, "one") == shuffled(paths, 1, "one")
    without = [path for path in shuffled(paths, 1, "one") if path != "b/3.c"]
    assert shuffled([path for path in paths if path != "b/3.c"], 1, "one") == without
    firsts = Counter(shuffled(["a.c", "b.c", "c.c"], seed, "r")[0] for seed in range(3000))
    assert all(abs(count - 1000) < 4 * (3000 * 2 / 9) ** 0.5 for count in firsts.values())


@pytest.mark.parametrize(
    ("files", "licence", "kept"),
    [
        ({"LICENSE": MIT, "a.c": "1"}, "MIT", 1),
        ({"a.c": "1"}, None, "without a licence that is recognised"),
        ({"LICENSE": "mine", "a.c": "1"}, None, "without a licence that is recognised"),
        ({"COPYING": GPL, "a.c": "1"}, None, "under a licence that is not permissive"),
        ({"LICENSE": MIT, "COPYING": GPL, "a.c": "1"}, None, "under a licence that is not permissive"),
        ({"LICENSE": MIT, "README.md": "x"}, None, "without code"),
        ({"pkg-1.dist-info/licenses/LICENSE": MIT, "pkg/a.py": "1"}, "MIT", 1),
        ({"LICENSE": MIT, "sub/COPYING": GPL, "sub/in/a.c": "1", "sub.c": "2", "b.c": "3"}, "MIT", 2),
        ({"LICENSE": MIT, "sub/LICENSE": "mine", "sub/a.c": "1", "b.c": "2"}, "MIT", 1),
        ({"LICENSE": MIT, "sub/LICENSE": MIT, "sub/a.c": "1", "b.c": "2"}, "MIT", 2),
        ({"LICENSE": MIT, "vendor/x/COPYING": GPL, "vendor/x/a.c": "1", "b.c": "2"}, "MIT", 1),
        ({"license.py": MIT, "a.c": "1"}, None, "without a licence that is recognised"),
        ({"one/LICENSE": MIT, "one/src/a.c": "1", "one/b.c": "2"}, "MIT", 2),
        ({"META-INF/LICENSE": MIT, "a.java": "1"}, "MIT", 1),
        ({"examples/x/LICENSE": MIT, "examples/x/a.c": "1", "b.c": "2"}, None, "without a licence that is recognised"),
        ({"x/LICENSE": MIT, "x/COPYING": GPL, "x/a.c": "1"}, None, "under a licence that is not permissive"),
    ],
)
def test_permissive_licences_only(tmp_path, files, licence, kept):
    (tmp_path / "one.jsonl").write_bytes(lines(files))
    found, notes = built(tmp_path)
    if licence is None:
        assert not found and notes["documents", kept] == 1
    else:
        assert (found["one.jsonl"].licence, found["one.jsonl"].parts) == (licence, kept)
        left = sum(is_code(path) for path in files) - kept
        assert left == notes.get(("files", "under a licence that is not permissive"), 0) + notes.get(
            ("files", "vendored"), 0
        )


def test_every_file_is_in_a_document_or_counted(tmp_path):
    files = {"LICENSE": MIT, "vendor/x/COPYING": GPL, "vendor/x/a.c": "1", "b.c": "2", "c_pb2.py": "3", "d.rs": "4"}
    (tmp_path / "one.jsonl").write_bytes(lines({**files, "e.c": " "}))
    notes = Counter()
    (document,) = GitHub().read(*GitHub().units(str(tmp_path), notes), notes)
    assert notes["files", "read as licences"] == 2
    assert document.parts + sum(count for (what, _), count in notes.items() if what == "files") == len(files) + 1


def test_names_of_files():
    assert all(
        map(
            is_licence,
            ("LICENSE", "License.txt", "a/COPYING", "MIT-LICENSE", "LICENSE-APACHE", "UNLICENSE", "licence.md"),
        )
    )
    assert not any(map(is_licence, ("license.go", "LICENSES/x", "copying.c", "README", "licensee.txt", "license.json")))
    assert all(map(is_vendored, ("vendor/a.go", "a/node_modules/b.ts", "x/Third_Party/y/z.c", "3rdparty/a.c")))
    assert not any(map(is_vendored, ("vendor.go", "src/vendoring/a.go", "a/external.c")))


@pytest.mark.parametrize(
    ("path", "text", "wanted"),
    [
        ("a.go", "// Code generated by protoc-gen-go. DO NOT EDIT.\npackage a", "generated"),
        ("a.ts", "/** @generated */\nlet x", "generated"),
        ("a.py", "# This file was generated by hand.\n", "generated"),
        ("x_pb2.py", "import x", "generated"),
        ("a.c", "/* AUTOGENERATED FILE. DO NOT EDIT. */", "generated"),
        ("a.py", "x = 1\n" * 300 + "# Code generated by nobody. DO NOT EDIT.\n", ""),
        ("a.py", "def generated(): pass\n", ""),
        ("a.ts", "x" * 3000, "minified"),
        ("a.ts", "x = 1;\n" * 1000 + "y" * 3000, ""),
        ("a.ts", "x" * 300, ""),
    ],
)
def test_code_that_nobody_wrote(tmp_path, path, text, wanted):
    assert made_by_a_program(path, text) == wanted
    (tmp_path / "one.jsonl").write_bytes(lines({"LICENSE": MIT, path: text, "b.c": "int b;"}))
    found, notes = built(tmp_path)
    assert found["one.jsonl"].parts == 2 - bool(wanted) and notes == ({("files", wanted): 1} if wanted else {})
    assert built(tmp_path, keep_generated=True)[0]["one.jsonl"].parts == 2


def test_everything_wrong_is_counted(tmp_path):
    bad = [b"", b'{"path": "b.py", "text": "never clos', b'{"path": "l.py", "text": "caf\xe9"}', b"[1]"]
    bad += [json.dumps(item).encode() for item in (
        {"path": "nul.py", "text": "a\0b"}, {"path": "half.py", "text": "\ud800"}, {"path": "none.py", "text": None},
        {"text": "x"}, {"path": "../x.py", "text": "x"}, {"path": "/x.py", "text": "x"},
        {"path": "a.c", "text": "again"}, {"path": "white.py", "text": " \n"},
    )]  # fmt: skip
    good = lines({"LICENSE": MIT, "a.c": "int a;"})
    (tmp_path / "bad.jsonl").write_bytes(good + b"\n".join(bad))
    (tmp_path / "torn.jsonl.gz").write_bytes(gzip.compress(lines({f"{n}.c": f"int {n};" for n in range(50)}))[:-20])
    (tmp_path / "torn.tar").write_bytes(b"no archive")
    (tmp_path / "notes.txt").write_text("?")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "link").symlink_to("/")
    tree(tmp_path / "tree", {"LICENSE": MIT, "crlf.c": b"\xef\xbb\xbfa\r\nb\rc", "nul.c": b"\0", "empty.c": b""})
    (tmp_path / "tree/out.c").symlink_to("/etc/passwd")
    name = os.fsdecode(b"caf\xe9")
    tree(tmp_path / name, {"LICENSE": MIT, os.fsdecode(b"\xff.c"): b"int c;"})
    found, notes = built(tmp_path)
    assert found["bad.jsonl"].text == "int a;" and found["tree"].text == "a\nb\nc" and len(found) == 3
    assert found[name].text == "int c;"
    assert notes == {
        ("files", "blank"): 1,
        ("files", "not JSON"): 1,
        ("files", "not UTF-8"): 1,
        ("files", "without text"): 2,
        ("files", "with NUL bytes"): 2,
        ("files", "with half a surrogate pair"): 1,
        ("files", "without a path"): 1,
        ("files", "outside the project"): 2,
        ("files", "under a path seen before"): 1,
        ("files", "empty"): 2,
        ("links", "in folders"): 2,
        ("entries", "hidden"): 1,
        ("entries", "other than projects"): 1,
        ("archives", "of no known kind"): 1,
        ("documents", "whose file is damaged"): 1,
        ("documents", "whose archive cannot be read to its end"): 1,
    }


def rows(files, repository, licence=None):
    more = {} if licence is None else {"license": licence}
    return [{"repo_name": repository, "path": path, "content": text, **more} for path, text in files.items()]


@pytest.mark.parametrize("case", range(12))
def test_exports_may_be_cut_anywhere(tmp_path, case):
    draw = random.Random(case)
    whole = [
        row
        for n in range(6)
        for row in rows({f"{m}.c": f"{n} {m}" for m in range(draw.randint(1, 5))}, f"o/{n}", "mit")
    ]
    cuts = sorted(draw.choice(range(len(whole) + 1)) for _ in range(draw.randint(0, 6)))
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(whole)], strict=True)):
        data = "".join(json.dumps(row) + "\n" for row in whole[begin:end]).encode()
        data = data or json.dumps({"repo_name": "x/x", "content": None}).encode()  # a file without a usable row
        path = tmp_path / f"part-{number:03}.json"
        (path.with_suffix(".json.gz") if number % 2 else path).write_bytes(gzip.compress(data) if number % 2 else data)
    found, notes = built(tmp_path)
    assert {name: sorted(one.text.split("\n")) for name, one in found.items()} == {
        f"o/{n}": sorted(row["content"] for row in whole if row["repo_name"] == f"o/{n}") for n in range(6)
    }
    empty = sum(begin == end for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True))
    assert notes == ({("files", "without text"): empty} if empty else {})


def test_licences_that_an_export_names(tmp_path):
    named = {"a/mit": "mit", "b/gpl": "gpl-2.0", "c/art": "artistic-2.0", "d/own": None}
    whole = [row for name, licence in named.items() for row in rows({"x.c": name, "LICENSE": MIT}, name, licence)]
    whole += rows({"x.c": "1", "LICENSE": GPL}, "e/not what is said", "mit")
    # Whatever is wrong with the first line, the file is an export.
    (tmp_path / "000.json").write_text('{"repo_name": "a/m\n' + "".join(json.dumps(row) + "\n" for row in whole))
    found, notes = built(tmp_path)
    assert {name: one.licence for name, one in found.items()} == {"a/mit": "MIT", "d/own": "MIT"}
    assert notes == {("documents", "under a licence that is not permissive"): 3, ("files", "not JSON"): 1}


def test_archives_are_read_in_one_piece_or_not(tmp_path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in FILES.items():
            info = tarfile.TarInfo(f"../{path}" if path == "setup.py" else path)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    (tmp_path / "whole.tgz").write_bytes(data.getvalue())
    (tmp_path / "half.tgz").write_bytes(data.getvalue()[:-40])
    found, notes = built(tmp_path)
    assert list(found) == ["whole.tgz"] and found["whole.tgz"].parts == len(CODE) - 1
    assert notes["documents", "whose archive cannot be read to its end"] == 1
    assert notes["files", "outside the archive"] >= 1


def test_one_repository_may_be_the_source(tmp_path):
    tree(tmp_path / "one", FILES)
    (tmp_path / "one/.git").mkdir()
    assert list(built(tmp_path / "one")[0]) == ["one"]
    (tmp_path / "two.jsonl").write_bytes(lines(FILES))
    assert list(built(tmp_path / "two.jsonl")[0]) == ["two.jsonl"]


def test_nothing_to_read_is_said(tmp_path):
    with pytest.raises(DataError, match="github: nothing at"):
        GitHub().units(str(tmp_path / "nowhere"), Counter())
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(DataError, match="github: no project in .*; wanted are folders, bare clones, archives"):
        GitHub().units(str(tmp_path), Counter())


def test_folders_that_cannot_be_looked_into(tmp_path, monkeypatch):
    tree(tmp_path / "good", FILES)
    tree(tmp_path / "bad", FILES)
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("bad"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found, notes = built(tmp_path)
    assert list(found) == ["good"] and notes["folders", "unreadable"] >= 1

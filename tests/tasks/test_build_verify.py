"""Verification: whatever was changed in a built corpus is found."""

import json
import re
import shutil

import pytest
from build_stand_ins import OneByOne

from tasks.build import manifest, verify
from tasks.build.isabelle import Isabelle
from tasks.build.pipeline import Job, build
from tasks.build.plan import Splitting
from tasks.task import DataError


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    source = tmp_path_factory.mktemp("source")
    for number in range(12):
        (source / f"E{number}").mkdir()
        words = " ".join(f"{number}x{word}" for word in range(100))
        (source / f"E{number}/A.thy").write_text(f"theory A imports Main begin {words} end")
    (source / "COPYRIGHT").write_text("nothing")

    return build(Job(Isabelle(), (str(source),), Splitting(0.2, 0.2)), tmp_path_factory.mktemp("out"), OneByOne())


def facts(folder):
    return json.loads((folder / "manifest.json").read_text())


def changed(folder, tmp_path, name, change):
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    change(copy / name)
    return list(verify.faults(copy))


def test_verification_finds_what_is_not_as_it_was(built, tmp_path):
    assert list(verify.faults(built)) == []
    record = facts(built)["splits"]["train"]["files"][0]

    def flip(path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data))

    def shorten(path):
        path.write_bytes(path.read_bytes()[:-1])

    for name, change, found in (
        (record, flip, "has another checksum"),
        (record, shorten, "bytes, the manifest says"),
        ("documents.jsonl", lambda path: path.unlink(), "documents.jsonl is missing"),
        ("extra", lambda path: path.write_text(""), "extra is not in the manifest"),
    ):
        (fault,) = changed(built, tmp_path, name, change)
        assert found in fault


def test_verification_compares_documents_with_what_is_told_of_them(built, tmp_path):
    """Whoever changes files and their checksums together is found as well."""

    def told(path, change):
        held = json.loads(path.read_text())
        change(held, path.parent)
        for name in held["outputs"]:
            held["outputs"][name] = manifest.checksum(path.parent / name)
        path.write_text(json.dumps(held))

    def lines(change):
        def apply(held, folder):
            listed = [json.loads(line) for line in (folder / "documents.jsonl").read_text().splitlines()]
            change(listed)
            (folder / "documents.jsonl").write_text("".join(json.dumps(line) + "\n" for line in listed))

        return apply

    def count(held, folder):
        held["splits"]["train"]["documents"] += 1

    def licence(held, folder):
        held["licences"][""]["bytes"] -= 1

    def empty(held, folder):
        held["splits"]["validation"].update(documents=0, bytes=0)
        held["splits"]["nothing"] = {"documents": 1, "bytes": 0, "tokens": None, "files": []}

    def tokens(held, folder):
        held["vocabulary"] = "bytes"

    for change, found in (
        (count, "train has .* documents, the manifest says"),
        (licence, "the licences are not those of the manifest"),
        (lines(lambda listed: listed[0].update(sha256="0")), "has another text than documents.jsonl says"),
        (lines(lambda listed: listed[0].update(licence="GPL")), "documents.jsonl says 'GPL'"),
        (lines(lambda listed: listed.reverse()), "is not where documents.jsonl lists it"),
        (lines(lambda listed: listed.append(listed[0])), "is listed in documents.jsonl and not there"),
    ):
        faults = changed(built, tmp_path, "manifest.json", lambda path, change=change: told(path, change))
        assert len(faults) == 1 and re.search(found, faults[0])
    assert len(changed(built, tmp_path, "manifest.json", lambda path: told(path, empty))) == 3
    assert len(changed(built, tmp_path, "manifest.json", lambda path: told(path, tokens))) == 3  # None in all splits


def test_damaged_descriptions_are_one_line(built, tmp_path):
    whole = facts(built)
    for name in set(whole) - {"identity", "options", "inputs", "versions", "splitting", "features"}:
        for value in (None, 7, [3], {"x": "y"}, ...):
            if name == "vocabulary" and value is None:
                continue
            held = {key: one for key, one in whole.items() if key != name or value is not ...}
            held |= {name: value} if value is not ... else {}
            with pytest.raises(DataError, match="; build the corpus again"):
                changed(built, tmp_path, "manifest.json", lambda path, held=held: path.write_text(json.dumps(held)))
    for line in (b"{}", b"\xff", b"[", b'{"split": 1}', b"\n"):
        (tmp_path / "documents.jsonl").write_bytes(line + b"\n")
        with pytest.raises(
            DataError, match="documents.jsonl is damaged: line 1 is no document; build the corpus again"
        ):
            list(manifest.listed(tmp_path))


def test_manifests_are_found(built, tmp_path):
    assert manifest.find(built) == manifest.find(built.parent) == manifest.find(built.parent.parent) == built
    with pytest.raises(DataError, match="no directory at"):
        manifest.find(tmp_path / "nowhere")
    with pytest.raises(DataError, match="holds no corpus"):
        manifest.find(tmp_path)
    shutil.copytree(built, tmp_path / "one/1.0.0")
    shutil.copytree(built, tmp_path / "two/1.0.0")
    with pytest.raises(DataError, match="holds several corpora; name one"):
        manifest.find(tmp_path)

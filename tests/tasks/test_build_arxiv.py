"""arXiv: papers from bulk tars, submissions and folders, with whatever else arXiv holds counted."""

import gzip
import json
from collections import Counter

import pytest
from build_stand_ins import read, tar, wrote

from tasks.build.arxiv import Arxiv
from tasks.build.pipeline import Job
from tasks.build.plan import Splitting
from tasks.task import DataError

DOC = "\\documentclass{amsart}\n\\begin{document}\n%s\n\\end{document}\n"


ONE = gzip.compress((DOC % "Café").encode("latin-1"))
MANY = gzip.compress(
    tar(
        {
            "00README.XXX": b"print.tex toplevelfile\nweb.tex ignore\n",
            "print.tex": (DOC % "% note\n\\input{sections/one}\n\\input{print.bbl}").encode(),
            "web.tex": (DOC % "\\input{sections/one} and more than the other").encode(),
            "sections/one.tex": b"One\r\n",
            "print.bbl": b"\\bibitem{x}",
            "figure.pdf": b"%PDF-1.5",
            "anc/notes.tex": b"no part of the paper",
            "._print.tex": b"\0\5",
        }
    )
)
MANY_TEXT = DOC % "% note\nOne\n\\input{print.bbl}"
SUBMISSIONS = {
    "1001.0001.gz": ONE,
    "1001.0002.gz": MANY,
    "1001.0003.pdf": b"%PDF-1.5 ...",
    "1001.0004.gz": gzip.compress(b"%auto-ignore\nThis submission has been withdrawn by the author."),
    "1001.0005.gz": gzip.compress(b"%!PS-Adobe-2.0"),
    "1001.0006.gz": MANY[:-20],
    "math9901001v2.gz": gzip.compress(b"\\magnification=1 Text\\bye"),
}


def test_submissions_are_papers_whatever_they_hold(tmp_path):
    documents, notes = read(Arxiv(), wrote(tmp_path, {**SUBMISSIONS, "list.xml": b"<x/>"}))
    assert [(one.name, one.text, one.parts, one.group, one.split) for one in documents] == [
        ("1001.0001", DOC % "Café", 1, "arXiv:1001.0001", ""),
        ("1001.0002", MANY_TEXT, 2, "arXiv:1001.0002", ""),
        ("math/9901001v2", "\\magnification=1 Text\\bye", 1, "arXiv:math/9901001", ""),
    ]
    assert {one.licence for one in documents} == {""}
    assert notes == {
        ("files", "beside the papers"): 1,
        ("files", "read as Latin-1"): 1,
        ("files", "not read by the main file"): 1,
        ("inputs", "of what is no TeX"): 1,
        ("files", "of other kinds than TeX"): 4 + 3,  # of the second; the PDF, the stub, the PostScript
        ("papers", "PDF only"): 1,
        ("papers", "withdrawn"): 1,
        ("papers", "PostScript only"): 1,
        ("papers", "in broken archives"): 1,
        ("archives", "kept up to where they are damaged"): 1,
    }


def test_a_bulk_tar_holds_the_same_papers(tmp_path):
    alone, _ = read(Arxiv(), wrote(tmp_path / "alone", SUBMISSIONS))
    bulk = tar({f"1001/{name}": data for name, data in SUBMISSIONS.items()})
    wrote(tmp_path / "bulk", {"src/arXiv_src_1001_001.tar": bulk, "src/arXiv_src_manifest.xml": b"<x/>"})
    documents, notes = read(Arxiv(), tmp_path / "bulk")
    assert documents == alone
    assert notes["papers", "in broken archives"] == notes["files", "beside the papers"] == 1

    cut = wrote(tmp_path / "cut", {"arXiv_src_1001_001.tar": bulk[:2500]})
    documents, notes = read(Arxiv(), cut)
    assert documents == alone[: len(documents)] and documents
    assert notes["archives", "kept up to where they are damaged"] == 1


def test_the_metadata_chooses_papers_and_knows_their_licences(tmp_path):
    lines = [
        {"id": "1001.0001", "categories": "cs.LG math.AG", "license": "http://creativecommons.org/licenses/by/4.0/"},
        {"id": "1001.0002", "categories": "math-ph hep-th", "license": None},
        {
            "id": "math/9901001",
            "categories": "math.NT",
            "license": "http://arxiv.org/licenses/nonexclusive-distrib/1.0/",
        },
        {"id": "1001.0003", "categories": 7, "comments": "math"},
    ]
    metadata = tmp_path / "metadata.json"
    metadata.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"categories": "math.AG", "id\n')
    wrote(tmp_path / "papers", SUBMISSIONS)

    def chosen(**options):
        documents, notes = read(Arxiv(metadata=str(metadata), **options), tmp_path / "papers")
        return {one.name: one.licence for one in documents}, notes

    found, notes = chosen()
    assert found == {"1001.0001": "CC-BY-4.0", "math/9901001v2": "LicenseRef-arXiv-nonexclusive"}
    assert notes["papers", "of other categories, or not in the metadata"] == 5
    assert notes["metadata lines", "not usable"] == 2
    assert set(chosen(primary=True)[0]) == {"math/9901001v2"}
    assert set(chosen(categories="math.NT, math-ph")[0]) == {"1001.0002", "math/9901001v2"}
    # A build is the same wherever its metadata lies, and another if something else stands there.
    copy, other = tmp_path / "copies" / "metadata.json", tmp_path / "others" / "metadata.json"
    for path, more in ((copy, ""), (other, json.dumps(lines[0]) + "\n")):
        path.parent.mkdir()
        path.write_text(metadata.read_text() + more)
    first, second, third = (
        Job(Arxiv(metadata=str(path)), ("papers",), Splitting()).options() for path in (metadata, copy, other)
    )
    assert first == second != third
    assert first["metadata"]["name"] == "metadata.json"
    with pytest.raises(DataError, match=r"names no paper of math\.XX"):
        chosen(categories="math.XX")
    with pytest.raises(DataError, match="cannot read the metadata"):
        Arxiv(metadata=str(tmp_path / "gone")).units(str(tmp_path / "papers"), Counter())


def test_folders_are_papers_and_keep_their_split(tmp_path):
    files = {
        "train/b/main.tex": DOC % "\\input{one}",
        "train/b/one.tex": "One",
        "train/a.tex": DOC % "A",
        "validation/c/ms.tex": DOC % "C",
        "test/d/ms.TEX": DOC % "D",
        "test/empty/readme.txt": "no paper",
        "README.md": "",
    }
    documents, notes = read(Arxiv(), wrote(tmp_path, files))
    assert [(one.name, one.split, one.parts) for one in documents] == [
        ("test/d", "test", 1),
        ("train/a", "train", 1),
        ("train/b", "train", 2),
        ("validation/c", "validation", 1),
    ]
    assert notes == {
        ("entries", "beside train, validation, test"): 1,
        ("files", "of other kinds than TeX"): 1,
        ("papers", "without TeX"): 1,
    }


def test_links_do_not_lead_out_of_a_paper(tmp_path):
    wrote(tmp_path, {"outside/secret.tex": "Secret", "in/paper/main.tex": DOC % "\\input{secret}\\input{far/secret}"})
    (tmp_path / "in/paper/secret.tex").symlink_to(tmp_path / "outside/secret.tex")
    (tmp_path / "in/paper/far").symlink_to(tmp_path / "outside")
    ((document,), notes) = read(Arxiv(), tmp_path / "in")
    assert "Secret" not in document.text
    assert notes == {("links", "in folders"): 2, ("inputs", "missing"): 2}
    # A user's own links to submissions are followed; to folders they are not, since they may lead in a circle.
    (tmp_path / "in/1001.0001.tex").symlink_to(tmp_path / "outside/secret.tex")
    (tmp_path / "in/again").symlink_to(tmp_path / "in")
    (document, _), notes = read(Arxiv(), tmp_path / "in")
    assert document.text == "Secret"
    assert notes["links", "in folders"] == 3


def test_comments_are_kept_unless_they_are_not_wanted(tmp_path):
    wrote(tmp_path, {"1001.0002.gz": MANY})
    assert read(Arxiv(), tmp_path)[0][0].text == MANY_TEXT
    assert read(Arxiv(strip=True), tmp_path)[0][0].text == MANY_TEXT.replace("% note\n", "")


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"p/a.tex": b""}, "without usable TeX"),
        ({"p/a.tex": b"x\0y"}, "without usable TeX"),
        ({"p/a.txt": b"\\begin{document}"}, "without TeX"),
        ({"1001.0001.gz": b""}, "empty"),
        ({"1001.0001.gz": gzip.compress(b"<!DOCTYPE HTML><html>")}, "HTML only"),
        ({"1001.0001.gz": gzip.compress(tar({"a.pdf": b"%PDF"}))}, "without TeX"),
        ({"a.tex": b"This paper has been withdrawn.\n"}, "withdrawn"),
    ],
)
def test_papers_without_a_text_are_counted(tmp_path, files, reason):
    documents, notes = read(Arxiv(), wrote(tmp_path, files))
    assert not documents and notes["papers", reason] == 1


def test_inputenc_says_how_other_files_are_encoded(tmp_path):
    head = "\\documentclass{a}\n%\\usepackage[latin1]{inputenc}\n\\usepackage[koi8-r]{inputenc}\n"
    wrote(tmp_path, {"p/a.tex": head + "\\begin{document}\\input{b}", "p/b.tex": "доказательство".encode("koi8-r")})
    ((document,), notes) = read(Arxiv(), tmp_path)
    assert document.text.endswith("доказательство\n")
    assert notes == {("files", "read as koi8-r"): 1}


def test_a_file_that_vanishes_is_counted(tmp_path):
    source, notes = Arxiv(), Counter()
    units = source.units(str(wrote(tmp_path, {"1001.0001.gz": ONE, "p/a.tex": DOC % ""})), notes)
    (tmp_path / "1001.0001.gz").unlink()
    (tmp_path / "p/a.tex").unlink()
    (tmp_path / "p").rmdir()
    assert [list(source.read(unit, notes)) for unit in units] == [[], []]
    assert notes["papers", "unreadable"] + notes["folders", "unreadable"] >= 1
    assert sum(count for (what, _), count in notes.items() if what == "papers") == 2


def test_of_two_files_under_one_path_the_last_counts(tmp_path):
    first, last = (tar({"a.tex": (DOC % word).encode()}) for word in ("first", "last"))
    twice = first[:1024] + last  # a header and a block of text, and no end
    ((document,), notes) = read(Arxiv(), wrote(tmp_path, {"1001.0001.gz": gzip.compress(twice)}))
    assert document.text == DOC % "last" and document.parts == 1
    assert notes == {("files", "under a path that comes again"): 1}


def test_what_is_no_source_is_told_in_one_line(tmp_path):
    with pytest.raises(DataError, match="no file or directory at .*gone"):
        Arxiv().units(str(tmp_path / "gone"), Counter())
    with pytest.raises(DataError, match="no paper in .*; wanted are arXiv's bulk tars"):
        Arxiv().units(str(wrote(tmp_path, {"README.md": "x"})), Counter())

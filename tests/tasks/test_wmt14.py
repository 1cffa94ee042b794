"""WMT14: the same sentence pairs from every kind of place, and one line for everything wrong."""

import importlib

import pytest

import tasks
from tasks import subwords

MODULE = importlib.import_module("tasks.wmt14")  # `tasks.wmt14` itself is the function
STEMS = {"train": "corpus", "validation": "dev", "test": "news"}
IDS = 310
PAIRS = {
    split: [
        (f"{number} red house{' by the lake' * (number % 3)}", f"rotes Haus, größer {number}") for number in range(size)
    ]
    for split, size in (("train", 60), ("validation", 9), ("test", 7))
}


def write(place, stem, pairs, ends="\n", kinds=("{}.en", "{}.de")):
    for kind, side in zip(kinds, zip(*pairs, strict=True), strict=True):
        file = place / kind.format(stem)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes("".join(sentence + ends for sentence in side).encode())
    return place


def lines(place, **changed):
    for split, stem in STEMS.items():
        write(place, stem, changed.get(split, PAIRS[split]))
    return place


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "small.model"
    subwords.train([side for pairs in PAIRS.values() for pair in pairs for side in pair], IDS, path, kind="bpe")
    return str(path)


def made(place, model, **settings):
    usual = {"ids": IDS, "length": 32, "shortest": 8, "longest": 64, "sample": True, **STEMS}
    return tasks.wmt14(str(place), model, **{**usual, **settings})


@pytest.fixture(scope="module")
def usual(tmp_path_factory, model):
    return made(lines(tmp_path_factory.mktemp("lines")), model)


def sgm(place):
    for split, stem in STEMS.items():
        for kind, side in zip(("src.en", "ref.de"), zip(*PAIRS[split], strict=True), strict=True):
            body = "".join(f'<seg id="{n}"> {text.replace(" ", chr(10), 1)} </seg>\n' for n, text in enumerate(side, 1))
            (place / f"{stem}-{kind}.sgm").write_text(
                f'<srcset setid="x"><doc docid="y">\n<p>\n{body}</p></doc></srcset>'
            )
    return place


def tfds(place):
    pytest.importorskip("tensorflow_datasets")
    from tasks.registry import library

    library()
    import tensorflow_datasets as tfds

    tfds.dataset_builders.store_as_tfds_dataset(
        name="wmt14_translate",
        version="1.0.0",
        features=tfds.features.Translation(languages=["de", "en"]),
        split_datasets={
            split: [(key, {"en": pair[0], "de": pair[1]}) for key, pair in enumerate(pairs)]
            for split, pairs in PAIRS.items()
        },
        config="de-en",
        data_dir=str(place),
        disable_shuffling=True,
    )
    return place


def several(place):
    """Training text in two stems, one of them in a folder."""
    write(place, "one", PAIRS["train"][:20])
    write(place / "folder", "two", PAIRS["train"][20:])
    write(place, "dev", PAIRS["validation"])
    write(place, "news", PAIRS["test"])
    return place


PLACES = {
    "CR LF": (lambda place: [write(place, stem, PAIRS[s], "\r\n") for s, stem in STEMS.items()] and place, {}),
    "sgm": (sgm, {}),
    "TFDS": (tfds, {}),
    "several stems": (several, {"train": ("one", "two")}),
}


@pytest.mark.filterwarnings("ignore:label:DeprecationWarning")  # tensorflow_datasets, writing its own files
@pytest.mark.parametrize("place", PLACES)
def test_the_same_pairs_from_every_place(tmp_path, model, place):
    make, settings = PLACES[place]
    task = made(make(tmp_path), model, **settings)
    assert {split: task.references(split) for split in STEMS} == PAIRS


def test_names_fingerprints_and_tasks_without_data(usual, tmp_path, model):
    task = tasks.wmt14()
    assert (task.name, task.length, task.vocabulary) == ("wmt14_en_de", 256, 32000)
    assert [metric.name for metric in task.metrics] == ["nats_per_token", "perplexity_per_token", "accuracy"]
    with pytest.raises(tasks.DataError, match="no path to the data was given"):
        task.feed("train", 1)
    bare = made(lines(tmp_path), None)
    with pytest.raises(tasks.DataError, match="no vocabulary was given; make one with `repro data vocab`"):
        bare.feed("train", 1)
    assert list(bare.texts("test")) == [side for pair in PAIRS["test"] for side in pair]
    again = made(tmp_path, model)
    assert (again.name, again.fingerprint()) == (usual.name, usual.fingerprint())
    write(tmp_path, "news", PAIRS["test"][:-1])
    others = [made(tmp_path, model), made(tmp_path, model, length=16), made(tmp_path, model, shortest=16)]
    assert len({usual.name, *(other.name for other in others)}) == 4
    assert len({usual.fingerprint(), *(other.fingerprint() for other in others)}) == 4


def test_published_counts_are_recognised(tmp_path, monkeypatch):
    settings = {**STEMS, "ids": IDS}
    with pytest.raises(tasks.DataError, match="has 60, 9, 7 pairs .* 3,000 and 3,003 were published"):
        tasks.wmt14(str(lines(tmp_path)), **settings)
    for name, count in (("TRAIN_AT_LEAST", 60), ("VALIDATION", 9), ("TEST", 7)):
        monkeypatch.setattr(MODULE, name, count)
    assert tasks.wmt14(str(tmp_path), **settings).name == "wmt14_en_de"


def test_only_line_feeds_end_lines_and_marks_of_order_are_no_text(tmp_path, model):
    odd = [("a\u2028b\x0cc\u0085d \x1c e", "f\vg"), ("h", "i"), (" j\u00a0", "k\t")]
    write(tmp_path, "corpus", odd)
    (tmp_path / "corpus.en").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "corpus.en").read_bytes().rstrip(b"\n"))
    write(tmp_path, "dev", odd, "\r\n")
    write(tmp_path, "news", odd)
    task = made(tmp_path, model)
    assert task.references("train") == task.references("validation") == odd


def test_entities_are_put_back_only_in_tokenised_text(tmp_path, model):
    text = [("&apos;s &amp; &quot; &#91; x &#93; &#124; &lt; &gt;", "&amp;lt; &copy; &ampere")]
    for stem in ("corpus.tok", "dev", "news"):
        write(tmp_path, stem, text)
    task = made(tmp_path, model, train="corpus.tok")
    assert task.references("train") == [("'s & \" [ x ] | < >", "&lt; &copy; &ampere")]
    assert task.references("test") == text


def raw(place, name, data):
    (lines(place) / name).write_bytes(data)
    return place


def twice(place):
    write(lines(place) / "a", "corpus", PAIRS["train"])
    write(place / "b", "corpus", PAIRS["train"])
    for side in ("en", "de"):
        (place / f"corpus.{side}").unlink()
    return place


WRONG = {
    "no such path": (lambda place: place / "nowhere", {}, "no directory at"),
    "a file": (lambda place: lines(place) / "dev.en", {}, "no directory at"),
    "an empty directory": (lambda place: place, {}, "hold neither corpus.en and corpus.de nor corpus-src.en.sgm and"),
    "one side": (lambda place: lines(place), {"test": "x"}, "x.en and x.de.*set train, .* to what is there: corpus"),
    "a side missing": (lambda place: raw(place, "x.en", b"a\n"), {"test": "x"}, "holds x.en but not x.de"),
    "the other missing": (lambda place: raw(place, "x.de", b"a\n"), {"test": "x"}, "holds x.de but not x.en"),
    "several": (twice, {}, "several files could be meant: .*a/corpus.en, .*b/corpus.en"),
    "not aligned": (lambda place: raw(place, "dev.de", b"x\n"), {}, "dev.en has 9 lines and .*dev.de 1: they are not"),
    "empty": (lambda place: raw(place, "dev.de", b""), {}, "dev.de is empty .0 bytes"),
    "latin1": (lambda place: raw(place, "dev.de", b"a\nb\xfc\n"), {}, "dev.de is not UTF-8 .line 2: invalid start"),
    "cut in a character": (lambda place: raw(place, "dev.de", b"a\n\xc3"), {}, "not UTF-8 .line 2: unexpected end"),
    "not a power": (lines, {"length": 24}, "length must be shortest .8. times a power of two, got 24"),
    "longest too short": (lines, {"longest": 16}, "longest must be a whole number from 32"),
    "other ids": (lines, {"ids": 301}, "has 310 ids, `ids` says 301; set ids=310"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_everything_wrong_is_one_clear_line(tmp_path, model, case):
    make, settings, message = WRONG[case]
    with pytest.raises(tasks.DataError, match=message) as error:
        made(make(tmp_path), model, **settings)
    assert "\n" not in str(error.value) and str(error.value).startswith("wmt14: ")


def test_wrong_sgm_files(tmp_path, model):
    sgm(tmp_path)
    (tmp_path / "dev-ref.de.sgm").write_bytes(b"<doc></doc>")
    with pytest.raises(tasks.DataError, match=r"dev-ref.de.sgm holds no <seg>"):
        made(tmp_path, model)
    (tmp_path / "dev-ref.de.sgm").write_bytes(b"<seg>\xff</seg>")
    with pytest.raises(tasks.DataError, match=r"dev-ref.de.sgm is not UTF-8 .byte 5"):
        made(tmp_path, model)


def test_an_empty_file_of_records(tmp_path, model):
    place = tmp_path / "wmt14_translate/de-en/1.0.0"
    place.mkdir(parents=True)
    (place / "dataset_info.json").write_text("{}")
    (place / "wmt14_translate-train.tfrecord-00000-of-00001").write_bytes(b"")
    with pytest.raises(tasks.DataError, match=r"wmt14: .*train.tfrecord-00000-of-00001 is empty .0 bytes.; prepare"):
        made(tmp_path, model)


def test_a_stem_may_be_a_part_of_its_lines(tmp_path, model):
    place = lines(tmp_path)
    task = made(place, model, train=["corpus[:-5]", "dev[2:4]"], test="corpus[-5:]")
    assert list(task.bitext("train")) == PAIRS["train"][:-5] + PAIRS["validation"][2:4]
    assert task.references("test") == PAIRS["train"][-5:]
    with pytest.raises(tasks.DataError, match=r"corpus\[60:\] leaves no pair of corpus"):
        made(place, model, train="corpus[60:]")

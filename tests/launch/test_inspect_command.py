"""`repro inspect` and `repro sample` of a model with memory: a page holds the document and what was retrieved."""

import base64
import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from launch import composition as files
from launch import inspect, inspection, train
from launch.cli import main

STEM = "memorizing/table4/ctx512_mem8192_xl512+isabelle"
SMALL = ["LAYERS = 1", "MEMORY_LAYERS = (1,)", "NEIGHBOURS = 4", "MEMORY_8192 = 64"]
THEORY = """theory Grün imports Main begin
definition double where "double n = n + n"
lemma double_zero: "double 0 = 0" by (simp add: double_def)
lemma again: "double 0 = (0::nat)" using double_zero by simp
end
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("theories")
    for split in ("train", "validation", "test"):
        (folder / split / "Entry").mkdir(parents=True)
        (folder / split / "Entry" / "Grün.thy").write_text(THEORY, "utf-8")
    return folder


@pytest.fixture
def words(monkeypatch, tmp_path, data):
    """A command's words for a run that seems to have a checkpoint: start values, at step 7."""

    def restore(experiment, folder):
        return 7, experiment.model.init(jax.random.key(experiment.seed), None)

    monkeypatch.setattr(train, "restore_params", restore)

    def make(command, *more, stem=STEM):
        sets = [*SMALL, f"DATA = '{data}'", *more]
        (tmp_path / files.compose(stem, "tiny", None, sets).run_name / "checkpoints" / "7").mkdir(parents=True)
        overrides = [word for one in sets for word in ("--set", one)]
        return [command, stem, "--scale", "tiny", "--workdir", str(tmp_path), *overrides]

    return make


class Page(HTMLParser):
    """The tags that are open, all attributes, and the page's data."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.rows, self.data = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in ("meta", "rect", "input"):
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag != "rect":
            assert self.open.pop()[0] == tag

    def handle_data(self, text):
        if self.open and self.open[-1][1].get("id") == "data":
            self.data = json.loads(text)

    def array(self, name, kind):
        return np.frombuffer(base64.b64decode(self.data[name]), kind)


def test_a_page_holds_the_document_and_what_each_token_retrieved(words, capsys, tmp_path):
    assert main([*words("inspect"), "--memory", "32,64", "--shown", "3", "--out", str(tmp_path / "pages")]) == 0
    out = capsys.readouterr().out
    (path,) = (tmp_path / "pages").iterdir()
    assert path.name == "step7-test0-memory32_64.html"
    assert str(path) in out
    page = Page(path.read_text("utf-8"))
    assert not page.open
    assert not [name for name, _ in page.attributes if name in ("src", "href")]
    size = len(THEORY.encode())
    assert "".join(page.data["texts"]) == THEORY
    assert len(page.data["texts"]) == size
    before, after = page.array("before", "<f4"), page.array("after", "<f4")
    np.testing.assert_allclose(before[:48], after[:48], atol=1e-5)  # nothing was forgotten yet
    assert np.abs(before[48:] - after[48:]).max() > 1e-4
    perplexity = float(re.search(r"([\d.]+) with 64;", out)[1])
    assert perplexity == pytest.approx(np.exp(after.mean(dtype=np.float64)), abs=1e-3)
    places = page.array("places", "<i4").reshape(size, 2, 3)
    start = np.arange(size)[:, None, None] // 16 * 16  # of the token's segment
    there = places != inspection.NOTHING
    assert (there == (start > 0)).all()
    assert (places < start)[there].all()
    assert (places >= start - 1 - 64)[there].all()
    assert (places[there] >= inspection.BEGINNING).all()
    weights = page.array("weights", "<u2").reshape(size, 2, 3)
    assert (np.diff(weights.astype(int)) <= 0).all()
    tokens = [int(value) for name, value in page.attributes if name == "data-token"]
    assert tokens[0] == (before - after).argmax()


def test_first_tokens_that_are_not_predicted_are_left_out(words, capsys, tmp_path, monkeypatch):
    out = tmp_path / "pages"
    command = [*words("inspect", "PREDICT_FIRST = False"), "--tokens", "50"]
    assert main([*command, "--out", str(out)]) == 0
    assert "46 tokens" in capsys.readouterr().out
    page = Page(next(out.iterdir()).read_text("utf-8"))
    (unpredicted,) = np.nonzero(np.isnan(page.array("after", "<f4")))
    assert unpredicted.tolist() == [0, 16, 32, 48]
    places = page.array("places", "<i4").reshape(50, 2, 4)
    assert (places[:17] == inspection.NOTHING).all()
    # The query at token 16 has read it, and predicts the next.
    assert ((places[17:] >= 0) & (places[17:] < (np.arange(17, 50) - 1)[:, None, None] // 16 * 16)).all()
    # Of a document that is too long for a page, the last details are kept.
    monkeypatch.setattr(inspection, "DETAILS", 20 * 2 * 4)
    assert main([*command, "--out", str(tmp_path / "short")]) == 0
    short = Page(next((tmp_path / "short").iterdir()).read_text("utf-8"))
    np.testing.assert_array_equal(short.array("places", "<i4"), places[30:].ravel())
    np.testing.assert_array_equal(short.array("weights", "<u2"), page.array("weights", "<u2")[30 * 2 * 4 :])


def test_statements_that_were_retrieved_are_counted():
    """Two heads, two neighbours; one name at tokens 34 and 35, its statement at tokens 10 to 13."""
    found = inspection.Definitions([("name", (34, 36), (10, 14))], memory=32, lag=1, segment=16)
    source = np.full((1, 2, 16, 2), 20)
    source[0, 0, 34 - 32] = [13, 20]
    source[0, 1, 35 - 32] = [20, 14]  # behind the statement
    source[0, 1, 34 - 32] = [20, 10]
    weight = np.broadcast_to([0.6, 0.4], source.shape)
    found.count(32, source, weight)
    found.count(48, source, weight)
    assert (found.tokens, found.out, found.any_head) == (2, 0, 1)
    assert found.heads.tolist() == [[1, 1]]
    assert found.strongest.tolist() == [[1, 0]]
    assert found.strongest_chance == pytest.approx(2 * 4 / 32)
    chance = 1 - (28 / 32) * (27 / 31)
    assert found.chance == pytest.approx(2 * chance)
    assert found.any_chance == pytest.approx(2 * (1 - (1 - chance) ** 2))
    assert found.cases == {0: 2}
    far = inspection.Definitions([("name", (50, 51), (10, 14))], memory=32, lag=1, segment=16)
    far.count(48, source, weight)  # which reaches back to position 16
    assert (far.tokens, far.out) == (0, 1)


def test_text_goes_on_behind_a_prompt_of_any_length(words, capsys, tmp_path):
    command = words("sample")
    (tmp_path / "prompt").write_text(THEORY, "utf-8")
    assert main([*command, "--prompt-file", str(tmp_path / "prompt"), "--tokens", "20", "--count", "2"]) == 0
    first = capsys.readouterr().out
    assert f"--- prompt, {len(THEORY.encode())} tokens\n{THEORY}" in first
    parts = re.split(r"--- continuation \d, 20 tokens\n", first)[1:]
    assert len(parts) == len(set(parts)) == 2
    assert main([*words("sample", "PREDICT_FIRST = False"), "--tokens", "5"]) == 0
    assert f"--- test example 0, {len(THEORY.encode()) // 2} tokens\n{THEORY[:20]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--memory", "24,64"], "memory is 24; it must be a multiple of the segment"),
        (["--memory", "64"], "two sizes wanted, such as 16,64"),
        (["--memory", "64,0"], "the second above 0"),
        (["--document", "3"], "there is no 3; the test split has 1, from 0"),
    ],
)
def test_what_cannot_be_is_one_line(words, capsys, more, message):
    assert main([*words("inspect"), *more]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("memory", "smaller"), [(64, 16), (256, 64), (16, 0), (32, 16)])
def test_a_memory_is_compared_with_a_smaller_one(memory, smaller):
    model = SimpleNamespace(memory=memory, segment=16, neighbours=4, with_memory=lambda params, size: size)
    task = SimpleNamespace(source=SimpleNamespace(tokens=None))
    run = SimpleNamespace(experiment=SimpleNamespace(model=model, task=task), params=None, name="run")
    assert inspect._models(run, None) == [smaller, memory]


def test_without_memory_or_checkpoint_there_is_nothing_to_look_into(words, capsys, tmp_path, data):
    assert main(words("inspect", stem="memorizing/table4/ctx512_xl512+isabelle")) == 2
    assert "this Model has no memory to look into; choose a row with one" in capsys.readouterr().err
    assert main(["inspect", STEM, "--scale", "tiny", "--workdir", str(tmp_path / "empty")]) == 1
    error = capsys.readouterr().err
    assert "train first: repro run memorizing/table4/ctx512_mem8192_xl512+isabelle --scale tiny" in error

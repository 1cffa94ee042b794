"""Translation: what is decoded, in which order, how it is scored and recorded."""

import dataclasses
import io
import logging
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import tasks
from launch import composition as files
from launch import config, optimizers
from launch.evaluate import evaluate
from launch.experiment import Evaluation, Translation
from launch.monitor import Monitor
from launch.run import run
from launch.translate import batches, sentences
from results import schema

ROW = "reformer/acceptance/copyreverse"
TASK = tasks.copyreverse(length=20, symbols=9, examples=23)


class Found(NamedTuple):
    tokens: np.ndarray


@dataclasses.dataclass(frozen=True)
class Reverser:
    """Stands for a perfect model: reverses what is real; remembers the shapes that it was given."""

    length: int = 32
    vocabulary: int = 11
    seen: list = dataclasses.field(default_factory=list, compare=False)

    def init(self, key, batch):
        return {"w": jnp.zeros(1)}

    def start(self, batch_size):
        return ()

    def apply(self, *_, **__):
        raise AssertionError("translating needs no scores")

    def translate(self, params, tokens, real, *, eos, beams, alpha, extra_length):
        self.seen.append((tokens.shape, beams, alpha, extra_length))
        tokens, real = np.asarray(tokens), np.asarray(real)
        assert real.any(1).all(), "a row without a source would be searched to the last step"
        out = np.zeros_like(tokens)
        for row, (ids, kept) in enumerate(zip(tokens, real, strict=True)):
            word = ids[kept][:-1]
            assert ids[kept][-1] == eos
            out[row, : len(word) + 1] = [*word[::-1], eos]
        return Found(out[:, None])


PARAMS = {"w": jax.device_put(jnp.zeros(1))}


@pytest.mark.parametrize("size", [1, 4, 64])
def test_sentences_come_back_in_their_order_whatever_the_batches(size):
    evaluation = Translation(Reverser(), TASK, batch_size=size, beam=3, alpha=0.8, extra_length=7)
    sources, references = zip(*TASK.references("test"), strict=True)
    heard = []
    assert sentences(PARAMS, evaluation, sources, heard.append) == list(references)
    assert heard[-1] == 23 and heard == sorted(heard)
    assert {shape[0] for shape, *_ in evaluation.model.seen} == {size}
    assert {rest for _, *rest in map(tuple, evaluation.model.seen) for rest in [tuple(rest)]} == {(3, 0.8, 7)}


def test_batches_are_of_like_length_and_what_is_too_long_is_cut(caplog):
    task = dataclasses.make_dataclass("Words", ["name", "shortest"], namespace={
        "encode": lambda self, text: np.array([*range(2, 2 + len(text)), 1])})("words", 4)  # fmt: skip
    sources = ["a" * count for count in (2, 3, 4, 7, 8, 15, 16, 30, 3)]
    with caplog.at_level(logging.WARNING, logger="launch"):
        made = list(batches(task, sources, 2, 16))
    assert [(length, numbers) for length, numbers, _ in made] == [
        (4, [0, 1]), (4, [8]), (8, [2, 3]), (16, [4, 5]), (16, [6, 7])]  # fmt: skip
    assert all(len(ids) == len(sources[number]) + 1 for _, numbers, part in made[:-1]
               for number, ids in zip(numbers, part, strict=True))  # fmt: skip
    assert [ids.tolist() for ids in made[-1][2]] == [[*range(2, 17), 1]] * 2
    assert "words: 2 sentences are longer than the model's 16 positions and are cut" in caplog.text


def test_scores_of_a_perfect_model_and_of_copying():
    evaluation = Translation(Reverser(), TASK, examples=9, watch_examples=5)
    result = evaluate(PARAMS, evaluation, seed=0)
    assert (result["split"], result["draws"], result["examples"], result["weight"]) == ("test", 1, 9, 9.0)
    assert list(result["metrics"]) == ["bleu", "sacrebleu_uncased", "sacrebleu_cased", "bleu_of_source"]
    for name in ("bleu", "sacrebleu_uncased", "sacrebleu_cased"):
        assert result["metrics"][name]["value"] == pytest.approx(100)
        assert result["metrics"][name]["unit"] == "BLEU"
        assert "tok:intl" in result["signatures"][name]
    assert result["metrics"]["bleu_of_source"]["value"] < 50
    watched = evaluate(PARAMS, evaluation, seed=0, split="validation", draws=1)
    assert (watched["split"], watched["examples"]) == ("validation", 5)
    text = io.StringIO()
    Monitor(Console(file=text, width=200), "run").evaluated("decoded", result)
    assert "decoded on test: bleu 100.00 BLEU" in text.getvalue()
    assert "sacrebleu_uncased 100.00  nrefs:1|case:lc" in text.getvalue()


@pytest.mark.slow
def test_a_run_records_what_it_translated(tmp_path):
    made = files.compose(ROW, "tiny")
    with Monitor(Console(file=io.StringIO()), "run") as monitor:
        path = run(made, tmp_path / "runs", tmp_path / "records", monitor)
    record = schema.read(path)
    assert set(record.evaluations) == {"likelihood", "decoded"}
    decoded = record.evaluations["decoded"]
    assert decoded.examples == 6 and 0 <= decoded.metrics["bleu"].value <= 100
    assert set(decoded.signatures) == set(decoded.metrics)
    assert "signatures" not in schema.read(path).to_dict()["evaluations"]["likelihood"]


def test_wrong_settings_are_explained():
    model = Reverser()
    with pytest.raises(ValueError, match=r"Translation.beam is 0; it must be an integer of at least 1"):
        Translation(model, TASK, beam=0)
    with pytest.raises(ValueError, match=r"Translation.split is 'train'; it must be one of validation, test"):
        Translation(model, TASK, split="train")
    with pytest.raises(ValueError, match=r"Translation.task is .*must have references, encode, decode"):
        Translation(model, tasks.duplication(length=8, symbols=5))
    with pytest.raises(ValueError, match=r"vocabulary of 4, but the ids of copyreverse.* need 11"):
        Translation(dataclasses.replace(model, vocabulary=4), TASK)
    assert Evaluation(model, TASK).task is TASK


def test_table4_rows_are_the_papers():
    rows = {
        "base_100k": (100_000, 512, 2048, 8, 0.1, "all"),
        "base_500k": (500_000, 512, 2048, 8, 0.1, "none"),
        "big_300k": (300_000, 1024, 4096, 16, 0.3, "none"),
    }
    for row, wanted in rows.items():
        made = config.build(files.compose(f"reformer/table4/{row}"))
        model, decoded = made.model, made.evaluations["newstest2014"]
        assert (made.steps, model.width, model.hidden, model.heads, model.dropout, model.tie) == wanted
        assert (model.layers, model.residual, model.attention.dropout, model.smoothing) == (6, "reversible", 0.1, 0.1)
        peak = float(made.optimizer.rate(made.steps)(3999))
        np.testing.assert_allclose(peak, (model.width * 4000) ** -0.5, rtol=1e-3)
        assert (decoded.split, decoded.beam, decoded.alpha, decoded.examples) == ("test", 4, 0.6, None)
        official = config.build(files.compose(f"reformer/table4/{row}_official"))
        assert official.steps == made.steps
        assert official.model.smoothing == 0 and official.model.shared_dropout
        assert official.optimizer.steady_decay == 1e-5
    # Facts: constants 0.088 and 0.0625, warm-up 8000, 65,536 padded tokens a side.
    assert official.optimizer.rate.constant == 0.0625
    assert official.batch_size * official.task.length == 65_536


def test_steady_decay_does_not_follow_the_rate():
    params = {"w": jnp.full(3, 2.0)}
    build = lambda **more: optimizers.Adam(optimizers.Multifactor(1e-3, 10), **more).build(5)  # noqa: E731
    gradient = {"w": jnp.array([1.0, -1.0, 0.5])}
    plain, steady = build(), build(steady_decay=0.25)
    one, _ = plain.update(gradient, plain.init(params), params)
    two, _ = steady.update(gradient, steady.init(params), params)
    np.testing.assert_allclose(two["w"], one["w"] - 0.5, rtol=1e-6)

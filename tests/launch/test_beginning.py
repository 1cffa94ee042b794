"""Beginning with another run's parameters (a larger memory for a trained model: Table 5 of the second paper), or going
on from all that another run has come to."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stand_ins import Silent

from launch import composition as files
from launch import config
from launch.errors import CheckpointError, ConfigError, RunError
from launch.run import run
from launch.train import mesh_of, prepare, restore, restore_params
from results import schema
from tasks import subwords

SOURCE, LARGER = "memorizing/table5/ctx512_mem8192", "memorizing/table5/ctx512_mem8192_to_mem65k"
SMALL = ("LAYERS = 1", "MEMORY_LAYERS = (1,)")  # compiling is what costs


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Three papers a split, of some segments each."""
    folder = tmp_path_factory.mktemp("papers")
    for split in ("train", "validation", "test"):
        (folder / split).mkdir()
        for number in range(3):
            text = "".join(f"Lemma {number}.{line}: let x in G, {split}.\n" for line in range(4 + number))
            (folder / split / f"paper{number}.tex").write_text(text)
    return folder


def compose(corpus, stem, *overrides):
    return files.compose(stem, "tiny", 3, (f"DATA = {str(corpus)!r}", *overrides))


@pytest.mark.slow
def test_tuning_begins_where_the_named_run_ended(tmp_path, corpus):
    runs, monitor = tmp_path / "runs", Silent()
    with pytest.raises(
        RunError, match=rf"begins with the parameters of {SOURCE}, but .*; run first: repro run {SOURCE}"
    ):
        run(compose(corpus, LARGER), runs, tmp_path / "records", monitor)
    source = compose(corpus, SOURCE, *SMALL)
    record = schema.read(run(source, runs, tmp_path / "records", monitor))
    figures = record.evaluations["test"].metrics
    assert next(iter(figures)) == "perplexity_per_token"
    shares = [figures[f"memory1_share_head{head}"].value for head in range(2)]
    assert figures["memory1_share"].value == pytest.approx(np.mean(shares))
    assert figures["memory1_recall"].value == 1  # exact on CPU
    folder = runs / source.run_name
    # At rate 0 the parameters stay what they were at the beginning; a folder names a run with other overrides.
    still = ("optimizers.WarmupDecay.peak = 0.0", f"START = {str(folder)!r}", *SMALL)
    tuned = compose(corpus, LARGER, *still)
    run(tuned, runs, tmp_path / "records", monitor)
    assert any("begins with the parameters of" in note and "step 4" in note for note in monitor.notes)
    before, after = config.build(source), config.build(tuned)
    assert (before.model.memory, after.model.memory) == (256, 512)
    (_, first), (_, second) = (
        restore_params(one, runs / part.run_name) for one, part in ((before, source), (after, tuned))
    )
    jax.tree.map(np.testing.assert_array_equal, first, second)
    fresh = after.model.init(jax.random.key(3))
    assert np.abs(fresh["embedding"] - first["embedding"]).max() > 1e-4
    with pytest.raises(RunError, match=r"which do not fit: layers is 1 in the trained model and 2"):
        run(compose(corpus, LARGER, *still, "LAYERS = 2"), runs, tmp_path / "records", monitor)
    # Ids that mean something else are refused, whatever their number: other words, or other texts at the same place.
    words = tmp_path / "words.model"
    subwords.train([Path(__file__).read_text("utf-8")], 400, words)
    other = (f"VOCABULARY = {str(words)!r}", "VOCABULARY_SIZE = 400")
    with pytest.raises(RunError, match=r"trained on the vocabulary bytes; this run has sp400_\w{8}, other ids"):
        run(compose(corpus, LARGER, *still, *other), runs, tmp_path / "records", monitor)
    (corpus / "train" / "paper0.tex").write_text("Not what was read.\n")
    with pytest.raises(CheckpointError, match=r"checkpoint 4 in .* was trained on arxiv\.bytes\..*; put vocabulary"):
        restore_params(config.build(source), folder)


def test_a_run_goes_on_with_more_steps_and_with_another_batch_size(tmp_path, corpus):
    runs, records, monitor = tmp_path / "runs", tmp_path / "records", Silent()
    steady = (*SMALL, "optimizers.WarmupDecay.decay = 'none'", "EVAL_EVERY = 0", "Evaluation.looks = 0")

    def made(*overrides):
        job = compose(corpus, SOURCE, *steady, *overrides)
        run(job, runs, records, monitor)
        return runs / job.run_name, restore(config.build(job), runs / job.run_name)

    first, (step, state, loop) = made()
    there = f"Experiment.continue_from = {str(first)!r}"
    # As if it had been asked for eight steps at once: state, feed and all.
    _, whole = made("TRAINING_STEPS = 8")
    _, again = made("TRAINING_STEPS = 8", there)
    assert (step, again[0]) == (4, 8)
    jax.tree.map(np.testing.assert_array_equal, whole[1], again[1])
    assert whole[2]["feed"] == again[2]["feed"] != loop["feed"]
    assert f"continues {first} from step 4" in monitor.notes
    assert not any("batch size" in note for note in monitor.notes)

    # Another batch size: the first step is that of the saved parameters on rows which begin documents, memory empty.
    wider, (_, after, now) = made("TRAINING_STEPS = 5", "BATCH_512 = 3", there)
    assert "batch size 3 instead of 4: nothing is remembered of rows" in monitor.notes
    experiment = config.build(compose(corpus, SOURCE, *steady, "TRAINING_STEPS = 5", "BATCH_512 = 3"))
    feed = experiment.task.feed("train", 3, experiment.seed)
    feed.restore(loop["feed"])
    batch = next(feed)
    assert batch["document_start"].tolist() == [1, 1, 1]
    assert feed.state() == now["feed"]
    key = jax.random.fold_in(jax.random.key(experiment.seed), 1)
    begun = state._replace(model=experiment.model.start(3))
    wanted, _ = prepare(experiment, mesh_of(experiment)).update(jax.tree.map(jnp.array, begun), batch, key)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7), wanted, after)
    lines = [json.loads(line) for line in (wider / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["split"] == "train"] == [5]

    # The record says how it came about; what does not fit is named before anything is written.
    assert sum(there in record.overrides for record in schema.read_all(records)[0]) == 2
    for change, what in (
        ("LAYERS = 2", "whose model is"),
        ("TRAINING_STEPS = 4", "which stands at step 4 of the 4 wanted"),
        ("optimizers.Adafactor.momentum = None", r"whose Adafactor.* remembers other things than"),
        ("optimizers.Adafactor.min_factored = 8", "remembers other things than"),
        ("Experiment.continue_from = 'nowhere'", "continues nowhere, which is not a run's folder"),
        ("Experiment.start_from = 'other'", "start_from 'other' and continue_from"),
    ):
        with pytest.raises((RunError, ConfigError), match=what):
            run(compose(corpus, SOURCE, *steady, "TRAINING_STEPS = 8", there, change), runs, records, monitor)

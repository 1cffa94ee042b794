"""gin's door: what it builds, what it refuses, and every gin file at full size."""

import pytest

from launch import check, config
from launch import composition as files
from launch.errors import ConfigError

ROW = "reformer/table2/lsh2"


def build(*overrides, scale="tiny"):
    return config.build(files.compose(ROW, scale, overrides=overrides))


# Columns differ in their task only, so of each row one is traced.
@pytest.mark.parametrize("stem", [stem for stem in files.stems() if stem.partition("+")[2] in ("", "arxiv")])
def test_every_experiment_builds_and_fits_its_evaluations(stem):
    for scale in files.scales(stem):
        parameters, tokens, evaluations = check.check(files.compose(stem, scale))
        assert parameters > 0
        assert tokens > 0
        assert evaluations


def test_table2_rows_are_the_papers():
    for row, rounds in (("lsh4", 4), ("lsh2", 2), ("lsh1", 1), ("full", None)):
        experiment = config.build(files.compose(f"reformer/table2/{row}"))
        model = experiment.model
        assert (experiment.steps, experiment.task.length, model.vocabulary) == (150_000, 1024, 128)
        assert (model.layers, model.width, model.hidden, model.heads) == (1, 256, 256, 4)
        assert getattr(model.attention, "rounds", None) == rounds
        assert {name: getattr(e.model.attention, "rounds", None) for name, e in experiment.evaluations.items()} == {
            "full": None, "lsh8": 8, "lsh4": 4, "lsh2": 2, "lsh1": 1,
        }  # fmt: skip
        assert all(e.split == "test" for e in experiment.evaluations.values())


def test_table4_of_the_second_paper():
    steps = {"arxiv": 500_000, "pg19": 500_000, "c4_4k": 500_000, "github": 500_000, "isabelle": 100_000}
    assert files.select("memorizing/table4/ctx512") == [f"memorizing/table4/ctx512+{task}" for task in steps]
    for task, wanted in steps.items():
        experiment = config.build(files.compose(f"memorizing/table4/ctx2048_mem65k_xl2048+{task}"))
        model = experiment.model
        assert (experiment.steps, experiment.task.name.partition(".")[0]) == (wanted, task)
        assert experiment.batch_size * experiment.task.length == 2**17
        assert (model.segment, model.memory, model.cache, model.memory_layers) == (2048, 65536, 2048, (9,))


def test_equal_configs_are_equal_and_hash_equal():
    first, second = build(), build()
    assert first == second
    assert hash(first.model) == hash(second.model)
    assert hash(first.optimizer) == hash(second.optimizer)


def test_operative_config_builds_the_same_experiment(tmp_path):
    first = build("STEPS = 7")
    (tmp_path / "operative.gin").write_text(config.operative())
    assert config.build(files.compose(str(tmp_path / "operative.gin"))) == first


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("reformer.LSH.rouds = 2", r"--set:1: reformer.LSH has no parameter 'rouds'; did you mean 'rounds'"),
        ("reformer.LHS.rounds = 2", r"--set:1: nothing is called 'reformer.LHS'; did you mean 'reformer.LSH'"),
        ("Experiment.steps = %STEPZ", r"--set:1 needs the macro STEPZ, which nothing sets; did you mean 'STEPS'"),
        ("OPTIMIZER = @optimizers.Adom()", r"--set:1: nothing is called 'optimizers.Adom'; did you mean"),
        ("STEPS = 0", r"Experiment.steps is 0; it must be an integer of at least 1"),
        ("WIDTH = 15", r"width 15 is not a multiple of heads 2"),
        ("reformer.Model.positions = 'sinus'", r"sinus"),
        ("MODEL = 3", r"Experiment.model is 3; it must be one, such as @reformer.Model\(\)"),
        ("MODEL = @reformer.Model", r"Experiment.model is <class .*; it must be one"),
        ("TASK = 'duplication'", r"model|task is 'duplication'; it must be one, such as @tasks.duplication\(\)"),
        ("OPTIMIZER = None", r"Experiment.optimizer is None; it must be one, such as @optimizers.Adam\(\)"),
        ("optimizers.Adam.rate = 0.1", r"Adam.rate is 0.1; it must be a schedule, such as @optimizers.WarmupDecay\(\)"),
        (
            "OPTIMIZER = @optimizers.Adafactor()\noptimizers.Adafactor.rate = 1",
            r"Adafactor.rate is 1; it must be a sched",
        ),
        (
            "optimizers.WarmupDecay.peak = -1e-3",
            r"WarmupDecay.peak is -0.001; it must be a finite number of at least 0",
        ),
        ("optimizers.WarmupDecay.warmup = -1", r"WarmupDecay.warmup is -1; it must be a finite number"),
        ("optimizers.Adam.b1 = 1", r"Adam.b1 is 1; it must be at least 0 and below 1"),
        ("optimizers.Adam.clip = -1.0", r"Adam.clip is -1.0; it must be a finite number of at least 0"),
        ("EVALUATIONS = 3", r"Experiment.evaluations is 3; it must be a dictionary"),
        ("EVALUATIONS = {'a b': @full/Evaluation()}", r"Experiment.evaluations is .*a b.* must be a dictionary"),
        ("EVALUATIONS = {'a': @full/Evaluation}", r"Experiment.evaluations is .* must be a dictionary"),
        ("DRAWS = 0", r"Evaluation.draws is 0; it must be an integer of at least 1"),
        ("DRAWS = 2.5", r"--set:1: DRAWS, which is Evaluation.draws, is 2.5; its type is int"),
        ("STEPS = True", r"--set:1: STEPS, which is Experiment.steps, is True; its type is int"),
        ("reformer.LSH.wrap = 'no'", r"--set:1: reformer.LSH.wrap is 'no'; its type is bool"),
        ("Experiment.swap = 'False'", r"--set:1: Experiment.swap is 'False'; its type is bool"),
        ("reformer.Model.dropout = '0.1'", r"--set:1: reformer.Model.dropout is '0.1'; its type is float"),
        (
            "reformer.Model.axial_grid = (8, 'x')",
            r"--set:1: reformer.Model.axial_grid is \(8, 'x'\); its type is tuple\[int",
        ),
        (
            "WIDTH = @reformer.Full()",
            r"--set:1: WIDTH, which is reformer.Model.width, is @reformer.Full\(\); its type is int",
        ),
        ("reformer.Model.token_stddev = 1e400", r"--set:1: reformer.Model.token_stddev is inf; its type is float"),
        ("train/reformer.Model.attention = 3", r"attention is 3; it must be Full\(\), LSH\(\) or Local\(\)"),
        ("train/reformer.Model.attention = []", r"attention is \(\); it must be Full\(\), LSH\(\)"),
        ("train/reformer.Model.attention = @reformer.Full", r"attention is <class .*Full'>; it must be Full\(\)"),
        ("Evaluation.split = 'train'", r"Evaluation.split is 'train'; it must be one of validation, test"),
        ("Evaluation.watch_split = 'tets'", r"Evaluation.watch_split is 'tets'; it must be one of validation, test"),
        ("Experiment.sharding = 'fdsp'", r"Experiment.sharding is 'fdsp'; it must be 'replicate', 'fsdp'"),
        ("reformer.Model.length = 16", r"model has 16 positions, but the rows of duplication.* have 32 tokens"),
        ("reformer.Model.vocabulary = 5", r"a vocabulary of 5, but the ids of duplication.* need 128"),
    ],
)
def test_mistakes_fail_at_once_with_the_nearest_name(override, message):
    with pytest.raises(ConfigError, match=message):
        build(override)


def test_required_macro_fails_by_name(tmp_path):
    (tmp_path / "row.gin").write_text("include 'train.gin'\n")
    with pytest.raises(ConfigError, match=r"configs/train.gin:\d+ needs the macro MODEL, which nothing sets"):
        config.build(files.compose(str(tmp_path / "row.gin")))


def test_scopes_that_keep_their_own_value_are_named(capsys):
    build("reformer.LSH.rounds = 3")
    said = capsys.readouterr().err
    assert "note: reformer.LSH.rounds has a value of its own in" in said
    assert "--set 'lsh8/reformer.LSH.rounds = 3'" in said or "--set 'train/reformer.LSH.rounds = 3'" in said
    build("train/reformer.LSH.rounds = 3", "reformer.LSH.chunk = 4")
    assert capsys.readouterr().err == ""


def test_a_refused_value_is_shown_with_its_own_line_only():
    with pytest.raises(ConfigError) as told:
        build("WIDTH = 15")
    assert "reformer.Model.width" in str(told.value)
    assert "reformer.Model.vocabulary" not in str(told.value)


def test_an_experiment_without_evaluations_is_refused():
    with pytest.raises(ConfigError, match=r"evaluations is \{\}"):
        build("EVALUATIONS = {}")

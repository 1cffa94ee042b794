"""Files to one gin text: order, origins, and errors that teach."""

import pytest

from launch import composition as files
from launch.errors import ConfigError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A configs folder of the test's own, with the experiment demo/table/row and its scale 'small'."""
    monkeypatch.setattr(files, "CONFIGS", tmp_path)
    monkeypatch.setattr(files, "ROOT", tmp_path)
    (tmp_path / "demo/table").mkdir(parents=True)
    (tmp_path / "scales/demo/table").mkdir(parents=True)
    (tmp_path / "base.gin").write_text("SEED = 0\nSTEPS = 10\nModel.width = 8\n")
    (tmp_path / "demo/table/row.gin").write_text(
        "# A title.\n# Paper: somewhere,\n#   in two lines\n\ninclude 'base.gin'\nModel.width = 16\n"
    )
    (tmp_path / "scales/demo/table/small.gin").write_text("STEPS = 3\n")
    return tmp_path


def test_later_bindings_win_and_say_where_they_come_from(folder):
    found = files.compose("demo/table/row", "small", 7, ["Model.width = 32"])
    values = {key: (binding.value, binding.origin) for key, binding in found.bindings.items()}
    assert values == {
        "SEED": ("7", "--seed"),
        "STEPS": ("3", "scales/demo/table/small.gin:1"),
        "Model.width": ("32", "--set:1"),
    }
    assert found.text == "SEED = 7\nSTEPS = 3\nModel.width = 32\n"


def test_where_the_data_lies_changes_nothing_that_a_record_tells(folder):
    (folder / "base.gin").write_text("SEED = 0\nSTEPS = 10\nDATA = None\nDATABASE = 3\nTask.path = %DATA\n")
    (folder / "demo/table/row.gin").write_text("include 'base.gin'\n")
    found = files.compose("demo/table/row", overrides=["DATA = '/mnt/there'", "DATABASE = 4", "STEPS = 2"])
    assert "DATA = '/mnt/there'\n" in found.text
    assert found.portable_text == "DATA = None\nDATABASE = 4\nSEED = 0\nSTEPS = 2\nTask.path = %DATA\n"
    assert found.changes == ("DATABASE = 4", "STEPS = 2")


def test_a_shortened_name_sets_what_the_long_one_sets(folder):
    (folder / "demo/table/long.gin").write_text(
        "include 'base.gin'\npaper.Model.depth = 1\nother.Model.depth = 1\n"
        "paper.LSH.rounds = 4\na/paper.LSH.rounds = 2\n"
    )
    found = files.compose("demo/table/long", overrides=["LSH.rounds = 8", "a/LSH.rounds = 3", "Model.depth = 5"])
    assert {key: binding.value for key, binding in found.bindings.items() if key not in ("SEED", "STEPS")} == {
        "Model.width": "8",
        "paper.LSH.rounds": "8",
        "a/paper.LSH.rounds": "3",
        "paper.Model.depth": "1",
        "other.Model.depth": "1",
        "Model.depth": "5",  # which of the two is for the door to ask
    }
    (folder / "demo/table/short.gin").write_text("include 'base.gin'\nLSH.rounds = 4\n")
    found = files.compose("demo/table/short", overrides=["paper.LSH.rounds = 8"])
    assert "LSH.rounds = 8\n" in found.text
    assert found.text.count("rounds") == 1


def test_a_file_from_elsewhere_has_a_name_that_records_accept_and_no_scales(folder):
    from results import schema

    place = folder / "My Rows-2.gin"
    place.write_text("include 'base.gin'\n")
    assert files.scales(str(place)) == ["paper"]
    found = files.compose(str(place))
    assert found.stem == "local/my_rows_2"
    assert schema._STEM.fullmatch(found.stem)


def test_composed_text_is_a_config_of_its_own(folder):
    first = files.compose("demo/table/row", "small")
    (folder / "again.gin").write_text(first.text)
    assert files.compose(str(folder / "again.gin")).text == first.text


def test_header_fields_may_run_over_lines(folder):
    top = files.header(folder / "demo/table/row.gin")
    assert top.title == "A title."
    assert top.fields == {"Paper": "somewhere, in two lines"}


def test_select_takes_rows_folders_and_paths(folder):
    (folder / "demo/table/other.gin").write_text("include 'base.gin'\n")
    assert files.select("demo/table/row") == ["demo/table/row"]
    assert files.select("configs/demo/table/row.gin") == ["demo/table/row"]
    assert files.select("demo/table") == files.select("demo/") == ["demo/table/other", "demo/table/row"]
    assert files.select(str(folder / "base.gin")) == [str(folder / "base.gin")]


def test_a_task_makes_a_column_of_a_row(folder):
    (folder / "demo/table/long.gin").write_text("# Long.\n# Tasks: wood, stone\n\ninclude 'base.gin'\nSTEPS = 9\n")
    (folder / "tasks").mkdir(exist_ok=True)
    for task in ("wood", "stone", "sand"):
        (folder / f"tasks/{task}.gin").write_text(f"Model.depth = '{task}'\n")
    (folder / "demo/stone.gin").write_text("include 'tasks/stone.gin'\nSTEPS = 8\n")
    both = ["demo/table/long+wood", "demo/table/long+stone"]
    assert files.select("demo/table/long") == both
    assert files.select("demo/table") == [*both, "demo/table/row"]
    assert files.select("demo/table+stone") == files.select(both[1]) == both[1:]
    assert files.select("demo/table/long+sand") == ["demo/table/long+sand"]  # a task of one's own
    wood, stone = (files.compose(stem) for stem in both)
    assert (wood.bindings["Model.depth"].value, wood.bindings["STEPS"].value) == ("'wood'", "9")
    assert (stone.bindings["Model.depth"].value, stone.bindings["STEPS"].value) == ("'stone'", "8")  # the paper's own
    assert files.compose("demo/table/long+wood", "small").run_name == "demo/table/long+wood/small/seed0"
    with pytest.raises(ConfigError, match=r"cannot read .*tasks/wod.gin.*'wood.gin'"):
        files.compose("demo/table/long+wod")


def test_runs_with_other_settings_have_other_folders(folder):
    names = {
        files.compose("demo/table/row", scale, seed, sets).run_name
        for scale in ("paper", "small")
        for seed in (0, 1)
        for sets in ((), ("STEPS = 4",), ("STEPS = 5",), ("STEPS = 4", "Model.width = 1"))
    }
    assert len(names) == 16
    assert "demo/table/row/small/seed1" in names


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: files.select("demo/tabel/row"), "no experiment is called 'demo/tabel/row'.*'demo/table/row'"),
        (lambda f: files.compose("demo/table/row", "smal"), "no scale 'smal'; it has paper, small"),
        (lambda f: files.compose("demo/table/row", overrides=["STPES = 3"]), "no macro is called 'STPES'.*'STEPS'"),
        (lambda f: files.compose("demo/table/row", overrides=["STEPS"]), "wants a gin assignment such as"),
        (lambda f: files.compose("demo/table/row", overrides=["STEPS = = 3"]), "--set:1: not gin"),
        (lambda f: files.compose(str(f / "typo.gin")), "typo.gin:1: not gin"),
        (lambda f: files.compose(str(f / "loop.gin")), "loop.gin includes itself"),
        (lambda f: files.compose(str(f / "lost.gin")), "cannot read bas.gin, included by lost.gin.*'base.gin'"),
        (lambda f: files.compose(str(f / "bare.gin")), "sets no SEED"),
        (lambda f: files.compose(str(f / "open.gin")), r"open.gin:4: not gin: .* never closed: Model.width = \[1,"),
        (lambda f: files.compose("demo/table/row", overrides=["Model.width = ["]), "--set:2: not gin: .* never closed"),
        (lambda f: files.compose(str(f / "bytes.gin")), "bytes.gin is not text: byte 5 "),
        (lambda f: files.header(f / "bytes.gin"), "bytes.gin is not text: byte 5 "),
        (lambda f: files.compose("demo/table/row", overrides=["SEED = 'a'"]), "--set:1: SEED is 'a'; .*whole number"),
        (lambda f: files.compose("demo/table/row", overrides=["SEED = %STEPS"]), "--set:1: SEED is %STEPS; .*whole"),
        (lambda f: files.compose("demo/table/row", overrides=["SEED = -1"]), "--set:1: SEED is -1; .*whole number"),
        (lambda f: files.select("zzz"), "no experiment is called 'zzz'[.] `repro list`"),
    ],
)
def test_errors_say_what_was_found_and_what_is_near(folder, call, message):
    (folder / "typo.gin").write_text("Model.width == 3\n")
    (folder / "loop.gin").write_text("include 'loop.gin'\n")
    (folder / "lost.gin").write_text("include 'bas.gin'\n")
    (folder / "bare.gin").write_text("STEPS = 1\n")
    (folder / "open.gin").write_text("SEED = 0\n\nModel.width = [1,\n")
    (folder / "bytes.gin").write_bytes(b"X = '\xff'\n")
    with pytest.raises(ConfigError, match=message):
        call(folder)

"""The README's commands and example, held to what the programs accept. Training itself is tested elsewhere."""

import re
import shlex
from pathlib import Path

import pytest

from launch import check, cli, config
from launch import composition as files

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text().replace("\\\n      ", "")  # commands on two lines
CODE = [line[4:].split("  #")[0].strip() for line in README.splitlines() if line.startswith("    ")]
WITH_STEM = ("repro eval", "repro run", "repro inspect", "repro profile data")  # named without one
NAMED = {name for name in re.findall(r"`(repro [^`]+)`", README) if name not in WITH_STEM}
COMMANDS = sorted({line for line in CODE if line.startswith("repro ")} | NAMED)
TARGETS = sorted(set(re.findall(r"make ([a-z]+)", "\n".join(CODE + re.findall(r"`([^`]+)`", README)))))


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_accepted_and_name_things_that_exist(command):
    arguments = cli._parser().parse_args(shlex.split(command)[1:])
    if hasattr(arguments, "stem") and "lsh8" not in arguments.stem:
        settings = [setting for setting in arguments.overrides if "/path/to" not in setting]  # the reader's own place
        for stem in files.select(arguments.stem):
            config.build(files.compose(stem, arguments.scale, arguments.seeds[0], settings))


def test_the_readme_shows_the_commands_and_targets_that_matter():
    assert {"reproduce", "test", "quick", "help"} <= set(TARGETS)
    assert {"run", "show", "list", "compare", "report", "check"} <= {command.split()[1] for command in COMMANDS}


@pytest.mark.parametrize("target", TARGETS)
def test_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_example_experiment_stands(tmp_path):
    begin = README.index("    # Eight rounds in training.")
    end = README.index("`repro check reformer/table2/lsh8`")
    text = "".join(line[4:] + "\n" for line in README[begin:end].splitlines())
    (tmp_path / "lsh8.gin").write_text(text)
    composition = files.compose(str(tmp_path / "lsh8.gin"))
    assert files.header(tmp_path / "lsh8.gin").fields["Paper"] == "ours"
    assert config.build(composition).model.attention.rounds == 8
    assert check.check(composition)[0] == 657_536


@pytest.mark.parametrize(
    "path", re.findall(r"`((?:configs|launch|reformer|tasks|results|requirements)/[\w./-]*)`", README)
)
def test_paths_exist(path):
    assert (ROOT / path).exists() or path in files.stems()


def test_the_scale_table_says_what_the_files_say():
    for scale, length, width, batch, steps in re.findall(
        r"\| `(\w+)` \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|", README
    ):
        experiment = config.build(files.compose("reformer/table2/lsh4", scale))
        found = experiment.task.length, experiment.model.width, experiment.batch_size, experiment.steps
        assert found == tuple(int(n.replace(",", "")) for n in (length, width, batch, steps))

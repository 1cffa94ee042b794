"""Commands that compute start themselves again with large pages, once, and only where that does something."""

import os
import subprocess
import sys

import pytest

from launch import hugepages
from launch.composition import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="large pages are asked for on Linux")
@pytest.mark.parametrize("start", [["-m", "launch"], ["-c", "import sys, launch.cli; sys.exit(launch.cli.main())"]])
def test_the_command_is_the_same_with_the_tunable_set(start):
    environment = {k: v for k, v in os.environ.items() if k != hugepages.TUNABLES}
    words = [*start, "run", "reformer/table2/none"]  # ends with a usage error, in the second process
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no experiment is called 'reformer/table2/none'" in done.stderr


def test_a_choice_of_the_user_stays(monkeypatch):
    calls = []
    monkeypatch.setattr(os, "execv", lambda *words: calls.append(words))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(hugepages.platform, "libc_ver", lambda: ("glibc", "2.36"))
    for before, after in (
        ("", "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
        ("glibc.malloc.check=1", "glibc.malloc.check=1:glibc.malloc.hugetlb=1"),
    ):
        environment = {hugepages.TUNABLES: before} if before else {}
        hugepages.use(environment)
        assert environment.get(hugepages.TUNABLES, "") == after
    assert len(calls) == 2
    monkeypatch.setattr(hugepages.platform, "libc_ver", lambda: ("", ""))
    hugepages.use(environment := {})
    assert environment == {}

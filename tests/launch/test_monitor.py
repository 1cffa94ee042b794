"""What a person watching a run is told."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from launch import monitor


@pytest.fixture
def clock(monkeypatch):
    """Seconds that have passed, set by the test."""
    passed = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(monitor.time, "monotonic", lambda: passed.seconds)
    return passed


@pytest.mark.parametrize("done", [0, 40])
def test_time_left_does_not_count_compiling(clock, done):
    said = io.StringIO()
    watch = monitor.Monitor(Console(file=said, width=200), "row")
    watch.start(SimpleNamespace(steps=100, batch_size=2, task=SimpleNamespace(length=50)), done, 7)
    clock.seconds += 600  # compiling
    watch.stepped(done + 1)
    for step in range(done + 2, done + 13):
        clock.seconds += 2
        watch.stepped(step)
    first, *_, last = (line.split() for line in said.getvalue().splitlines()[1:])
    assert first == ["step", f"{done + 1}/100", "compiled"]
    step = int(last[1].split("/")[0])
    assert last[2:4] == ["50", "tokens/s"]  # 100 tokens every 2 seconds
    assert last[4] == monitor._clock(2 * (100 - step))


def test_an_evaluation_says_how_far_it_is(clock):
    said = io.StringIO()
    watch = monitor.Monitor(Console(file=said, width=200), "row")
    done = watch.scoring("test")
    for examples in range(8, 97, 8):
        clock.seconds += 4
        done(examples)
    lines = said.getvalue().splitlines()
    assert len(lines) == 4  # every third batch passes 10 seconds
    assert lines[-1].split() == ["test:", "96", "examples,", "2.0", "a", "second"]

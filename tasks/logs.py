"""Lines that a person should see although nothing failed: through Python's logging, so that any program can redirect
them; without any set-up they go to the error output."""

import functools
import logging

_LOGGER = logging.getLogger("tasks")


def say(line: str) -> None:
    _LOGGER.warning(line)


@functools.lru_cache(maxsize=256)
def say_once(line: str) -> None:
    """`say`, the first time only: every evaluation of a config builds its own task and feeds."""
    say(line)

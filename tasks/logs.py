"""Lines that a person should see although nothing failed: through Python's logging, so that any program can redirect
them; without any set-up they go to the error output."""

import logging

_LOGGER = logging.getLogger("tasks")


def say(line: str) -> None:
    _LOGGER.warning(line)

"""What stands for a terminal, a kill, and a command line in the tests of this room."""

import argparse

from launch import profile


class Silent:
    """A monitor that shows nothing and remembers its notes."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)

    def start(self, *_):
        pass

    stepped = logged = evaluated = evaluating = start

    def scoring(self, _):
        return lambda done: None


class Killed(BaseException):
    """Stands for a SIGKILL inside one process: nothing of ours catches it."""


def profile_arguments(*words):
    """The parsed arguments of `repro profile`."""
    parser = argparse.ArgumentParser()
    profile.add_arguments(parser)
    return parser.parse_args(words)

"""Errors that the command line prints as they are, without a trace. Their messages are written for a user."""


class UserError(Exception):
    """Base of all of them. ``code`` is the exit status: 1 failed, 2 wrong use."""

    code = 1


class ConfigError(UserError, ValueError):
    """A name, file or value in a config or on the command line that cannot be used."""

    code = 2


class RunError(UserError):
    """A run that cannot go on for a reason outside the model."""


class CheckpointError(UserError):
    """A checkpoint that could not be written or read."""


class NonFiniteLoss(UserError):
    """Training left the finite numbers; checkpoints before that are kept."""


class Stopped(UserError):
    """SIGTERM or SIGINT arrived; the state was saved and the same command continues. ``code`` is 128 + the signal."""

    def __init__(self, message, signal_number):
        super().__init__(message)
        self.code = 128 + signal_number

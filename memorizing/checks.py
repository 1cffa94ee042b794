"""Checks whose messages say what came, what is wanted and what to do."""

import difflib


def choice(name, value, allowed):
    """`value` must be one of `allowed`."""
    if value not in allowed:
        near = difflib.get_close_matches(str(value), [str(a) for a in allowed], n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{name} is {value!r}; allowed are {', '.join(map(repr, allowed))}{hint}")


def positive(name, value, least=1):
    """`value` must be a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")


def rate(name, value):
    """`value` must be a share in [0, 1)."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value!r}; it is the share that is dropped, 0 <= {name} < 1")

"""Types of command-line arguments: lists of names and of numbers, with errors that show the form."""

import argparse
from pathlib import Path


def names(known):
    """A type for a comma-separated list of names out of `known`."""

    def parse(text):
        chosen = tuple(text.split(","))
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return chosen

    return parse


def numbers_from(least):
    """A type for a comma-separated list of whole numbers of at least `least`."""

    def parse(text):
        try:
            chosen = tuple(int(part) for part in text.split(","))
        except ValueError:
            chosen = (least - 1,)
        if min(chosen) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers from {least}, such as 1024,4096")
        return chosen

    return parse


numbers = numbers_from(1)


def whole(least):
    """A type for one whole number of at least `least`, below 2**31."""

    def parse(text):
        if not text.isdecimal() or not least <= int(text) < 2**31:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of the whole numbers from {least}")
        return int(text)

    return parse


number = whole(1)


def amount(least=0.0, most=float("inf")):
    """A type for a number from `least` to `most`, both included."""

    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:  # nor is nan
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} to {most:g}")
        return value

    return parse


def output(parser, what, drawn=True):
    """Adds --out, where the measurements of `what` go, and if they can be drawn --read, to draw old ones."""
    files = ".jsonl and .svg/.png go" if drawn else ".jsonl goes"
    parser.add_argument("--out", type=Path, default=Path("runs/profile"), metavar="DIR",
                        help=f"where {what}-<device>-<time>{files}")  # fmt: skip
    if drawn:
        parser.add_argument("--read", type=Path, metavar="FILE", help="measure nothing; show and draw this .jsonl file")

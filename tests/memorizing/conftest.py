"""Lets the tests of this room import the shared references of tests/oracles.py and their own."""

import sys
from pathlib import Path

sys.path.extend([str(Path(__file__).parent.parent), str(Path(__file__).parent)])

"""Lets the tests of this room import the shared references of tests/oracles.py."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

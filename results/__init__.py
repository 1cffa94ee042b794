"""What the papers report, what was measured here, and how the two compare.

reported/*.toml (the papers' numbers) + records/ (ours, see `schema`) -> `tables`, `claims`, `figures` -> `report`.
Importing this package costs nothing: no JAX, no TensorFlow; rich and matplotlib are imported where they draw.
"""

from results.printing import show as compare
from results.reported import UnknownTable, cells_for
from results.schema import RECORDS, Record, RecordError, read_all, write

__all__ = ["RECORDS", "Record", "RecordError", "UnknownTable", "cells_for", "compare", "read_all", "write"]

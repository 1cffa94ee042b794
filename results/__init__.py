"""What the papers report, what was measured here, and how the two compare.

reported/*.toml (the papers' numbers) + records/ (ours, see `schema`) -> `tables`, `claims`, `figures` -> `report`.
Importing this package costs nothing: no JAX, no TensorFlow; rich and matplotlib are imported where they draw.
"""

"""Token ids of bytes.

The ids of the official data set: 0 is padding, 1 an end-of-sequence mark that never occurs, byte b is id b + 2.
"""

import numpy as np

BYTE_OFFSET = 2
BYTE_IDS = 256 + BYTE_OFFSET


def byte_ids(data: np.ndarray) -> np.ndarray:
    """int32 [n] ids of uint8 [n] bytes."""
    return data.astype(np.int32) + BYTE_OFFSET


def bytes_of(ids: np.ndarray) -> bytes:
    """The bytes behind ids [n]; padding and end marks are left out. ValueError for an id of no byte."""
    ids = np.asarray(ids)
    if ids.size and not 0 <= ids.min() <= ids.max() < BYTE_IDS:
        raise ValueError(f"byte ids lie from 0 to {BYTE_IDS - 1}, got {ids.min()} to {ids.max()}")
    return (ids[ids >= BYTE_OFFSET] - BYTE_OFFSET).astype(np.uint8).tobytes()

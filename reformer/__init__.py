"""Reformer (Kitaev, Kaiser, Levskaya: The Efficient Transformer, ICLR 2020), readable alone.

One alphabet of axes for the package; signatures, einsums and comments use these letters:

    b  batch                      d  features of one head (q and k)
    l  length (queries)           e  features of a value, or of the model (width)
    m  length (keys)              r  hash rounds
    h  heads                      L  length padded to whole chunks
    n  chunks or blocks           c  positions in a chunk
    w  keys a chunk looks at      i, j  one query, one key
    v  vocabulary (in the head)   x  columns of a rotation

Hard maths is a pure function of arrays; modules only declare parameters. Padding masks are
boolean and True means keep. Everything random comes from an explicit key.

Read in the order of the paper: `full` (exact and shared-QK attention), `hashing` and `lsh`
(section 2), `local`, `positions`, `transformer`, `model`; token by token `caches`, `decode`, `search`; for translation
(Table 4) `cross`, `seq2seq`, `translation`.
"""

from reformer.full import Full
from reformer.local import Local
from reformer.lsh import LSH
from reformer.model import Model
from reformer.seq2seq import Seq2Seq

__all__ = ["LSH", "Full", "Local", "Model", "Seq2Seq"]

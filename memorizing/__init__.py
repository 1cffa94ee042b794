"""Memorizing Transformers (Wu, Rabe, Hutchins, Szegedy; arXiv 2203.08913, ICLR 2022), readable alone.

One alphabet of axes for the package; signatures, einsums and comments use these letters:

    b  batch slots, each reading a document segment by segment
    h  heads                      d  features of one head (q and k)
    l  length of a segment        e  features of a value, or of the model (width)
    W  length of the XL cache     M  entries of the memory
    w  keys a query block sees    k  neighbours retrieved per query
    c  queries of a block         i, j  one query, one key
    n  how many of something      v  vocabulary

Hard maths is a pure function of arrays; modules only declare parameters. Masks are boolean and True
means keep. Everything random comes from an explicit key. State (caches, memories) goes in as an
argument and comes out as a value; its leaves begin with the axis b.

Read in the order of the paper: `attention` (local), `ring` (the memory), `retrieve` (with `ranking`,
and `shards` for several devices), `memory` (attention over what was retrieved), `layers`, `model`,
`adapt`; then `decode` (with `sampling`) and `inspect`, which look at a trained model.
"""

from memorizing.model import Model
from memorizing.retrieve import Search

__all__ = ["Model", "Search"]

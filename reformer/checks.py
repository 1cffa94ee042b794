"""Checks whose messages say what came, what is wanted and what to do."""

import difflib

import jax.numpy as jnp


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


def attentions(value):
    """`value` must be a setting of attention, or a tuple of some."""
    settings = value if isinstance(value, tuple) else (value,)
    calls = ("draw", "decide", "attend")
    if not settings or any(isinstance(s, type) or not all(hasattr(s, call) for call in calls) for s in settings):
        raise ValueError(f"attention is {value!r}; it must be Full(), LSH() or Local(), or a tuple of such settings")


def dropout_key(dropout, key):
    """Dropout draws from an explicit key."""
    if dropout and key is None:
        raise ValueError(f"dropout is {dropout} but key is None; pass a jax.random.key, or train=False")


def keys_given(k, shared):
    """Separate keys are given exactly where the setting is not shared-QK."""
    if shared and k is not None:
        raise ValueError("keys were passed to shared-QK attention, which makes its own; pass k=None")
    if not shared and k is None:
        raise ValueError("this attention has separate keys but k is None; pass k [b,h,l,d]")


def attention_shapes(q, k, v, keep):
    """q [b,h,l,d], k [b,h,m,d], v [b,h,m,e], keep None or bool [b,m]."""
    if q.ndim != 4 or k.shape[:2] != q.shape[:2] or k.shape[3:] != q.shape[3:]:
        raise ValueError(f"q and k must be [b,h,l,d] and [b,h,m,d]; got {q.shape} and {k.shape}")
    if v.shape[:3] != k.shape[:3] or v.ndim != 4:
        raise ValueError(f"v must be [b,h,m,e] beside k {k.shape}; got {v.shape}")
    if min(q.shape) == 0 or min(v.shape) == 0:
        raise ValueError(f"no axis may be empty; got q {q.shape} and v {v.shape}")
    if keep is None:
        return
    if keep.dtype != jnp.bool_:
        raise TypeError(
            f"the padding mask must be bool, True where a position is kept; got {keep.dtype}."
            " Write segment_ids > 0, or mask.astype(bool)"
        )
    if keep.shape != (k.shape[0], k.shape[2]):
        raise ValueError(f"the padding mask must be [b,m] = {(k.shape[0], k.shape[2])}; got {keep.shape}")

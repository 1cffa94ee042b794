"""Cross-attention: the decoder's sublayer that looks at the encoder's output (section 3, Table 4's models).

Dense dot-product attention with separate queries, keys, values and output, no biases, LayerNorm
before it; padding of the source is masked. Keys are visited block by block and recomputed in the
backward pass (`full.attention`), so no l x m array exists.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from reformer.full import MASKED, Full
from reformer.products import einsum
from reformer.sublayers import INWARDS, OUTWARDS, dropout, join, norm, project


def look_up(q, k, v, legal):
    """Attention of few queries to many keys, Eq. 1: q [b,h,l,d], k and v [b,h,m,d] -> [b,h,l,d].

    legal: bool [b,1,1,m], True where a key may be seen. Rows that may see nothing give zero.
    """
    x = einsum("bhld,bhmd->bhlm", q * jnp.asarray(q.shape[-1] ** -0.5, q.dtype), k)
    x = jnp.where(legal, x, MASKED)
    p = jnp.where(legal, jnp.exp(x - x.max(-1, keepdims=True)), 0.0)
    total = p.sum(-1, keepdims=True)
    p = p / jnp.where(total > 0, total, 1.0)
    return einsum("bhlm,bhmd->bhld", p.astype(v.dtype), v).astype(v.dtype)


@dataclass(frozen=True)
class CrossAttention:
    """Dropout(Attention(LayerNorm x, source)); see `reversible` for the calls.

    Beside its own gradients `pull` gives that of `side.source` [b,m,e], which the stack adds up
    over the layers. The source comes normalised from the encoder and is not normalised again.
    """

    width: int
    heads: int
    head_width: int
    setting: Full
    dtype: str = "float32"
    rate: float = 0.0
    shared_dropout: bool = False
    train: bool = False

    name = "cross_attention"

    def init(self, key):
        keys = jax.random.split(key, 4)
        shape = (self.width, self.heads, self.head_width)
        heads = {name: INWARDS(k, shape) for name, k in zip(("query", "key", "value"), keys, strict=False)}
        heads["out"] = OUTWARDS(keys[3], (self.heads, self.head_width, self.width))
        return {"norm": norm().init(key, jnp.zeros((1, 1, self.width)))["params"], "heads": heads}

    def forward(self, params, x, side, key, decision=None):
        q = self.queries(params, x)
        k, v = self.keys_values(params, side.source)
        at = jax.random.fold_in(key, 0)
        y = self.setting.attend(q, k, v, at, causal=False, keep=side.source_real, train=self.train)
        y = join(params["heads"]["out"], y, self.dtype)
        return dropout(y, self.rate, jax.random.fold_in(key, 1), self.shared_dropout), None

    def pull(self, params, x, side, key, decision, dy):
        def run(params, x, source):
            return self.forward(params, x, side._replace(source=source), key)[0]

        y, back = jax.vjp(run, params, x, side.source)
        return y, *back(dy)

    def queries(self, params, x):
        """x float32 [b,l,e] -> [b,h,l,d]."""
        x = norm().apply({"params": params["norm"]}, x)
        return project(params["heads"]["query"], x, self.dtype)

    def keys_values(self, params, source):
        """What every query of this layer looks at: source [b,m,e] -> two arrays [b,h,m,d]."""
        heads = params["heads"]
        return project(heads["key"], source, self.dtype), project(heads["value"], source, self.dtype)

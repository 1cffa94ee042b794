"""The Memorizing Transformer: embedding, layers of which some have a memory, scores per token (section 3).

A decoder that reads a document segment by segment. Its state is a value: the XL cache of every layer
(keys and values of the segment before) and the memory of the layers that have one. Parameters are
float32, and so is the residual stream; projections compute in `dtype`. Layers between memory layers
are stacked and scanned. The trainer knows a model by `init`, `start` and `apply`.
"""

import math
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from memorizing import adapt, attention, checks, ring, shards
from memorizing.layers import Layer, dropout
from memorizing.memory import COMBINATIONS
from memorizing.retrieve import Search

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
BIASES = ("everywhere", "local", "nowhere")
LOGITS_AT_ONCE = 1 << 24  # scores of vocabulary entries that exist at a time: 64 MiB


class State(NamedTuple):
    """What a model keeps between the segments of its slots' documents. Leaves begin with the axis b.

    A segment waits outside the memory until the next one comes: what is written before it is read
    need not be kept in two versions for the backward pass, and large memories are updated in place.
    """

    caches: tuple  # for each run of layers keys and values, each [b,n,h,W,d]; () without an XL cache
    real: jax.Array | None  # [b,W] bool, the same for all caches
    rings: tuple  # one ring.Ring for each memory layer
    waiting: tuple  # for each memory layer keys and values of the segment before, each [b,h,l,d]
    waiting_real: jax.Array | None  # [b,l] bool, which of these will be written


@dataclass(frozen=True)
class Model:
    """A language model over `vocabulary` ids; defaults are the paper's 200M model with memory.

    layers, width (d_model), hidden (d_ff), heads, head_width: sizes.
    memory: entries of the memory for each slot and head, a multiple of the segment; 0 for none.
    segment: length of the batches; only a model with memory has to know it.
    memory_layers: which layers have one, counted from 1 as in the paper.
    neighbours: k, entries retrieved per query and head. search: how, see `retrieve.Search`.
    memory_dtype: what is stored, 'bfloat16' or 'float32'. On CPU take float32: XLA widens the whole
        store there to write bfloat16 into it.
    cache: length of the XL cache of every layer; 0 for none.
    combination: 'gate' (paper) or 'joint' softmax, see `memory.combine`.
    normalise: unit queries and keys, and a learned scale for each head, which begins at `sharpness` (the code: 1). At 1
        all attention begins nearly even, which Adafactor's relative steps leave soon and Adam's small ones late.
    Settings in which the authors' code differs from the paper's text (the text is the default):
    bias: T5's relative bias 'everywhere', 'local' (not in memory layers: the code) or 'nowhere'.
    strict: a token does not attend to itself.
    null_keys: empty caches and memory entries count as zero keys instead of being masked.
    store_padding: padding takes entries of the memory.
    dropout: after the first norm of a layer, after its feed-forward, and at the end; the code has 0.05.
    attention_dropout: of local attention's weights; the code has 0.05.
    remat: recompute layers backwards; what was retrieved is kept, so nothing is searched twice.
    layout: where slots, heads and entries lie on several devices, see `spread`.
    """

    vocabulary: int
    layers: int = 12
    width: int = 1024
    hidden: int = 4096
    heads: int = 8
    head_width: int = 128
    memory: int = 8192
    segment: int = 512
    memory_layers: tuple = (9,)
    neighbours: int = 32
    search: Search = field(default_factory=Search)
    memory_dtype: str = "bfloat16"
    cache: int = 0
    combination: str = "gate"
    normalise: bool = True
    sharpness: float = 1.0
    bias: str = "everywhere"
    strict: bool = False
    null_keys: bool = False
    store_padding: bool = False
    dropout: float = 0.0
    attention_dropout: float = 0.0
    dtype: str = "float32"
    remat: bool = False
    layout: shards.Layout | None = None

    def __post_init__(self):
        for name in ("vocabulary", "layers", "width", "hidden", "heads", "head_width", "neighbours", "segment"):
            checks.positive(name, getattr(self, name))
        for name in ("memory", "cache"):
            checks.positive(name, getattr(self, name), least=0)
        checks.choice("combination", self.combination, COMBINATIONS)
        checks.choice("bias", self.bias, BIASES)
        checks.choice("dtype", self.dtype, tuple(DTYPES))
        checks.choice("memory_dtype", self.memory_dtype, tuple(DTYPES))
        checks.rate("dropout", self.dropout)
        checks.rate("attention_dropout", self.attention_dropout)
        object.__setattr__(self, "memory_layers", tuple(self.memory_layers))  # gin writes lists; models are hashable
        layers = self.memory_layers
        each_once = len(set(layers)) == len(layers) > 0
        if self.memory and not (each_once and set(layers) <= set(range(1, self.layers + 1))):
            raise ValueError(
                f"memory_layers is {layers}; it must name one or more layers, which count from 1 to {self.layers},"
                " each once; for no memory set memory=0"
            )
        if self.memory % self.segment:
            raise ValueError(f"memory is {self.memory}; it must be a multiple of the segment, which is {self.segment}")
        if self.memory and self.memory < self.neighbours:
            raise ValueError(
                f"memory is {self.memory} but neighbours is {self.neighbours}; retrieve at most all entries"
            )

    @property
    def number(self):
        """What projections compute in."""
        return DTYPES[self.dtype]

    @property
    def runs(self):
        """Layers with the same parameters that follow each other: ((how many, whether they remember), ...).

        A memory layer is a run of its own, since each has its own memory.
        """
        remembers = [bool(self.memory) and layer in self.memory_layers for layer in range(1, self.layers + 1)]
        groups = ((kind, len(list(group))) for kind, group in groupby(remembers))
        return tuple(run for kind, n in groups for run in ([(1, True)] * n if kind else [(n, False)]))

    @partial(jax.jit, static_argnums=0)
    def init(self, key, batch=None):
        """Parameters, float32; nothing depends on the batch or its shape.

        A layer begins alike with and without a memory, but for the gates: these begin at 0, half memory.
        """
        keys = jax.random.split(key, 2)
        x, real = jnp.zeros((1, 1, self.width)), jnp.ones((1, 1), bool)
        make = lambda key: Layer(self).init(key, x, real, None, None, key, False)["params"]  # noqa: E731
        layers = jax.vmap(make)(jax.random.split(keys[0], self.layers))
        stacks, first = [], 0
        for n, remembers in self.runs:
            stack = jax.tree.map(lambda x, first=first, n=n: x[first : first + n], layers)
            if remembers and self.combination == "gate":
                stack["gate"] = jnp.zeros((n, self.heads))
            if remembers and self.bias == "local":
                del stack["bias"]
            stacks.append(stack)
            first += n
        return {
            "embedding": jax.random.normal(keys[1], (self.vocabulary, self.width)),
            "layers": tuple(stacks),
            "norm": jnp.ones((self.width,)),
        }

    def start(self, batch_size):
        """State before the first segment: empty caches and memories."""
        caches, real = (), None
        if self.cache:
            shape = (self.heads, self.cache, self.head_width)
            caches = tuple(
                tuple(jnp.zeros((batch_size, n, *shape), self.number) for _ in range(2)) for n, _ in self.runs
            )
            real = jnp.full((batch_size, self.cache), self.null_keys)
        store = partial(ring.empty, batch_size, self.heads, self.memory, self.head_width, DTYPES[self.memory_dtype])
        rings = tuple(store() for _, remembers in self.runs if remembers)
        shape = (batch_size, self.heads, self.segment, self.head_width)
        waiting = tuple(tuple(jnp.zeros(shape, self.number) for _ in range(2)) for _ in rings)
        return State(caches, real, rings, waiting, jnp.zeros((batch_size, self.segment), bool) if rings else None)

    def apply(self, params, batch, state, key=None, *, train=False, inspect=False):
        """Scores of one segment per slot -> ({"nats", "correct", "weights"} float32 [b,l], state).

        batch: decoder_input_tokens, decoder_target_tokens int32 [b,l], decoder_loss_weights float32
            [b,l], decoder_segment_ids int32 [b,l] (0 for padding), and document_start [b]: 1 where
            this is the first segment of its document, whose slot then forgets what it holds.
        key: draws dropout, only if `train`.
        inspect: also returns a tuple of `layers.Look`, one for each memory layer.
        """
        x, state, looks = self.hidden_states(params, batch, state, key, train=train, inspect=inspect)
        nats, correct = self._predict(params, x, batch["decoder_target_tokens"])
        scores = {"nats": nats, "correct": correct, "weights": batch["decoder_loss_weights"].astype(jnp.float32)}
        return (scores, state, looks) if inspect else (scores, state)

    def hidden_states(self, params, batch, state, key=None, *, train=False, inspect=False):
        """The normalised residual stream after the last layer, float32 [b,l,e]; the next state; Looks."""
        if "document_start" not in batch:
            raise ValueError(
                "the batch has no document_start [b]; feed documents in order, one per slot, with 1 where one begins"
            )
        start, real = batch["document_start"], batch["decoder_segment_ids"] > 0
        if self.memory and real.shape[1] != self.segment:
            raise ValueError(f"the batch has {real.shape[1]} positions but segment is {self.segment}; make them equal")
        key = jax.random.key(0) if key is None else key
        x = params["embedding"][batch["decoder_input_tokens"]]
        caches, waiting, looks, layer = [], [], [], 0
        rings, next_real = self._remember(state, start), state.real
        held = iter(rings)
        for number, ((n, remembers), stack) in enumerate(zip(self.runs, params["layers"], strict=True)):
            memories = next(held) if remembers else None
            cache = jax.tree.map(lambda x: x.swapaxes(0, 1), state.caches[number]) if self.cache else None
            one_layer = self._one_layer(remembers, real, state.real, start, memories, train, inspect)
            keys = jax.vmap(partial(jax.random.fold_in, key))(layer + jnp.arange(n))
            if remembers:
                # No scan: JAX would take copies of the memory, which does not change, out of the loop.
                x, (cache, stored, look) = one_layer(x, jax.tree.map(lambda x: x[0], (stack, cache, keys)))
                cache = jax.tree.map(lambda x: x[None], cache)
                waiting.append(stored)
                looks.append(look)
            else:
                x, (cache, _, _) = jax.lax.scan(one_layer, x, (stack, cache, keys))
            if self.cache:
                *cache, next_real = cache
                caches.append(tuple(x.swapaxes(0, 1) for x in cache))
                next_real = next_real[0]
            layer += n
        x = dropout(x, self.dropout if train else 0.0, jax.random.fold_in(key, self.layers))
        x = nn.RMSNorm(epsilon=1e-6).apply({"params": {"scale": params["norm"]}}, x)
        waiting_real = (real | self.store_padding) if rings else None
        return x, State(tuple(caches), next_real, rings, tuple(waiting), waiting_real), tuple(looks)

    def _remember(self, state, start):
        """The memories that this segment reads: reset where a document begins, else with the segment before written."""
        if not state.rings:
            return ()
        real = state.waiting_real & ~start.astype(bool)[:, None]
        pairs = zip(state.rings, state.waiting, strict=True)
        return tuple(shards.write(self.layout, ring.reset(one, start), *segment, real) for one, segment in pairs)

    def _one_layer(self, remembers, real, past_real, start, memories, train, inspect):
        """The step that a run of layers scans: x, (parameters, cache, key) -> x, (cache, pairs, look)."""
        module = Layer(self, remembers)

        def compute(params, x, past, key):
            return module.apply({"params": params}, x, real, past, memories, key, train, inspect)

        if self.remat:
            compute = jax.checkpoint(compute, policy=jax.checkpoint_policies.save_only_these_names("found"))

        def step(x, inputs):
            params, cache, key = inputs
            past = attention.forget(attention.Past(*cache, past_real), start, self.null_keys) if self.cache else None
            x, k, v, look = compute(params, x, past, key)
            cache = attention.advance(past, k, v, real) if self.cache else None
            return x, (cache, jax.lax.stop_gradient((k, v)) if remembers else None, look)

        return step

    def spread(self, mesh, slots, heads=None, entries=None):
        """This model for a state that lies on a mesh, split over the named axes (several for slots); see `shards`."""
        return replace(self, layout=shards.Layout(mesh, tuple(slots), heads, entries))

    def measure(self, params, batch, state, key=None):
        """What the memory layers do with one segment: the figures of `measures`."""
        scores, _, looks = self.apply(params, batch, state, key, inspect=True)
        return measures(looks, scores["weights"])

    def adopt(self, params, source):
        """The trained parameters of another Model in the shape of this one; see `adapt.convert`."""
        return adapt.convert(params, source, self)

    def decoder(self):
        """One token at a time: see `decode.Decoder`."""
        from memorizing import decode  # which imports this file

        return decode.Decoder(self)

    def generate(self, params, prompt, count, key, *, eos=None, begin=0, **settings):
        """Draws `count` tokens behind each prompt int32 [b,t], of any length -> int32 [b,count].

        eos: an id that ends a row. begin: what documents' inputs begin with, see `decode.Decoder.read`.
        settings: temperature, top_k, top_p, ids, see `sampling.Sampling`. All in one compiled loop.
        """
        from memorizing import decode, sampling

        return decode.generate(self, params, prompt, count, key, sampling.Sampling(**settings), eos, begin)

    def look_inside(self, params, segments):
        """What was retrieved on a document's segments, one `inspect.Read` for each; see `inspect.read`."""
        from memorizing import inspect

        return inspect.read(self, params, segments)

    def with_memory(self, params, memory):
        """This model with another size of memory, and its parameters, which are the same; see `inspect.resized`."""
        from memorizing import inspect

        return inspect.resized(self, params, memory)

    def logits(self, params, x):
        """Unnormalised log-probabilities of every id, float32 [b,l,vocabulary]; the embedding is the output matrix."""
        return attention.einsum("ble,ve->blv", x.astype(self.number), params["embedding"].astype(self.number)) * (
            self.width**-0.5
        )

    def _predict(self, params, x, targets):
        """Nats of the targets, and whether the likeliest id is one; a few positions at a time."""
        b, length = targets.shape
        rows = b // self.layout.slot_parts if self.layout else b  # those of one device
        each = max(1, LOGITS_AT_ONCE // (rows * self.vocabulary))
        each = next(n for n in range(min(each, length), 0, -1) if length % n == 0)

        @jax.checkpoint
        def some(inputs):
            x, targets = inputs
            logits = self.logits(params, x)
            # A gather's gradient would be a scatter.
            mine = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2) == targets[..., None]
            hit = jnp.where(mine, logits, 0.0).sum(-1)
            correct = (logits.argmax(-1) == targets).astype(jnp.float32)
            return jax.nn.logsumexp(logits, axis=-1) - hit, correct

        cut = lambda x: x.reshape(b, length // each, each, *x.shape[2:]).swapaxes(0, 1)  # noqa: E731
        out = jax.lax.map(some, (cut(x), cut(targets)))
        return tuple(x.swapaxes(0, 1).reshape(b, length) for x in out)


def measures(looks, weights):
    """Figures to log, each a mean over tokens and heads: {"memory1_share": [], ...}, one set per memory layer.

    looks: of `Model.apply`. weights [b,l]: of the tokens, as in its scores.
    share: of the memory in the output (the gate, or the joint softmax's mass). age: of what was
    retrieved, in tokens, weighted by its attention. recall: share of the k best that was found.
    filled: share of the k places that held an entry. share_head0 ...: of each head.
    """
    out, total = {}, jnp.maximum(weights.sum(), 1.0)
    for n, look in enumerate(looks, 1):
        values = {
            "share": look.share,
            "age": jnp.sum(look.weight * look.real * look.age, axis=-1),
            "recall": look.recall,
            "filled": look.real.mean(-1),
        }
        for name, value in values.items():
            out[f"memory{n}_{name}"] = jnp.sum(value.mean(1) * weights) / total
        for head, share in enumerate(look.share.swapaxes(0, 1)):
            out[f"memory{n}_share_head{head}"] = jnp.sum(share * weights) / total
    return out


def bytes_of_state(model, batch_size):
    """Bytes of caches and memories together, without making them."""
    leaves = jax.tree.leaves(jax.eval_shape(partial(model.start, batch_size)))
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves)

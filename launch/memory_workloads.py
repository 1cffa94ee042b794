"""Workloads of `launch.workloads` about memories: retrieval alone, and a training step of the Memorizing Transformer.

Each function returns the fields of `workloads.Work`. FAISS and ScaNN are imported only by the rows that measure them.
"""

import dataclasses
import functools
import sys

PEERS = ("faiss", "scann")  # of requirements/bench.txt
FLOORS = ("floor", "plain")  # matmul-and-max alone, which is no search yet
SAMPLED = 8  # one query of so many is also searched in NumPy


def retrieval(setting):
    """The k best entries for every query of every group, on random unit vectors.

    Facts: `recall`, the share of the k best of an eighth of the queries that was found; `closed_form`, what it should
    be; for our methods the `buckets`, `block` and `tile` that were chosen.
    """
    q, keys = _vectors(setting)
    method, k = setting["method"], setting["neighbours"]
    if method in PEERS:
        program, search, facts = None, _peer(method, q, keys, k), {}
    else:
        program, search, facts = _program(setting, q, keys)
    if method not in FLOORS:
        found = search()
        facts["recall"] = _recall(q, keys, found if program is None else found.index, k)
    return program, search, facts


def _vectors(setting):
    """Unit vectors: queries [groups,l,d], keys [groups,M,d]."""
    import numpy as np

    draw = np.random.default_rng(0)
    shapes = ((setting["groups"], setting[name], setting["width"]) for name in ("queries", "entries"))
    vectors = (draw.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return tuple(x / np.linalg.norm(x, axis=-1, keepdims=True) for x in vectors)


def _program(setting, q, keys):
    """Our search, or a floor: products and one maximum per query, tiled as in the search or with whole rows."""
    import jax
    import jax.numpy as jnp

    from memorizing import retrieve
    from memorizing.products import einsum, over_groups

    method, k, entries = setting["method"], setting["neighbours"], setting["entries"]
    q, keys = jnp.asarray(q)[None], jnp.asarray(keys)[None]
    if method in FLOORS:
        search, facts = retrieve.choose(retrieve.Search("exact"), k, entries), {}
        work = _products(search)
        if method == "plain":
            search = dataclasses.replace(search, block=entries, tile=None)
            work = lambda q, keys: over_groups(lambda q, keys: einsum("td,nd->tn", q, keys).max(-1), q, keys)  # noqa: E731
    else:
        search = retrieve.choose(retrieve.Search(method, recall=setting["recall_target"]), k, entries)
        size = jnp.full((1,), entries, jnp.int32)
        work = lambda q, keys: retrieve.find(search, k, q, keys, size)  # noqa: E731
        facts = {"closed_form": retrieve.recall(k, search.buckets) if method == "buckets" else 1.0}
        if method == "approximate":
            facts["closed_form"] = setting["recall_target"] if jax.default_backend() == "tpu" else 1.0
    program = jax.jit(work).lower(q, keys).compile()
    facts.update(buckets=search.buckets, block=search.block, tile=search.tile)
    return program, lambda: program(q, keys), facts


def _products(search):
    """Products and maxima alone, in blocks and tiles as a search has them."""
    import jax
    import jax.numpy as jnp

    from memorizing.products import einsum, over_groups

    def one(q, keys):
        def cut(x, n):
            """[..., d] -> [..., n, d], filled up with zeros."""
            return jnp.pad(x, ((0, -len(x) % n), (0, 0))).reshape(-1, n, x.shape[-1])

        def visit(best, block):
            def tile(inputs):
                q, best = inputs
                return jnp.maximum(best, einsum("nd,td->nt", block, q).max(0))

            return jax.lax.map(tile, (tiles, best)), None

        tiles = cut(q, min(len(q), search.tile or len(q)))
        blocks = cut(keys, min(len(keys), search.block))
        best = jnp.full(tiles.shape[:2], -jnp.inf)
        if len(blocks) == 1:
            return visit(best, blocks[0])[0]
        return jax.lax.scan(visit, best, blocks)[0]

    return lambda q, keys: over_groups(one, q, keys)


def _peer(method, q, keys, k):
    """A search by FAISS's flat index or ScaNN's brute force, each group in an index of its own, built beforehand."""
    if method == "faiss":
        import faiss

        indices = [faiss.IndexFlatIP(keys.shape[-1]) for _ in keys]
        for index, group in zip(indices, keys, strict=True):
            index.add(group)
        return lambda: [index.search(x, k)[1] for index, x in zip(indices, q, strict=True)]
    # With TensorFlow in sight ScaNN loads its operations, built for one version of it; they are not needed here.
    sys.modules.setdefault("tensorflow", None)
    import scann

    builders = (scann.scann_ops_pybind.builder(group, k, "dot_product") for group in keys)
    indices = [builder.score_brute_force().build() for builder in builders]
    return lambda: [index.search_batched(x)[0] for index, x in zip(indices, q, strict=True)]


def _recall(q, keys, found, k):
    """The share of the k best that was found, of every eighth query; one group at a time, in NumPy."""
    import numpy as np

    found = np.asarray(found).reshape(*q.shape[:2], k)
    shares = []
    for queries, entries, index in zip(q[:, ::SAMPLED], keys, found[:, ::SAMPLED], strict=True):
        scores = queries @ entries.T
        best = np.argpartition(scores, -k)[:, -k:]
        shares += [len(np.intersect1d(*pair)) / k for pair in zip(best, index, strict=True)]
    return float(np.mean(shares))


def memory(setting):
    """A whole training step of the Memorizing Transformer in the middle of a document: every memory is full.

    Loss, gradients, Adam; parameters, optimiser state and memories are given back in place. Facts: `state_bytes`, of
    memories, waiting segments and caches; `parameters`.
    """
    import jax
    import jax.numpy as jnp
    import optax

    import memorizing
    from launch import devices

    names = ("vocabulary", "layers", "width", "hidden", "heads", "head_width", "memory", "segment", "neighbours")
    names += ("cache", "dtype", "memory_dtype")
    model = memorizing.Model(
        memory_layers=(setting["memory_layer"],),
        search=memorizing.Search(setting["search"], recall=setting["recall"]),
        **{name: setting[name] for name in names},
    )
    optimizer = optax.adam(1e-3)
    shape = (setting["batch"], setting["segment"])
    tokens = jax.random.randint(jax.random.key(0), shape, 0, setting["vocabulary"])

    @functools.partial(
        jax.jit, donate_argnums=(0, 1, 2), compiler_options=devices.compiler_options(jax.default_backend())
    )
    def update(params, moments, state, tokens):
        batch = {
            "decoder_target_tokens": tokens,
            "decoder_input_tokens": jnp.pad(tokens, ((0, 0), (1, 0)))[:, :-1],
            "decoder_loss_weights": jnp.ones(tokens.shape, jnp.float32),
            "decoder_segment_ids": jnp.ones_like(tokens),
            "document_start": jnp.zeros(tokens.shape[:1], jnp.int32),
        }

        def loss(params):
            scores, after = model.apply(params, batch, state, train=True)
            return scores["nats"].mean(), after

        (nats, state), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, state, nats

    params = model.init(jax.random.key(0))
    state = _full(model.start(setting["batch"]))
    kept = [params, jax.jit(optimizer.init)(params), state]
    facts = {
        "parameters": sum(x.size for x in jax.tree.leaves(params)),
        "state_bytes": sum(x.nbytes for x in jax.tree.leaves(state)),
    }
    program = update.lower(*kept, tokens).compile()

    def step():
        *kept[:], loss = program(*kept, tokens)
        return loss

    return program, step, facts


def _full(state):
    """The state with memories of random unit keys in which every entry counts."""
    import jax
    import jax.numpy as jnp

    def fill(ring):
        keys = jax.random.normal(jax.random.key(0), ring.keys.shape, ring.keys.dtype)
        keys = keys / jnp.linalg.norm(keys, axis=-1, keepdims=True)
        return ring._replace(keys=keys, written=jnp.full_like(ring.written, ring.capacity))

    rings = tuple(fill(ring) for ring in state.rings)
    return state._replace(rings=rings, waiting_real=None if not rings else jnp.ones_like(state.waiting_real))

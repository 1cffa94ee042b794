"""Optimisers of our own making, against optax and against formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from launch.optimizers import Adafactor, WarmupDecay

RATE = WarmupDecay(0.03)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def walk(rule, params, steps=3):
    """Parameters after some steps with drawn gradients."""
    state = rule.init(params)
    for n in range(steps):
        grads = {name: jnp.asarray(draw(*x.shape, seed=n)) for name, x in params.items()}
        updates, state = rule.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params, state


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9, "decay": 0.0}])
def test_adafactor_is_optaxs_unless_told_otherwise(settings):
    params = {"small": jnp.zeros(4), "matrix": jnp.asarray(draw(8, 12))}
    one = Adafactor(RATE, min_factored=8, **settings)
    other = optax.adafactor(
        RATE(3), min_dim_size_to_factor=8, momentum=one.momentum, weight_decay_rate=one.decay or None
    )
    found, wanted = walk(one.build(3), params), walk(optax.chain(other), params)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)  # parameters and state


@pytest.mark.parametrize("least", [1e-3, 0.1])
def test_what_begins_at_nothing_moves_by_the_least(least):
    gate, large = jnp.zeros(4), jnp.asarray(draw(4) + 3.0)
    after, _ = walk(Adafactor(RATE, decay=0.0, least=least).build(1), {"gate": gate, "large": large}, steps=1)
    # The first step is the sign of the gradient: the second moment is this gradient alone.
    way = -np.sign(draw(4))
    np.testing.assert_allclose(after["gate"], 0.03 * least * way, rtol=1e-4)
    np.testing.assert_allclose(after["large"] - large, 0.03 * np.sqrt(np.mean(large**2)) * way, rtol=1e-4)

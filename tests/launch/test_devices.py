"""Memory: what training steps are compiled with, and how a process's peak is measured."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from launch import devices


def products(x):
    return jnp.tanh(x @ x) @ x


def test_training_steps_on_processors_do_without_the_library_that_takes_memory_of_its_own():
    lowered = jax.jit(products, compiler_options=devices.compiler_options("cpu")).lower(jnp.ones((256, 256)))
    assert "ynn" not in lowered.compile().as_text()


@pytest.mark.parametrize("platform", ["tpu", "gpu"])
def test_other_platforms_keep_the_compilers_defaults(platform):
    assert devices.compiler_options(platform) is None


@pytest.mark.skipif(sys.platform != "linux", reason="peaks begin anew on Linux only")
def test_a_peak_is_that_since_the_last_reset():
    size = 200 * 2**20
    block = np.ones(size, np.uint8)
    before = devices.peak_memory_bytes()
    del block
    devices.trim_memory()
    devices.reset_peak_memory()
    after = devices.peak_memory_bytes()
    assert after < before - 0.9 * size
    block = np.ones(size, np.uint8)
    assert devices.peak_memory_bytes() > after + 0.9 * size
    del block

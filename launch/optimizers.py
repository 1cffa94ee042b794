"""Optimisers and learning-rate schedules as small configs over optax.

Each optimiser has ``build(steps)``, giving an optax transformation that includes the clipping of the global norm.
Configs are hashable, so a jitted update that takes one as a static argument is compiled once per distinct setting.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import optax


@dataclasses.dataclass(frozen=True)
class WarmupDecay:
    """Linear warm-up to ``peak``, then ``linear``, ``cosine`` or ``none`` decay to ``end`` times the peak."""

    peak: float
    warmup: int = 0
    decay: str = "none"
    end: float = 0.0

    def __post_init__(self):
        _check_numbers(self)
        if self.decay not in ("none", "linear", "cosine"):
            raise ValueError(f"WarmupDecay.decay is {self.decay!r}; it must be 'none', 'linear' or 'cosine'")

    def __call__(self, steps):
        """Returns step -> rate for a run of ``steps`` updates."""

        def rate(step):
            warm = _warm(step, self.warmup)
            past = jnp.clip((step - self.warmup) / max(1, steps - self.warmup), 0.0, 1.0)
            shape = {"none": 1.0 + 0.0 * past, "linear": 1.0 - past, "cosine": 0.5 * (1 + jnp.cos(jnp.pi * past))}
            return self.peak * warm * (self.end + (1 - self.end) * shape[self.decay])

        return rate


@dataclasses.dataclass(frozen=True)
class Multifactor:
    """The inverse square root schedule of the Reformer's configs: C min(1, t/w) / sqrt(max(t, w)), peak C/sqrt(w)."""

    constant: float
    warmup: int

    def __post_init__(self):
        _check_numbers(self)

    def __call__(self, steps):
        """Returns step -> rate; ``steps`` has no influence."""
        del steps
        return lambda step: self.constant * _warm(step, self.warmup) / jnp.sqrt(jnp.maximum(step + 1, self.warmup))


@dataclasses.dataclass(frozen=True)
class Cosine:
    """Warm-up, then repeated cosine half-waves of ``cycle`` steps (the Reformer's later enwik8 configs)."""

    constant: float
    warmup: int
    cycle: int

    def __post_init__(self):
        _check_numbers(self)
        if not self.cycle:
            raise ValueError("Cosine.cycle is 0; it is the steps of a half-wave, at least 1")

    def __call__(self, steps):
        """Returns step -> rate; ``steps`` has no influence."""
        del steps

        def rate(step):
            turn = (jnp.maximum(0, step + 1 - self.warmup) / self.cycle) % 1.0
            return self.constant * _warm(step, self.warmup) * 0.5 * (1 + jnp.cos(jnp.pi * turn))

        return rate


def _warm(step, warmup):
    """The linear warm-up's share of the rate, 1 from step ``warmup`` on; steps count from 0."""
    return jnp.minimum(1.0, (step + 1) / max(1, warmup))


SHARES = ("b1", "b2", "momentum")  # of an old average in the next one


def _check_numbers(config):
    """No number of an optimiser is negative: a rate would climb, without a word."""
    for name, value in vars(config).items():
        below = 1 if name in SHARES else float("inf")
        if isinstance(value, int | float) and not 0 <= value < below:
            wanted = "at least 0 and below 1" if name in SHARES else "a finite number of at least 0"
            raise ValueError(f"{type(config).__name__}.{name} is {value!r}; it must be {wanted}")


def _check_rate(owner, rate):
    if isinstance(rate, type) or not callable(rate):
        raise ValueError(f"{owner}.rate is {rate!r}; it must be a schedule, such as @optimizers.WarmupDecay()")


def _clipped(clip, *transformations):
    clipping = [optax.clip_by_global_norm(clip)] if clip else []
    return optax.chain(*clipping, *transformations)


@dataclasses.dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, 2015) with decoupled weight decay.

    ``decay`` is a fraction of each parameter taken off per step and, as in AdamW, scaled by the learning rate;
    ``steady_decay`` is not scaled (the authors' Adam: 1e-5 on all parameters).
    ``clip`` bounds the global gradient norm; 0 leaves it alone.
    """

    rate: Any
    b1: float = 0.9
    b2: float = 0.98
    eps: float = 1e-9
    decay: float = 0.0
    steady_decay: float = 0.0
    clip: float = 0.0

    def __post_init__(self):
        _check_rate("Adam", self.rate)
        _check_numbers(self)

    def build(self, steps):
        """An optax transformation for a run of ``steps`` updates."""
        steady = [optax.add_decayed_weights(-self.steady_decay)] if self.steady_decay else []
        return _clipped(
            self.clip,
            optax.adamw(self.rate(steps), b1=self.b1, b2=self.b2, eps=self.eps, weight_decay=self.decay),
            *steady,
        )


@dataclasses.dataclass(frozen=True)
class Adafactor:
    """Adafactor (Shazeer and Stern, 2018, algorithm 4) as the Reformer's first public configs set it.

    Factored second moments with decay 1 - t^-0.8, updates clipped at RMS 1 and scaled by max(RMS(parameter), least),
    no momentum. ``decay`` is taken off per step and, unlike AdamW's, not scaled by the learning rate (1e-5 there).
    ``min_factored`` is the size from which a matrix is factored; optax factors nothing smaller.
    ``least``: parameters that begin at 0, such as gates and biases, move by the rate times this until they are larger.
    With the usual 1e-3 a run of some thousand steps leaves most of them where they began.
    """

    rate: Any
    decay: float = 1e-5
    momentum: float | None = None
    min_factored: int = 128
    clip: float = 0.0
    least: float = 1e-3

    def __post_init__(self):
        _check_rate("Adafactor", self.rate)
        _check_numbers(self)

    def build(self, steps):
        """An optax transformation for a run of ``steps`` updates."""
        after = [] if self.momentum is None else [optax.ema(self.momentum, debias=False)]
        after += [optax.add_decayed_weights(self.decay)] if self.decay else []
        parts = (  # those of optax.adafactor, which has no `least`
            optax.scale_by_factored_rms(min_dim_size_to_factor=self.min_factored),
            optax.clip_by_block_rms(1.0),
            optax.scale_by_learning_rate(self.rate(steps), flip_sign=False),
            optax.scale_by_param_block_rms(self.least),
            *after,
            optax.scale(-1),
        )
        return _clipped(self.clip, optax.chain(*parts))

"""Checks gin files without data or training: names, values, and every shape, by abstract evaluation."""

import functools

import jax

from launch import config


def shapes(experiment):
    """Traces the training model and every evaluation's model on the trained parameters, at full size.

    Args:
      experiment: from ``launch.config.build``.

    Returns:
      The number of parameters. Nothing is computed or allocated.

    Raises:
      ValueError: an evaluation's model does not accept the trained parameters, or gives scores of another shape.
    """
    params = None
    for name, part in {"training": experiment, **experiment.evaluations}.items():
        batch = part.task.specimen(part.batch_size)
        if params is None:
            params = jax.eval_shape(part.model.init, jax.random.key(0), batch)
        state = jax.eval_shape(functools.partial(part.model.start, part.batch_size))
        apply = functools.partial(part.model.apply, train=part is experiment)
        scores, _ = jax.eval_shape(apply, params, batch, state, jax.random.key(0))
        wanted = batch["decoder_target_tokens"].shape
        for key in ("nats", "correct", "weights"):
            if scores[key].shape != wanted:
                raise ValueError(f"{name}: scores[{key!r}] has shape {scores[key].shape}, wanted {wanted}")
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def check(composition):
    """Builds and traces one composition. Returns (parameters, tokens a step, evaluation names)."""
    experiment = config.build(composition)
    return shapes(experiment), experiment.batch_size * experiment.task.length, list(experiment.evaluations)

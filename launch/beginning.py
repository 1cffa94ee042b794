"""What a run begins with where it has no checkpoint: another run's parameters, or all that another run has come to."""

import functools
from pathlib import Path

import jax

from launch import config
from launch.checkpoint import Checkpoints
from launch.composition import compose
from launch.errors import CheckpointError, RunError
from launch.train import mesh_of, prepare, restore, restore_params
from launch.trained import command


def parameters(composition, experiment, runs, monitor):
    """The parameters of the finished run that `experiment.start_from` names, in the shape of the experiment's model.

    Raises:
      RunError: there is no such run, it has not come to its end, or its model has other parameters.
    """
    name, folder = experiment.start_from, Path(experiment.start_from)
    if (folder / "config.gin").is_file():
        source, advice = compose(str(folder / "config.gin")), "finish that run first"
    else:
        places = [line for line in composition.overrides if line not in composition.changes]
        source = compose(name, composition.scale, composition.seed, places)
        folder = Path(runs) / source.run_name
        line = command(name, source.scale, source.seed, places, runs)
        advice = f"run first: {line}\nor name the folder of another run with --set \"START = 'FOLDER'\""
    begins = f"{composition.stem} begins with the parameters of {name}"
    model = config.build(source)
    try:
        step, params = restore_params(model, folder)
    except CheckpointError as error:
        raise RunError(f"{begins}, but {error}; {advice}") from None
    if step < model.steps:
        raise RunError(f"{begins}, but {folder} stands at step {step} of {model.steps}; {advice}")
    theirs, ours = (getattr(getattr(one.task, "source", None), "vocabulary", None) for one in (model, experiment))
    if theirs != ours:
        raise RunError(f"{begins}, which were trained on the vocabulary {theirs}; this run has {ours}, other ids")
    monitor.note(f"begins with the parameters of {folder}, step {step:,}")
    if experiment.model == model.model:
        return params
    adopt = getattr(experiment.model, "adopt", None)
    try:
        return adopt(params, model.model) if adopt else params
    except ValueError as error:
        raise RunError(f"{begins}, which do not fit: {error}") from None


def continued(experiment, folder, monitor):
    """Gives the run in ``folder`` its first checkpoint: the newest of the run that `experiment.continue_from` names.

    With another batch size no row can go on with what the model remembers of it: memories begin empty, and the feed
    begins rows at document borders (`tasks.documents.DocumentFeed.restore`).

    Raises:
      RunError: there is no such run, it is of another kind, or it has made as many steps as this one shall have.
    """
    checkpoints = Checkpoints(folder / "checkpoints", experiment.keep)
    try:
        if not checkpoints.steps():
            checkpoints.save(*_carried(experiment, Path(experiment.continue_from), monitor))
            checkpoints.wait()
    finally:
        checkpoints.close()


def _carried(experiment, folder, monitor):
    """(step, state, loop) of the newest checkpoint of the run in ``folder``, fit for ``experiment``."""
    continues = f"this run continues {folder}"
    if not (folder / "config.gin").is_file():
        raise RunError(f"{continues}, which is not a run's folder: it has no config.gin")
    source = config.build(compose(str(folder / "config.gin")))
    for part, theirs, ours in (
        ("model", source.model, experiment.model),
        ("task", source.task.name, experiment.task.name),
        ("optimiser", type(source.optimizer), type(experiment.optimizer)),
        ("seed", source.seed, experiment.seed),
    ):
        if theirs != ours:
            raise RunError(f"{continues}, whose {part} is {theirs}; this one has {ours}")
    try:
        step, state, loop = restore(source, folder)
    except CheckpointError as error:
        raise RunError(f"{continues}, but {error}") from None
    if step >= experiment.steps:
        raise RunError(f"{continues}, which stands at step {step} of the {experiment.steps} wanted")
    fresh = prepare(experiment, mesh_of(experiment))
    there, here = (jax.tree.map(lambda leaf: leaf.shape, each.optimizer) for each in (state, fresh.shapes))
    if there != here:
        raise RunError(f"{continues}, whose {source.optimizer} remembers other things than {experiment.optimizer}")
    monitor.note(f"continues {folder} from step {step:,}")
    if experiment.batch_size != source.batch_size:
        monitor.note(
            f"batch size {experiment.batch_size} instead of {source.batch_size}: nothing is remembered of rows"
        )
        start = functools.partial(experiment.model.start, experiment.batch_size)
        state = state._replace(model=jax.jit(start, out_shardings=fresh.shardings.model)())
    return step, state, loop

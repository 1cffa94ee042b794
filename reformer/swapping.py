"""Parameters in the host's memory, brought to the accelerator one period of layers at a time (section 3).

Nothing has to be switched on: an array's type says which memory it lives in, and whatever is found
in the host's is fetched where it is needed and its gradient put back beside it. On the accelerator
there are then the parameters and gradients of one period, of the embedding and of the head, however
deep the model. Whoever places the parameters decides; see `launch.swapping` for training.

`Stack` with backward 'invert' or 'remat' fetches every period twice, once for each direction. With
'store' plain autodiff keeps what was fetched, and swapping saves the optimiser's share only.
"""

import jax


def fetch(tree):
    """The same tree in the accelerator's memory; what is there already stays as it is."""
    return jax.tree.map(lambda x: jax.device_put(x, jax.memory.Space.Device) if _hosted(x) else x, tree)


def park(tree, like):
    """A tree of gradients, each in the memory in which the same leaf of `like` lives."""
    return jax.tree.map(lambda x, y: jax.device_put(x, jax.memory.Space.Host) if _hosted(y) else x, tree, like)


def fetch_but(params, *stacks):
    """Parameters of a model, fetched but for those of its stacks of layers, which fetch their own."""
    near = fetch({name: part for name, part in params.items() if name not in stacks})
    return {name: near.get(name, part) for name, part in params.items()}


def _hosted(x):
    return jax.typeof(x).memory_space == jax.memory.Space.Host

"""Parameters in the host's memory, brought to the accelerator one period of layers at a time (section 3).

Nothing has to be switched on: an array's type says which memory it lives in, and whatever is found
in the host's is fetched where it is needed and its gradient put back beside it. On the accelerator
there are then the parameters and gradients of one period, of the embedding and of the head, however
deep the model. Whoever places the parameters decides; see `launch.swapping` for training.

Compiled for a TPU (v5e, 4 x 256 tokens, d_model 512), loss and gradients of 4 and of 24 layers take
the same 22 MiB of its memory; 46 and 266 MiB of parameters, and as much of gradients, are the
host's. Decoding reads every layer for every token, and fetches all of them once.

`Stack` with backward 'invert' or 'remat' fetches every period twice, once for each direction. With
'store' plain autodiff keeps what was fetched, and swapping saves the optimiser's share only.
"""

import jax
from jax.experimental.layout import Layout, with_layout_constraint


def fetch(tree):
    """The same tree in the accelerator's memory; what is there already stays as it is."""

    def one(x):
        if not _hosted(x):
            return x
        x = jax.device_put(x, jax.memory.Space.Device)
        # A copy cannot permute axes, and XLA for TPUs stops if it has chosen another layout for the result.
        return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))

    return jax.tree.map(one, tree)


def park(tree, like):
    """A tree of gradients, each in the memory in which the same leaf of `like` lives."""
    return jax.tree.map(lambda x, y: jax.device_put(x, jax.memory.Space.Host) if _hosted(y) else x, tree, like)


def fetch_but(params, *stacks):
    """Parameters of a model, fetched but for those of its stacks of layers, which fetch their own."""
    near = fetch({name: part for name, part in params.items() if name not in stacks})
    return {name: near.get(name, part) for name, part in params.items()}


def _hosted(x):
    return jax.typeof(x).memory_space == jax.memory.Space.Host

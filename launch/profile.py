"""`repro profile`: time and memory, measured. One subcommand for each thing that is measured.

TensorFlow, seqio and gin are imported for `data` only, so that a bare accelerator box can measure all else.
"""

from launch import (
    profile_attention,
    profile_complexity,
    profile_data,
    profile_memory,
    profile_retrieval,
    profile_training,
)

MEASURED = {
    "attention": (profile_attention, "attention alone against length (Reformer, Figure 5 right)"),
    "training": (profile_training, "a whole training step: tokens a second, memory, compile time"),
    "complexity": (
        profile_complexity,
        "memory and time of five models beside the formulas of Reformer's Tables 1 and 3",
    ),
    "retrieval": (profile_retrieval, "the search for the k best keys, beside its floor, FAISS and ScaNN"),
    "data": (profile_data, "the input pipeline of an experiment alone: tokens a second"),
    "memory": (profile_memory, "a training step of the Memorizing Transformer against the size of its memory"),
}


def add_arguments(parser):
    """Registers the subcommands on an argparse parser."""
    commands = parser.add_subparsers(title="what is measured", required=True, metavar="WHAT")
    for name, (module, help) in MEASURED.items():
        sub = commands.add_parser(name, help=help, description=module.run.__doc__)
        module.add_arguments(sub)
        sub.set_defaults(measure=module.run)


def run(arguments):
    """Measures time and memory, of what the subcommand names."""
    return arguments.measure(arguments)

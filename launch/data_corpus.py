"""`repro data stats`, `verify` and `show`: what a built corpus holds, whether it is whole, how a model sees it."""

from pathlib import Path

from launch import arguments
from launch.errors import ConfigError

TASKS = {"c4": "c4_4k"}  # corpora whose task has another name


def add_stats(parser):
    """Registers the arguments of `stats` on an argparse parser."""
    _place(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="the picture (default: <corpus>-lengths.png)")


def add_verify(parser):
    """Registers the arguments of `verify` on an argparse parser."""
    _place(parser)


def add_show(parser):
    """Registers the arguments of `show` on an argparse parser."""
    _place(parser)
    parser.add_argument("--split", default="train", choices=("train", "validation", "test"), help="(default: train)")
    parser.add_argument("--document", default="0", metavar="N|NAME", help="its number or its name (default: 0)")
    parser.add_argument("--vocabulary", default="bytes", metavar="V", help="'bytes' (default) or a SentencePiece model")
    parser.add_argument("--length", type=arguments.number, default=512, metavar="N", help="of a segment (default: 512)")
    parser.add_argument("--segments", type=arguments.numbers_from(0), default=(0,), metavar="N[,N...]",
                        help="which of them, from 0 (default: 0)")  # fmt: skip


def _place(parser):
    parser.add_argument("place", metavar="DIR", help="what `repro data build` wrote to, or its folder of one corpus")


def stats(args):
    """Counts of a built corpus, and its documents' lengths as numbers and as a picture."""
    import numpy as np

    from tasks.build import manifest

    folder, held = _open(args.place)
    lines = list(manifest.listed(folder))
    unit = "bytes" if held["vocabulary"] is None else "tokens"
    print(f"{held['corpus']}: {folder}" + (f", vocabulary {held['vocabulary']}" if held["vocabulary"] else ""))
    lengths = {}
    for split, found in held["splits"].items():
        lengths[split] = np.array([line[unit] for line in lines if line["split"] == split])
        print(f"  {split:10} {found['documents']:>10,} documents {found['bytes']:>16,} bytes", end="")
        print(f" {found['tokens']:>16,} tokens" if found["tokens"] is not None else "")
        if len(lengths[split]):
            at = np.percentile(lengths[split], (0, 25, 50, 75, 100), method="nearest")
            print(f"    {unit} of a document: least {at[0]:,}, quarters {at[1]:,} {at[2]:,} {at[3]:,}, most {at[4]:,}")
    print("licences")
    for licence, found in held["licences"].items():
        print(f"  {licence or '(not said)':30} {found['documents']:>10,} documents {found['bytes']:>16,} bytes")
    print("notes" if held["notes"] else "nothing was left out")
    for note in held["notes"]:
        print(f"  {note['count']:>10,} {note['what']} {note['reason']}")
    path = args.out or Path(f"{held['corpus']}-lengths.png")
    draw(lengths, unit, f"{held['corpus']}: lengths of documents", path)
    print(f"picture: {path}")


def draw(lengths, unit, title, path):
    """Saves a histogram of lengths {split: int [n]}, with a logarithmic axis, as a picture.

    Bins are shared by the splits; a bar is the share of a split's documents, so that large and small splits compare.
    """
    import matplotlib
    import numpy as np

    matplotlib.use("Agg")
    from matplotlib import pyplot

    every = np.concatenate([held for held in lengths.values() if len(held)])
    bins = np.geomspace(max(every.min(), 1), every.max() + 1, 31)
    figure, axes = pyplot.subplots(figsize=(6.5, 4.2), layout="constrained")
    for split, held in lengths.items():
        if len(held):
            label = f"{split} ({len(held):,})"
            axes.hist(held, bins, weights=np.full(len(held), 1 / len(held)), histtype="step", label=label)
    axes.set(xscale="log", xlabel=f"{unit} of a document", ylabel="share of the split's documents")
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def verify(args):
    """Checks a built corpus against its manifest: files, documents, counts, licences. Exit status 1 for any fault."""
    from tasks.build import manifest
    from tasks.build.verify import faults

    folder = manifest.find(args.place)
    found = 0
    for found, fault in enumerate(faults(folder), 1):  # noqa: B007
        print(f"  {fault}")
    print(f"{folder}: {found} fault{'s' if found > 1 else ''}" if found else f"{folder}: all as the manifest says")
    return 1 if found else 0


def show(args):
    """Shows a document as the model sees it: segments of pieces, what is predicted, where memory is reset."""
    folder, held = _open(args.place)
    task = _task(folder, held["corpus"], args.vocabulary, args.length)
    names = task.source.names(args.split)
    number = _number(args.document, names, args.split)
    length = int(task.source.lengths(args.split)[number])
    segments = -(-length // args.length)
    print(f"{names[number]}: {length:,} tokens, {segments:,} segments; task {task.name}")
    for segment in args.segments:
        if segment >= segments:
            raise ConfigError(f"--segments: {segment} is none of the {segments} segments, which are counted from 0")
        print("\n".join(shown(task, args.split, number, segment)))


def shown(task, split, document, segment):
    """Lines that tell one row of a batch: its flags, what is read and what is predicted, piece by piece."""
    row = task.row(split, document, segment * task.length)
    real = row["decoder_segment_ids"] == 1
    counted = int(row["decoder_loss_weights"].sum())
    first = "yes: caches and memory are reset" if row["document_start"] else "no"
    yield f"segment {segment}: {int(real.sum())} tokens, {counted} predicted, {int((~real).sum())} padding"
    yield f"  document_start  {int(row['document_start'])} ({first})"
    for name in ("decoder_input_tokens", "decoder_target_tokens"):
        yield f"  {name}"
        yield f"    {'|'.join(task.source.codec.pieces(row[name][real]))}".replace("\n", "\\n")


def _open(place):
    from tasks.build import manifest

    folder = manifest.find(place)
    held = manifest.load(folder)
    if "features" not in held:
        raise ConfigError(
            f"{folder} holds {held['corpus']}, which is no corpus of documents; `repro data verify` checks it"
        )
    return folder, held


def _task(folder, corpus, vocabulary, length):
    import tasks

    more = {"sample": True} if corpus == "pg19" else {}
    return getattr(tasks, TASKS.get(corpus, corpus))(str(folder), vocabulary, length=length, **more)


def _number(wanted, names, split):
    if wanted in names:
        return names.index(wanted)
    if wanted.isdecimal() and int(wanted) < len(names):
        return int(wanted)
    from launch.composition import nearest

    raise ConfigError(f"--document: {split} has documents 0 to {len(names) - 1}, and none called {wanted!r}"
                      f"{nearest(wanted, names)}")  # fmt: skip

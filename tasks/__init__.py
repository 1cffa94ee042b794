"""Tasks: what a model is trained on and how its answers are counted.

A task is examples plus metrics under one name (`task.Task`). It is built by a plain function, one per file, whose
arguments are the settings that a gin file binds:

    task = tasks.duplication(length=1024, symbols=127)
    for batch in task.feed("validation", batch_size=8):
        ...

Examples come from a source: a pure function of (split, seed, position) in NumPy, so order, sharding over hosts and
resuming are arithmetic on positions. `Task.feed` reads it through a registered seqio Task where seqio is installed and
directly where it is not; the batches are the same. Nothing here imports TensorFlow or seqio before it is needed.

    metrics.py       totals over positions -> one number with its unit
    task.py          Task, the Source protocol, DataError
    duplication.py   Reformer's Table 2
    enwik8.py        Wikipedia's bytes in windows of 65,536; bytefiles.py finds them, vocabularies.py numbers them
    imagenet64.py    photographs as 12,288 tokens; images.py reads and checks them, spans.py finds them in their files
    corpora.py       arXiv, PG-19, C4, GitHub, Isabelle, each a corpus.py: from texts.py (and theories.py, Isabelle's
                     order) through codecs.py into tokenised.py's cache
    documents.py     batches whose rows read documents one after another; slots.py says which, segments.py is for seqio
    definitions.py   documents whose questions only a memory can answer
    wmt14.py         English to German; bitexts.py reads the pairs, subwords.py makes the vocabulary, pairtokens.py ids,
                     pairs.py batches by the plan of buckets.py; pairs_seqio.py registers, bleu.py scores
    feeds.py         batches, their state, their checks
    registry.py      the seqio side: data source, feature converter, registration
    randomness.py    random numbers addressed by position
"""

from tasks.copyreverse import copyreverse
from tasks.corpora import arxiv, c4_4k, github, isabelle, pg19
from tasks.definitions import definitions
from tasks.documents import DocumentTask
from tasks.duplication import duplication
from tasks.enwik8 import enwik8
from tasks.feeds import Feed
from tasks.imagenet64 import imagenet64
from tasks.metrics import Metric
from tasks.pairs import PairTask
from tasks.task import DataError, Task
from tasks.wmt14 import wmt14

__all__ = [
    "DataError",
    "DocumentTask",
    "Feed",
    "Metric",
    "PairTask",
    "Task",
    "arxiv",
    "c4_4k",
    "copyreverse",
    "definitions",
    "duplication",
    "enwik8",
    "github",
    "imagenet64",
    "isabelle",
    "pg19",
    "wmt14",
]

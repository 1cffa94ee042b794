"""The five corpora of the Memorizing Transformers (section 4.1, Table 4): long documents, read in order.

    arxiv     papers in mathematics, as LaTeX; a document is a paper
    pg19      books published before 1919
    c4_4k     web pages of at least 4096 tokens
    github    source code in six languages; a document is a repository
    isabelle  formal proofs; a document is an entry of the archive, its theories in the order of their imports

All are built alike, from a directory (`tasks.texts` says what may lie there) and a vocabulary (`tasks.codecs`):

    path            the directory. None gives a task that knows its shapes but has no data
    vocabulary      'bytes', or the path of a SentencePiece model. None gives a task without tokens, whose texts can
                    be made a vocabulary of
    ids             how many ids the vocabulary has or shall have; checked if both are given
    length          tokens in a segment
    predict_first   False: the first token of a segment is never predicted, as in the authors' code (`tasks.documents`)

The texts are tokenised once (`tasks.tokenised`); what was left out is told in one line. arXiv, GitHub and Isabelle were
never released, so no one can say whether a directory holds the authors' data: the task's name ends with a checksum
of the texts instead.
"""

from collections import Counter

from tasks import metrics
from tasks.codecs import Codec, Unmade, codec
from tasks.corpus import Corpus
from tasks.documents import DocumentTask
from tasks.logs import say_once
from tasks.task import SPLITS, DataError, NotPublished, check_integer
from tasks.texts import Layout, find_texts
from tasks.theories import imports_first
from tasks.tokenised import open_tokens, told

CODE = (".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".java", ".py", ".go", ".ts", ".tsx")
LAYOUTS = {
    "arxiv": Layout((".tex",), dataset=("arxiv", "text")),
    "pg19": Layout((".txt",), dataset=("pg19", "book_text")),
    "c4_4k": Layout((".txt",), dataset=("c4", "text"), shards="c4", splits=("train", "validation")),
    "github": Layout(CODE, dataset=("github", "text")),
    "isabelle": Layout((".thy",), arrange=imports_first, inside="thys", dataset=("isabelle", "text")),
}
BOOKS = {"train": 28602, "validation": 50, "test": 100}  # of PG-19, as published


def arxiv(
    path: str | None = None,
    vocabulary: str | None = "bytes",
    ids: int | None = None,
    length: int = 512,
    predict_first: bool = True,
) -> DocumentTask:
    """Papers in mathematics: .tex files. A folder is one document, its files by path."""
    return _task("arxiv", path, vocabulary, ids, length, predict_first)


def pg19(
    path: str | None = None,
    vocabulary: str | None = "bytes",
    ids: int | None = None,
    length: int = 512,
    predict_first: bool = True,
    sample: bool = False,
) -> DocumentTask:
    """Books: .txt files, or TFDS's pg19. sample: accept other numbers of books than 28,602, 50 and 100."""
    task = _task("pg19", path, vocabulary, ids, length, predict_first)
    if path is not None and vocabulary is not None and not sample:
        found = {split: task.source.size(split) for split in SPLITS}
        if found != BOOKS:
            held, wanted = (" / ".join(f"{count:,}" for count in counts.values()) for counts in (found, BOOKS))
            raise NotPublished(f"pg19: {path} has {held} books (train / validation / test) where PG-19 has {wanted}")
    return task


def c4_4k(
    path: str | None = None,
    vocabulary: str | None = "bytes",
    ids: int | None = None,
    length: int = 512,
    predict_first: bool = True,
    least: int = 4096,
) -> DocumentTask:
    """Web pages of at least `least` tokens in the vocabulary in use: C4's JSON shards, or TFDS's c4.

    C4 holds out one set only: 'test' is its validation set again.
    """
    least = check_integer("c4_4k: least", least, least=1)
    return _task("c4_4k", path, vocabulary, ids, length, predict_first, least)


def github(
    path: str | None = None,
    vocabulary: str | None = "bytes",
    ids: int | None = None,
    length: int = 512,
    predict_first: bool = True,
) -> DocumentTask:
    """Repositories: C, C++, Java, Python, Go and TypeScript. A .jsonl or a folder is one document, in its own order."""
    return _task("github", path, vocabulary, ids, length, predict_first)


def isabelle(
    path: str | None = None,
    vocabulary: str | None = "bytes",
    ids: int | None = None,
    length: int = 512,
    predict_first: bool = True,
) -> DocumentTask:
    """Formal proofs: .thy files. A folder (one entry of the archive) is one document, imported theories first."""
    return _task("isabelle", path, vocabulary, ids, length, predict_first)


def _task(
    kind: str,
    path: str | None,
    vocabulary: str | None,
    ids: int | None,
    length: int,
    predict_first: bool,
    least: int = 1,
) -> DocumentTask:
    length = check_integer(f"{kind}: length", length, least=1 if predict_first else 2)
    try:
        words = codec(vocabulary, ids)
        corpus = _corpus(kind, path, words, least)
    except DataError as error:
        raise DataError(str(error) if str(error).startswith(kind) else f"{kind}: {error}") from None
    name = f"{kind}.{words.name}"
    name += f".length{length}" * (length != 512)
    name += ".first_unpredicted" * (not predict_first)
    name += f".data_{corpus.label}" * bool(corpus.splits)
    return DocumentTask(name, length, words.size, _metrics(words), corpus, predict_first)


def _metrics(words: Codec) -> tuple[metrics.Metric, ...]:
    bits = metrics.BITS_PER_BYTE if words.per_byte else metrics.BITS_PER_BYTE_OF_TEXT
    return metrics.PERPLEXITY_PER_TOKEN, metrics.NATS_PER_TOKEN, bits, metrics.ACCURACY


def _corpus(kind: str, path: str | None, words: Codec, least: int) -> Corpus:
    texts = None if path is None else find_texts(path, kind, LAYOUTS[kind])
    if texts is None or isinstance(words, Unmade):
        return Corpus(kind, words.name, least, (), words, texts)
    parts = open_tokens(texts, LAYOUTS[kind].splits, words, least, kind)
    notes: Counter[tuple[str, str]] = Counter()
    for part in parts.values():
        notes.update({(what, reason): count for what, reason, count in part.facts["notes"]})
    if notes:
        say_once(f"{kind}: {path}: {told(notes)}")
    splits = {split: parts.get(split, parts["validation"]) for split in SPLITS}
    return Corpus(kind, words.name, least, tuple(part.facts["sha256"] for part in parts.values()), words, texts, splits)

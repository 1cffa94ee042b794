"""WMT 2014, English to German (Reformer, Table 4): sentence pairs, batches by tokens, BLEU on newstest2014.

Training pairs are longer than `length` tokens on neither side; evaluation leaves out what is longer than 512 and scores
every other pair once. The authors' data (T2T translate_ende_wmt32k): News Commentary v13, Common Crawl, Europarl v7;
newstest2013 to watch; their batches have 256 rows for each device at length 32, half as many for each doubling.

The figure that the paper reports is BLEU of decoded sentences (`tasks.bleu`), for which `references` gives sources and
references; the metrics here are those of the model's own probabilities.
"""

from collections.abc import Sequence
from pathlib import Path

from tasks import bitexts, subwords
from tasks.metrics import ACCURACY, NATS_PER_TOKEN, PERPLEXITY_PER_TOKEN
from tasks.pairs import PairTask
from tasks.task import DataError, NotPublished, check_integer

LANGUAGES = ("en", "de")
TFDS = "wmt14_translate/de-en"
TRAIN = ("news-commentary-v13.de-en", "commoncrawl.de-en", "europarl-v7.de-en")
TRAIN_AT_LEAST, VALIDATION, TEST = 4_000_000, 3000, 3003  # pairs as published; training sets differ in News Commentary
ORIGIN = "the texts come from statmt.org/wmt14 and wmt18 (News Commentary v13), or from TFDS wmt14_translate/de-en"


def wmt14(
    path: str | None = None,
    vocabulary: str | None = None,
    ids: int = 32000,
    length: int = 256,
    shortest: int = 32,
    longest: int = 512,
    train: Sequence[str] | str = TRAIN,
    validation: str = "newstest2013",
    test: str = "newstest2014-deen",
    sample: bool = False,
) -> PairTask:
    """The English-German task, with the texts at `path` looked through here and now.

    path        a directory of line-aligned files, or .sgm files; or a TFDS directory with wmt14_translate/de-en. None
                gives a task that knows its shapes but has no data.
    vocabulary  a SentencePiece model for both languages (`repro data vocab`, or a ready one that numbers alike)
    ids         number of the vocabulary's ids, checked against the model
    length      tokens of the longest training pair, EOS included: `shortest` times a power of two
    shortest    the shortest bucket
    longest     tokens of the longest pair that is evaluated
    train, validation, test
                stems of files, which may begin with folders: s stands for s.en and s.de, or for s-src.en.sgm and
                s-ref.de.sgm, in `path` or in a folder of it. A stem that ends in .tok holds Moses-tokenised text, whose
                entities are put back. s[a:b] stands for a part of its lines. TFDS has its own splits.
    sample      accept other texts than the published ones. The task's name then says so.
    """
    ids = check_integer("wmt14: ids", ids, least=4)
    shortest = check_integer("wmt14: shortest", shortest, least=2)
    length = check_integer("wmt14: length", length, least=shortest)
    longest = check_integer("wmt14: longest", longest, least=length)
    for name, value in (("length", length), ("longest", longest)):
        if value % shortest or (value // shortest) & (value // shortest - 1):
            raise DataError(f"wmt14: {name} must be shortest ({shortest}) times a power of two, got {value}")
    texts = (
        None if path is None else _texts(path, [train] if isinstance(train, str) else train, validation, test, sample)
    )
    words = None if vocabulary is None else subwords.load(vocabulary)
    if words and words.size != ids:
        raise DataError(
            f"wmt14: the vocabulary {vocabulary} has {words.size} ids, `ids` says {ids}; set ids={words.size} "
            "(VOCABULARY_SIZE in gin files)"
        )
    name = "wmt14_en_de"
    settings = {"length": (length, 256), "shortest": (shortest, 32), "longest": (longest, 512)}
    name += "".join(f".{key}{value}" for key, (value, usual) in settings.items() if value != usual)
    if words:
        name += f".vocabulary_{words.sha256[:8]}"
    if texts and not _genuine(texts):
        name += f".sample_{''.join(text.sha256[:3] for text in texts)}"
    metrics = (NATS_PER_TOKEN, PERPLEXITY_PER_TOKEN, ACCURACY)
    return PairTask(name, length, ids, metrics, shortest, longest, texts, words)


def _texts(path: str, train: Sequence[str], validation: str, test: str, sample: bool) -> tuple[bitexts.Bitext, ...]:
    place = Path(path).expanduser()
    try:
        if not place.is_dir():
            raise DataError(f"no directory at {path}. {ORIGIN}")
        version = bitexts.prepared_translation(place, TFDS)
        if version:
            texts = tuple(bitexts.read_tfds(version, split, LANGUAGES) for split in ("train", "validation", "test"))
        else:
            texts = tuple(bitexts.read(place, stems, LANGUAGES) for stems in (train, [validation], [test]))
    except OSError as error:
        raise DataError(f"wmt14: cannot read {error.filename or path}: {error.strerror or error}") from None
    except DataError as error:
        raise DataError(f"wmt14: {error}") from None
    if not sample and not _genuine(texts):
        counts = ", ".join(f"{len(text):,}" for text in texts)
        raise NotPublished(
            f"wmt14: {path} has {counts} pairs to train, validate and test, where about 4.5 million, {VALIDATION:,} "
            f"and {TEST:,} were published"
        )
    return texts


def _genuine(texts: tuple[bitexts.Bitext, ...]) -> bool:
    train, validation, test = map(len, texts)
    return train >= TRAIN_AT_LEAST and (validation, test) == (VALIDATION, TEST)

"""Subword vocabularies: SentencePiece models, trained by one command and known by their bytes.

All of them number alike: 0 padding, 1 end of sequence, 2 unknown, then the pieces. A character that is in no piece is
written as its bytes, so nothing is ever unknown. Training the same texts with the same version gives the same bytes.
"""

import array
import functools
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tasks.task import DataError, check_integer

PAD, EOS, UNKNOWN = 0, 1, 2
KINDS = ("unigram", "bpe")
SLICE = 1000  # characters; SentencePiece leaves out what is longer than 4192 bytes


class Subwords:
    """A trained model. `size` ids; `sha256` of the file."""

    def __init__(self, data: bytes, path: str):
        """data: the model file's bytes; path: where it lies. DataError if they are no model that numbers as ours do."""
        import sentencepiece

        self.path, self.sha256 = path, hashlib.sha256(data).hexdigest()
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            self._model.LoadFromSerializedProto(data)
        except RuntimeError:
            raise DataError(f"{path} is no SentencePiece model") from None
        self.size = int(self._model.vocab_size())
        ids = self._model.pad_id(), self._model.eos_id(), self._model.unk_id()
        if ids != (PAD, EOS, UNKNOWN):
            raise DataError(
                f"{path} numbers padding, end and unknown as {ids}; {(PAD, EOS, UNKNOWN)} wanted (spm_train --pad_id=0 "
                "--eos_id=1 --unk_id=2 --bos_id=-1)"
            )

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without an end mark."""
        return self._model.encode(list(texts))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, up to the first end mark; padding is left out."""
        text: list[int] = []
        for one in map(int, ids):
            if one == EOS:
                break
            if not 0 <= one < self.size:
                raise ValueError(f"ids lie from 0 to {self.size - 1}, got {one}")
            text += [one] * (one != PAD)
        return self._model.decode(text)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """How each id is written in the model: blanks as '▁', bytes as '<0x0A>'."""
        return [self._model.id_to_piece(int(one)) for one in ids]


def load(path: str) -> Subwords:
    """The model at `path`. DataError if it is none, or not the one that its fingerprint beside it tells of."""
    file = Path(path).expanduser()
    try:
        stamp = file.stat().st_size, file.stat().st_mtime_ns
        return _load_once(file, stamp)
    except OSError as error:
        raise DataError(f"cannot read the vocabulary {path}: {error.strerror or error}") from None


@functools.lru_cache(maxsize=4)
def _load_once(file: Path, stamp: tuple[int, int]) -> Subwords:
    words = Subwords(file.read_bytes(), str(file))
    beside = facts_file(file)
    if beside.is_file():
        try:
            known = json.loads(beside.read_text())["sha256"]
        except (ValueError, KeyError, TypeError):
            raise DataError(
                f"{beside} is no fingerprint of a vocabulary; remove it, or train the vocabulary anew"
            ) from None
        if known != words.sha256:
            raise DataError(
                f"{file} is not the vocabulary that {beside.name} was written for: one of them was exchanged"
            )
    return words


def facts_file(model: Path) -> Path:
    return model.with_name(model.name + ".json")


def train(
    texts: Iterable[str],
    size: int,
    path: str | Path,
    *,
    kind: str = "unigram",
    lossless: bool = False,
    limit: int = 100_000_000,
) -> dict[str, object]:
    """Trains a vocabulary of `size` ids on `texts`, writes it to `path`, and its fingerprint to `path`.json.

    texts     gone through twice; an iterator that can be used once only is refused
    kind      'unigram' or 'bpe'
    lossless  keep white space as it is (several spaces, line ends): for program text and documents. Otherwise runs of
              spaces become one.
    limit     bytes of text used at most: every n-th text, with the smallest n that suffices, and no more than the first
              one's beginning. 100 MB take about 3 GB of memory

    Returns the fingerprint: sha256 of model and of the text used, sizes, settings, SentencePiece's version.
    """
    import sentencepiece

    if kind not in KINDS:
        raise DataError(f"kind of vocabulary must be 'unigram' or 'bpe', got {kind!r}")
    size = check_integer("size of the vocabulary", size, least=300)  # 3 marks, 256 bytes, and some pieces
    if iter(texts) is texts:
        raise TypeError("texts must be iterable more than once, such as a list")
    sizes = array.array("Q", (len(text.encode()) for text in texts))
    volume = sum(sizes)
    # Texts are of many lengths: every third may well be more than a third of them.
    tries = range(max(1, -(-volume // limit)), len(sizes))
    every = next((every for every in tries if sum(sizes[::every]) <= limit), max(1, len(sizes)))
    digest, used, read = hashlib.sha256(), 0, 0

    def chosen() -> Iterator[str]:
        nonlocal used, read
        for number, text in enumerate(texts):
            if number % every == 0 and text:
                data = text.encode()[: limit - read]  # of one text alone, which may be over the limit, its beginning
                text = data.decode(errors="ignore")
                digest.update(len(data).to_bytes(8, "little") + data)
                used, read = used + 1, read + len(data)
                yield from (text[at : at + SLICE] for at in range(0, len(text), SLICE))

    options: dict[str, Any] = {
        "vocab_size": size,
        "model_type": kind,
        "character_coverage": 0.9995,  # the rest is written as bytes
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": not lossless,
        "add_dummy_prefix": not lossless,
        "allow_whitespace_only_pieces": lossless,
    }
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chosen(),
            model_writer=model,
            pad_id=PAD,
            eos_id=EOS,
            unk_id=UNKNOWN,
            bos_id=-1,
            byte_fallback=True,
            train_extremely_large_corpus=volume > 10**9,
            num_threads=16,  # a constant: the sums of the unigram model depend on it, though not on the number of cores
            minloglevel=2,
            **options,
        )
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip().rpartition("] ")[2] or str(error).splitlines()[0]
        raise DataError(
            f"no vocabulary of {size} pieces can be made of these {read:,} bytes of text: {reason}"
        ) from None
    facts = {
        "sha256": hashlib.sha256(model.getvalue()).hexdigest(),
        "text_sha256": digest.hexdigest(),
        "texts": len(sizes),
        "texts_used": used,
        "bytes_used": read,
        "sentencepiece": sentencepiece.__version__,
        **options,
    }
    file = Path(path).expanduser()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        for target, data in (
            (file, model.getvalue()),
            (facts_file(file), (json.dumps(facts, indent=2) + "\n").encode()),
        ):
            partial = target.with_name(target.name + ".partial")
            partial.write_bytes(data)
            os.replace(partial, target)
    except OSError as error:
        raise DataError(f"cannot write the vocabulary {path}: {error.strerror or error}") from None
    return facts

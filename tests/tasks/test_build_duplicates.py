"""Near duplicates: signatures estimate what sets of shingles say, and what is alike is found."""

import random
import re

import numpy as np
import pytest

from tasks.build import duplicates

WORDS = [f"w{n}" for n in range(3000)]


def text_of(draw, words):
    return " ".join(draw.choice(WORDS) for _ in range(words))


def changed(draw, text, share):
    return " ".join(word if draw.random() > share else draw.choice(WORDS) for word in text.split())


def jaccard(one, other):
    """Of the sets of five words in a row: the definition."""

    def shingles(text):
        words = re.findall(r"[a-z0-9_\x80-\U0010ffff]+", text.lower())
        return {tuple(words[n : n + 5]) for n in range(len(words) - 4)}

    one, other = shingles(one), shingles(other)
    return len(one & other) / len(one | other)


def signature(text):
    return duplicates.signature(text.encode())


def test_agreement_of_signatures_is_the_similarity_of_sets():
    draw = random.Random(0)
    errors = []
    for words in (40, 300, 2000):
        for share in (0.0, 0.005, 0.02, 0.05, 0.2, 1.0):
            for _ in range(6):
                text = text_of(draw, words)
                other = changed(draw, text, share)
                exact = jaccard(text, other)
                found = float(duplicates.similarity(signature(text), signature(other)))
                spread = (exact * (1 - exact) / 128) ** 0.5
                # Two long texts of nothing in common still agree by chance once in 65,536; short ones borrow minima.
                assert abs(found - exact) < 5 * spread + 0.05 * (words < 128) + 0.01
                errors.append(found - exact)
    assert abs(np.mean(errors)) < 0.01  # no bias


def test_only_words_count():
    assert np.array_equal(
        signature("The quick-brown fox; jumps over (it)"), signature("the QUICK brown\nfox jumps\tover it")
    )
    assert not np.array_equal(signature("the quick brown fox jumps"), signature("the quick brown fox jumped"))


@pytest.mark.parametrize("text", ["", "!!", "one", "one two", "a b c d", "a b c d e", "größer " * 9])
def test_short_texts_have_signatures_of_their_own(text):
    assert np.array_equal(signature(text), signature(text + " " * 3)) or not text.strip("! ")
    others = ["two", "one three", "a b c x", "b c d e f", "kleiner " * 9]
    assert all(duplicates.similarity(signature(text), signature(other)) < 0.1 for other in others)


@pytest.mark.parametrize("size", [17, 100, 4096])
def test_where_a_text_is_cut_for_reading_does_not_matter(monkeypatch, size):
    text = text_of(random.Random(1), 2000)
    whole = signature(text)
    monkeypatch.setattr(duplicates, "CHUNK", size)
    assert np.array_equal(signature(text), whole)


def mixed(value):
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) % 2**64
    return value ^ value >> 31


def by_hand(text):
    """A signature with Python's integers, a shingle at a time."""
    base, step = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
    words = re.findall(rb"[a-z0-9_\x80-\xff]+", text.lower().encode())
    hashes = [mixed(sum(byte * base**place for place, byte in enumerate(word)) % 2**64) for word in words]
    bins = {}
    for n in range(len(hashes) - 4):
        shingle = mixed(sum(hashes[n + place] * step**place for place in range(5)) % 2**64)
        bins[shingle >> 57] = min(bins.get(shingle >> 57, 2**64), shingle)
    found = []
    for place in range(128):
        draw = 0
        where = place
        while where not in bins:
            draw += 1
            where = mixed(place + (draw << 32)) % 128
        found.append(mixed(bins[where]) % 2**16)
    return found


@pytest.mark.parametrize("words", [5, 20, 400])
def test_signatures_are_what_their_rule_says(words):
    text = "Größe, " + text_of(random.Random(words), words)
    assert signature(text).tolist() == by_hand(text)


def components(near):
    """For each member of a symmetric relation the smallest member that it is connected with, by repetition."""
    label = list(range(len(near)))
    for _ in near:
        label = [min(label[m] for m in range(len(near)) if near[n][m] or m == n) for n in range(len(near))]
    return label


def test_clusters_are_the_components_of_what_is_alike():
    draw = random.Random(2)
    texts = []
    for _ in range(12):
        texts.append(text_of(draw, 400))
        while draw.random() < 0.6:
            texts.append(changed(draw, texts[-1], 0.01))
    draw.shuffle(texts)
    signatures = np.stack([signature(text) for text in texts])
    near = [[float(duplicates.similarity(one, other)) >= 0.7 for other in signatures] for one in signatures]
    found = duplicates.clusters(signatures, [[] for _ in texts], 0.7).tolist()
    assert found == components(near) and len(set(found)) == 12
    assert duplicates.clusters(signatures, [[] for _ in texts], 2).tolist() == list(range(len(texts)))


def test_what_shares_a_key_belongs_together():
    signatures = np.stack([signature(text_of(random.Random(n), 100)) for n in range(6)])
    keys = [["a"], ["b"], ["a", "c"], [], ["c"], ["b"]]
    assert duplicates.clusters(signatures, keys, 0.7).tolist() == [0, 1, 0, 3, 0, 1]


def test_no_documents():
    assert duplicates.clusters(np.zeros((0, 128), np.uint16), [], 0.7).tolist() == []

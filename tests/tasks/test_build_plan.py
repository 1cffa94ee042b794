"""The plan: which split a document belongs to, and what is left out."""

import base64
import random
from collections import Counter

import pytest

from tasks.build.duplicates import signature
from tasks.build.parts import Entry
from tasks.build.plan import Splitting, place, plan
from tasks.task import DataError

WORDS = [f"word{n}" for n in range(2000)]


def text(seed, changes=0):
    draw = random.Random(seed)
    words = [draw.choice(WORDS) for _ in range(300)]
    for change in range(changes):
        words[change * 50] = f"other{change}"
    return " ".join(words)


def entry(name, held, group="", split="", signed=False):
    data = held.encode()
    numbers = "" if split and not signed else base64.b64encode(signature(data).astype("<u2").tobytes()).decode()
    return Entry(name, split, "MIT", name, group, 1, len(data), None, f"sum of {held}", 0, len(data), numbers)


def splits_of(planned):
    return {one.name: split for split, members in planned.splits.items() for _, one in members}


def split_of(name, splitting):
    """By hand: where the hash falls."""
    share = place(name)
    return (
        "test" if share < splitting.test else "validation" if share < splitting.test + splitting.validation else "train"
    )


def test_splits_depend_on_the_name_alone():
    rule = Splitting(validation=0.2, test=0.2)
    entries = [entry(f"d{n}", text(n)) for n in range(60)]
    whole = splits_of(plan([entries], rule))
    assert whole == {one.name: split_of(one.name, rule) for one in entries}
    random.Random(0).shuffle(entries)
    assert splits_of(plan([entries[:20], entries[20:]], rule)) == whole
    some = entries[:40]
    assert splits_of(plan([some], rule)) == {one.name: whole[one.name] for one in some}


def test_shares_are_met():
    rule = Splitting(validation=0.1, test=0.2, similar=2)
    counts = Counter(rule.split(f"document {n}") for n in range(20_000))
    assert abs(counts["validation"] - 2000) < 4 * 1800**0.5 and abs(counts["test"] - 4000) < 4 * 3200**0.5


@pytest.mark.parametrize("seed", range(3))
def test_what_is_alike_never_straddles_a_split(seed):
    rule = Splitting(validation=0.3, test=0.3)
    entries = [entry(f"{n}{'abc'[copy]}", text(1000 * seed + n, copy)) for n in range(30) for copy in range(3)]
    random.Random(seed).shuffle(entries)
    planned = plan([entries[:31], entries[31:]], rule)
    where = splits_of(planned)
    assert all(where[f"{n}a"] == where[f"{n}b"] == where[f"{n}c"] == split_of(f"{n}a", rule) for n in range(30))
    assert planned.first == {f"{n}{copy}": f"{n}a" for n in range(30) for copy in "bc"} and not planned.notes
    apart = splits_of(plan([entries], Splitting(0.3, 0.3, similar=2)))
    assert apart == {one.name: split_of(one.name, rule) for one in entries} != where


def test_groups_and_equal_texts():
    rule = Splitting(validation=0.3, test=0.3)
    entries = [entry(f"v{n}", text(n), group="paper") for n in range(8)]
    entries += [entry(f"e{n}", text("equal")) for n in range(8)]
    planned = plan([entries], rule)
    where = splits_of(planned)
    assert {where[f"v{n}"] for n in range(8)} == {split_of("v0", rule)}
    assert where["e0"] == split_of("e0", rule) and not {f"e{n}" for n in range(1, 8)} & set(where)
    assert planned.notes == {("documents", "equal to another"): 7}


def test_names_are_distinct():
    planned = plan([[entry("a", text(0)), entry("b", text(1))], [entry("a", text(2))]], Splitting())
    assert planned.notes == {("documents", "under a name seen before"): 1} and set(splits_of(planned)) == {"a", "b"}


def test_splits_of_the_publisher_are_kept():
    entries = [entry("a", text(0), split="test"), entry("b", text(0), split="train"), entry("c", text(1))]
    assert splits_of(plan([entries], Splitting())) == {"a": "test", "b": "train", "c": split_of("c", Splitting())}
    assert split_of("c", Splitting()) == "train"
    with pytest.raises(DataError, match="split 'dev' is none of train, validation, test"):
        plan([[entry("a", text(0), split="dev")]], Splitting())


def test_what_belongs_with_published_documents_joins_them():
    entries = [entry("p", text(0), split="test", signed=True), entry("q", text(1), group="paper", split="validation")]
    entries += [entry("e", text(0)), entry("n", text(0, 1)), entry("v", text(2), group="paper"), entry("o", text(3))]
    planned = plan([entries], Splitting())
    assert splits_of(planned) == {"p": "test", "q": "validation", "n": "test", "v": "validation", "o": "train"}
    assert planned.notes == {("documents", "equal to another"): 1}
    assert planned.first == {"n": "e", "v": "q"}  # "e" is gone, but its company is called by its name


def test_small_corpora_have_all_splits():
    entries = [entry(f"n{n}", text(n)) for n in range(5)]
    rule = Splitting(validation=1e-6, test=1e-6)
    where = splits_of(plan([entries], rule))
    first, second = sorted((one.name for one in entries), key=place)[:2]
    assert where == {**{one.name: "train" for one in entries}, first: "test", second: "validation"}
    assert set(splits_of(plan([entries], Splitting(validation=0, test=1e-6))).values()) == {"train", "test"}
    assert splits_of(plan([entries[:1]], rule)) == {"n0": "train"}


@pytest.mark.parametrize(
    "wrong", [{"validation": -0.1}, {"test": 1.0}, {"validation": 0.5, "test": 0.5}, {"similar": 0}]
)
def test_settings_that_cannot_be(wrong):
    with pytest.raises(DataError, match="got"):
        Splitting(**wrong)

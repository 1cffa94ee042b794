"""Statements of Isabelle's theories and mentions of their names, on a small theory worked out by hand."""

import itertools

import pytest

from tasks.statements import by_chance, mentions, statements

THEORY = r"""theory Small imports Main begin
text \<open>We say lemma decoy: "no" and (nothing about helper_lemma).\<close>
(* lemma hidden: "x" (* definition inner where "y" *) helper_lemma *)

definition double :: "nat \<Rightarrow> nat" where
  "double n = n + n"

lemma helper_lemma [simp]: "double 0 = 0" by (simp add: double_def)

lemma (in loc) long_one:
  assumes by: "a < b" and "double a = by"
  shows "b > a"
proof -
  show ?thesis using helper_lemma by simp
qed

fun sum_up where
  "sum_up [] = 0"
| "sum_up (x # xs) = x + sum_up xs"

definition "quoted x \<equiv> x"
lemma "double 1 = 2" by (auto simp: sum_up.simps quoted_def)
lemma it: "True" ..
datatype ('a, 'b) pair_of = Pair 'a 'b
lemma helper_lemma: "doubles double' = it" using not_helper_lemma x.helper_lemma by (rule helper_lemma)
end
"""


def stated(name, text=THEORY):
    return [text[one.start : one.stop].strip() for one in statements(text) if one.name == name]


def test_statements_begin_behind_the_name_and_end_before_the_proof():
    found = [one.name for one in statements(THEORY)]
    assert found == ["double", "helper_lemma", "long_one", "sum_up", "quoted", "pair_of", "helper_lemma"]
    assert all(THEORY[one.place :].startswith(one.name) for one in statements(THEORY))
    assert stated("double") == [':: "nat \\<Rightarrow> nat" where\n  "double n = n + n"']
    assert stated("helper_lemma") == ['[simp]: "double 0 = 0"', ': "doubles double\' = it"']
    assert stated("long_one") == [':\n  assumes by: "a < b" and "double a = by"\n  shows "b > a"']
    assert stated("quoted") == [r'x \<equiv> x"']
    assert stated("sum_up")[0].endswith('x + sum_up xs"')
    assert stated("pair_of") == ["= Pair 'a 'b"]
    assert stated("cut off", 'lemma other: "x"\nlemma cut: "y') == []
    assert stated("cut", 'lemma other: "x"\nlemma cut: "y') == [': "y']


def test_mentions_are_whole_words_behind_their_statement():
    found = [(THEORY[one.start : one.stop], THEORY[: one.start].count("\n") + 1) for one in mentions(THEORY)]
    assert found == [
        ("double", 8), ("double", 8), ("double", 11), ("helper_lemma", 14), ("double", 22), ("sum_up", 22),
        ("quoted", 22), ("helper_lemma", 25),
    ]  # fmt: skip


def test_the_last_statement_before_a_mention_counts():
    *_, last = [one for one in mentions(THEORY) if one.statement.name == "helper_lemma"]
    first = next(one for one in mentions(THEORY) if one.statement.name == "helper_lemma")
    assert THEORY[first.statement.start :].startswith(" [simp]")
    assert THEORY[last.statement.start :].startswith(': "doubles')


@pytest.mark.parametrize(
    ("entries", "inside", "drawn"), [(6, 2, 3), (5, 1, 5), (4, 0, 2), (4, 3, 2), (3, 1, 9), (0, 0, 2)]
)
def test_chance_counts_draws(entries, inside, drawn):
    draws = list(itertools.combinations(range(entries), min(drawn, entries)))
    share = sum(any(one < inside for one in draw) for draw in draws) / len(draws)
    assert by_chance(entries, inside, drawn) == pytest.approx(share)

"""Questions are read as they are meant, or refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget import Question, StatisticName
from sfumato.budget.query.condition import Both, Condition, Either, Not, Predicate


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("count", Question(StatisticName.COUNT)),
        ("  COUNT  By sex , income", Question(StatisticName.COUNT, groups=("sex", "income"))),
        ("sum of capital-gain", Question(StatisticName.SUM, "capital-gain")),
        ("total income", Question(StatisticName.SUM, "income")),
        ("mean age by sex", Question(StatisticName.MEAN, "age", ("sex",))),
        ("average of age", Question(StatisticName.MEAN, "age")),
        ("median of age", Question(StatisticName.QUANTILE, "age")),
        ("quantile .9 of age by sex", Question(StatisticName.QUANTILE, "age", ("sex",), share=0.9)),
        ("histogram of age", Question(StatisticName.HISTOGRAM, "age", bins=10)),
        ("histogram age in 5 bins by sex", Question(StatisticName.HISTOGRAM, "age", ("sex",), bins=5)),
        ("histogram age in 1 bin", Question(StatisticName.HISTOGRAM, "age", bins=1)),
        ("mean of 'hours per week' by \"a, b\"", Question(StatisticName.MEAN, "hours per week", ("a, b",))),
        ('mean of "by" by "of"', Question(StatisticName.MEAN, "by", ("of",))),
        ('count by "say ""no"""', Question(StatisticName.COUNT, groups=('say "no"',))),
        ("mean of count by sum", Question(StatisticName.MEAN, "count", ("sum",))),
        ("variance age", Question(StatisticName.VARIANCE, "age")),
        ("minimum of age", Question(StatisticName.MIN, "age")),
        ("max of age by sex", Question(StatisticName.MAX, "age", ("sex",))),
        ("count where age>=40", Question(StatisticName.COUNT, where=Predicate("age", ">=", ("40",)))),
        (
            "count where age >= 40 and sex = 'f' by income",
            Question(
                StatisticName.COUNT,
                groups=("income",),
                where=Both((Predicate("age", ">=", ("40",)), Predicate("sex", "=", ("f",)))),
            ),
        ),
        (
            "mean of age by sex where a = 1 or b <> 'it''s' and not (c in (1, z) or d is not missing)",
            Question(
                StatisticName.MEAN,
                "age",
                ("sex",),
                where=Either(
                    (
                        Predicate("a", "=", ("1",)),
                        Both(
                            (
                                Predicate("b", "!=", ("it's",)),
                                Not(Either((Predicate("c", "in", ("1", "z")), Predicate("d", "not missing")))),
                            )
                        ),
                    )
                ),
            ),
        ),
        ("count where not not a not in ('b')", Question(StatisticName.COUNT, where=Predicate("a", "not in", ("b",)))),
        ("count where \"and\" == 'or'", Question(StatisticName.COUNT, where=Predicate("and", "=", ("or",)))),
    ],
)
def test_a_question_is_read_as_it_is_meant(text: str, question: Question) -> None:
    assert Question.parse(text) == question


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the question is empty"),
        ("   ", "the question is empty"),
        ("cout by sex", "must begin with a statistic, got 'cout' .did you mean 'count'"),
        ("varianz of age", "must begin with a statistic, got 'varianz' .did you mean 'variance'"),
        ("'count'", "must begin with a statistic, got 'count'"),
        ("mean", "needs a column after 'mean'"),
        ("mean of", "needs a column after 'mean'"),
        ("mean of by sex", "needs a column after 'mean'"),
        ("count by", "needs a column after 'by'"),
        ("count by sex,", "needs a column after ','"),
        ("count by ,sex", "needs a column after 'by'"),
        ("count by sex income", "should end before 'income'"),
        ("count of age", "should end before 'of' .a count has no column"),
        ("count where", "needs a column after 'where'"),
        ("count where and age = 1", "needs a column after 'where'"),
        ("count where age", "the condition ends after 'age'"),
        ("count where age ! 4", "the condition has '!', which is not an operator"),
        ("count where age 4", "the condition needs =, !=, .* after 'age', got '4'"),
        ("count where age '=' 4", "the condition needs =, !=, .* after 'age', got '='"),
        ("count where age not = 4", "the condition needs =, !=, .* after 'age', got '='"),
        ("count where age =", "the condition needs a value after '=', got none"),
        ("count where income = >50K", "the condition needs a value after '=', got '>' .put texts in quotes"),
        ("count where sex = and age = 1", "the condition needs a value after '=', got 'and'"),
        ("count where (age = 4", "unmatched parenthesis"),
        ("count where age = 4)", "should end before '.'"),
        ("count where age = 4 sex = 'f'", "should end before 'sex' .conditions are joined by 'and' or 'or'"),
        ("count where age in 4", "'age in' needs a list in parentheses"),
        ("count where age in (4", "the list after 'age in' is not closed"),
        ("count where age is 4", "lacks 'missing' after 'age is'"),
        ("count where age < old", "needs a number or a date such as 2020-12-31 after '<'"),
        ("count where age < '1_000'", "needs a number or a date"),
        ("count where age = 1 by sex where age = 2", "should end before 'where'"),
        ("count where " + "(" * 99 + "age = 1", "more than 50 nested parentheses"),
        ("count where age = 'f", "unmatched quotation mark"),
        ("count by sex by age", "should end before 'by'"),
        ("count by sex, sex", "groups by 'sex' twice"),
        ("quantile of age", "a quantile needs a number between 0 and 1, got 'of'"),
        ("quantile 1.5 of age", "a quantile needs a number between 0 and 1, got '1.5'"),
        ("quantile nan of age", "a quantile needs a number between 0 and 1, got 'nan'"),
        ("histogram of age in 0 bins", "1 to 10,000 bins, got '0'"),
        ("histogram of age in ten bins", "1 to 10,000 bins, got 'ten'"),
        ("histogram of age in 99999999999 bins", "1 to 10,000 bins"),
        ("count by 'sex", "unmatched quotation mark"),
        ("mean of age; drop table people", "should end before 'drop'"),
        ("__import__('os')", "must begin with a statistic"),
    ],
)
def test_a_question_that_cannot_be_read_gets_one_sentence(text: str, message: str) -> None:
    with pytest.raises(sf.errors.OptionError, match=message):
        Question.parse(text)


def test_a_question_is_a_text() -> None:
    with pytest.raises(sf.errors.OptionError, match="a question must be a text"):
        Question.parse(7)  # type: ignore[arg-type]


_NAMES = st.text(min_size=1, max_size=8)
_ORDERED = st.one_of(st.floats(allow_nan=False, allow_infinity=False).map(str), st.dates().map(str))
_COMPARED: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Predicate, _NAMES, st.sampled_from(["=", "!="]), st.tuples(st.text(max_size=5))),
    st.builds(Predicate, _NAMES, st.sampled_from(["<", "<=", ">", ">="]), st.tuples(_ORDERED)),
    st.builds(Predicate, _NAMES, st.sampled_from(["in", "not in"]), st.lists(st.text(max_size=5), min_size=1)),
    st.builds(Predicate, _NAMES, st.sampled_from(["missing", "not missing"])),
)
_CONDITIONS = st.recursive(
    _COMPARED,
    lambda part: st.one_of(
        st.builds(Both, st.lists(part, min_size=2, max_size=3).map(tuple)),
        st.builds(Either, st.lists(part, min_size=2, max_size=3).map(tuple)),
        st.builds(Not, part),
    ),
    max_leaves=6,
)


@given(
    st.sampled_from(list(StatisticName)),
    _NAMES,
    st.lists(_NAMES, unique=True, max_size=3),
    st.sampled_from([0.5, 0.25, 0.9, 0.01]),
    st.integers(1, 10_000),
    st.one_of(st.none(), _CONDITIONS),
)
def test_what_a_question_says_can_be_read_again(
    statistic: StatisticName, column: str, groups: list[str], share: float, bins: int, where: Condition | None
) -> None:
    question = Question(
        statistic,
        column if statistic.needs_column else None,
        tuple(groups),
        share if statistic is StatisticName.QUANTILE else 0.5,
        bins if statistic is StatisticName.HISTOGRAM else 10,
        where,
    )
    assert Question.parse(str(question)) == question


@given(st.one_of(st.text(max_size=40), st.text("ab'\"()=<>! ,1", max_size=25).map("count where ".__add__)))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        question = Question.parse(text)
    except sf.errors.OptionError:
        return
    assert Question.parse(str(question)) == question


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"statistic": "count", "column": "age"}, "a count has no column"),
        ({"statistic": "mean"}, "a mean needs a column"),
        ({"statistic": "quantile", "column": "age", "share": 5.0}, "between 0 and 1, got 5.0"),
        (
            {"statistic": "histogram", "column": "age", "bins": 10**9},
            "bins must be a whole number from 1 to 10,000",
        ),
        ({"statistic": "count", "groups": ["sex", "sex"]}, "groups by 'sex' twice"),
        ({"statistic": "mode", "column": "age"}, "the statistic must be one of"),
    ],
)
def test_a_question_that_was_not_written_is_checked_too(values: dict[str, Any], says: str) -> None:
    with pytest.raises(sf.errors.OptionError, match=says):
        Question(**values)

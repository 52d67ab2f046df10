"""Answers to questions: right within their intervals, private, charged first, and nothing read off the data.

Intervals and privacy are tested by drawing the answers of many equal groups at once. Each check
allows for 5.5 standard deviations: it raises a false alarm with a probability below 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import sfumato as sf
from sfumato.budget import Budget, Quantile, Question, Relation, Source, spent
from sfumato.budget.mechanisms.statistics import Records
from sfumato.budget.query.plan import NumberColumn, Plan, statistic_for

SIGMAS = 5.5
AGES = NumberColumn("age", 0.0, 100.0)
QUESTIONS = ["count", "sum of age", "mean of age", "quantile 0.3 of age"]
PEOPLE = pl.DataFrame(
    {
        "sex": ["f", "m", "f", "m", "f", None, "x"] * 30,
        "age": [30, 41, 30, None, 99, 50, 20] * 30,
        "job": ["nurse"] * 100 + ["baker"] * 109 + ["astronaut"],
    }
)
SCHEMA = sf.Schema([sf.Column(name="sex", domain=["f", "m"]), sf.Column(name="age", bounds=(0, 90))])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))


def ask(question: str, epsilon: float = 1e5, **options: Any) -> Any:
    """Ask with next to no noise."""
    sf.Ledger.grant(PEOPLE, epsilon=1e6, delta=1e-3)
    return sf.query(PEOPLE, question, epsilon=epsilon, schema=SCHEMA, **options)


def values(answer: Any) -> dict[Any, float]:
    return {tuple(str(part) for part in row.group.values()): round(row.value, 1) for row in answer.rows}


# --- what is answered --------------------------------------------------------------------------


def test_with_little_noise_the_answers_are_the_true_ones() -> None:
    assert values(ask("count")) == {(): 210}
    assert values(ask("count by sex")) == {("f",): 90, ("m",): 60, ("None",): 60}
    assert values(ask("sum of age by sex")) == {("f",): 30 * 150, ("m",): 30 * 41, ("None",): 30 * 70}
    assert values(ask("mean of age by sex")) == {("f",): 50, ("m",): 41, ("None",): 35}
    assert values(ask("median of age by sex")) == {("f",): 30, ("m",): 41, ("None",): pytest.approx(35, abs=15)}
    assert values(ask("quantile 0.9 of age")) == {(): 90}
    assert values(ask("histogram of age in 3 bins by sex")) == {
        ("f", "[0.0, 30.0]"): 0, ("f", "[30.0, 60.0]"): 60, ("f", "[60.0, 90.0]"): 30, ("f", "None"): 0,
        ("m", "[0.0, 30.0]"): 0, ("m", "[30.0, 60.0]"): 30, ("m", "[60.0, 90.0]"): 0, ("m", "None"): 30,
        ("None", "[0.0, 30.0]"): 30, ("None", "[30.0, 60.0]"): 30, ("None", "[60.0, 90.0]"): 0, ("None", "None"): 0,
    }  # fmt: skip


def test_every_group_of_the_public_domain_is_answered_whether_anybody_is_in_it_or_not() -> None:
    schema = sf.Schema([sf.Column(name="sex", domain=["f", "m", "nobody"])])
    sf.Ledger.grant(PEOPLE, epsilon=1e6)
    answer = sf.query(PEOPLE, "count by sex", epsilon=1, schema=schema)
    assert [row.group["sex"] for row in answer.rows] == ["f", "m", "nobody", None]


def test_a_value_is_in_the_group_that_reads_alike(tmp_path: Path) -> None:
    people = pl.DataFrame({"zip": [13053, 13053, 14850], "flag": [True, False, True]})
    sf.Ledger.grant(people, epsilon=1e6)
    schema = sf.Schema([sf.Column(name="zip", domain=["13053", 14850])])
    assert values(sf.query(people, "count by zip", epsilon=1e3, schema=schema)) == {
        ("13053",): 2,
        ("14850",): 1,
        ("None",): 0,
    }


def test_groups_are_discovered_only_if_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    # The only astronaut is named with a probability of delta, and each of the 13 small groups with one below 2 delta.
    answer = ask("count by job", epsilon=4, delta=1e-9, discover=True)
    assert [row.group for row in answer.rows] == [{"job": "baker"}, {"job": "nurse"}]
    assert answer.delta == 1e-9
    assert len(ask("mean of age by job", epsilon=4, delta=1e-9, discover=True).rows) == 2
    assert ask("count by age, job, sex", epsilon=0.01, delta=1e-9, discover=True).rows == ()


def test_the_answer_does_not_depend_on_where_the_rows_are(tmp_path: Path) -> None:
    for name in ("people.csv", "people.parquet"):
        sf.write(PEOPLE, tmp_path / name)
        sf.Ledger.grant(tmp_path / name, epsilon=1e6)
        answer = sf.query(tmp_path / name, "mean of age by sex", epsilon=1e3, schema=SCHEMA)
        assert values(answer) == {("f",): 50, ("m",): 41, ("None",): 35}
    import duckdb

    sf.Ledger.grant(PEOPLE, epsilon=1e6)
    answer = sf.query(duckdb.from_arrow(PEOPLE.to_arrow()), "mean of age by sex", epsilon=1e3, schema=SCHEMA)
    assert values(answer) == {("f",): 50, ("m",): 41, ("None",): 35}
    assert answer.spent.epsilon == 3000, "all are one data set"


def test_an_empty_column_of_numbers_has_an_answer() -> None:
    people = pl.DataFrame({"age": pl.Series([None, None], dtype=pl.Int64)})
    sf.Ledger.grant(people, epsilon=1e6)
    for question in ("sum of age", "mean of age", "median of age"):
        (row,) = sf.query(people, question, epsilon=1, schema=sf.Schema([SCHEMA["age"]])).rows
        assert row.interval[0] <= row.value <= row.interval[1]


@pytest.mark.parametrize(
    ("question", "true"),
    [
        ("count by sex", {("f",): 90, ("m",): 60, ("None",): 60}),
        ("mean of age by sex", {("f",): 50, ("m",): 41, ("None",): 35}),
        ("quantile 0.9 of age", {(): 90}),
    ],
)
def test_every_kind_of_frame_is_asked_alike(
    as_frame: Callable[[pl.DataFrame], Any], question: str, true: dict[Any, float]
) -> None:
    frame = as_frame(PEOPLE)
    sf.Ledger.grant(PEOPLE, epsilon=1e6, delta=1e-3)
    assert values(sf.query(frame, question, epsilon=1e3, schema=SCHEMA)) == true
    found = sf.query(frame, "count by job", epsilon=1e3, delta=1e-6, discover=True)
    assert values(found) == {("baker",): 109, ("nurse",): 100}
    assert found.spent.epsilon <= 2000 * (1 + 1e-12), "it is one data set"


@pytest.mark.parametrize("where", ["sqlite", "postgresql"])
def test_a_database_is_asked_where_it_is(where: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    from sfumato.data.io.database import Database
    from tests.postgres import store

    url = f"sqlite:///{tmp_path / 'people.db'}"
    if where == "postgresql":
        url = request.getfixturevalue("postgres_server").fresh_database()
    else:
        (tmp_path / "people.db").touch()
    store(url, "people", PEOPLE)
    table = sf.Table(Database(url, "people"))
    sf.Ledger.grant(PEOPLE, epsilon=1e6)
    assert values(sf.query(table, "mean of age by sex", epsilon=1e3, schema=SCHEMA)) == {
        ("f",): 50,
        ("m",): 41,
        ("None",): 35,
    }


# --- where a condition holds ---------------------------------------------------------------------


MIXED = pl.DataFrame(
    {
        "age": ["30", "41.5", "unknown", None, "9", "100"],
        "born": ["1990-05-01", "1980-01-31", "", None, "2015-12-31", "1920-02-29"],
        "sex": ["f", "m", "f", "x", None, "m"],
    }
)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("age >= 40", [1, 5]),
        ("age < 41.5", [0, 4]),
        ("age != 30", [1, 2, 4, 5]),
        ("age = 30.0", [0]),
        ("not age = 30", [1, 2, 3, 4, 5]),
        ("age is missing", [3]),
        ("age is not missing and sex is missing", [4]),
        ("age in (9, '100', nobody)", [4, 5]),
        ("age not in (9, 100)", [0, 1, 2]),
        ("born < '1990-05-01'", [1, 5]),
        ("born >= 1990-05-01 or sex = x", [0, 3, 4]),
        ("sex = 'f' and (age > 5 or age = 'unknown')", [0, 2]),
        ("sex = 'f' or sex = 'm' and age < 50", [0, 1, 2]),
        ("age > 1000", []),
    ],
)
def test_a_condition_holds_for_each_row_by_itself(condition: str, rows: list[int], tmp_path: Path) -> None:
    """The same in a frame, and in a text file whose types all cells decide on together."""
    MIXED.write_csv(tmp_path / "mixed.csv")
    for data in (MIXED, tmp_path / "mixed.csv"):
        sf.Ledger.grant(data, epsilon=1e6)
        (row,) = sf.query(data, f"count where {condition}", epsilon=1e3).rows
        assert row.value == len(rows)
    for at in range(len(MIXED)):  # and it is those rows
        sf.Ledger.grant(MIXED[at : at + 1], epsilon=1e6)
        (row,) = sf.query(MIXED[at : at + 1], f"count where {condition}", epsilon=1e3).rows
        assert row.value == (at in rows)


def test_conditions_apply_to_every_statistic_and_leave_all_groups_in_the_answer() -> None:
    assert values(ask("count where age >= 41 by sex")) == {("f",): 30, ("m",): 30, ("None",): 30}
    assert values(ask("sum of age where sex = 'f'")) == {(): 30 * 150}
    assert values(ask("mean of age where age < 45 and sex is not missing")) == {(): pytest.approx(30.25, abs=0.06)}
    assert values(ask("variance of age where sex = 'f'")) == {(): 800}
    maxima = values(ask("max of age where sex != 'f' by sex"))  # which leaves out those without a sex, too
    assert maxima == {("f",): 0, ("m",): 41, ("None",): 20}
    assert values(ask("count where sex = 'nobody' by sex")) == {("f",): 0, ("m",): 0, ("None",): 0}
    found = ask("count by job where age > 0", epsilon=40, delta=1e-9, discover=True)
    assert {row.group["job"] for row in found.rows} == {"baker", "nurse"}


def test_a_condition_is_asked_alike_wherever_the_rows_are(
    as_frame: Callable[[pl.DataFrame], Any],
) -> None:
    frame = as_frame(PEOPLE)
    sf.Ledger.grant(PEOPLE, epsilon=1e6, delta=1e-3)
    found = sf.query(frame, "count where age >= 41 and not job = 'baker' by sex", epsilon=1e3, schema=SCHEMA)
    true = PEOPLE.filter((pl.col("age") >= 41) & (pl.col("job") != "baker"))
    counts = {sex: len(true.filter(pl.col("sex") == sex)) for sex in ("f", "m")}
    assert values(found) == {("f",): counts["f"], ("m",): counts["m"], ("None",): len(true) - sum(counts.values())}


def test_a_condition_is_no_sql(tmp_path: Path) -> None:
    from sfumato.data.io.database import Database
    from tests.postgres import store

    url = f"sqlite:///{tmp_path / 'people.db'}"
    (tmp_path / "people.db").touch()
    store(url, "people", PEOPLE)
    sf.Ledger.grant(PEOPLE, epsilon=1e6)
    table = sf.Table(Database(url, "people"))
    evil = "'; drop table people; --"
    for _ in range(2):
        (row,) = sf.query(table, f'count where job != "{evil}" and age > 30', epsilon=1e3).rows
        assert row.value == len(PEOPLE.filter(pl.col("age") > 30))


# --- what would it cost? -------------------------------------------------------------------------


@pytest.mark.parametrize("question", ["count by sex", "sum of age", "mean of age", "min of age where sex = 'f'"])
def test_a_preview_says_what_is_charged_and_charges_nothing(question: str) -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=2)
    told = sf.preview(PEOPLE, question, epsilon=0.3, schema=SCHEMA, ledger=ledger.path)
    assert ledger.spent == Budget(0.0)
    assert (told.left, told.fits) == (2.0, True)
    answer = sf.query(PEOPLE, question, epsilon=0.3, schema=SCHEMA)
    assert told.event == answer.event
    assert told.groups == len(answer.rows)
    if told.width is not None:
        low, high = answer.rows[0].interval
        assert high - low <= told.width * (1 + 1e-6)
    assert sf.preview(PEOPLE, question, epsilon=1.9, schema=SCHEMA, ledger=ledger.path).fits is False


def test_a_preview_needs_no_row_and_no_budget(tmp_path: Path) -> None:
    plain = []
    for name, rows in (("none.csv", ""), ("some.csv", "f,30\n" * 40)):
        (tmp_path / name).write_text("sex,age\n" + rows)
        for question in ("count by sex", "mean of age", "quantile 0.9 of age by sex", "histogram of age in 3 bins"):
            plain.append(sf.preview(tmp_path / name, question, epsilon=1, schema=SCHEMA).to_dict())
    half = len(plain) // 2
    assert plain[:half] == plain[half:]
    assert plain[0]["width"] == 2 * 3  # P(|noise| <= 3) = 1 - 2 e^-4 / (1 + e^-1) = 0.973, and 2 is not enough
    assert plain[3]["groups"] == 4
    widths = [float(one) for one in plain[1]["widths"].values()]
    assert widths == sorted(widths, reverse=True)
    with pytest.raises(sf.errors.SchemaError, match="no public bounds"):
        sf.preview(tmp_path / "some.csv", "mean of age", epsilon=1)


# --- what one record can change ------------------------------------------------------------------


@pytest.mark.parametrize("record", ["x", "30.00", "030", "2024-01-01", "", " 30 ", "nan"])
@pytest.mark.parametrize(
    ("question", "options"),
    [
        ("count by age", {}),
        ("count by age", {"discover": True, "delta": 1e-9}),
        ("sum of age", {}),
        ("histogram of age in 3 bins", {}),
    ],
    ids=str,
)
def test_one_record_of_a_text_file_does_not_change_how_the_others_read(
    question: str, options: dict[str, Any], record: str, tmp_path: Path
) -> None:
    """All values of a column decide together whether they are numbers: the answers must not tell."""
    answers = []
    for name, more in (("without.csv", ""), ("with.csv", f'"{record}",f\n')):
        (tmp_path / name).write_text("age,sex\n" + "30.0,f\n41.5,m\n" * 50 + more)
        sf.Ledger.grant(tmp_path / name, epsilon=1e6, delta=1e-4)
        schema = sf.Schema([sf.Column(name="age", domain=["30", 41.5], bounds=(0, 90))])
        answers.append(sf.query(tmp_path / name, question, epsilon=1e4, schema=schema, **options))
    one, two = map(values, answers)
    assert set(one) == set(two)
    assert sum(abs(one[group] - two[group]) for group in one) <= (90 if question.startswith("sum") else 1) + 0.1


def test_values_of_a_domain_that_read_alike_are_refused() -> None:
    sf.Ledger.grant(PEOPLE, epsilon=10)
    for asked in (sf.query, lambda *given, **more: sf.perturb(given[0], ["sex"], **more)):
        with pytest.raises(sf.errors.SchemaError, match="lists the same value twice"):
            asked(PEOPLE, "count by sex", epsilon=1, schema=sf.Schema([sf.Column(name="sex", domain=["1", "1.0"])]))


# --- what it costs -----------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    "question",
    [
        "count by sex",
        "sum of age by sex",
        "mean of age",
        "median of age by sex",
        "histogram of age",
        "variance of age where job = 'nurse' by sex",
        "min of age by sex",
        "max of age where sex = 'f' or age > 30",
    ],
)
def test_an_answer_costs_its_epsilon_and_is_noted(question: str, relation: str) -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=10, relation=relation)
    answer = sf.query(PEOPLE, question, epsilon=0.3, schema=SCHEMA, note="for the board")
    assert ledger.spent == answer.spent == Budget(pytest.approx(0.3, rel=1e-9))
    assert ledger.spent.epsilon <= 0.3 * (1 + 1e-12)
    assert answer.left == pytest.approx(9.7)
    assert ledger.events == (answer.event,)
    assert spent(answer.event, 0).epsilon == ledger.spent.epsilon
    assert answer.relation == answer.event.relation == relation
    assert ledger.history()[-1]["note"].startswith(str(Question.parse(question)))
    assert ledger.history()[-1]["note"].endswith("(for the board)")


def test_discovering_groups_costs_epsilon_and_delta() -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=10, delta=1e-5)
    sf.query(PEOPLE, "count by job", epsilon=0.5, delta=9e-6, discover=True)
    assert ledger.spent.epsilon <= 0.5
    with pytest.raises(sf.errors.BudgetError):
        sf.query(PEOPLE, "count by job", epsilon=0.5, delta=9e-6, discover=True)


def test_what_does_not_fit_is_refused_and_not_answered() -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=1)
    sf.query(PEOPLE, "count by sex", epsilon=0.75, schema=SCHEMA)
    with pytest.raises(sf.errors.BudgetError, match=r"epsilon 0\.25 is left"):
        sf.query(PEOPLE, "count by sex", epsilon=0.5, schema=SCHEMA)
    assert len(ledger.events) == 1


def test_without_a_budget_nothing_is_answered() -> None:
    with pytest.raises(sf.errors.BudgetError, match="no budget was granted"):
        sf.query(PEOPLE, "count by sex", epsilon=0.75, schema=SCHEMA)


@pytest.mark.parametrize(
    ("question", "options", "message"),
    [
        ("count by job", {}, "'job' has no public domain"),
        ("count by age", {}, "'age' has no public domain"),
        ("mean of job", {}, "'job' does not hold numbers"),
        ("median of sex", {}, "'sex' does not hold numbers"),
        ("count by jobs", {}, "there is no column 'jobs' .did you mean 'job'"),
        ("count", {"epsilon": 0}, "epsilon must be a finite number above 0"),
        ("count", {"epsilon": -1}, "epsilon must be a finite number above 0"),
        ("count", {"epsilon": math.inf}, "epsilon must be a finite number above 0"),
        ("count", {"epsilon": 1e-12}, "epsilon must be at least 1e-09"),
        ("count", {"confidence": 1}, "the confidence must be"),
        ("count", {"delta": 1e-6}, "delta is only for discovering groups"),
        ("mean of age", {"schema": sf.Schema([sf.Column(name="age", bounds=(-1e308, 1e308))])}, "within 2.5e.199"),
        ("median of age", {"schema": sf.Schema([sf.Column(name="age", bounds=(0, 1e300))])}, "within 2.5e.199"),
        ("count", {"schema": sf.Schema([sf.Column(name="agee")])}, "there is no column 'agee'"),
        ("count", {"discover": True, "delta": 1e-6}, "only be discovered for a question with 'by'"),
        ("count by job", {"discover": True}, "discovering groups needs a delta"),
        ("count where jobs = 'nurse'", {}, "there is no column 'jobs' .did you mean 'job'"),
        ("count by job", {"discover": True, "delta": 1.0}, "delta must be"),
        ("histogram of age by age", {"discover": True, "delta": 1e-6}, "a histogram of 'age' by itself"),
    ],
)
def test_what_cannot_be_answered_is_refused_before_it_is_charged(
    question: str, options: dict[str, Any], message: str
) -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=10)
    with pytest.raises(sf.SfumatoError, match=message):
        sf.query(PEOPLE, question, **{"schema": SCHEMA, "epsilon": 1.0, **options})
    assert ledger.spent == Budget(0.0)


def test_a_column_of_texts_has_no_mean_and_is_not_charged() -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=10)
    with pytest.raises(sf.errors.ColumnError, match="does not hold numbers"):
        sf.query(PEOPLE, "mean of job", epsilon=1, schema=sf.Schema([sf.Column(name="job", bounds=(0, 1))]))
    assert ledger.spent == Budget(0.0)


LAB = "icd10,creatinine,visits\n" + "E11.9,0.83,1\nI10,1.34,2\n,,\nJ45,0.91,n/a\n" * 60


@pytest.mark.parametrize("question", ["sum of icd10", "mean of icd10", "median of icd10", "histogram of icd10"])
def test_a_column_that_nothing_declares_as_numbers_is_refused_and_not_charged(question: str, tmp_path: Path) -> None:
    """In a text file its cells may not decide on that; elsewhere its type does, and a schema everywhere."""
    lab = tmp_path / "lab.csv"
    lab.write_text(LAB)
    texts = pl.read_csv(lab).with_columns(icd10=pl.lit(None, dtype=pl.String))  # its type decides, and not its values
    bounded = sf.Schema([sf.Column(name="icd10", bounds=(0, 100))])
    category = sf.Schema([sf.Column(name="icd10", kind="category")])
    for data, schema, message in (
        (lab, None, "'icd10' has no public bounds, which declare that it holds numbers"),
        (lab, category, "'icd10' does not hold numbers: its kind is 'category'"),
        (texts, bounded, "'icd10' does not hold numbers: its type is String"),
        (texts, category, "'icd10' does not hold numbers: its type is String"),
    ):
        ledger = sf.Ledger.grant(data, epsilon=10)
        with pytest.raises(sf.SfumatoError, match=message):
            sf.query(data, question, epsilon=1, schema=schema)
        assert ledger.spent == Budget(0.0)


def test_whether_a_text_file_holds_numbers_is_not_told_by_its_cells(tmp_path: Path) -> None:
    """The same refusal, whatever one record says."""
    told = set()
    for number, more in enumerate(("", "E11.9,0.83,3\n", "7,0.83,three\n")):
        lab = tmp_path / f"lab{number}.csv"
        lab.write_text("icd10,creatinine,visits\n" + "1,0.5,2\n" * 5 + more)
        sf.Ledger.grant(lab, epsilon=10)
        for column in ("icd10", "visits"):
            with pytest.raises(sf.errors.SchemaError) as refused:
                sf.query(lab, f"mean of {column}", epsilon=1)
            told.add(str(refused.value).replace(column, "it"))
    assert len(told) == 1


def test_a_quantile_of_decimals_between_whole_bounds_is_a_decimal(tmp_path: Path) -> None:
    lab, schema = tmp_path / "lab.csv", sf.Schema([sf.Column(name="creatinine", bounds=(0, 5))])
    lab.write_text(LAB)
    for data in (lab, pl.read_csv(lab)):
        sf.Ledger.grant(data, epsilon=1e6)
        (row,) = sf.query(data, "quantile 0.9 of creatinine", epsilon=1e3, schema=schema).rows
        assert row.value == pytest.approx(1.34, abs=1e-12)
        assert row.interval == (pytest.approx(1.34, abs=1e-12), pytest.approx(1.34, abs=1e-12))


def test_only_a_declared_type_makes_the_candidates_of_a_quantile_whole(tmp_path: Path) -> None:
    """Whether the values happen to be whole is private, as is the type that pandas or a text file finds for them."""
    path, frame = tmp_path / "ages.csv", pl.DataFrame({"age": [30, 41, 30, 99] * 50})
    frame.write_csv(path)
    age = sf.Column(name="age", bounds=(0, 90))
    whole = {}
    for name, data in (("polars", frame), ("csv", path), ("pandas", frame.to_pandas()), ("arrow", frame.to_arrow())):
        terms = {"epsilon": 1.0, "delta": 0.0, "discover": False, "confidence": 0.95}
        plan = Plan.of(sf.Table.of(data), "median of age", schema=sf.Schema([age]), **terms)
        asked = plan.statistic(Relation.ADD_REMOVE)
        assert isinstance(asked, Quantile)
        whole[name] = bool((asked.grid == asked.grid.round()).all())
        assert 30.0 in asked.grid
    assert whole == {"polars": True, "csv": False, "pandas": False, "arrow": True}


def test_too_many_groups_are_refused() -> None:
    people = pl.DataFrame({"a": [1], "b": [1]})
    sf.Ledger.grant(people, epsilon=10)
    schema = sf.Schema([sf.Column(name=name, domain=range(2000)) for name in "ab"])
    with pytest.raises(sf.errors.OptionError, match="more than 1,000,000 groups"):
        sf.query(people, "count by a, b", epsilon=1, schema=schema)


def test_an_order_that_the_data_breaks_gives_nothing_away() -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=1e6)
    schema = sf.Schema([sf.Column(name="sex", kind="ordinal", domain=["m", "f"])])
    assert values(sf.query(PEOPLE, "count by sex", epsilon=1e3, schema=schema)) == {
        ("m",): 60,
        ("f",): 90,
        ("None",): 60,
    }
    assert ledger.spent.epsilon == 1e3


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_discovering_groups_costs_what_is_said_under_either_relation(relation: str) -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=10, delta=1e-5, relation=relation)
    answer = sf.query(PEOPLE, "count by job", epsilon=1, delta=1e-6, discover=True)
    assert spent(answer.event, 1e-6).epsilon <= 1 + 1e-9
    assert ledger.events == (answer.event,)


def test_a_given_seed_makes_an_answer_reproducible_and_not_private() -> None:
    sf.Ledger.grant(PEOPLE, epsilon=10)
    one, same, other = (
        sf.query(PEOPLE, "mean of age by sex", epsilon=1, schema=SCHEMA, insecure_seed=seed) for seed in (1, 1, 2)
    )
    assert one.rows == same.rows != other.rows
    assert one.to_dict()["private"] is False
    assert sf.query(PEOPLE, "count", epsilon=1).private
    assert one.spent == Budget(1.0)


# --- how it is drawn ---------------------------------------------------------------------------


def many(ages: list[float], groups: int) -> Records:
    """The same people, again and again, each time in a group of their own."""
    return Records(
        np.repeat(np.arange(groups), len(ages)),
        np.tile(np.array(ages, dtype=float), groups),
        np.ones(groups * len(ages), dtype=np.int64),
        groups,
    )


PEOPLE_OF = {
    "none": [],
    "one": [70.0],
    "few": [0.0, 10, 10, 35, 99.5, 100, math.nan],
    "many": [float(age) for age in np.random.default_rng(8).integers(0, 101, 200)],
}


@pytest.mark.parametrize("ages", PEOPLE_OF.values(), ids=PEOPLE_OF)
@pytest.mark.parametrize("bounded", [AGES, NumberColumn("age", 0.0, 100.5)], ids=["whole", "cells"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_intervals_hold_as_often_as_they_say(question: str, bounded: NumberColumn, ages: list[float]) -> None:
    asked = Question.parse(question)
    groups = 300 if "quantile" in question else 1000  # tests/contracts/test_statistics.py has the exact coverage
    found = statistic_for(asked, bounded, 1.0, 0.8).each(many(ages, groups), Source())
    known = np.array([age for age in ages if age == age])
    if question == "count":
        right = (found.low <= len(ages)) & (len(ages) <= found.high)
    elif question == "sum of age":
        right = (found.low <= known.sum()) & (known.sum() <= found.high)
    elif not len(known):
        return  # nothing has no mean
    elif question == "mean of age":
        right = (found.low <= known.mean()) & (known.mean() <= found.high)
    else:  # some 0.3-quantile is inside: not too many lie below the lower end, nor too few up to the upper one
        rank, slack = 0.3 * len(known), 1e-9
        below = (known[None, :] < found.low[:, None]).sum(axis=1)
        upto = (known[None, :] <= found.high[:, None]).sum(axis=1)
        right = (below <= rank + slack) & (upto >= rank - slack)
    assert (found.low <= found.high).all()
    assert right.mean() >= 0.8 - SIGMAS * math.sqrt(0.8 * 0.2 / groups)


@pytest.mark.parametrize("question", ["count", "sum of age"])
def test_counts_and_sums_have_no_bias_and_the_variance_of_their_noise(question: str) -> None:
    groups, epsilon = 40_000, 0.5
    found = statistic_for(Question.parse(question), AGES, epsilon).each(many([20, 80], groups), Source())
    scale = {"count": 1, "sum of age": 100}[question] / epsilon
    true = {"count": 2, "sum of age": 100}[question]
    ratio = math.exp(-1 / scale)
    variance = 2 * ratio / (1 - ratio) ** 2 if question == "count" else 2 * scale**2
    assert abs(found.value.mean() - true) < SIGMAS * math.sqrt(variance / groups)
    # The fourth moment of Laplace noise is 24 scale^4: the variance of its square is 20 scale^4.
    assert abs(found.value.var() - variance) < SIGMAS * math.sqrt(24 / groups) * scale**2


@pytest.mark.parametrize(
    ("question", "ages", "without", "part", "claimed"),
    [
        ("count", [50.0] * 5, [50.0] * 4, "value", 1.0),
        ("sum of age", [100.0, 100.0], [100.0], "value", 1.0),
        ("sum of age", [100.0, 7.0], [7.0], "value", 1.0),
        ("mean of age", [100.0, 60, 60], [60.0, 60], "value", 1.0),
        ("quantile 0.5 of age", [0.0, 0, 3, 3, 3], [0.0, 0, 3, 3], "value", 0.5),
        ("quantile 0.5 of age", [0.0, 0, 3, 3, 3], [0.0, 0, 3, 3], "low", 0.25),
        ("min of age", [0.0] * 12 + [2.0] * 20, [0.0] * 11 + [2.0] * 20, "value", 1.0),
        ("max of age", [0.0] * 20 + [3.0] * 12, [0.0] * 20 + [3.0] * 11, "value", 1.0),
    ],
)
def test_one_record_more_makes_no_answer_more_likely_than_claimed(
    question: str, ages: list[float], without: list[float], part: str, claimed: float
) -> None:
    chosen = question.startswith(("quantile", "min", "max"))
    groups = 4000 if chosen else 20_000
    bounded = NumberColumn("age", 0.0, 3.0, whole=True) if chosen else AGES
    how = statistic_for(Question.parse(question), bounded, 1.0)
    drawn = [getattr(how.each(many(people, groups), Source()), part) for people in (ages, without)]
    largest = 0.0
    for threshold in np.unique(np.quantile(np.concatenate(drawn), np.linspace(0.05, 0.95, 19))):
        for side in (np.greater_equal, np.less):
            p, q = (side(one, threshold).mean() for one in drawn)
            for most, least in ((p, q), (q, p)):
                # What the larger probability is at least, and the smaller at most.
                low = most - SIGMAS * math.sqrt(most * (1 - most) / groups + 1e-9)
                high = least + SIGMAS * math.sqrt(least * (1 - least) / groups + 1e-9)
                largest = max(largest, math.log(low / high) if low > 0 else 0.0)
    assert largest <= claimed
    if question in ("count", "sum of age") and len(set(ages)) == 1:
        assert largest > claimed / 1.5, "the test would catch noise that is too small by a factor of 1.5"


@pytest.mark.parametrize("odd", ["a text", 2.5, b"bytes", [1, 2], True, np.datetime64("2020-01-01")], ids=str)
def test_one_value_of_another_type_makes_no_question_fail(odd: Any) -> None:
    """Otherwise the error alone would tell whether that record is there."""
    cells = [30, 40, None] * 30
    schema = sf.Schema([sf.Column(name="age", domain=[30, 40]), sf.Column(name="n", bounds=(0, 1))])
    for more in ([], [odd]):
        frame = pd.DataFrame({"age": pd.Series([*cells, *more], dtype=object), "n": 1})
        sf.Ledger.grant(frame, epsilon=1e6).close()
        counts = values(sf.query(frame, "count by age", epsilon=1e3, schema=schema))
        assert counts == {("30",): 30, ("40",): 30, ("None",): 30 + len(more)}
        (row,) = sf.query(frame, "sum of n", epsilon=1e3, schema=schema).rows
        assert row.value == pytest.approx(90 + len(more), abs=0.1)

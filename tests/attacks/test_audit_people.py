"""Audits of claims about people: canaries are people with all of their rows, and noise for rows is not enough."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.attacks import Records, audit_function, audit_sums, replay
from sfumato.attacks.auditing.canaries import new_people, planted
from sfumato.budget import DifferentialPrivacy, Relation, Source
from sfumato.errors import InputError, OptionError
from sfumato.learners.estimators.noisy_sums import NoisySums, Share

VISITS = pl.DataFrame({"patient": [1, 1, 2, 2, 3], "age": [30.0, 31.0, 40.0, 41.0, 50.0], "ward": list("ABAAB")})
NEWCOMER = pl.DataFrame({"patient": [-1], "age": [30.0], "ward": ["A"]})
SCHEMA = sf.Schema([sf.Column(name="ward", domain=["A", "B"]), sf.Column(name="age", bounds=(0, 100))])
FOR_PEOPLE = DifferentialPrivacy(1.0, unit="person")
ROWS = 3
Ask = Callable[..., Any]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Return a function that asks a table for the number of visits by ward, from a new ledger."""
    number = itertools.count()

    def asking(frame: pl.DataFrame, **people: Any) -> list[float]:
        unit = "person" if people else "row"
        ledger = sf.Ledger.grant(frame, epsilon=1, path=tmp_path / f"{next(number)}.ledger", unit=unit)
        answer = sf.query(frame, "count by ward", epsilon=1, schema=SCHEMA, ledger=ledger, **people)
        return [row.value for row in answer.rows]

    return asking


def sums(rows: int | None = None, seed: int = 1) -> NoisySums:
    shares = {"counts": Share(1, 0.2), "gradients": Share(10, 0.8)}
    return NoisySums(shares, 2.0, Source(insecure_seed=seed), rows_per_person=rows)


# --- noisy sums ----------------------------------------------------------------------------------


def test_sums_for_people_pass_with_canaries_of_as_many_rows_as_they_allow() -> None:
    result = audit_sums(sums(ROWS))
    assert result.passed, result.verdict
    assert (result.rows, result.claimed.unit) == (ROWS, "person")
    assert "a person moves a sum by at most its sensitivity" in [check.claim for check in result.checks]
    assert result.to_dict()["rows_per_canary"] == ROWS
    assert result.to_dict()["unit"] == "person"


@pytest.mark.parametrize("made_for", [None, 1])
def test_noise_without_the_factor_fails_for_people_with_more_rows(made_for: int | None) -> None:
    result = audit_sums(sums(made_for), rows_per_person=ROWS)
    assert not result.passed
    held = {check.claim: check.held for check in result.checks}
    assert held["a person moves a sum by at most its sensitivity"] is False
    assert held["the noise is as large as declared"] is True
    assert result.epsilon > result.claimed.epsilon, "the guesses alone refute the claim too"


def test_with_one_row_an_audit_of_people_is_that_of_rows() -> None:
    by_row, by_person = audit_sums(sums()).to_dict(), audit_sums(sums(1)).to_dict()
    assert (by_row.pop("unit"), by_person.pop("unit")) == ("row", "person")
    assert (by_row["claimed"].pop("unit"), by_person["claimed"].pop("unit")) == ("row", "person")
    texts = [str(one).replace("a person moves", "a record moves") for one in (by_row, by_person)]
    assert texts[0] == texts[1]


# --- functions -----------------------------------------------------------------------------------


def test_a_query_for_people_passes_and_one_for_rows_fails_a_claim_about_people(ask: Ask) -> None:
    """Which of the runs have the canary is seeded; an honest query fails with a probability of at most 1e-6."""
    options: dict[str, Any] = {"person": "patient", "rows_per_person": ROWS, "runs": 200, "confidence": 1 - 1e-6}
    kept = audit_function(
        lambda one: ask(one, person="patient", rows_per_person=ROWS), VISITS, NEWCOMER, FOR_PEOPLE, **options
    )
    assert kept.passed, kept.verdict
    assert (kept.rows, kept.canaries) == (ROWS, 1)
    noise = Source(insecure_seed=3)
    by_row = audit_function(
        lambda one: one["ward"].eq("A").sum() + noise.discrete_laplace(1.0, 1), VISITS, NEWCOMER, FOR_PEOPLE,
        **{**options, "confidence": 0.95},
    )  # fmt: skip
    assert not by_row.passed
    assert by_row.epsilon > 1


def counting(scale: float, seed: int) -> Any:
    """Return a function that releases the number of rows of each of 200 kinds, with Laplace noise."""
    source = Source(insecure_seed=seed)
    return lambda kinds: np.bincount(kinds, minlength=200) + source.discrete_laplace(scale, 200)


def test_many_canaries_of_several_rows_in_one_run() -> None:
    records, canaries = np.zeros(5, dtype=np.int64), np.arange(200)
    score = lambda released, given: released[given]  # noqa: E731
    options: dict[str, Any] = {"score": score, "rows_per_person": ROWS}
    honest = [
        audit_function(counting(ROWS * 1.0, seed), records, canaries, FOR_PEOPLE, seed=seed, **options)
        for seed in range(40)
    ]  # the seeds are fixed, and at most 5 % fail
    assert sum(not one.passed for one in honest) <= 2
    assert honest[0].rows == ROWS
    broken = [
        audit_function(counting(1.0, seed), records, canaries, FOR_PEOPLE, seed=seed, **options) for seed in range(10)
    ]
    assert all(not one.passed for one in broken)
    assert all(one.epsilon > 1 for one in broken)


def test_a_canary_is_there_with_all_rows_or_with_none() -> None:
    seen = []
    canaries = pl.DataFrame({"patient": np.repeat(np.arange(30) + 100, 2), "ward": ["A", "B"] * 30})

    def release(frame: pl.DataFrame) -> pl.DataFrame:
        seen.append(frame)
        return frame

    audit_function(
        release, VISITS.select("patient", "ward"), canaries, FOR_PEOPLE, person="patient",
        score=lambda released, given: np.zeros(given["patient"].n_unique()),
    )  # fmt: skip
    rows = seen[0].filter(pl.col("patient") >= 100).group_by("patient").len()["len"]
    assert {*rows.to_list()} == {2}
    assert 5 < len(rows) < 25


def test_a_canary_that_is_left_out_is_replaced_by_a_person_with_as_many_rows() -> None:
    claim = DifferentialPrivacy(1.0, relation=Relation.REPLACE_ONE, unit="person")
    options: dict[str, Any] = {"person": "patient", "rows_per_person": ROWS, "runs": 100}
    known = audit_function(lambda one: [len(one), one["patient"].n_unique()], VISITS, NEWCOMER, claim, **options)
    assert known.passed
    changed = audit_function(lambda one: one["age"].sum(), VISITS, NEWCOMER.with_columns(age=99.0), claim, **options)
    assert not changed.passed


def test_what_is_not_about_people_is_refused() -> None:
    rows, release = DifferentialPrivacy(1.0), len
    with pytest.raises(OptionError, match="the claim protects a row, and canaries are people"):
        audit_function(release, VISITS, NEWCOMER, rows, rows_per_person=2)
    with pytest.raises(OptionError, match="the claim protects a row"):
        audit_function(release, VISITS, NEWCOMER, rows, person="patient")
    with pytest.raises(OptionError, match="the rows of a person must be"):
        audit_function(release, VISITS, NEWCOMER, FOR_PEOPLE, rows_per_person=0)
    with pytest.raises(InputError, match="the canaries have no column 'patient'"):
        audit_function(release, VISITS, NEWCOMER.drop("patient"), FOR_PEOPLE, person="patient")
    with pytest.raises(InputError, match="a canary is also a person among the records"):
        audit_function(release, VISITS, VISITS.head(1), FOR_PEOPLE, person="patient")
    with pytest.raises(OptionError, match="the rows of a person must be"):
        audit_sums(sums(), rows_per_person=0)


@pytest.mark.parametrize("known", [[7, None, 3], ["a", "canary 0"], [1.5, 2.5]])
def test_planted_people_are_new(known: list[Any]) -> None:
    found = new_people(pl.Series(known), 3)
    assert found.n_unique() == 3
    assert not {*map(str, found.to_list())} & {*map(str, known)}
    records = Records(np.arange(len(known)), people=known)
    both = planted(records, Records(np.arange(3)), np.array([True, False, True]), 2)
    assert both.persons == records.persons + 2
    assert np.bincount(both.owners)[-2:].tolist() == [2, 2]


# --- replays --------------------------------------------------------------------------------------


def test_a_function_that_bounds_the_rows_of_people_passes_a_replay_and_one_that_does_not_fails(ask: Ask) -> None:
    options: dict[str, Any] = {"person": "patient", "rows_per_person": ROWS}
    kept = replay(lambda one: ask(one, person="patient", rows_per_person=ROWS), VISITS, **options)
    assert kept.passed, kept.verdict
    assert kept.largest == ROWS
    assert "a person changed a value" in kept.verdict
    unbounded = replay(lambda one: ask(one.drop("patient")), VISITS, **options)
    assert not unbounded.passed
    assert "changes by 50 sensitivities" in str([one.what for one in unbounded.findings])


def test_neighbours_of_people_differ_by_a_person() -> None:
    tables: list[pl.DataFrame] = []
    report = replay(lambda one: tables.append(one), VISITS, person="patient")
    others = dict(zip(report.neighbours, tables[1:], strict=True))
    assert others["a person less, the one with most rows"].filter(pl.col("patient") == 1).is_empty()
    assert others["a record of nobody more"]["patient"].null_count() == 1
    for name, one in others.items():
        people = {*one["patient"].drop_nulls().to_list()} ^ {1, 2, 3}
        assert len(people) == (0 if "nobody" in name else 1)
        assert one.schema == VISITS.schema


def test_a_replay_of_people_says_what_it_needs() -> None:
    with pytest.raises(InputError, match="no column 'person'"):
        replay(len, VISITS, person="person")
    with pytest.raises(OptionError, match="rows_per_person is for functions that protect people"):
        replay(len, VISITS, rows_per_person=2)
    with pytest.raises(OptionError, match="people who are replaced"):
        replay(len, VISITS, person="patient", relation="replace-one")

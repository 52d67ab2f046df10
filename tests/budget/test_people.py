"""Questions that protect people instead of rows: the rows of a person are bounded, and epsilon is for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget import (
    ApproximateEvent,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    FixedSampled,
    Gaussian,
    Parallel,
    PoissonSampled,
    PureEvent,
    Relation,
    Repeated,
    spent,
)
from sfumato.budget.events import Composed
from sfumato.budget.noise import Source
from sfumato.budget.people import at_most, codes_of_people, draw_rows, for_people
from sfumato.engines import reduce
from tests.effort import effort

VISITS = pl.DataFrame(
    {
        "patient_id": [1, 1, 1, 1, 2, 2, 3, 4, None, None],
        "sex": ["f", "f", "f", "f", "m", "m", "f", "m", "f", "f"],
        "age": [30, 30, 31, 31, 50, 50, 42, 65, 20, 21],
    }
)
SCHEMA = sf.Schema(
    [sf.Column(name="sex", domain=["f", "m"]), sf.Column(name="age", bounds=(0, 100)), sf.Column(name="patient_id")]
)
ASKED: dict[str, Any] = {"schema": SCHEMA, "person": "patient_id"}


@pytest.fixture
def ledger(tmp_path: Path) -> sf.Ledger:
    return sf.Ledger.grant(VISITS, epsilon=1e6, path=tmp_path / "people.ledger", unit="person")


@settings(max_examples=effort(80, 2000), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["p", "q", "r", None])), min_size=1, max_size=30),
    st.integers(1, 5),
)
def test_nobody_counts_more_often_than_the_bound(rows: list[tuple[str, str | None]], bound: int) -> None:
    frame = pl.DataFrame(rows, schema={"sex": pl.String, "person": pl.String}, orient="row")
    tuples = reduce(sf.Table(frame), ["sex", "person"])
    kept = at_most(tuples, "person", bound, Source())
    whose = [kept.domains[1].label(code) if code != kept.domains[1].missing else None for code in kept.codes[:, 1]]
    counted: dict[str | None, int] = {}
    for name, count in zip(whose, kept.count.tolist(), strict=True):
        counted[name] = counted.get(name, 0) + count
    for name in {person for _, person in rows}:
        own = sum(person == name for _, person in rows)
        assert counted[name] == (own if name is None else min(own, bound))
    before = {(*map(int, codes),): int(count) for codes, count in zip(tuples.codes, tuples.count, strict=True)}
    for codes, count in zip(kept.codes, kept.count, strict=True):
        assert 1 <= count <= before[(*map(int, codes),)]


def test_which_rows_count_is_drawn_evenly() -> None:
    frame = pl.DataFrame({"age": list(range(10)), "person": ["p"] * 10})
    tuples = reduce(sf.Table(frame), ["age", "person"])
    source, tries = Source(insecure_seed=3), 2000
    drawn = np.zeros(10)
    for _ in range(tries):
        kept = at_most(tuples, "person", 3, source)
        drawn[kept.codes[:, 0]] += kept.count
    assert drawn.sum() == 3 * tries
    assert np.abs(drawn / tries - 0.3).max() < 0.06  # more than 5.8 deviations; the seed is fixed


@pytest.mark.parametrize("question", ["count", "count by sex", "sum of age", "mean of age by sex", "median of age"])
def test_epsilon_is_for_all_rows_of_a_person(question: str, ledger: sf.Ledger) -> None:
    answer = sf.query(VISITS, question, epsilon=0.6, rows_per_person=3, ledger=ledger, **ASKED)
    assert answer.unit == "person"
    assert answer.guarantees == (sf.DifferentialPrivacy(0.6, 0.0, "add-remove", "person"),)
    assert answer.event.unit == "person"
    assert spent(answer.event, 0.0).epsilon == pytest.approx(0.6, rel=1e-6)
    one = sf.preview(VISITS, question, epsilon=0.6 / 3, schema=SCHEMA).event
    assert answer.event == for_people(one, 3)  # the same noise as for rows at a third of epsilon


def test_with_one_row_for_each_person_the_answer_is_that_of_rows(tmp_path: Path) -> None:
    once = VISITS.unique("patient_id", maintain_order=True)
    people = sf.Ledger.grant(once, epsilon=9, path=tmp_path / "people.ledger", unit="person")
    rows = sf.Ledger.grant(once, epsilon=9, path=tmp_path / "rows.ledger")
    for question in ("count by sex", "mean of age", "median of age"):
        asked: dict[str, Any] = {"epsilon": 1.0, "insecure_seed": 5}
        ours = sf.query(once, question, rows_per_person=1, ledger=people, **asked, **ASKED)
        theirs = sf.query(once, question, schema=SCHEMA, ledger=rows, **asked)
        assert ours.rows == theirs.rows


def test_a_ledger_for_people_takes_no_charge_for_rows_and_the_reverse(tmp_path: Path, ledger: sf.Ledger) -> None:
    with pytest.raises(sf.errors.OptionError, match=r"protects a row, and the ledger .* a person"):
        sf.query(VISITS, "count", epsilon=1, ledger=ledger)
    rows = sf.Ledger.grant(VISITS, epsilon=9, path=tmp_path / "rows.ledger")
    with pytest.raises(sf.errors.OptionError, match=r"protects a person, and the ledger .* a row"):
        sf.query(VISITS, "count", epsilon=1, rows_per_person=2, ledger=rows, **ASKED)
    assert rows.spent.epsilon == ledger.spent.epsilon == 0


def test_a_saved_answer_is_verified_and_a_forged_one_refuted(tmp_path: Path, ledger: sf.Ledger) -> None:
    answer = sf.query(VISITS, "count by sex", epsilon=0.5, rows_per_person=2, ledger=ledger, **ASKED)
    sf.save(answer, tmp_path / "answer")
    assert sf.verify(tmp_path / "answer").ok
    assert sf.load(tmp_path / "answer").unit == "person"
    again = sf.run(tmp_path / "answer", VISITS, ledger=ledger)
    assert again.event == answer.event
    file = tmp_path / "answer" / "certificate.json"
    text = file.read_text()
    file.write_text(text.replace('"rows_per_person": 2', '"rows_per_person": 9'))
    assert not sf.verify(tmp_path / "answer").ok
    file.write_text(text.replace('"unit": "person"', '"unit": "row"', 1))
    with pytest.raises(sf.errors.FileError, match="another unit"):
        sf.verify(tmp_path / "answer")
    file.write_text(text.replace('"unit": "person"', '"unit": "row"'))
    assert not sf.verify(tmp_path / "answer").ok


def test_the_original_of_an_answer_for_people_is_recognised(tmp_path: Path) -> None:
    VISITS.write_csv(tmp_path / "visits.csv")
    ledger = sf.Ledger.grant(tmp_path / "visits.csv", epsilon=9, path=tmp_path / "file.ledger", unit="person")
    answer = sf.query(tmp_path / "visits.csv", "count", epsilon=1, rows_per_person=1, ledger=ledger, **ASKED)
    sf.save(answer, tmp_path / "answer")
    assert sf.verify(tmp_path / "answer", source=tmp_path / "visits.csv").ok


def test_events_for_people() -> None:
    assert for_people(Gaussian(2.0), 3) == Gaussian(2.0, 3.0, unit="person")
    several = Composed((PureEvent(0.1), Repeated(DiscreteLaplace(4.0), 2)))
    costly = for_people(several, 2)
    assert costly.unit == "person"
    assert spent(costly, 1e-6).epsilon == pytest.approx(0.2 + 2 * 2 * 1 / 4, rel=1e-3)
    assert Event.from_dict(costly.to_dict()) == costly
    assert "unit" not in Gaussian(2.0).to_dict()
    with pytest.raises(sf.errors.OptionError, match="the event is for a person already"):
        for_people(for_people(Gaussian(2.0), 3), 3)
    with pytest.raises(sf.errors.OptionError, match="must protect one unit"):
        Composed((Gaussian(2.0), for_people(Gaussian(2.0), 3)))


@pytest.mark.parametrize("step", [PoissonSampled(0.1, Gaussian(2.0)), DiscreteLaplace(1e6), DiscreteGaussian(1e6)])
def test_parts_that_people_are_in_cost_what_they_do_for_rows(step: Event) -> None:
    """Also where the account replaces events by others: tiny ones, and wide discrete noise."""
    parts = Parallel((Composed((Repeated(step, 3), ApproximateEvent(0.0, 1e-9))), step))
    assert spent([for_people(parts, 1)], 1e-5).epsilon == spent([parts], 1e-5).epsilon


def test_what_is_not_bounded_is_refused(ledger: sf.Ledger) -> None:
    with pytest.raises(sf.errors.OptionError, match="the rows of a person are not bounded"):
        sf.query(VISITS, "count", epsilon=1, ledger=ledger, **ASKED)
    with pytest.raises(sf.errors.OptionError, match="rows_per_person needs a person column"):
        sf.query(VISITS, "count", epsilon=1, rows_per_person=2, ledger=ledger)
    with pytest.raises(sf.errors.OptionError, match="rows_per_person must be a whole number of at least 1, got 0"):
        sf.query(VISITS, "count", epsilon=1, rows_per_person=0, ledger=ledger, **ASKED)
    with pytest.raises(sf.errors.OptionError, match="cannot be a part of the question"):
        sf.query(VISITS, "count by patient_id", epsilon=1, rows_per_person=1, ledger=ledger, **ASKED)
    with pytest.raises(sf.errors.ColumnError, match="there is no column 'patient'"):
        sf.query(VISITS, "count", epsilon=1, person="patient", rows_per_person=1, ledger=ledger)


def test_the_commands_protect_people(sfumato: Any) -> None:
    VISITS.write_csv("visits.csv")
    grant = ["budget", "grant", "visits.csv", "--epsilon", "3", "--unit", "person"]
    assert "needs a file of its own" in sfumato(*grant).err
    assert sfumato(*grant, "--ledger", "people.ledger", "--json").json["unit"] == "person"
    for shown in (("show", "visits.csv"), ("history", "visits.csv")):
        assert "to add or remove one person" in sfumato("budget", *shown, "--ledger", "people.ledger").out
    assert (
        "made     add or remove one person"
        in sfumato("budget", "history", "visits.csv", "--ledger", "people.ledger").out
    )
    asked = [
        "query",
        "visits.csv",
        "count by sex",
        "--domain",
        "sex=f,m",
        "--epsilon",
        "1",
        "--ledger",
        "people.ledger",
    ]
    assert "--rows-per-person" in sfumato(*asked, "--person", "patient_id").err
    ran = sfumato(*asked, "--person", "patient_id", "--rows-per-person", "2", "-o", "answer")
    assert ran.code == 0, ran.err
    assert "add or remove one person" in ran.out
    assert "repeats" not in ran.err
    assert sfumato("verify", "answer").code == 0


def test_with_one_row_for_each_person_every_event_is_for_people() -> None:
    events = (
        Composed((PoissonSampled(0.1, Gaussian(2.0)), ApproximateEvent(0.5, 1e-6))),
        Parallel((PureEvent(0.1), PureEvent(0.2))),
        Repeated(Composed((PoissonSampled(0.1, Gaussian(2.0)), ApproximateEvent(0, 1e-9))), 7),
        FixedSampled(5, 50, Gaussian(2.0, relation=Relation.REPLACE_ONE)),
    )
    for event in events:
        ours = for_people(event, 1)
        assert (ours.unit, event.unit) == ("person", "row")
        assert spent(ours, 1e-5).epsilon == spent(event, 1e-5).epsilon
        assert Event.from_dict(ours.to_dict()) == ours
        with pytest.raises(sf.errors.OptionError, match="no bound is known when several records change"):
            for_people(event, 2)
    assert for_people(ApproximateEvent(0, 1e-9), 4) == ApproximateEvent(0, 4e-9, unit="person")


@settings(max_examples=effort(80, 2000), deadline=None)
@given(st.lists(st.sampled_from([0.5, 1.0, 7.0, None, float("nan")]), min_size=1, max_size=30), st.integers(1, 4))
def test_rows_are_drawn_of_every_person_and_of_nobody(persons: list[float | None], rows: int) -> None:
    codes = codes_of_people(pl.Series(persons, dtype=pl.Float64, strict=False))
    known = [None if one is None or one != one else one for one in persons]
    assert [None if code < 0 else code for code in codes.tolist()] == [
        None if one is None else sorted({each for each in known if each is not None}).index(one) for one in known
    ]
    kept = draw_rows(codes, rows, Source())
    assert (np.diff(kept) > 0).all()
    for code in set(codes.tolist()):
        own = int((codes == code).sum())
        assert (codes[kept] == code).sum() == (own if code < 0 else min(own, rows))


def test_other_people_do_not_change_which_rows_are_drawn() -> None:
    codes = np.array([0, 0, 0, 1, 1, 1, 1, 2])
    kept = draw_rows(codes, 2, Source(insecure_seed=4))
    fewer = draw_rows(codes[:7], 2, Source(insecure_seed=4))
    assert kept[:-1].tolist() == fewer.tolist()


LABS = pl.DataFrame({"patient_id": [1, 1, 2, 5], "test": ["hba1c", "iron", "iron", "hba1c"]})
TESTS: dict[str, Any] = {"schema": sf.Schema([sf.Column(name="test", domain=["hba1c", "iron"])])}


def test_several_tables_of_the_same_people_share_one_limit(tmp_path: Path) -> None:
    path = tmp_path / "people.ledger"
    terms: dict[str, Any] = {"path": path, "unit": "person", "person": "patient_id"}
    with sf.Ledger.grant([VISITS, LABS], epsilon=1, **terms) as ledger:
        bounded: dict[str, Any] = {"epsilon": 0.5, "person": "patient_id", "rows_per_person": 2, "ledger": path}
        sf.query(VISITS, "count by sex", schema=SCHEMA, **bounded)
        sf.query(LABS, "count by test", **TESTS, **bounded)
        assert (ledger.spent.epsilon, ledger.left, ledger.person) == (pytest.approx(1.0), 0.0, "patient_id")
        with pytest.raises(sf.errors.BudgetError, match="nothing is left"):
            sf.query(LABS, "count by test", **TESTS, **bounded)
        assert len(ledger.export()["data"]) == 2
        assert sf.Ledger.grant(LABS, epsilon=2, **terms).limit.epsilon == 2
    with pytest.raises(sf.errors.FileError, match="belongs to another data set"):
        sf.Ledger.of(LABS.head(3), path)
    with pytest.raises(sf.errors.FileError, match="belongs to another data set"):
        sf.Ledger.grant([VISITS, LABS.head(3)], epsilon=2, **terms)


def test_a_ledger_of_people_refuses_people_of_another_column(tmp_path: Path) -> None:
    path, both = tmp_path / "people.ledger", VISITS.with_columns(doctor=pl.lit("d"))
    sf.Ledger.grant(both, epsilon=9, path=path, unit="person", person="patient_id").close()
    asked: dict[str, Any] = {"schema": SCHEMA, "epsilon": 1, "rows_per_person": 2, "ledger": path}
    sf.query(both, "count by sex", person="patient_id", **asked)
    with pytest.raises(
        sf.errors.OptionError, match="protects the people of column 'patient_id', not those of 'doctor'"
    ):
        sf.query(both, "count by sex", person="doctor", **asked)
    with pytest.raises(sf.errors.OptionError, match="not those of 'doctor'"):
        sf.Ledger.grant(both, epsilon=9, path=path, unit="person", person="doctor")
    assert len(sf.Ledger(path).events) == 1


def test_tables_that_cannot_share_a_ledger_are_refused(tmp_path: Path) -> None:
    terms: dict[str, Any] = {"epsilon": 1, "path": tmp_path / "people.ledger", "unit": "person"}
    named = sf.Table.of(VISITS, person="patient_id")
    other = sf.Table.of(LABS.rename({"patient_id": "pid"}), person="pid")
    with pytest.raises(sf.errors.OptionError, match="the tables have different person columns, patient_id, pid"):
        sf.Ledger.grant([named, other], **terms)
    with pytest.raises(sf.errors.ColumnError, match="table 2 lacks the person column 'patient_id'"):
        sf.Ledger.grant([named, other], **terms, person="patient_id")
    with pytest.raises(sf.errors.OptionError, match="table 2 has no person column"):
        sf.Ledger.grant([named, LABS], **terms)
    with pytest.raises(sf.errors.ColumnError, match="the table lacks the person column 'pid'"):
        sf.Ledger.grant(VISITS, **terms, person="pid")
    with pytest.raises(
        sf.errors.OptionError, match="several tables can share a ledger of people only, got the unit row"
    ):
        sf.Ledger.grant([VISITS, LABS], **{**terms, "unit": "row"})
    with pytest.raises(sf.errors.OptionError, match="a ledger of the unit row has no person column"):
        sf.Ledger.grant(VISITS, epsilon=1, person="patient_id")
    with pytest.raises(sf.errors.OptionError, match="no table is given"):
        sf.Ledger.grant([], **terms)
    assert not (tmp_path / "people.ledger").exists()


def test_the_command_grants_one_limit_for_several_tables(sfumato: Any) -> None:
    VISITS.write_csv("visits.csv")
    LABS.write_csv("labs.csv")
    LABS.rename({"patient_id": "pid"}).write_csv("other.csv")
    grant = ["budget", "grant", "visits.csv", "--epsilon", "1", "--unit", "person", "--ledger", "people.ledger"]
    refused = sfumato(*grant, "--with", "other.csv", "--person", "patient_id")
    assert (refused.code, "table 2 lacks the person column 'patient_id'" in refused.err) == (2, True)
    assert sfumato(*grant, "--with", "labs.csv", "--person", "patient_id").code == 0
    asked = ["--person", "patient_id", "--rows-per-person", "2", "--epsilon", "0.5", "--ledger", "people.ledger"]
    assert sfumato("query", "visits.csv", "count by sex", "--domain", "sex=f,m", *asked).code == 0
    assert sfumato("query", "labs.csv", "count by test", "--domain", "test=hba1c,iron", *asked).code == 0
    shown = sfumato("budget", "show", "labs.csv", "--ledger", "people.ledger", "--json").json
    assert (shown["spent"]["epsilon"], shown["left"]) == (pytest.approx(1.0), 0)

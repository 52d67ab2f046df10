"""People instead of rows, against definitions that are written out with fractions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.engines import reduce
from sfumato.measures.person_counts import Visits, count_people
from sfumato.measures.risk.unicity import unicity
from tests import bruteforce
from tests.effort import effort

Visit = tuple[Any, Any, Any]  # a quasi-identifier, a person, a sensitive value


def tables(people: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Visit]]:
    quasi, value = st.sampled_from(["a", "b", "c", None]), st.sampled_from([1, 2, 3, None])
    return st.lists(st.tuples(quasi, people, value), min_size=1, max_size=25)


SEVERAL = tables(st.sampled_from(["p", "q", "r", "s", "t", None]))


def shares(rows: list[Visit]) -> dict[Any, Fraction]:
    """Give each person weight one, split over their rows; a row without a person is one of its own."""
    own: dict[Any, list[Any]] = defaultdict(list)
    for at, (_, person, value) in enumerate(rows):
        own[("nobody", at) if person is None else person].append(value)
    found: dict[Any, Fraction] = defaultdict(Fraction)
    for values in own.values():
        for value, count in Counter(values).items():
            found[value] += Fraction(count, len(values))
    return {value: weight / len(own) for value, weight in found.items()}


def people(rows: list[Visit]) -> int:
    return len({person for _, person, _ in rows if person is not None}) + sum(person is None for _, person, _ in rows)


def classes(rows: list[Visit]) -> dict[Any, list[Visit]]:
    found: dict[Any, list[Visit]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


def frame(rows: list[Visit]) -> pl.DataFrame:
    types = {"place": pl.String, "person": pl.String, "value": pl.Int64}
    return pl.DataFrame(rows, schema=types, orient="row")


def assess(rows: list[Visit], **options: Any) -> sf.measures.Assessment:
    return sf.assess(
        sf.Table(frame(rows), sf.Schema([sf.Column(name="value", kind="number")])),
        qi=["place"], sensitive=["value"], person="person", **options,
    )  # fmt: skip


@settings(max_examples=effort(40, 1000), deadline=None)
@given(SEVERAL)
def test_the_nine_measures_are_those_of_people(rows: list[Visit]) -> None:
    found = assess(rows, absent="infinite")
    each, p = classes(rows), shares(rows)
    q = [shares(one) for one in each.values()]
    assert (found.rows, found.k) == (len(rows), min(map(people, each.values())))
    assert found.people is not None
    assert found.people.people == people(rows)
    assert found.l == min(map(len, q))
    assert found.alpha == pytest.approx(float(max(max(one.values()) for one in q)), abs=1e-12)
    entropies = [math.exp(-sum(float(w) * math.log(w) for w in one.values())) for one in q]
    assert found.entropy_l == pytest.approx(min(entropies), abs=1e-9)
    worst = 0.0
    for one in q:
        ordered = sorted(one.values(), reverse=True)
        worst = max(worst, float(ordered[0] / sum(ordered[found.l - 1 :])))
    assert found.recursive_c == pytest.approx(worst, abs=1e-9)
    values = sorted(p, key=lambda value: (value is None, value or 0))
    emd = bruteforce.line_emd({value: at / max(len(values) - 1, 1) for at, value in enumerate(values)})
    assert found.t == pytest.approx(max(emd(one, p) for one in q), abs=1e-9)
    gains = [float(one[value] / p[value]) - 1 for one in q for value in one]
    assert found.basic_beta == pytest.approx(max(0.0, *gains), abs=1e-9)
    delta = max(
        abs(math.log(one[value] / p[value])) if value in one else math.inf for one in q for value in p
    )  # fmt: skip
    assert found.delta_disclosure == pytest.approx(delta, abs=1e-9)


@settings(max_examples=effort(40, 1000), deadline=None)
@given(SEVERAL)
def test_the_risk_of_a_person_is_that_of_their_smallest_class(rows: list[Visit]) -> None:
    found = assess(rows, threshold=0.4, detail=True)
    each = classes(rows)
    size = {place: people(one) for place, one in each.items()}
    smallest: dict[Any, int] = {}
    for at, (place, person, _) in enumerate(rows):
        whose = ("nobody", at) if person is None else person
        smallest[whose] = min(size[place], smallest.get(whose, len(rows)))
    assert found.risk.prosecutor_max == 1 / min(size.values())
    assert found.risk.prosecutor_mean == pytest.approx(sum(1 / one for one in smallest.values()) / len(smallest))
    assert found.risk.uniques == sum(one == 1 for one in smallest.values())
    assert found.risk.above_threshold == pytest.approx(sum(1 / one > 0.4 for one in smallest.values()) / len(smallest))
    assert found.risk.marketer == pytest.approx(len(each) / sum(size.values()))
    assert found.rows_by_class_size == Counter(smallest.values())
    assert (found.subsets[0].k, found.subsets[0].uniques) == (found.k, found.risk.uniques)
    assert found.columns[0].mean_alone == pytest.approx(found.risk.prosecutor_mean)


@settings(max_examples=effort(40, 1000), deadline=None)
@given(SEVERAL)
def test_a_missing_value_may_be_any(rows: list[Visit]) -> None:
    found = assess(rows, missing="wildcard")
    places = {row[0] for row in rows}
    candidates = [[row for row in rows if row[0] in (place, None)] for place in places]
    assert found.k == min(map(people, candidates))
    assert found.alpha == pytest.approx(float(max(max(shares(one).values()) for one in candidates)), abs=1e-12)


@settings(max_examples=effort(30, 1000), deadline=None)
@given(SEVERAL, st.data())
def test_with_one_row_for_each_person_every_number_is_that_of_rows(rows: list[Visit], data: Any) -> None:
    names = data.draw(st.permutations(range(len(rows))))
    once = [
        (place, None if name % 5 == 0 else f"p{name}", value)
        for (place, _, value), name in zip(rows, names, strict=True)
    ]
    options: dict[str, Any] = {
        "detail": True,
        "missing": data.draw(st.sampled_from(["value", "wildcard"])),
        "require": "k=2,l=2,t=0.4",
    }
    by_people = assess(once, **options).to_dict()
    table = sf.Table(frame(once).drop("person"), sf.Schema([sf.Column(name="value", kind="number")]))
    by_rows = sf.assess(table, qi=["place"], sensitive=["value"], **options).to_dict()
    assert (by_people.pop("unit"), by_rows.pop("unit")) == ("person", "row")
    assert by_people.pop("people") == {
        "identifier": "person", "rows": len(rows), "people": len(rows), "smallest": by_people["k"]
    }  # fmt: skip
    assert [one["rows"] for one in by_people["risk"].pop("unicity")] == [1]
    by_people["profiles"] = [one for one in by_people["profiles"] if one["column"] != "person"]
    assert by_people.pop("identifiers") == ["person"]
    assert by_people.pop("nobody") == sum(person is None for _, person, _ in once)
    del by_rows["people"], by_rows["identifiers"]
    assert by_people == by_rows


def test_ten_visits_of_one_patient_are_one_person() -> None:
    rows: list[Visit] = [("a", "p", 1)] * 10 + [("b", f"q{one}", 2) for one in range(10)]
    assert assess(rows).k == 1
    table = sf.Table(frame(rows).drop("person"))
    assert sf.assess(table, qi=["place"]).k == 10
    assert not assess(rows, require="k=10").satisfied


def test_someone_with_very_many_rows_is_still_one() -> None:
    rows = [("a", "p", at % 17) for at in range(1_700)] + [("a", "q", 20)] * 3 + [("a", None, 21)]
    found = assess(rows)
    assert (found.k, found.l) == (3, 19)
    assert found.alpha == pytest.approx(1 / 3, abs=1e-6)


@settings(max_examples=effort(40, 1000), deadline=None)
@given(st.data(), st.sampled_from([1, 3, 40, 20_000]), st.sampled_from([1, 3, 500]), st.booleans())
def test_the_kernel_counts_people_as_the_plain_code_does(data: Any, most: int, values: int, sizes_only: bool) -> None:
    entry = st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, values - 1), st.integers(1, most))
    owner, person, value, rows = np.array(data.draw(st.lists(entry, min_size=1, max_size=40)), dtype=np.int64).T
    visits = Visits(owner, person, rows, np.arange(len(rows)))
    plain, compiled = (count_people(visits, 6, None if sizes_only else value, values, few=few) for few in (100, 0))
    assert (compiled.links, compiled.unit) == (plain.links, plain.unit)
    for name in ("size", "records", "owner", "value", "count", "total"):
        assert getattr(compiled, name).tolist() == getattr(plain, name).tolist(), name


@settings(max_examples=effort(40, 1000), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("pqrst")), min_size=1, max_size=20))
def test_unicity_is_the_share_who_are_alone_given_any_of_their_rows(pairs: list[tuple[str, str]]) -> None:
    own: dict[str, set[str]] = defaultdict(set)
    for place, person in pairs:
        own[person].add(place)
    table = sf.Table(pl.DataFrame(pairs, schema=["place", "person"], orient="row"))
    for one in unicity(reduce(table, ["place", "person"]), ["place"], "person"):
        able = [held for held in own.values() if len(held) >= one.rows]
        assert (one.people, one.tried) == (len(able), len(able))
        alone = [
            [sum(set(known) <= other for other in own.values()) == 1 for known in combinations(held, one.rows)]
            for held in able
        ]
        assert sum(map(all, alone)) <= round(one.share * one.tried) <= sum(map(any, alone))


def test_people_are_counted_where_the_rows_are(tmp_path: Path) -> None:
    import duckdb

    source = np.random.default_rng(5)
    rows = pl.DataFrame(
        {
            "place": source.integers(0, 9, 500),
            "person": source.integers(0, 80, 500),
            "value": source.integers(0, 4, 500),
        }
    ).with_columns(person=pl.when(pl.col("person") < 3).then(None).otherwise("person"))
    asked: dict[str, Any] = {"qi": ["place"], "sensitive": ["value"], "person": "person", "detail": True}
    here = sf.assess(rows, **asked).to_dict()
    relation = duckdb.sql("SELECT * FROM rows")
    there = sf.assess(relation, **asked).to_dict()
    rows.write_parquet(tmp_path / "visits.parquet")
    file = sf.assess(tmp_path / "visits.parquet", **asked).to_dict()
    for one in (here, there, file):
        del one["profiles"]
    assert here == there == file


def test_rows_without_a_person_are_said() -> None:
    from sfumato.report.summarise import summarise

    rows: list[Visit] = [("a", "p", 1), ("a", None, 2), ("a", None, 2)]
    assert "2 rows without a person: each counts as a person of its own" in summarise(assess(rows)).facts


def test_bad_person_columns_are_refused_or_said() -> None:
    rows: list[Visit] = [("a", "p", 1), ("b", "q", 2)]
    with pytest.raises(sf.errors.ColumnError, match="there is no column 'patient'"):
        sf.assess(frame(rows), qi=["place"], person="patient")
    with pytest.raises(sf.errors.SchemaError, match="cannot be both quasi and person"):
        sf.assess(frame(rows), qi=["place"], person="place")
    with pytest.raises(sf.errors.SchemaError, match="at most one person column, got person, value"):
        sf.Schema.of({"person": "person", "value": "person"})
    spread: list[Visit] = [("a", "p", 1), ("b", "p", 2)]
    with pytest.raises(sf.errors.OptionError, match="people of column 'person' are in several classes"):
        assess(spread, population_size=1000)

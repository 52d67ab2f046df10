"""Bounds on what counts of a person in a query: by groups, bought, and with groups that are discovered."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator
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
    BoughtRowsPerPerson,
    BoundedRange,
    Composed,
    DiscreteLaplace,
    FindRowsPerPerson,
    MaxGroupsPerPerson,
    MaxRowsPerPerson,
    PureEvent,
    Question,
    Relation,
    Repeated,
    SelectCategories,
    Source,
    spent,
)
from sfumato.budget.people import NOBODY, DeclaredBound, PersonBound, draw_groups
from sfumato.budget.query.plan import Plan
from sfumato.budget.query.query import _answer, _Rows
from tests.budget.chance import assert_frequencies, least_epsilon
from tests.effort import effort

VISITS = pl.DataFrame(
    {
        "patient": [1] * 8 + [2] * 3 + [3, 4, 5] + [None] * 2,
        "ward": ["a"] * 4 + ["b"] * 3 + ["c"] + ["a", "a", "b"] + ["c", "a", "b"] + ["a", "c"],
        "age": [30] * 4 + [31] * 4 + [50] * 3 + [42, 65, 20] + [70, 71],
    }
)
SCHEMA = sf.Schema(
    [
        sf.Column(name="ward", domain=["a", "b", "c"]),
        sf.Column(name="age", bounds=(0, 100)),
        sf.Column(name="patient", role="person"),
    ]
)
QUESTIONS = ("count by ward", "sum of age by ward", "mean of age by ward", "variance of age by ward",
             "median of age by ward", "min of age by ward", "histogram of age in 4 bins",
             "histogram of age in 4 bins by ward")  # fmt: skip
EXACT = 1e6
"""An epsilon that leaves no noise on a count."""


@pytest.fixture
def ledger(tmp_path: Path) -> sf.Ledger:
    return sf.Ledger.grant(VISITS, epsilon=1e9, delta=1e-3, path=tmp_path / "people.ledger", unit="person")


def ask(ledger: sf.Ledger, question: str, data: pl.DataFrame = VISITS, **terms: Any) -> sf.Release:
    return sf.query(data, question, schema=SCHEMA, ledger=ledger, **{"epsilon": EXACT, **terms})


def plan_of(question: str, bound: PersonBound, epsilon: float = 1.0, **terms: Any) -> Plan:
    return Plan.of(sf.Table(VISITS), question, schema=SCHEMA, epsilon=epsilon,
                   **{"delta": 0.0, "discover": False, "confidence": 0.95, **terms}, **bound.to_dict())  # fmt: skip


# --- which rows count ---


@settings(max_examples=effort(80, 2000), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2, NOBODY]), st.integers(0, 3)), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_of_each_person_so_many_groups_count_with_so_many_rows(rows: list[tuple[int, int]], most: int, r: int) -> None:
    people, groups = np.array(rows).T
    kept = draw_groups(people, groups, most, r, Source())
    assert (np.diff(kept) > 0).all()
    for person in set(people.tolist()):
        own = Counter(groups[people == person].tolist())
        counted = Counter(groups[kept][people[kept] == person].tolist())
        if person == NOBODY:
            assert counted == own
            continue
        assert len(counted) == min(most, len(own))
        assert all(count == min(r, own[group]) for group, count in counted.items())


def test_groups_are_drawn_evenly_however_many_rows_a_person_has_in_them() -> None:
    people, groups = np.zeros(13, dtype=np.int64), np.array([0] * 10 + [1, 2, 3])
    source, tries, drawn = Source(insecure_seed=2), 2000, np.zeros(4)
    for _ in range(tries):
        drawn[groups[draw_groups(people, groups, 2, 1, source)]] += 1
    assert drawn.sum() == 2 * tries
    assert np.abs(drawn / tries - 0.5).max() < 0.065  # more than 5.8 deviations; the seed is fixed


def test_with_one_row_per_group_a_count_is_the_number_of_people(ledger: sf.Ledger) -> None:
    answer = ask(ledger, "count by ward", groups_per_person=3, rows_per_group=1)
    # Ward a: 1, 2, 4 and nobody; b: 1, 2, 5; c: 1, 3 and nobody.
    assert {row.group["ward"]: row.value for row in answer.rows} == {"a": 4, "b": 3, "c": 3, None: 0}


def test_the_bound_is_on_the_rows_that_meet_the_condition(ledger: sf.Ledger) -> None:
    answer = ask(ledger, "count where ward = 'c' by ward", groups_per_person=1, rows_per_group=1)
    assert {row.group["ward"]: row.value for row in answer.rows} == {"a": 0, "b": 0, "c": 3, None: 0}


def test_values_that_are_not_in_the_domain_are_one_group(ledger: sf.Ledger) -> None:
    few = sf.Schema([sf.Column(name="ward", domain=["a"]), sf.Column(name="patient", role="person")])
    bound: dict[str, Any] = {"groups_per_person": 2, "rows_per_group": 2}
    answer = sf.query(VISITS, "count by ward", epsilon=EXACT, schema=few, ledger=ledger, **bound)
    assert {row.group["ward"]: row.value for row in answer.rows} == {"a": 2 + 2 + 1 + 1, None: 2 + 1 + 1 + 1 + 1}


def test_bins_are_groups(ledger: sf.Ledger) -> None:
    answer = ask(ledger, "histogram of age in 2 bins", groups_per_person=1, rows_per_group=1)
    assert [row.value for row in answer.rows] == [3, 4, 0]  # 1, 3 and 5; 2, 4 and two of nobody; none without an age


# --- what it costs ---


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_mechanism_on_each_group_is_composed_once_for_each_group_of_a_person(
    question: str, relation: Relation
) -> None:
    plan = plan_of(question, MaxGroupsPerPerson(2, 3), 0.6)
    event = plan.event(relation)
    assert isinstance(event, Repeated)
    assert (event.times, event.unit, event.relation) == (2, "person", relation)
    assert event == MaxGroupsPerPerson(2, 3).event(plan.statistic(relation).event)
    assert spent(event, 0.0, relation=relation).epsilon == pytest.approx(0.6, rel=1e-9)


def test_a_count_changes_by_the_groups_times_the_rows(ledger: sf.Ledger) -> None:
    answer = ask(ledger, "count by ward", epsilon=0.5, groups_per_person=2, rows_per_group=3)
    assert answer.event == Repeated(DiscreteLaplace(12.0, 3, unit="person"), 2)
    assert answer.guarantees == (sf.DifferentialPrivacy(0.5, 0.0, "add-remove", "person"),)
    assert spent(answer.event, 1e-6).epsilon <= spent(DiscreteLaplace(12.0, 6, unit="person"), 1e-6).epsilon


@pytest.mark.parametrize(
    "bound",
    [
        MaxRowsPerPerson(3),
        MaxRowsPerPerson(7),
        MaxGroupsPerPerson(2, 5),
        MaxGroupsPerPerson(3, 3),
        BoughtRowsPerPerson(),
    ],
)
@pytest.mark.parametrize("question", QUESTIONS[:6])
def test_no_event_costs_more_than_is_promised(question: str, bound: PersonBound) -> None:
    """Not even by a rounding error: a release that costs 1.9500000000000002 would be refuted."""
    for epsilon in (0.1, 0.45, 0.64, 0.7, 1.1, 1.16, 1.55, 1.95, 2.64, 3.0):
        plan = plan_of(question, bound, epsilon)
        assert sf.DifferentialPrivacy(epsilon, unit="person").kept_by([plan.event(Relation.ADD_REMOVE)])


def test_the_costs_of_the_bounds_are_verified_again(tmp_path: Path, ledger: sf.Ledger) -> None:
    for at, terms in enumerate(
        ({"groups_per_person": 2, "rows_per_group": 3}, {"rows_per_person": 3}, {"rows_per_person": "bought"})
    ):
        answer = ask(ledger, "count by ward", epsilon=1.95, **terms)
        folder = tmp_path / str(at)
        sf.save(answer, folder)
        assert sf.verify(folder).ok
        assert sf.load(folder).to_dict()["counted"] == answer.to_dict()["counted"]
        assert sf.run(folder, VISITS, ledger=ledger).event == answer.event
        path = folder / "certificate.json"
        text = path.read_text()
        for name in terms:
            stated = json.loads(text)
            stated["parameters"][name] = 1
            path.write_text(json.dumps(stated))
            assert not sf.verify(folder).ok
        stated = json.loads(text)
        stated["parameters"]["rows_per_day"] = 1
        path.write_text(json.dumps(stated))
        assert not sf.verify(folder).ok


def test_with_one_row_for_each_person_every_bound_of_one_is_that_of_rows(tmp_path: Path) -> None:
    once = pl.DataFrame({"patient": np.arange(300), "ward": ["a", "b", "b"] * 100, "age": np.arange(300) % 90})
    people = sf.Ledger.grant(once, epsilon=99, delta=1e-3, path=tmp_path / "people.ledger", unit="person")
    rows = sf.Ledger.grant(once, epsilon=99, delta=1e-3, path=tmp_path / "rows.ledger")
    plain = sf.Schema([SCHEMA["ward"], SCHEMA["age"]])
    terms: tuple[dict[str, Any], ...] = ({"rows_per_person": 1}, {"groups_per_person": 1, "rows_per_group": 1})
    for question, bound in itertools.product(QUESTIONS, terms):
        for found in ({}, {"discover": True, "delta": 1e-6}):
            if found and " by " not in question:
                continue
            asked: dict[str, Any] = {"epsilon": 1.0, "insecure_seed": 5, **found}
            ours = sf.query(once, question, schema=SCHEMA, ledger=people, **bound, **asked)
            theirs = sf.query(once, question, schema=plain, ledger=rows, **asked)
            assert ours.rows == theirs.rows
            assert str(ours.event).replace(" per person", "") == str(theirs.event)


# --- groups that are discovered ---


def at_least(noise_scale: float, threshold: int, count: int) -> float:
    """Return the probability that a count with discrete Laplace noise reaches a threshold, term by term."""
    ratio = math.exp(-1 / noise_scale)
    terms = (ratio ** abs(x) for x in range(threshold - count, threshold - count + 4000))
    return (1 - ratio) / (1 + ratio) * math.fsum(terms)


def partitions(rows: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    """Yield all ways to spread at most so many rows over groups."""
    yield ()
    for first in range(1, min(rows, most or rows) + 1):
        for rest in partitions(rows - first, first):
            yield (first, *rest)


def spreads(bound: DeclaredBound, *, merged: bool) -> set[tuple[int, ...]]:
    """Return all ways in which the rows of a person that count may be spread over groups."""
    if isinstance(bound, MaxRowsPerPerson):
        return set(partitions(bound.rows))
    assert isinstance(bound, MaxGroupsPerPerson)
    parts = set(itertools.product(range(bound.rows_per_group + 1), repeat=bound.groups_per_person))
    if not merged:
        return parts
    found = set()
    for part in parts:
        for place in itertools.product(range(len(part)), repeat=len(part)):
            total = Counter[int]()
            for group, count in zip(place, part, strict=True):
                total[group] += count
            found.add(tuple(total.values()))
    return found


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(
    "bound", [MaxRowsPerPerson(1), MaxRowsPerPerson(3), MaxRowsPerPerson(6), MaxGroupsPerPerson(3, 2),
              MaxGroupsPerPerson(2, 4), MaxGroupsPerPerson(1, 5), MaxGroupsPerPerson(4, 1)]
)  # fmt: skip
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0, 12.0])
def test_whoever_is_alone_in_groups_is_found_no_more_often_than_delta(
    epsilon: float, bound: DeclaredBound, merged: bool
) -> None:
    for delta in (0.3, 1e-2, 1e-6):
        selection = SelectCategories(epsilon=epsilon, delta=delta, bound=bound, merged=merged)
        scale, threshold = selection.noise.scale, selection.threshold

        def found(threshold: int, scale: float = scale) -> float:
            reached = [at_least(scale, threshold, count) for count in range(bound.rows + 1)]
            return max(
                -math.expm1(math.fsum(math.log1p(-reached[count]) for count in each if count))
                for each in spreads(bound, merged=merged)
            )

        assert found(threshold) <= delta
        assert threshold == bound.rows + 1 or threshold <= bound.rows or found(threshold - 1) > delta


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("bound", [MaxRowsPerPerson(3), MaxGroupsPerPerson(2, 2)])
def test_which_groups_are_found_is_private_for_a_person_by_exact_probabilities(
    bound: DeclaredBound, epsilon: float, relation: Relation
) -> None:
    """All tables of others with three groups of a few sizes, and all ways in which a person may be in them.

    Under replace-one, another person may be in them instead.
    """
    delta = 0.05
    selection = SelectCategories(epsilon=epsilon, delta=delta, bound=bound, relation=relation)
    scale, threshold = selection.noise.scale, selection.threshold
    reach = np.array([at_least(scale, threshold, count) for count in range(threshold + 2 * bound.rows + 1)])
    reach[0] = 0.0  # a group that does not occur is not found
    mine = sorted(
        {
            place
            for spread in spreads(bound, merged=False)
            if len([one for one in spread if one]) <= 3
            for place in itertools.permutations((*[one for one in spread if one], 0, 0, 0)[:3])
        }
    )
    assert mine[0] == (0, 0, 0)
    chosen = np.array(list(itertools.product([False, True], repeat=3)))
    worst = 0.0
    for others in itertools.combinations_with_replacement((0, 1, threshold - 1, threshold + bound.rows), 3):
        found = reach[np.array(others) + np.array(mine)]  # of each way, the chance of every group
        each = np.where(chosen[None], found[:, None], 1 - found[:, None]).prod(axis=2)
        for neighbour in each if relation is Relation.REPLACE_ONE else each[:1]:
            for one, other in ((each, neighbour), (neighbour, each)):
                worst = max(worst, float(np.maximum(0, one - math.exp(epsilon) * other).sum(axis=1).max()))
    assert worst <= delta
    assert worst > delta / 20  # and not far below


def test_groups_of_a_person_that_do_not_count_are_not_found(ledger: sf.Ledger) -> None:
    """Someone in a thousand groups counts in two: all others must not even be candidates."""
    many = pl.DataFrame({"patient": [1] * 1000, "ward": [f"w{at}" for at in range(1000)]})
    plan = plan_of("count by ward", MaxGroupsPerPerson(2, 1), 0.01, discover=True, delta=1e-3)
    rows = _Rows.of(sf.Table(many), plan)
    drawn = rows.drawn(MaxGroupsPerPerson(2, 1), rows.records(plan).group, Source())
    assert drawn.records(plan).groups == 2


def test_large_groups_of_people_are_found(ledger: sf.Ledger, tmp_path: Path) -> None:
    table = pl.DataFrame({"patient": [*range(400), *[7] * 900], "ward": [*["a", "b"] * 200, *["z"] * 900]})
    grant = sf.Ledger.grant(table, epsilon=99, delta=1e-4, path=tmp_path / "l", unit="person")
    wards = sf.Schema([SCHEMA["ward"], SCHEMA["patient"]])
    asked: dict[str, Any] = {"epsilon": 8, "delta": 1e-6, "discover": True, "schema": wards, "ledger": grant}
    for terms in ({"rows_per_person": 2}, {"groups_per_person": 2, "rows_per_group": 1}, {"rows_per_person": "bought"}):
        answer = sf.query(table, "count by ward", insecure_seed=1, **asked, **terms)
        assert [row.group["ward"] for row in answer.rows] == ["a", "b"]  # z is one person
        assert answer.event.unit == "person"
        assert spent(answer.event, 1e-6).epsilon <= 8 * (1 + 1e-9)
    sf.save(sf.query(table, "count by ward", rows_per_person=3, **asked), tmp_path / "found")
    assert sf.verify(tmp_path / "found").ok


# --- a bound that is bought ---


def probabilities(search: FindRowsPerPerson, people: Any) -> Any:
    scores = search.scores(np.asarray(people, dtype=np.int64)).astype(float)
    weights = np.exp(search.epsilon * (scores - scores.max()) / 2)
    return weights / weights.sum()


@settings(max_examples=effort(60, 2000), deadline=None)
@given(
    st.lists(st.integers(1, 60), max_size=40),
    st.integers(1, 2000),
    st.sampled_from([0.5, 2.0, 8.0]),
    st.integers(0, 40),
)
def test_one_person_with_any_number_of_rows_changes_no_probability_by_more_than_epsilon(
    rows: list[int], more: int, epsilon: float, nobody: int
) -> None:
    search = FindRowsPerPerson(epsilon=epsilon)
    people = [*np.repeat(np.arange(len(rows)), rows), *[NOBODY] * nobody]
    losses = np.log(probabilities(search, people) / probabilities(search, [*people, *[len(rows)] * more]))
    assert np.abs(losses).max() <= epsilon * (1 + 1e-12)
    assert losses.max() - losses.min() <= epsilon * (1 + 1e-12)  # the range that is charged
    assert (probabilities(search, people) == probabilities(search, [*people, NOBODY])).all()


def test_a_bound_is_drawn_with_the_probabilities_that_are_charged() -> None:
    search, source, runs = FindRowsPerPerson(epsilon=2.0), Source(), 4000
    people = np.repeat(np.arange(40), np.arange(40) // 3 + 1)
    drawn = Counter(search.answer(people, source) for _ in range(runs))
    shares = dict(zip(search.CANDIDATES, probabilities(search, people), strict=True))
    assert_frequencies({one: drawn[one] for one in shares}, shares, runs)
    assert search.event == BoundedRange(2.0, unit="person")


def test_few_people_have_more_rows_than_are_bought() -> None:
    rows = np.random.default_rng(0).geometric(0.25, 20_000)  # four on average, forty for someone
    people = np.repeat(np.arange(len(rows)), rows)
    search = FindRowsPerPerson(epsilon=0.1, confidence=1 - 1e-9)
    for _ in range(20):  # each fails with a probability below 1e-9
        bound = search.answer(people)
        before = search.CANDIDATES[search.CANDIDATES.index(bound) - 1]
        assert np.count_nonzero(rows > bound) <= 2 * search.beyond
        assert np.count_nonzero(rows > before) >= 1


def test_a_bought_bound_beats_those_that_are_far_off() -> None:
    rows = np.random.default_rng(1).geometric(0.25, 20_000)
    visits = pl.DataFrame({"patient": np.repeat(np.arange(len(rows)), rows)})
    table, source, error = sf.Table(visits), Source(insecure_seed=3), {}
    for bound in (BoughtRowsPerPerson(), MaxRowsPerPerson(1), MaxRowsPerPerson(3), MaxRowsPerPerson(987)):
        plan = plan_of("count", bound, 1.0)
        known = _Rows.of(table, plan)
        answers = [_answer(known, plan, Relation.ADD_REMOVE, source)[0][0].value for _ in range(40)]
        error[bound] = float(np.sqrt(np.mean((np.array(answers) - len(visits)) ** 2)))
    bought = error.pop(BoughtRowsPerPerson())
    assert all(bought < one / 2 for one in error.values())


def test_a_bound_is_charged_before_it_is_bought(ledger: sf.Ledger, tmp_path: Path) -> None:
    poor = sf.Ledger.grant(VISITS, epsilon=0.5, path=tmp_path / "poor.ledger", unit="person")
    with pytest.raises(sf.errors.BudgetError, match="would exceed the limit"):
        ask(poor, "count", epsilon=0.6, rows_per_person="bought")
    assert poor.spent.epsilon == 0
    answer = ask(poor, "count", epsilon=0.5, rows_per_person="bought")
    assert answer.event == Composed((BoundedRange(0.05, unit="person"), PureEvent(0.45, unit="person")))
    assert poor.spent.epsilon == pytest.approx(0.5)
    assert answer.bought in FindRowsPerPerson.CANDIDATES
    assert answer.to_dict()["rows_per_person"] == answer.bought
    assert answer.settled.statistic(Relation.ADD_REMOVE).noise.scale == pytest.approx(answer.bought / 0.45)
    found = plan_of("count by ward", BoughtRowsPerPerson(), 1.0, discover=True, delta=1e-6).event(Relation.ADD_REMOVE)
    assert found == Composed(
        (
            BoundedRange(0.1, unit="person"),
            ApproximateEvent(0.45, 1e-6, unit="person"),
            PureEvent(0.45, unit="person"),
        )
    )


def test_a_forged_bound_is_refuted(ledger: sf.Ledger, tmp_path: Path) -> None:
    answer = ask(ledger, "count by ward", epsilon=1, rows_per_person="bought")
    sf.save(answer, tmp_path / "answer")
    path = tmp_path / "answer" / "answer.json"
    plain = json.loads(path.read_text())
    for forged in (4, "bought", None, 987 if answer.bought != 987 else 1):
        path.write_text(json.dumps({**plain, "rows_per_person": forged}))
        assert not sf.verify(tmp_path / "answer").ok


# --- people as neighbours ---


@pytest.mark.parametrize(
    ("question", "runs"), [("count by ward", 2000), ("sum of age by ward", 2000), ("mean of age by ward", 500),
                           ("median of age by ward", 200), ("max of age by ward", 200)],
)  # fmt: skip
def test_answers_of_neighbours_are_as_close_as_epsilon_says(question: str, runs: int) -> None:
    """One person with fifty visits to two wards, or without; the seeds are fixed, so nothing is left to chance.

    Each bound on epsilon is too large with a probability below 1e-8, and there are about a hundred.
    """
    others = pl.DataFrame({"patient": [1, 2, 3, 3], "ward": ["a", "b", "a", "c"], "age": [3, 4, 5, 6]})
    mine = pl.DataFrame({"patient": [9] * 50, "ward": ["a"] * 25 + ["b"] * 25, "age": [100] * 50})
    epsilon = 1.5
    for bound in (MaxGroupsPerPerson(2, 3), MaxRowsPerPerson(6), BoughtRowsPerPerson()):
        plan = plan_of(question, bound, epsilon)
        sums = []
        for seed, table in enumerate((others, pl.concat([others, mine]))):
            known, source = _Rows.of(sf.Table(table), plan), Source(insecure_seed=seed)
            answers = [_answer(known, plan, Relation.ADD_REMOVE, source) for _ in range(runs)]
            sums.append(np.array([sum(row.value for row in rows[:2]) for rows, _ in answers]))
        cuts = np.unique(np.quantile(np.concatenate(sums), np.linspace(0.02, 0.98, 25)))
        found = [
            least_epsilon(int(np.sum(one * sign >= cut * sign)), int(np.sum(other * sign >= cut * sign)), runs)
            for one, other in (sums, sums[::-1])
            for cut in cuts
            for sign in (1, -1)
        ]
        assert max(found) <= epsilon
        if isinstance(bound, DeclaredBound) and question in ("count by ward", "sum of age by ward"):
            assert max(found) > epsilon / 3  # with the noise for rows it would be six times epsilon


def test_one_person_with_most_rows_leaves_the_answers_for_others(ledger: sf.Ledger, tmp_path: Path) -> None:
    most = pl.concat([VISITS, pl.DataFrame({"patient": [6] * 5000, "ward": ["c"] * 5000, "age": [99] * 5000})])
    grant = sf.Ledger.grant(most, epsilon=1e9, path=tmp_path / "l", unit="person")
    for terms in ({"rows_per_person": 4}, {"groups_per_person": 3, "rows_per_group": 4}):
        answer = ask(grant, "count by ward", most, **terms)
        counted = {row.group["ward"]: row.value for row in answer.rows}
        assert counted["c"] <= 3 + 4
        assert sum(counted.values()) == (4 + 3 + 3 + 2 + 4 if "rows_per_person" in terms else 8 + 3 + 3 + 2 + 4)
    ages = ask(grant, "median of age", most, rows_per_person=1)
    assert ages.rows[0].value < 99


# --- what is said ---


def test_rows_without_a_person_are_mentioned_and_not_counted(ledger: sf.Ledger, sfumato: Any) -> None:
    nobody = pl.concat([VISITS, pl.DataFrame({"patient": [None] * 50, "ward": ["a"] * 50, "age": [1] * 50})],
                       how="vertical_relaxed")  # fmt: skip
    said = "a row without one counts as a person of its own"
    for at, table in enumerate((VISITS, nobody)):
        table.write_csv(f"{at}.csv")
        grant = ["budget", "grant", f"{at}.csv", "--epsilon", "9", "--unit", "person", "--ledger", f"{at}.ledger"]
        assert sfumato(*grant).code == 0
    told = []
    for at in (0, 1):
        asked = ["query", f"{at}.csv", "count", "--epsilon", "1", "--person", "patient", "--ledger", f"{at}.ledger"]
        shown = sfumato(*asked, "--rows-per-person", "2")
        assert said in shown.out
        assert "at most 2, drawn at random in secret" in shown.out
        assert shown.err == ""
        before = sfumato(*asked, "--rows-per-person", "bought", "--dry-run")
        assert said in before.out
        assert "for a bound of 1, and grows" in before.out
        told.append(sfumato(*asked, "--rows-per-person", "2", "--dry-run", "--json").json)
        assert told[-1].pop("left") > 0
        assert said in told[-1]["counted"]
    assert told[0] == told[1]


# --- bad input ---


def test_bounds_that_say_nothing_are_refused(ledger: sf.Ledger) -> None:
    def refused(match: str, question: str = "count by ward", **terms: Any) -> None:
        with pytest.raises(sf.errors.OptionError, match=match):
            ask(ledger, question, epsilon=1, **terms)

    for wrong in (0, -1, 2.5, True, "auto"):
        refused("rows_per_person must be a whole number of at least 1", rows_per_person=wrong)
    for wrong in (0, -1, 2.5, "bought"):
        refused("groups_per_person must be a whole number", groups_per_person=wrong, rows_per_group=1)
        refused("rows_per_group must be a whole number", groups_per_person=1, rows_per_group=wrong)
    refused("two ways to bound", rows_per_person=2, groups_per_person=1, rows_per_group=2)
    refused("two ways to bound", rows_per_person=2, rows_per_group=2)
    refused("groups_per_person alone does not bound", groups_per_person=2)
    refused("rows_per_group alone does not bound", rows_per_group=2)
    refused("the rows of a person are not bounded")
    refused("has no meaning for a question with a single group", "count", groups_per_person=1, rows_per_group=1)
    refused("is 5, and the question has 4 groups", groups_per_person=5, rows_per_group=1)
    refused("cannot be a part of the question", "count by patient", rows_per_person=1)
    refused("cannot be a part of the question", "count where patient = 1 by ward", rows_per_person=1)
    refused("epsilon must be at least 1e-09 for each row", rows_per_person=10**10)
    plain = sf.Schema([SCHEMA["ward"]])
    for terms in ({"rows_per_person": "bought"}, {"groups_per_person": 2, "rows_per_group": 2}):
        with pytest.raises(sf.errors.OptionError, match=f"{next(iter(terms))} needs a person column"):
            sf.query(VISITS, "count by ward", epsilon=1, schema=plain, ledger=ledger, **terms)
    assert ledger.spent.epsilon == 0


def test_a_plan_has_a_person_and_a_bound_or_neither() -> None:
    with pytest.raises(sf.errors.OptionError, match="needs a bound on the rows of a person, and the reverse"):
        Plan(Question.parse("count"), sf.Schema([]), 1.0, person="patient")
    with pytest.raises(sf.errors.OptionError, match="that was bought cannot be 4"):
        plan_of("count", BoughtRowsPerPerson()).settled(4)
    with pytest.raises(sf.errors.OptionError, match="has not been bought yet"):
        plan_of("count", BoughtRowsPerPerson()).statistic(Relation.ADD_REMOVE)


def test_the_command_refuses_bounds_in_one_sentence(sfumato: Any) -> None:
    VISITS.write_csv("visits.csv")
    asked = ["query", "visits.csv", "count by ward", "--domain", "ward=a,b,c", "--epsilon", "1", "--person", "patient"]
    for wrong in ("0", "-2", "2.5", "many"):
        ran = sfumato(*asked, "--rows-per-person", wrong)
        assert ran.code == 2
        assert "--rows-per-person must be a whole number of at least 1" in ran.err
        assert "or 'bought'" in ran.err
    assert "give groups_per_person and rows_per_group together" in sfumato(*asked, "--groups-per-person", "2").err
    ran = sfumato(*asked, "--groups-per-person", "2", "--rows-per-group", "3", "--dry-run", "--json")
    assert ran.json["event"]["times"] == 2
    assert (ran.json["groups_per_person"], ran.json["rows_per_group"], ran.json["width"]) == (2, 3, 36.0)


@pytest.mark.parametrize("more", [[], ["x,f"], ["007,f"], ["9007199254740993,m"]])
def test_one_odd_cell_of_a_text_file_neither_joins_nor_parts_other_people(more: list[str], tmp_path: Path) -> None:
    cells = ["7,f", "7.0,m", "8.50,f", "8.5,m", "1e3,f", "2.0,f", *more]
    (tmp_path / "visits.csv").write_text("\n".join(["id,sex", *cells]) + "\n")
    table = sf.Table.of(tmp_path / "visits.csv").as_declared()
    schema = sf.Schema([sf.Column(name="sex", domain=("f", "m"))])
    terms = {"schema": schema, "epsilon": 1, "delta": 0, "discover": False, "confidence": 0.95}
    rows = _Rows.of(table, Plan.of(table, "count by sex", person="id", rows_per_person=1, **terms))
    assert sorted(np.bincount(rows.each_person()).tolist()) == [1] * (2 + len(more)) + [2, 2]

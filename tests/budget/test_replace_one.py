"""A replaced record leaves one group and enters another: what answers by groups cost then.

Costs are compared with the exact privacy loss of the noise of both groups, or with an audit of the answers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sfumato as sf
from sfumato.budget import (
    AddedNoise,
    ContingencyTable,
    Count,
    DiscreteGaussian,
    DiscreteLaplace,
    FindBounds,
    Gaussian,
    Mean,
    NoiseEvent,
    Parallel,
    PureEvent,
    Quantile,
    Question,
    Relation,
    SelectCategories,
    Selected,
    Source,
    Sum,
    Variance,
    replace_one,
    spent,
)
from sfumato.budget.mechanisms.statistics import OfRecords, Records
from sfumato.budget.query.plan import NumberColumn, statistic_for
from tests.budget.chance import assert_epsilon

RUNS = 20_000
BOUNDS = (-4.0, 4.0)
BY_GROUPS: list[OfRecords] = [
    Count(epsilon=2.0, relation=Relation.REPLACE_ONE, grouped=True),
    Sum(epsilon=2.0, relation=Relation.REPLACE_ONE, grouped=True, bounds=BOUNDS),
    Mean(epsilon=2.0, relation=Relation.REPLACE_ONE, grouped=True, bounds=BOUNDS),
    Variance(epsilon=2.0, relation=Relation.REPLACE_ONE, grouped=True, bounds=BOUNDS),
    Quantile(epsilon=2.0, relation=Relation.REPLACE_ONE, grouped=True, bounds=BOUNDS),
]


def grouped(groups: list[int], values: list[float], of: int = 2) -> Records:
    return Records(np.array(groups), np.array(values, dtype=np.float64), np.ones(len(values), dtype=np.int64), of)


def density(event: NoiseEvent, shift: int, reach: int) -> NDArray[np.float64]:
    """The probabilities of the whole numbers from -reach to reach, with noise around a shift."""
    off = np.arange(-reach, reach + 1) - shift
    exponent = np.abs(off) / event.scale if isinstance(event, DiscreteLaplace) else (off / event.scale) ** 2 / 2
    mass = np.exp(-exponent)
    return mass / mass.sum()


def delta_of_two(event: NoiseEvent, epsilon: float, change: int = 1) -> float:
    """The exact delta of noise on two numbers, one of which is larger by a change and the other smaller."""
    reach = math.ceil(25 * event.scale) + 2 * change
    here, there = (density(event, shift, reach) for shift in (0, change))
    p, q = np.multiply.outer(here, there), np.multiply.outer(there, here)
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


# --- statistics by groups ---


@pytest.mark.parametrize("statistic", BY_GROUPS, ids=lambda one: type(one).__name__)
def test_several_groups_under_replace_one_are_answered_only_if_two_of_them_are_paid_for(statistic: OfRecords) -> None:
    records = grouped([0, 1], [1.0, 2.0])
    assert len(statistic.each(records).value) == 2
    fields = {name: getattr(statistic, name) for name in ("epsilon", "relation")}
    if not isinstance(statistic, Count):
        fields["bounds"] = BOUNDS
    alone = type(statistic)(**fields)
    with pytest.raises(sf.errors.OptionError, match=r"two of the 2 groups \(grouped=True accounts for both\)"):
        alone.each(records)
    assert len(alone.each(grouped([0, 0], [1.0, 2.0], of=1)).value) == 1
    assert len(type(statistic)(**{**fields, "relation": "add-remove"}).each(records).value) == 2


@pytest.mark.parametrize("statistic", BY_GROUPS, ids=lambda one: type(one).__name__)
def test_a_record_that_moves_costs_no_more_than_what_is_charged(
    statistic: OfRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All the numbers that get noise, of both groups, and by how much a move or a replacement changes them."""
    seen: list[tuple[AddedNoise, list[int]]] = []
    scores: list[tuple[Any, Any]] = []
    monkeypatch.setattr(
        AddedNoise, "release_steps", lambda self, steps, source=None: seen.append((self, list(steps))) or list(steps)
    )
    monkeypatch.setattr(
        "sfumato.budget.mechanisms.selection.NoisyMax.choose",
        lambda self, known, source: scores.append((self, known)) or 0,
    )
    cost = spent(statistic.event, 0).epsilon
    assert 1.99 < cost <= 2.0
    for before, after in (
        (grouped([0], [4.0]), grouped([1], [4.0])),
        (grouped([0], [4.0]), grouped([1], [-4.0])),
        (grouped([0, 0, 1], [-4.0, 1.0, 2.0]), grouped([1, 0, 1], [3.0, 1.0, 2.0])),
        (grouped([0], [-4.0]), grouped([0], [4.0])),
        (grouped([0], [4.0]), grouped([1], [math.nan])),
    ):
        seen.clear(), scores.clear()
        statistic.each(before), statistic.each(after)
        half, choices = len(seen) // 2, len(scores) // 2
        loss = sum(
            sum(abs(a - b) for a, b in zip(here[1], there[1], strict=True)) / (here[0].scale / here[0].step)
            for here, there in zip(seen[:half], seen[half:], strict=True)
        )
        # A choice costs its epsilon if the scores change by the sensitivity, and less in proportion.
        loss += sum(
            float(np.abs(here[1] - there[1]).max()) / here[0].sensitivity * here[0].epsilon
            for here, there in zip(scores[:choices], scores[choices:], strict=True)
        )
        assert loss <= cost * (1 + 1e-9)
    assert half + choices > 0


def test_the_counts_of_two_groups_are_told_apart_no_better_than_claimed() -> None:
    """An audit; on counts that are charged for one of the two, the bound came out as 1.95 times the claim."""
    count = Count(epsilon=2.0, relation=Relation.REPLACE_ONE, grouped=True)
    found = []
    for at in (0, 1):  # where the record is; many tables of two groups are drawn at once
        records = grouped(list(range(at, 2 * RUNS, 2)), [0.0] * RUNS, of=2 * RUNS)
        first, second = count.each(records).value.reshape(RUNS, 2).T
        found.append(int(((first >= 1) & (second <= 0)).sum()))
    assert_epsilon(*found, RUNS, 2.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-3), (2.0, 1e-3), (6.0, 1e-2)])
def test_gaussian_noise_on_the_counts_of_two_groups_keeps_epsilon_and_delta(epsilon: float, delta: float) -> None:
    for noise in (
        Count(epsilon=epsilon, delta=delta, relation=Relation.REPLACE_ONE, grouped=True).noise,
        ContingencyTable(epsilon=epsilon, delta=delta, relation=Relation.REPLACE_ONE, domains=(("a", "b"),)).noise,
    ):
        assert delta_of_two(DiscreteGaussian(noise.scale), epsilon) <= delta * (1 + 1e-6)
    alone = Count(epsilon=epsilon, delta=delta, relation=Relation.REPLACE_ONE).noise
    assert delta_of_two(DiscreteGaussian(alone.scale), epsilon) > delta, "the noise of one group would not be enough"


@pytest.mark.parametrize("question", ["count by sex", "histogram of age", "sum of age by sex", "median of age by sex"])
def test_a_question_by_groups_pays_for_two_of_them(question: str) -> None:
    ages, asked = NumberColumn("age", 0.0, 90.0), Question.parse(question)
    both, one = (
        statistic_for(asked, ages, 1.0, relation=relation) for relation in (Relation.REPLACE_ONE, Relation.ADD_REMOVE)
    )
    assert both.grouped
    assert both.event.relation is Relation.REPLACE_ONE
    if not isinstance(both, Quantile):
        assert both.noise.scale == pytest.approx(2 * one.noise.scale)  # type: ignore[attr-defined]
    alone = statistic_for(Question.parse("sum of age"), ages, 1.0, relation=Relation.REPLACE_ONE)
    assert not alone.grouped


# --- what is bought, and events that are turned into replace-one ---


def test_categories_and_bounds_are_bought_for_both_places_of_a_replaced_record() -> None:
    for mechanism in (
        SelectCategories(epsilon=1.0, delta=1e-4, relation=Relation.REPLACE_ONE),
        FindBounds(epsilon=1.0, relation=Relation.REPLACE_ONE),
    ):
        assert 2 / mechanism.noise.scale <= 1.0
    selection = SelectCategories(epsilon=1.0, delta=1e-4, relation=Relation.REPLACE_ONE)
    scale, threshold = selection.noise.scale, selection.threshold
    alone = math.exp(-(threshold - 1) / scale) / (1 + math.exp(-1 / scale))  # that a category of one record is named
    assert 2 * alone <= 1e-4, "it may be alone in one category before, and in another one after"


@pytest.mark.parametrize("scale", [0.6, 1.0, 3.0])
@pytest.mark.parametrize("kind", [DiscreteLaplace, DiscreteGaussian])
def test_an_event_turned_into_replace_one_covers_a_record_that_moves(kind: Any, scale: float) -> None:
    """Answers by groups are one event under add-remove; turned, it costs at least what both groups tell."""
    turned = replace_one(kind(scale))
    reach = math.ceil(25 * scale) + 4
    here, there = (density(kind(scale), shift, reach) for shift in (0, int(turned.sensitivity)))
    for epsilon in np.linspace(0, 2 / scale**2 + 2 / scale, 9):
        claimed = float(np.maximum(here - math.exp(epsilon) * there, 0).sum())
        assert delta_of_two(kind(scale), epsilon) <= claimed + 1e-12


def test_parallel_events_are_not_counted_under_replace_one() -> None:
    with pytest.raises(sf.errors.OptionError, match="add-remove, because a changed record may change its part"):
        Parallel((PureEvent(0.1, Relation.REPLACE_ONE),))
    with pytest.raises(sf.errors.OptionError, match="no bound is known"):
        replace_one(Parallel((PureEvent(0.1), PureEvent(0.2))))
    with pytest.raises(sf.errors.OptionError, match="no bound is known"):  # the event of a search by random stopping
        replace_one(Selected(Parallel((Gaussian(1.0), Gaussian(2.0))), 10, 0))
    assert replace_one(Parallel((PureEvent(0.1), PureEvent(0.1)))) == PureEvent(0.2, Relation.REPLACE_ONE)


def test_noisy_sums_are_charged_for_the_record_that_leaves_and_the_one_that_enters() -> None:
    """The sums of an estimator are vectors of norm 1 for each record: replaced, they are at most 2 apart."""
    from sfumato.learners.estimators.noisy_sums import NoisySums, Share

    (event,) = NoisySums({"sums": Share(1, 1.0)}, 3.0, Source()).events
    assert replace_one(event) == Gaussian(3.0, 2.0, Relation.REPLACE_ONE)

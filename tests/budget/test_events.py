"""Events say what was done, survive being stored, and refuse what cannot be."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget import (
    ApproximateEvent,
    BoundedRange,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Exponential,
    FixedSampled,
    Gaussian,
    Laplace,
    NoiseShares,
    Parallel,
    PoissonSampled,
    PureEvent,
    RandomizedResponse,
    Relation,
    Repeated,
    Selected,
    Shuffled,
    group,
    post_process,
    replace_one,
)
from sfumato.budget.events import EVENTS

ONE_OF_EACH: list[Event] = [
    Laplace(2.0),
    Gaussian(1.2, 3.0, Relation.REPLACE_ONE),
    DiscreteLaplace(2.5, 3),
    DiscreteGaussian(4.0),
    PureEvent(0.5),
    Exponential(0.5),
    BoundedRange(0.5),
    RandomizedResponse(1.0),
    ApproximateEvent(0.5, 1e-6),
    NoiseShares(40.0, 100.0, 7, 1000),
    PoissonSampled(0.01, Gaussian(1.2)),
    FixedSampled(64, 60_000, Gaussian(1.2, 2, Relation.REPLACE_ONE)),
    Shuffled(938, Gaussian(1.2)),
    Selected(Laplace(3.0), 10.0, "poisson"),
    Repeated(PureEvent(0.1), 3),
    Composed((PureEvent(0.1), Laplace(3.0))),
    Parallel((PureEvent(0.1), Laplace(3.0))),
]


def test_every_kind_of_event_is_in_these_tests() -> None:
    assert {event.kind for event in ONE_OF_EACH} == set(EVENTS)


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: event.kind)
def test_an_event_comes_back_from_json_as_it_was(event: Event) -> None:
    back = Event.from_dict(json.loads(json.dumps(event.to_dict())))
    assert back == event
    assert hash(back) == hash(event)
    assert type(back) is type(event)


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: event.kind)
def test_an_event_says_itself_in_words_and_has_a_relation(event: Event) -> None:
    assert len(str(event)) > 10
    assert isinstance(event.relation, Relation)
    event.dp_event()


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ({"kind": "gausian", "scale": 1}, "did you mean 'gaussian'"),
        ({"scale": 1}, "must name its kind"),
        ({"kind": "gaussian", "scale": 1}, "has the keys scale, sensitivity, relation"),
        ({"kind": "pure", "epsilon": 1, "relation": "swap"}, "must be one of add-remove, replace-one"),
        ({"kind": "composed", "events": "none"}, "must be a list"),
        ([], "must name its kind"),
    ],
)
def test_a_damaged_event_is_refused(plain: Any, says: str) -> None:
    with pytest.raises(sf.errors.InputError, match=says):
        Event.from_dict(plain)


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan, "1", None, True])
def test_an_epsilon_or_a_scale_that_is_no_positive_number_is_refused(value: Any) -> None:
    for make in (PureEvent, Laplace, Gaussian, DiscreteGaussian):
        with pytest.raises(sf.errors.OptionError, match="must be a finite number above 0"):
            make(value)


@pytest.mark.parametrize("delta", [0, 1, -0.1, math.nan])
def test_a_delta_outside_of_0_to_1_is_refused(delta: float) -> None:
    with pytest.raises(sf.errors.OptionError, match="delta must be a number between 0 and 1"):
        ApproximateEvent(1.0, delta)


def test_events_of_two_relations_cannot_be_put_together() -> None:
    with pytest.raises(sf.errors.OptionError, match="must have one relation"):
        Composed((PureEvent(1.0), PureEvent(1.0, Relation.REPLACE_ONE)))


def test_a_sample_of_a_fixed_size_has_a_public_number_of_records() -> None:
    with pytest.raises(sf.errors.OptionError, match="needs the relation replace-one"):
        FixedSampled(10, 100, Gaussian(1.0))
    with pytest.raises(sf.errors.OptionError, match="cannot be drawn"):
        FixedSampled(101, 100, Gaussian(1.0, 1.0, Relation.REPLACE_ONE))


def test_separate_parts_are_told_apart_by_the_records_so_replacing_is_refused() -> None:
    with pytest.raises(sf.errors.OptionError, match="need the relation add-remove"):
        Parallel((PureEvent(1.0, Relation.REPLACE_ONE),))


def test_whole_numbers_have_a_whole_sensitivity() -> None:
    with pytest.raises(sf.errors.OptionError, match="must be whole"):
        DiscreteLaplace(2.0, 1.5)


def test_replacing_a_record_is_removing_one_and_adding_one() -> None:
    assert replace_one(Laplace(2.0, 3.0)) == Laplace(2.0, 6.0, Relation.REPLACE_ONE)
    assert replace_one(PureEvent(0.5)) == PureEvent(1.0, Relation.REPLACE_ONE)
    assert replace_one(Repeated(Gaussian(1.2), 9)) == Repeated(Gaussian(1.2, 2.0, Relation.REPLACE_ONE), 9)
    assert replace_one(Parallel((PureEvent(0.5),) * 3)) == PureEvent(1.0, Relation.REPLACE_ONE)
    once = replace_one(Gaussian(1.2))
    assert replace_one(once) is once


def test_a_group_of_records_costs_that_many_times_the_epsilon() -> None:
    assert group(PureEvent(0.25), 4) == PureEvent(1.0)
    assert group(Gaussian(2.0), 3) == Gaussian(2.0, 3.0)
    assert group(Composed((PureEvent(0.5), Laplace(1.0))), 2) == Composed((PureEvent(1.0), Laplace(1.0, 2.0)))


def test_the_delta_of_a_group_grows_faster_than_its_size() -> None:
    event = group(ApproximateEvent(0.5, 1e-6), 3)
    assert isinstance(event, ApproximateEvent)
    assert event.delta == pytest.approx(1e-6 * (1 + math.exp(0.5) + math.exp(1.0)))


@given(st.integers(1, 6), st.integers(1, 6))
def test_a_group_of_groups_is_a_group(first: int, second: int) -> None:
    for event in (Laplace(2.0), DiscreteGaussian(3.0), DiscreteLaplace(2.0)):
        assert group(group(event, first), second) == group(event, first * second)


def test_a_group_in_a_sample_is_refused_because_no_bound_is_known() -> None:
    with pytest.raises(sf.errors.OptionError, match="no bound is known when several records change"):
        group(PoissonSampled(0.1, Gaussian(1.0)), 2)


def test_what_is_made_of_an_answer_costs_nothing_more() -> None:
    event = Laplace(2.0)
    assert post_process(event) is event

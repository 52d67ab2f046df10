"""Recorded events hold the steps that are stated, or it is said what they leave out."""

from __future__ import annotations

from typing import Any

import pytest

import sfumato as sf
from sfumato.budget import ApproximateEvent, Composed, Event, Gaussian, Parallel, PoissonSampled, Repeated
from sfumato.budget.accounting.training_events import missing_charges, step_event
from sfumato.learners.dpsgd.account import Stage, events_of
from sfumato.learners.dpsgd.sampling import FixedPoisson, Full, Poisson, Sampler

SAMPLERS = [Poisson(1000, 0.05), Full(1000), FixedPoisson.of(Poisson(60_000, 512 / 60_000), delta=1e-5, up_to=20)]


def lacking(sampler: Sampler, events: list[Event], *, steps: int = 16, noise: float = 2.0, **options: Any) -> str:
    sampling = {**sampler.to_dict(), "steps": steps}
    return missing_charges(events, sampling=sampling, noise_multiplier=noise, each=True, **options)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda one: type(one).__name__)
def test_what_a_training_charges_holds_its_steps(sampler: Sampler) -> None:
    events = events_of(sampler, [Stage(16, 2.0)])
    assert lacking(sampler, events) == ""
    assert lacking(sampler, [Gaussian(9.0), *events, ApproximateEvent(0.0, 1e-9)]) == ""
    assert lacking(sampler, [Parallel((Composed(tuple(events)), Gaussian(9.0)))]) == ""


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda one: type(one).__name__)
def test_whatever_costs_less_lacks_something(sampler: Sampler) -> None:
    step = sampler.event(2.0)
    assert lacking(sampler, [])
    assert lacking(sampler, [Repeated(step, 15)])
    assert lacking(sampler, [Parallel((step,) * 16)])
    assert lacking(sampler, [Parallel((Repeated(step, 8), Repeated(step, 8)))])
    assert lacking(sampler, [Repeated(sampler.event(2.5), 16)])
    assert lacking(sampler, [Repeated(Parallel((step, Gaussian(50.0))), 15)])


def test_a_sample_that_is_cut_to_a_size_is_charged_for_what_is_beyond() -> None:
    sampler = SAMPLERS[2]
    alone = step_event("poisson", sampler.to_dict()["rate"], 2.0)
    assert "oversized sample" in lacking(sampler, [Repeated(alone, 16)])


def test_steps_of_people_are_not_covered_by_those_of_rows() -> None:
    rows, people = Poisson(1000, 0.05), Poisson(1000, 0.05, rows_per_person=3)
    assert lacking(people, events_of(people, [Stage(16, 2.0)]), unit="person") == ""
    assert lacking(people, events_of(rows, [Stage(16, 2.0)]), unit="person")
    assert lacking(people, events_of(people, [Stage(16, 2.0)]))
    varying = [Stage(10, 4.0), Stage(6, 2.0)]
    assert lacking(people, events_of(people, varying), varies=True, unit="person") == ""


def test_noise_that_varies_is_that_of_some_step() -> None:
    sampler = SAMPLERS[0]
    events = events_of(sampler, [Stage(10, 4.0), Stage(6, 2.0)])
    assert lacking(sampler, events)
    assert lacking(sampler, events, varies=True) == ""
    assert lacking(sampler, events, varies=True, noise=3.0)
    assert lacking(sampler, events[1:], varies=True)
    assert lacking(sampler, [Repeated(PoissonSampled(0.01, Gaussian(2.0)), 16)], varies=True)


def test_sums_cost_together_as_much_as_the_one_that_is_stated() -> None:
    sampling = {"kind": "full", "rate": 1.0, "steps": 2}
    two = [Gaussian(2.0 * 2**0.5), Gaussian(2.0 * 2**0.5)]
    assert missing_charges(two, sampling=sampling, noise_multiplier=2.0, each=False) == ""
    assert "2 noisy sums" in missing_charges(two[:1], sampling=sampling, noise_multiplier=2.0, each=False)
    assert missing_charges(two, sampling=sampling, noise_multiplier=1.9, each=False)


@pytest.mark.parametrize(
    "sampling",
    [
        {"kind": "full", "rate": 0.5, "steps": 16},
        {"kind": "magic", "rate": 1.0, "steps": 16},
        {"kind": "full", "rate": 1.0, "steps": 0},
        {"kind": "full", "rate": 1.0, "steps": True},
    ],
    ids=str,
)
def test_samples_that_nobody_takes_are_refused(sampling: dict[str, Any]) -> None:
    with pytest.raises(sf.SfumatoError):
        missing_charges([Gaussian(2.0)], sampling=sampling, noise_multiplier=2.0, each=True)


def test_separate_parts_within_separate_parts_take_no_forever() -> None:
    event: Event = Gaussian(2.0)
    for _ in range(10):
        event = Composed((Parallel((event, Gaussian(3.0))), Parallel((event, Gaussian(4.0)))))
    with pytest.raises(sf.SfumatoError, match="more than 64 combinations"):
        lacking(SAMPLERS[1], [event])

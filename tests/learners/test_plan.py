"""Stages of noise cost at most their target, and no step that was begun is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget import Gaussian, PoissonSampled, Repeated, spent
from sfumato.learners.dpsgd.account import Progress, Stage, events_of, plan
from sfumato.learners.dpsgd.optimizers import SCHEDULES
from sfumato.learners.dpsgd.sampling import Full, Poisson


def even(_: float) -> float:
    return 1.0


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("sampler", [Full(1000), Poisson(1000, 0.05)])
def test_every_course_costs_its_target_and_no_more(name: str, sampler: Full | Poisson) -> None:
    stages = plan(sampler, 25, SCHEDULES[name], delta=1e-4, epsilon=1.0)
    assert sum(stage.steps for stage in stages) == 25
    assert 0.99 < spent(events_of(sampler, stages), 1e-4).epsilon <= 1.0


@given(st.integers(1, 200))
def test_all_steps_are_planned_whatever_their_number(steps: int) -> None:
    stages = plan(Full(10), steps, lambda way: 2 - way, delta=1e-3, noise_multiplier=3.0)
    assert sum(stage.steps for stage in stages) == steps
    assert len(stages) == min(10, steps)
    assert all(stage.steps for stage in stages)


def test_the_past_is_part_of_the_target() -> None:
    sampler = Poisson(1000, 0.05)
    past = [Repeated(sampler.event(2.0), 50)]
    stages = plan(sampler, 50, even, delta=1e-4, epsilon=1.5, past=past)
    assert 1.48 < spent([*past, *events_of(sampler, stages)], 1e-4).epsilon <= 1.5


def test_a_target_that_is_spent_is_refused() -> None:
    with pytest.raises(sf.errors.OptionError, match=r"epsilon must be above the .* already spent, got 0.1"):
        plan(Full(10), 5, even, delta=1e-3, epsilon=0.1, past=[Gaussian(1.0)])


def test_events_are_those_of_the_sampler() -> None:
    stages = [Stage(3, 2.0), Stage(0, 1.5), Stage(4, 1.0)]
    assert events_of(Full(10), stages) == [Repeated(Gaussian(2.0), 3), Repeated(Gaussian(1.0), 4)]
    assert events_of(Poisson(10, 0.5), stages[:1]) == [Repeated(PoissonSampled(0.5, Gaussian(2.0)), 3)]


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from([1.0, 2.0, 3.0])), max_size=5), st.data())
def test_steps_move_from_what_is_ahead_to_what_ran(given_stages: list[tuple[int, float]], data: st.DataObject) -> None:
    ahead = [Stage(*one) for one in given_stages]
    noises = [stage.noise_multiplier for stage in ahead for _ in range(stage.steps)]
    progress = Progress(ahead=list(ahead))
    made = data.draw(st.integers(0, len(noises)))
    assert [progress.begin().noise_multiplier for _ in range(made)] == noises[:made]
    assert [stage.noise_multiplier for stage in progress.ran for _ in range(stage.steps)] == noises[:made]
    assert [stage.noise_multiplier for stage in progress.ahead for _ in range(stage.steps)] == noises[made:]
    assert (progress.done, progress.total) == (made, len(noises))
    assert all(one.noise_multiplier != other.noise_multiplier for one, other in zip(progress.ran, progress.ran[1:]))  # noqa: B905


def test_steps_that_were_paid_for_are_not_those_of_another_way() -> None:
    progress = Progress(ahead=[Stage(5, 1.0)], paid=3)
    progress.begin()
    assert progress.paid == 2
    progress.redirect([Stage(4, 2.0)])
    assert (progress.paid, progress.total) == (0, 5)
    assert progress.current == Stage(4, 2.0)

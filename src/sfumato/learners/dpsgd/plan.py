"""The steps of a training and their noise: stages of equal noise, calibrated so that all cost at most a target."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sfumato.budget.accounting.accountant import calibrate, spent
from sfumato.budget.events import Composed, Event, Repeated
from sfumato.errors import OptionError
from sfumato.learners.dpsgd.optimizers import Schedule
from sfumato.learners.dpsgd.sampling import Sampler

__all__ = ["Progress", "Stage", "events_of", "plan"]

_LEVELS = 10  # how many levels of noise a course is divided into


@dataclass(frozen=True)
class Stage:
    """A number of steps with the same noise."""

    steps: int
    noise_multiplier: float


@dataclass
class Progress:
    """The steps of a training that were begun, and those to come.

    Examples
    --------
    >>> progress = Progress(ahead=[Stage(2, 4.0), Stage(1, 2.0)])
    >>> [progress.begin().noise_multiplier for _ in range(3)]
    [4.0, 4.0, 2.0]
    >>> progress.ran
    [Stage(steps=2, noise_multiplier=4.0), Stage(steps=1, noise_multiplier=2.0)]
    """

    ran: list[Stage] = field(default_factory=list)
    ahead: list[Stage] = field(default_factory=list)
    paid: int = 0
    """How many of the steps ahead are charged already."""
    waived: list[Stage] = field(default_factory=list)
    """Steps that will not be made and count all the same: that they were given up was decided by noisy values."""

    @property
    def done(self) -> int:
        """How many steps were begun."""
        return sum(stage.steps for stage in self.ran)

    @property
    def total(self) -> int:
        """How many there will be."""
        return self.done + sum(stage.steps for stage in self.ahead)

    @property
    def current(self) -> Stage | None:
        """The stage of the next step, or of the last one if there is no more."""
        return next(iter((*self.ahead[:1], *self.ran[-1:])), None)

    def begin(self) -> Stage:
        """Count the next step, before it is made: what may have been released is never forgotten."""
        stage, *later = self.ahead
        left = [Stage(stage.steps - 1, stage.noise_multiplier)] if stage.steps > 1 else []
        *earlier, last = self.ran or [Stage(0, stage.noise_multiplier)]
        if last.noise_multiplier != stage.noise_multiplier:
            earlier, last = self.ran, Stage(0, stage.noise_multiplier)
        self.ran, self.ahead = [*earlier, Stage(last.steps + 1, last.noise_multiplier)], [*left, *later]
        self.paid = max(self.paid - 1, 0)
        return stage

    def waive(self) -> None:
        """Make no more steps, and count those ahead."""
        self.waived, self.ahead, self.paid = [*self.waived, *self.ahead], [], 0

    def redirect(self, ahead: Iterable[Stage]) -> None:
        """Go on another way."""
        self.ahead, self.paid = list(ahead), 0


def events_of(sampler: Sampler, stages: Iterable[Stage]) -> list[Event]:
    """Return what stages are, for the accountant."""
    return [Repeated(sampler.event(one.noise_multiplier), one.steps) for one in stages if one.steps]


def plan(
    sampler: Sampler,
    steps: int,
    course: Schedule,
    *,
    delta: float,
    epsilon: float | None = None,
    noise_multiplier: float = 1.0,
    past: Sequence[Event] = (),
) -> list[Stage]:
    """Divide steps into stages of equal noise.

    Parameters
    ----------
    course : callable
        The factor of the noise along the way; where it is small, more of the budget is spent.
    epsilon : float, optional
        What all events, those of the past included, may cost together.
    noise_multiplier : float
        The noise where the factor is 1, if no epsilon is given.

    Examples
    --------
    >>> from sfumato.learners.dpsgd.sampling import Full
    >>> plan(Full(100), 20, lambda way: 1.0, delta=1e-3, noise_multiplier=2.0)
    [Stage(steps=20, noise_multiplier=2.0)]
    >>> stages = plan(Full(100), 20, lambda way: 2.0 - way, delta=1e-3, epsilon=1.0)
    >>> len(stages), stages[0].noise_multiplier > stages[-1].noise_multiplier
    (10, True)
    >>> spent(events_of(Full(100), stages), 1e-3).epsilon <= 1.0
    True
    """
    levels = min(_LEVELS, steps)
    factors = [float(course((at + 0.5) / levels)) for at in range(levels)]
    if not all(0 < factor < math.inf for factor in factors):
        raise OptionError("the course of the noise must be above 0 all the way")
    if len(set(factors)) == 1:
        levels, factors = 1, factors[:1]
    ends = [round(steps * at / levels) for at in range(levels + 1)]

    def stages(scale: float) -> list[Stage]:
        return [Stage(end - start, scale * factor) for start, end, factor in zip(ends, ends[1:], factors, strict=False)]

    if epsilon is None:
        return stages(noise_multiplier)
    before = spent(past, delta).epsilon
    if before >= epsilon:
        raise OptionError(f"epsilon must be above the {before:.3g} that is spent already, got {epsilon:g}")

    def run(scale: float) -> Event:
        return Composed((*past, *events_of(sampler, stages(scale))))

    # Many levels take long to account for: a thousandth of noise too much is given for it.
    return stages(calibrate(run, epsilon, delta, precision=1e-4 if levels == 1 else 1e-3))

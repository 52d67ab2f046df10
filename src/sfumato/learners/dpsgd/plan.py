"""Plan the steps of a training run: stages of equal noise, calibrated to cost at most a target epsilon."""

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

_LEVELS = 10  # the number of noise levels that a noise schedule is divided into


@dataclass(frozen=True)
class Stage:
    """A number of steps with the same noise."""

    steps: int
    noise_multiplier: float


@dataclass
class Progress:
    """The steps that a training run has begun, and those still to come.

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
    """How many of the steps ahead have been charged."""
    waived: list[Stage] = field(default_factory=list)
    """Steps that were skipped but still count, because noisy values decided to skip them."""

    @property
    def done(self) -> int:
        """The number of steps begun."""
        return sum(stage.steps for stage in self.ran)

    @property
    def total(self) -> int:
        """The number of steps begun and ahead."""
        return self.done + sum(stage.steps for stage in self.ahead)

    @property
    def current(self) -> Stage | None:
        """The stage of the next step, or of the last one if none is left."""
        return next(iter((*self.ahead[:1], *self.ran[-1:])), None)

    def begin(self) -> Stage:
        """Count the next step before it runs, so an interrupted step counts too."""
        stage, *later = self.ahead
        left = [Stage(stage.steps - 1, stage.noise_multiplier)] if stage.steps > 1 else []
        *earlier, last = self.ran or [Stage(0, stage.noise_multiplier)]
        if last.noise_multiplier != stage.noise_multiplier:
            earlier, last = self.ran, Stage(0, stage.noise_multiplier)
        self.ran, self.ahead = [*earlier, Stage(last.steps + 1, last.noise_multiplier)], [*left, *later]
        self.paid = max(self.paid - 1, 0)
        return stage

    def waive(self) -> None:
        """Skip the steps ahead, but count them."""
        self.waived, self.ahead, self.paid = [*self.waived, *self.ahead], [], 0

    def redirect(self, ahead: Iterable[Stage]) -> None:
        """Replace the steps ahead."""
        self.ahead, self.paid = list(ahead), 0


def events_of(sampler: Sampler, stages: Iterable[Stage]) -> list[Event]:
    """Return the events of stages, for the accountant."""
    return [Repeated(sampler.event(stage.noise_multiplier), stage.steps) for stage in stages if stage.steps]


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
        The noise factor as a function of the fraction of steps done; a smaller factor spends more of the budget.
    epsilon : float, optional
        The most that all events, including those in `past`, may cost together.
    noise_multiplier : float
        The noise at a factor of 1, if no epsilon is given.

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
        raise OptionError("the noise schedule must be above 0 everywhere")
    if len(set(factors)) == 1:
        levels, factors = 1, factors[:1]
    ends = [round(steps * at / levels) for at in range(levels + 1)]

    def stages(scale: float) -> list[Stage]:
        return [Stage(end - start, scale * factor) for start, end, factor in zip(ends, ends[1:], factors, strict=False)]

    if epsilon is None:
        return stages(noise_multiplier)
    before = spent(past, delta).epsilon
    if before >= epsilon:
        raise OptionError(f"epsilon must be above the {before:.3g} already spent, got {epsilon:g}")

    def run(scale: float) -> Event:
        return Composed((*past, *events_of(sampler, stages(scale))))

    # Accounting for many levels is slow, so a coarser search accepts up to a thousandth too much noise.
    return stages(calibrate(run, epsilon, delta, precision=1e-4 if levels == 1 else 1e-3))

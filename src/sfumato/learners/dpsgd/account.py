"""The privacy account of a training run: its plan, its cost so far, and the ledger charged before each epoch.

A plan has stages of equal noise, calibrated to cost at most a target epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfumato.budget.accounting.accountant import Spent, calibrate, check_delta, spent
from sfumato.budget.events import Composed, Event, Relation, Repeated
from sfumato.budget.ledger.ledger import Ledger
from sfumato.data.validate import real, whole
from sfumato.errors import OptionError
from sfumato.learners.dpsgd.distributed import SingleProcess
from sfumato.learners.dpsgd.optimizers import Schedule
from sfumato.learners.dpsgd.sampling import Sampler

__all__ = ["Progress", "RunAccount", "Stage", "events_of", "plan"]

_LEVELS = 10  # the number of noise levels that a noise schedule is divided into


class RunAccount:
    """The privacy account of a training run.

    Give epsilon (infinite without privacy) or noise_multiplier, and epochs or steps. The course is the noise factor as
    a function of the fraction of steps done.

    Examples
    --------
    >>> from sfumato.learners.dpsgd.sampling import Full
    >>> terms = {"epsilon": 1.0, "noise_multiplier": None, "delta": 1e-3, "epochs": None, "steps": 2}
    >>> account = RunAccount(**terms, course=lambda way: 1.0)
    >>> account.open(Full(100))
    >>> account.begin() == account.begin()
    True
    >>> 0.99 < account.spent.epsilon <= 1.0
    True
    """

    def __init__(
        self,
        *,
        epsilon: float | None,
        noise_multiplier: float | None,
        delta: float,
        epochs: float | None,
        steps: int | None,
        course: Schedule,
        ledger: Ledger | None = None,
    ) -> None:
        if (epsilon is None) == (noise_multiplier is None):
            raise OptionError("give either epsilon or noise_multiplier")
        self.epsilon = epsilon if epsilon in (None, math.inf) else real("epsilon", epsilon, above=0)
        self.delta = check_delta(delta)
        self.course, self.ledger = course, ledger
        if ledger is not None and not self.private:
            raise OptionError("a training without privacy cannot be charged to a ledger", hint="it has no epsilon")
        noise = None if noise_multiplier is None else real("the noise multiplier", noise_multiplier, above=0)
        self.requested = {**_length(epochs, steps), "epsilon": self.epsilon, "noise multiplier": noise}
        """The terms of the steps ahead, under the names that error messages use."""
        self.extended = False
        self.sampler: Sampler | None = None
        self.progress = Progress()
        self._is_planned = False

    @property
    def private(self) -> bool:
        """Whether epsilon is finite."""
        return self.epsilon != math.inf

    @property
    def up_to(self) -> float:
        """An epsilon that the training will not exceed, for bounds that are needed in advance."""
        return 20.0 if self.epsilon is not None and self.epsilon <= 20 else 60.0

    @property
    def events(self) -> tuple[Event, ...]:
        """The events so far, including steps that were skipped but still count."""
        counted = (*self.progress.ran, *self.progress.waived)
        return tuple(events_of(self.sampler, counted)) if self.private and self.sampler else ()

    @property
    def spent(self) -> Spent:
        """The privacy cost of those events."""
        if not self.private and self.progress.done:
            return Spent(math.inf, self.delta, Relation.ADD_REMOVE, "pld", ())
        return spent(self.events, self.delta)

    @property
    def noise_multiplier(self) -> float | None:
        """The noise of the next step, or of the last one if none is left; None before it is known."""
        stage = self.progress.current
        return stage.noise_multiplier if stage else self.requested["noise multiplier"]

    def extend(self, epochs: float | None, steps: int | None, epsilon: float | None) -> None:
        """Replace the steps that are left: with the same noise, or with noise for a new total epsilon."""
        if epsilon is not None and not self.private:
            raise OptionError("a training without privacy cannot be given an epsilon later")
        total = None if epsilon is None else real("epsilon", epsilon, above=0)
        self.requested = {**self.requested, **_length(epochs, steps), "epsilon": total}
        self.extended, self._is_planned = True, False

    def check(self, sampler: Sampler) -> None:
        """Raise an `OptionError` if the samples do not fit this account."""
        if self.private:
            check_delta(self.delta, sampler.rows)
        if self.sampler not in (None, sampler):
            raise OptionError("a training continues with as many samples as it began with")

    def open(self, sampler: Sampler) -> None:
        """Plan the steps for these samples, unless they are planned already."""
        self.check(sampler)
        self.sampler = sampler
        if not self._is_planned:
            self.progress.redirect(self._plan(sampler))
            self._is_planned = True

    def pay(self, every: int, processes: SingleProcess, *, seeded: bool = False) -> None:
        """Charge the rest of an epoch of ``every`` steps before its noise is drawn, unless it is already charged."""
        if self.progress.paid or not self.private or self.sampler is None:
            return
        stage, ledger = self.progress.ahead[0], self.ledger
        event, steps = self.sampler.event(stage.noise_multiplier), min(stage.steps, every - self.progress.done % every)

        def charge() -> None:
            if ledger is not None:
                ledger.charge(event, times=steps, note="training", private=not seeded)

        processes.once(charge)
        self.progress.paid = steps

    def pay_all(self, processes: SingleProcess, *, seeded: bool = False) -> None:
        """Charge all steps ahead at once: a run that noisy values may stop early costs all of them."""
        ahead, ledger = self.progress.ahead, self.ledger
        if not ahead or not self.private or self.sampler is None:
            return
        event = Composed(tuple(events_of(self.sampler, ahead)))

        def charge() -> None:
            if ledger is not None:
                ledger.charge(event, note="training that may stop early", private=not seeded)

        processes.once(charge)
        self.progress.paid = sum(stage.steps for stage in ahead)

    def begin(self) -> float:
        """Count the next step as begun, and return its noise multiplier."""
        return self.progress.begin().noise_multiplier

    def to_dict(self) -> dict[str, Any]:
        """Return the stages so far and ahead as plain values."""
        return {
            name: [[stage.steps, stage.noise_multiplier] for stage in stages]
            for name, stages in (("ran", self.progress.ran), ("ahead", self.progress.ahead))
        }

    def continue_from(self, plain: Mapping[str, Any]) -> None:
        """Resume from a `to_dict`; steps charged after it was taken are lost."""
        ran, ahead = ([Stage(*stage) for stage in plain[name]] for name in ("ran", "ahead"))
        self.progress = Progress(ran, ahead)
        self._is_planned = not self.extended

    def _plan(self, sampler: Sampler) -> list[Stage]:
        steps, epochs, target = (self.requested[name] for name in ("number of steps", "number of epochs", "epsilon"))
        count = int(steps) if steps else max(1, round((epochs or 0) * sampler.rows / sampler.expected))
        if not self.private:
            return [Stage(count, 0.0)]
        last = self.progress.ran[-1:]
        if target is None and last:  # continue with the same noise
            return [Stage(count, last[0].noise_multiplier)]
        return plan(
            sampler,
            count,
            self.course,
            delta=self.delta,
            epsilon=target or self.epsilon,
            noise_multiplier=self.requested["noise multiplier"] or 1.0,
            past=self.events,
        )


def _length(epochs: float | None, steps: int | None) -> dict[str, float | None]:
    if (epochs is None) == (steps is None):
        raise OptionError("give either epochs or steps")
    return {
        "number of epochs": None if epochs is None else real("the number of epochs", epochs, above=0),
        "number of steps": None if steps is None else whole("the number of steps", steps),
    }


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

    The course is the noise factor as a function of the fraction of steps done; a smaller factor spends more of the
    budget. All events, including those in `past`, cost at most epsilon; without one, `noise_multiplier` is the noise at
    a factor of 1.

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

"""What a report says of the models of a training: a name and a style for each, and a verdict on what privacy cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.learners.training.runs import Run, Training, label_of, surest
from sfumato.report.summarise import count, number, share

__all__ = ["Outcome", "Verdict", "known", "outcomes_of", "write", "write_epsilon"]

_MOST_NAMED = 3  # models in the headline


@dataclass(frozen=True)
class Outcome:
    """A run, with what every chart calls it and how every chart draws it."""

    run: Run
    label: str
    style: int

    @property
    def private(self) -> bool:
        """Whether it has a bound; `seeded` tells whether the bound means something."""
        return self.run.epsilon != math.inf

    @property
    def seeded(self) -> bool:
        """Whether its noise can be drawn again."""
        return self.private and self.run.facts.get("private") is False

    @property
    def spent(self) -> float:
        """The epsilon that its events add up to."""
        told = self.run.facts.get("spent")
        held = known(told)
        return math.inf if told == "inf" else self.run.epsilon if held is None else held

    @property
    def scored(self) -> bool:
        """Whether its scores are released."""
        return self.run.scores.how != "none"

    @property
    def margin(self) -> float:
        """How far noise moves the score to either side, in 95 % of cases."""
        return self.run.scores.margin

    @property
    def score(self) -> float:
        """The accuracy, or the mean squared error; it may be not a number."""
        scores = self.run.scores
        return scores.loss if scores.accuracy is None else scores.accuracy


def outcomes_of(training: Training) -> list[Outcome]:
    """Order the runs by epsilon, that without privacy last, and give each a name and a style of its own."""
    ordered = sorted(training.runs, key=lambda run: run.epsilon)
    named = [label_of(float(f"{run.epsilon:.3g}")) for run in ordered]
    ones: list[Outcome] = []
    styles = iter(range(1, len(ordered) + 1))
    for run, label in zip(ordered, named, strict=True):
        own = label if named.count(label) == 1 else f"{label} ({run.name})"
        plain = run.epsilon == math.inf and not any(one.style == 0 for one in ones)
        ones.append(Outcome(run, own, 0 if plain else next(styles)))
    return ones


class Verdict:
    """Says what privacy cost, by accuracy or by the mean squared error."""

    def __init__(self, training: Training, runs: Sequence[Outcome]) -> None:
        self.training = training
        self.regression = any(one.run.scores.accuracy is None for one in runs if one.scored)
        self.private = [one for one in runs if one.private]
        self.ordinary = next((one for one in runs if not one.private), None)
        self.scored = any(one.scored for one in runs)
        best = surest(one.run for one in runs)
        self.baseline = best.baseline
        self.rows = best.rows
        self.noisy = any(one.run.scores.how == "noisy" for one in runs)
        self.margin = max((one.margin for one in runs), default=0.0)

    def write(self, score: float) -> str:
        """Write a score."""
        if not math.isfinite(score):
            return "hidden by noise" if self.noisy else "without a score"
        return number(float(score)) if self.regression else share(score)

    def spread(self) -> str:
        """Write how far noise moves a score to either side, in 95 % of cases."""
        return number(self.margin) if self.regression else f"{100 * self.margin:.1f} points"

    def better(self, one: float, other: float) -> bool:
        """Return whether a score is at least as good as another; one that is not a number is not."""
        return one <= other if self.regression else one >= other

    def headline(self) -> str:
        """Say in one or two sentences what privacy cost."""
        if not self.private and self.ordinary is None:
            return "No model was trained."
        if not self.scored:
            return self._marked("No scores are released.")
        named = self.private if len(self.private) <= _MOST_NAMED else [self.private[0], self.private[-1]]
        first, rest = ("the mean squared error is", "") if self.regression else ("the model answers", " right")
        said = [f"at {one.label} {self.write(one.score)}" for one in named]
        if said:
            said[0] = f"At {named[0].label} {first} {self.write(named[0].score)}{rest}"
            text = ", ".join(said)
            if self.ordinary:
                text += f"; without privacy {self.write(self.ordinary.score)}"
                if any(self._close(one, self.ordinary.score) for one in self.private):
                    text += ": the noise on the scores hides what privacy cost"
                elif all(self.better(one.score, self.ordinary.score) for one in self.private):
                    text += ": here, privacy cost nothing"
        else:
            assert self.ordinary is not None
            text = f"Without privacy {first} {self.write(self.ordinary.score)}{rest}"
        guess = "Always answering the mean" if self.regression else "Guessing the most frequent class"
        return self._marked(f"{text}. {guess}: {self.write(self.baseline)}.")

    def _marked(self, text: str) -> str:
        """Say first if what follows is of models that are not private."""
        seeded = [one for one in self.private if one.seeded]
        who = (
            "Reproducible" if len(seeded) == len(self.private) else f"{len(seeded)} of {len(self.private)} reproducible"
        )
        return f"{who}, not private. {text}" if seeded else text

    def good(self) -> bool | None:
        """Return whether every model is private and learnt something; None if no model is meant to be private."""
        if not self.private:
            return None
        if any(one.seeded or (one.scored and self._useless(one)) for one in self.private):
            return False
        return None if any(one.scored and self._close(one, self.baseline) for one in self.private) else True

    def facts(self) -> list[str]:
        """Return what else a reader of the headline should know."""
        training = self.training
        sizes = [] if training.rows is None else [f"{count(training.rows, 'row')} to train on"]
        if self.rows:
            sizes.append(f"{'about ' if self.noisy else ''}{self.rows:,} to test on")
        what = f"{training.model} on {training.data}, to predict {training.target}"
        facts = [f"{what}: {', '.join(sizes)}" if sizes else what]
        if self.noisy:
            facts.append(
                "scores of private models are noisy, so that they tell little of any test row: that is part of their "
                "epsilon, and costs nothing more, because a row either trains or tests"
            )
            if self.ordinary:
                facts.append(
                    "scores of the model without privacy are exact and have no bound: keep this page to yourself"
                )
        if training.is_public:
            facts.append("the data set is public, so scores are exact")
        if self.ordinary and any(one.scored for one in self.private):
            costs = [f"{self._cost(one, self.ordinary)} at {one.label}" for one in self.private]
            facts.append(f"the price of privacy: {', '.join(costs)}")
        if useless := [one.label for one in self.private if one.scored and self._useless(one)]:
            facts.append(f"no better than guessing: the model at {', '.join(useless)}")
        if hidden := [one.label for one in self.private if one.scored and self._close(one, self.baseline)]:
            facts.append(f"the noise on the scores hides whether it is better than guessing: {', '.join(hidden)}")
        if seeded := [one.label for one in self.private if one.seeded]:
            facts.append(
                f"the noise of {', '.join(seeded)} came from a fixed seed: who knows the seed can take it off again"
            )
        scores = [one.score for one in (*self.private, self.ordinary) if one and math.isfinite(one.score)]
        if scores and not self.regression and self.rows:
            spread = max(1.96 * math.sqrt(max(score * (1 - score), 0.0) / self.rows) for score in scores)
            spread, noise = math.hypot(spread, self.margin), " with this noise" if self.noisy else ""
            facts.append(
                f"each epsilon was trained once, and {self.rows:,} test rows{noise} tell an accuracy to about "
                f"±{100 * spread:.1f} points: smaller differences may be chance"
            )
        if self.private and self.ordinary is None:
            facts.append("no model was trained without privacy, so what privacy cost is not known")
        if not self.private:
            facts.append("no model here is private: each may tell who it was trained on")
        return facts

    def _close(self, one: Outcome, other: float) -> bool:
        """Return whether noise can have made the difference between a model's score and another one."""
        return one.margin > 0 and not abs(one.score - other) > one.margin  # nor if either is not a number

    def _useless(self, one: Outcome) -> bool:
        return not self._close(one, self.baseline) and (self.better(self.baseline, one.score) or math.isnan(one.score))

    def _cost(self, one: Outcome, ordinary: Outcome) -> str:
        if self._close(one, ordinary.score) or not math.isfinite(one.score - ordinary.score):
            return "not known"
        if self.regression:
            return f"{number(one.score / ordinary.score)} times the error" if ordinary.score else "an error at all"
        lost = round(100 * (ordinary.score - one.score), 1)
        return f"{lost:.1f} points" if lost > 0 else "nothing" if lost == 0 else f"{-lost:.1f} points gained"


# --- plain values, which may be missing -----------------------------------------------------------


def known(value: Any) -> float | None:
    """Return a number if it is one; what is missing, not a number or unbounded is None.

    Examples
    --------
    >>> known(2), known(math.nan), known("inf"), known(None)
    (2.0, None, None, None)
    """
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def write(value: Any) -> str:
    """Write a number for a person, or a dash if it is not `known`.

    Examples
    --------
    >>> write(1234.567), write(1e-5), write(math.nan)
    ('1,235', '1e-05', '-')
    """
    held = known(value)
    return "-" if held is None else number(held)


def write_epsilon(value: float | None) -> str:
    """Write an epsilon for a person: three digits.

    Examples
    --------
    >>> write_epsilon(13.2067), write_epsilon(math.inf), write_epsilon(None)
    ('13.2', '∞', '-')
    """
    return "-" if value is None else "∞" if value == math.inf else f"{value:.3g}"

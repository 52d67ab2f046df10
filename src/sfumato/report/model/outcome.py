"""The models of a training as a page shows them: a label and a style for each, and a verdict on what privacy cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.data.certificate import PERSON, UNIT
from sfumato.learners.training.runs import Run, Training, label_of, surest
from sfumato.report.model.accountings import events_of
from sfumato.report.summarise import count, number, share

__all__ = ["Outcome", "PrivacyCost", "known", "outcomes_of", "write", "write_epsilon"]

_MOST_NAMED = 3  # models in the headline


@dataclass(frozen=True)
class Outcome:
    """A run, with the label and the style that it has in every chart."""

    run: Run
    label: str
    style: int

    @property
    def private(self) -> bool:
        """Whether it has a bound; the bound means nothing if it is `seeded`."""
        return self.run.epsilon != math.inf

    @property
    def seeded(self) -> bool:
        """Whether its noise came from a fixed seed."""
        return self.private and self.run.facts.get("private") is False

    @property
    def spent(self) -> float:
        """The epsilon that its events add up to."""
        spent = self.run.facts.get("spent")
        number = known(spent)
        return math.inf if spent == "inf" else self.run.epsilon if number is None else number

    @property
    def unit(self) -> str:
        """What the bound is for: a row, or a person with all of their rows."""
        return next((one.unit for one in events_of(self.run.facts)), UNIT)

    @property
    def scored(self) -> bool:
        """Whether its scores are released."""
        return self.run.scores.how != "none"

    @property
    def margin(self) -> float:
        """The half-width of the 95 % interval of the noise on the score."""
        return self.run.scores.margin

    @property
    def score(self) -> float:
        """The accuracy, or the mean squared error; may be NaN."""
        scores = self.run.scores
        return scores.loss if scores.accuracy is None else scores.accuracy


def outcomes_of(training: Training) -> list[Outcome]:
    """Order the runs by epsilon, the one without privacy last, and give each its own label and style."""
    ordered = sorted(training.runs, key=lambda run: run.epsilon)
    named = [label_of(float(f"{run.epsilon:.3g}")) for run in ordered]
    ones: list[Outcome] = []
    styles = iter(range(1, len(ordered) + 1))
    for run, label in zip(ordered, named, strict=True):
        own = label if named.count(label) == 1 else f"{label} ({run.name})"
        plain = run.epsilon == math.inf and not any(one.style == 0 for one in ones)
        ones.append(Outcome(run, own, 0 if plain else next(styles)))
    return ones


class PrivacyCost:
    """States what privacy cost, in accuracy or mean squared error."""

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
        """Write a score for a person."""
        if not math.isfinite(score):
            return "hidden by noise" if self.noisy else "without a score"
        return number(float(score)) if self.regression else share(score)

    def spread(self) -> str:
        """Write the half-width of the 95 % interval of the noise."""
        return number(self.margin) if self.regression else f"{100 * self.margin:.1f} points"

    def better(self, one: float, other: float) -> bool:
        """Return whether a score is at least as good as another; NaN never is."""
        return one <= other if self.regression else one >= other

    def headline(self) -> str:
        """Return one or two sentences about what privacy cost."""
        if not self.private and self.ordinary is None:
            return "No model was trained."
        if not self.scored:
            return self._marked("No scores are released.")
        named = self.private if len(self.private) <= _MOST_NAMED else [self.private[0], self.private[-1]]
        score = f"the {'mean squared error' if self.regression else 'accuracy'} is"
        if named:
            text = f"At {named[0].label} {score} {self.write(named[0].score)}"
            text += "".join(f", at {one.label} {self.write(one.score)}" for one in named[1:])
            if self.ordinary:
                text += f"; without privacy {self.write(self.ordinary.score)}"
                if any(self._close(one, self.ordinary.score) for one in self.private):
                    text += ": the noise on the scores hides what privacy cost"
                elif all(self.better(one.score, self.ordinary.score) for one in self.private):
                    text += ": here privacy cost nothing"
        else:
            assert self.ordinary is not None
            text = f"Without privacy {score} {self.write(self.ordinary.score)}"
        guess = "Always predicting the mean" if self.regression else "Guessing the most frequent class"
        return self._marked(f"{text}. {guess}: {self.write(self.baseline)}.")

    def _marked(self, text: str) -> str:
        """Put a warning before a text about models that are not private."""
        seeded = [one for one in self.private if one.seeded]
        which = (
            "Reproducible" if len(seeded) == len(self.private) else f"{len(seeded)} of {len(self.private)} reproducible"
        )
        return f"{which}, not private. {text}" if seeded else text

    def good(self) -> bool | None:
        """Return whether every private model is private and learned something; None if there is none."""
        if not self.private:
            return None
        if any(one.seeded or (one.scored and self._useless(one)) for one in self.private):
            return False
        return None if any(one.scored and self._close(one, self.baseline) for one in self.private) else True

    def facts(self) -> list[str]:
        """Return the sentences below the headline."""
        training = self.training
        sizes = []
        if training.rows is not None:
            there = f"{training.rows:,} people" if training.unit == PERSON else count(training.rows, "row")
            sizes.append(f"{there} to train on")
        if self.rows:
            sizes.append(f"{'about ' if self.noisy else ''}{self.rows:,} to test on")
        what = f"{training.model} on {training.data}, to predict {training.target}"
        facts = [f"{what}: {', '.join(sizes)}" if sizes else what]
        if self.noisy:
            facts.append(
                "scores of private models are noisy, to protect the test rows: that is part of their epsilon and costs "
                f"nothing more, because a {training.unit} is used either to train or to test"
            )
            if self.ordinary:
                facts.append(
                    "scores of the model without privacy are exact and unprotected: keep this page to yourself"
                )
        if training.is_public:
            facts.append("the data set is public, so scores are exact")
        if self.ordinary and any(one.scored for one in self.private):
            costs = [f"{self._cost(one, self.ordinary)} at {one.label}" for one in self.private]
            facts.append(f"the price of privacy: {', '.join(costs)}")
        if useless := [one.label for one in self.private if one.scored and self._useless(one)]:
            facts.append(f"no better than guessing: the model at {', '.join(useless)}")
        if hidden := [one.label for one in self.private if one.scored and self._close(one, self.baseline)]:
            facts.append(f"noise on the scores hides whether the model is better than guessing: {', '.join(hidden)}")
        if seeded := [one.label for one in self.private if one.seeded]:
            facts.append(f"the noise of {', '.join(seeded)} came from a fixed seed: anyone with the seed can remove it")
        scores = [one.score for one in (*self.private, self.ordinary) if one and math.isfinite(one.score)]
        if scores and not self.regression and self.rows:
            spread = max(1.96 * math.sqrt(max(score * (1 - score), 0.0) / self.rows) for score in scores)
            spread, noise = math.hypot(spread, self.margin), " with this noise" if self.noisy else ""
            facts.append(
                f"each epsilon was trained once, and {self.rows:,} test rows{noise} give an accuracy to about "
                f"±{100 * spread:.1f} points: smaller differences may be due to chance"
            )
        if self.private and self.ordinary is None:
            facts.append("no model was trained without privacy, so the cost of privacy is unknown")
        if not self.private:
            facts.append("no model here is private: each may reveal who it was trained on")
        return facts

    def _close(self, one: Outcome, other: float) -> bool:
        """Return whether noise can explain the difference from another score; true if either is NaN."""
        return one.margin > 0 and not abs(one.score - other) > one.margin

    def _useless(self, one: Outcome) -> bool:
        return not self._close(one, self.baseline) and (self.better(self.baseline, one.score) or math.isnan(one.score))

    def _cost(self, one: Outcome, ordinary: Outcome) -> str:
        if self._close(one, ordinary.score) or not math.isfinite(one.score - ordinary.score):
            return "unknown"
        if self.regression:
            return f"{number(one.score / ordinary.score)} times the error" if ordinary.score else "an error"
        lost = round(100 * (ordinary.score - one.score), 1)
        return f"{lost:.1f} points" if lost > 0 else "nothing" if lost == 0 else f"{-lost:.1f} points gained"


# --- plain values, which may be missing -----------------------------------------------------------


def known(value: Any) -> float | None:
    """Return a finite number as it is, and anything else as None.

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
    return "-" if (finite := known(value)) is None else number(finite)


def write_epsilon(value: float | None) -> str:
    """Write an epsilon for a person: three digits.

    Examples
    --------
    >>> write_epsilon(13.2067), write_epsilon(math.inf), write_epsilon(None)
    ('13.2', '∞', '-')
    """
    return "-" if value is None else "∞" if value == math.inf else f"{value:.3g}"

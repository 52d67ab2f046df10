"""ResNet18 on MNIST by DP-SGD at several epsilons, and the properties of privacy that were explained beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from sfumato.reproductions.studies import study
from sfumato.reproductions.values import Curves, Experiment, Fact, Figure, Row

__all__ = ["EXPERIMENT", "Settings"]

_SMALL = "too small a run to compare"


@dataclass(frozen=True)
class Settings:
    """How much is trained; all else is in the recipe ``epsilon-sweep``."""

    epsilons: tuple[float | str, ...] = (1, 5, 10, "none")
    samples: int = 10_000
    test_samples: int = 2_000
    epochs: int = 5
    batch_size: int = 256


def run(settings: Settings) -> Iterator[Row | Figure]:
    """Train at each epsilon, and compute the rest."""
    yield from _explained()
    if settings.epsilons:
        yield from _trained(settings)


def _trained(settings: Settings) -> Iterator[Row | Figure]:
    given = vars(settings).copy()
    training = study("learners", "epsilon-sweep", epsilon=list(given.pop("epsilons")), **given)
    whole = settings == Settings()
    found = {run.epsilon: run for run in training.runs}
    for epsilon, one in found.items():
        key = _name(epsilon)
        if key in ("1", "5", "10", "none"):
            noise = one.facts.get("noise_multiplier")
            ours = one.scores.accuracy or math.nan
            below = [each.scores.accuracy or math.nan for other, each in found.items() if other < epsilon]
            verdict = ("reproduced" if all(ours > each for each in below) else "differs") if whole else "not judged"
            how = "no privacy" if not noise else f"noise multiplier {noise:.2f}, Poisson samples"
            yield EXPERIMENT.row(f"accuracy-{key}", ours, verdict, f"one run, {how}{'' if whole else '; ' + _SMALL}")
    order = [found[one].scores.accuracy for one in sorted(found)]
    first = [dict(found[one].history[0])["score"] for one in sorted(found)]
    for key, values in (("order", order), ("start", first)):
        holds = values == sorted(values) if key == "order" else values[0] == min(values)
        same = replace(settings, epochs=5, epsilons=Settings().epsilons) == Settings()
        enough = whole or (key == "start" and same and len(values) > 1)  # any two epsilons show it
        verdict = ("reproduced" if holds else "differs") if enough else "not judged"
        after = "" if key == "order" else f" after the first of {settings.epochs} epochs"
        note = f"at epsilon {', '.join(_name(one) for one in sorted(found))}{after}{'' if enough else '; ' + _SMALL}"
        yield EXPERIMENT.row(key, ", ".join(f"{one:.3f}" for one in values), verdict, note)
    yield Curves(
        "Test accuracy after each epoch",
        "epoch",
        "accuracy",
        {run.label: [(one["epoch"], one["score"]) for one in run.history] for run in training.runs},
    )
    yield Curves(
        "Test accuracy against epsilon",
        "epsilon",
        "accuracy",
        {"private": [(run.epsilon, run.scores.accuracy) for run in training.runs if run.epsilon < math.inf]},
        log=True,
    )


def _name(epsilon: float) -> str:
    return "none" if epsilon == math.inf else f"{epsilon:g}"


def _explained() -> Iterator[Row]:
    """Check the explained properties on the two-coin randomized response, by its exact probabilities."""
    answers = {True: {"yes": 0.75, "no": 0.25}, False: {"yes": 0.25, "no": 0.75}}  # the first coin tells the truth
    cost = math.log(_ratio(answers[True], answers[False]))
    yield EXPERIMENT.row(
        "coins", cost, "reproduced", "ln 3: tell the truth on heads, else answer by the second coin; exact"
    )
    twice = math.log(_ratio(*(_joint(answers[one], answers[one]) for one in (True, False))))
    yield EXPERIMENT.row(
        "composition", twice, _says(twice, 2 * cost), "two answers of one person cost 2 ln 3; the worst of all outcomes"
    )
    both = math.log(_ratio(_joint(answers[True], answers[True]), _joint(answers[False], answers[False])))
    yield EXPERIMENT.row("group", both, _says(both, 2 * cost), "a group of two people who change together: 2 ln 3")
    worst = max(
        math.log(_ratio(*(_processed(answers[one], p, q) for one in (True, False))))
        for p, q in product([n / 20 for n in range(21)], repeat=2)
        if 0 < p + q < 2
    )
    yield EXPERIMENT.row(
        "post-processing",
        worst,
        "reproduced" if worst <= cost + 1e-12 else "differs",
        "the worst of 439 ways to change the answer afterwards, on a grid of probabilities, is still ln 3",
    )
    yield EXPERIMENT.row(
        "choice",
        "sfumato explore",
        "built",
        "compares protections over a grid of epsilons on your data, and recommends one within your limits",
    )


def _ratio(one: dict[Any, float], other: dict[Any, float]) -> float:
    """Return the largest ratio of the probabilities of an outcome."""
    return max(max(one[key] / other[key], other[key] / one[key]) for key in one if one[key] or other[key])


def _joint(one: dict[Any, float], other: dict[Any, float]) -> dict[Any, float]:
    return {(a, b): one[a] * other[b] for a, b in product(one, other)}


def _processed(one: dict[str, float], p: float, q: float) -> dict[str, float]:
    """Return the distribution after an answer of yes is kept with probability p, and one of no changed with q."""
    yes = one["yes"] * p + one["no"] * q
    return {"yes": yes, "no": 1 - yes}


def _says(ours: float, expected: float) -> str:
    return "reproduced" if math.isclose(ours, expected, rel_tol=1e-9) else "differs"


EXPERIMENT = Experiment(
    name="epsilon-sweep",
    title="ResNet18 at several epsilons",
    source='"Dataset Anonymizer": DP-SGD on MNIST, 10,000 training and 2,000 test images, 5 epochs',
    facts={
        "accuracy-1": Fact("test accuracy at epsilon 1", "the lowest; drawn without values"),
        "accuracy-5": Fact("test accuracy at epsilon 5", "above epsilon 1; drawn without values"),
        "accuracy-10": Fact("test accuracy at epsilon 10", "above epsilon 5; drawn without values"),
        "accuracy-none": Fact("test accuracy without privacy", "the highest; drawn without values"),
        "order": Fact("accuracy against epsilon", "grows with epsilon, best without privacy"),
        "start": Fact("accuracy after the first epoch", "a small epsilon starts lower"),
        "coins": Fact("two-coin randomized response: epsilon", "explained"),
        "composition": Fact("composition: epsilon of two answers", "the epsilons add up"),
        "group": Fact("group privacy: epsilon of two people", "epsilon times the size of the group"),
        "post-processing": Fact("post-processing: epsilon afterwards", "does not grow"),
        "choice": Fact("how to choose epsilon", "an open question"),
    },
    full=Settings(),
    quick=Settings(epsilons=(1, 10, "none"), samples=128, test_samples=100, epochs=1, batch_size=64),
    run=run,
    needs="about 20 CPU minutes",
    extra="torch",
)

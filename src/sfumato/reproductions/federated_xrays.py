"""A federated network for chest X-rays: pooled, with 3 and with 10 holders."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sfumato.reproductions.values import Curves, Experiment, Fact, Figure, Row

__all__ = ["EXPERIMENT", "Settings"]

_PRINTED = {  # test accuracy, seconds, and time saved in per cent, by scenario
    "central": (0.6619, 1386.0, None),
    "3-a": (0.8029, 401.0, 71.07),
    "3-b": (0.7308, 320.8, 76.85),
    "10-a": (0.7212, 110.0, 92.06),
    "10-b": (0.7340, 99.0, 92.85),
}
_NAMES = {
    "central": "centralised",
    "3-a": "3 clients, first setting",
    "3-b": "3 clients, second setting",
    "10-a": "10 clients, first setting",
    "10-b": "10 clients, second setting",
}
_PRIVATE: dict[str, Any] = {
    "rounds": 10,
    "epochs": 2,
    "learning_rate": 0.02,
    "momentum": 0.9,
    "decay": False,
    "augment": False,
}
"""With privacy: noise is for every round, so they are fewer."""
_DATA = "the same X-rays at 28x28 pixels (PneumoniaMNIST): 4,708 for training, the same 624 for testing"


@dataclass(frozen=True)
class Settings:
    """The data, and how it is trained. The two settings of a row differ in rounds and epochs, as published."""

    data: str = "pneumonia"
    """Or "mnist": digits below and from 5, which are in the package."""
    samples: int | None = None
    rounds: tuple[int, int] = (60, 30)
    epochs: tuple[int, int] = (1, 2)
    """Local epochs of a round, in the first and in the second setting."""
    model: str = "cnn"
    learning_rate: tuple[float, float] = (0.02, 0.05)
    """With all images in one place, and with several holders, whose updates are averaged. It falls to zero."""
    momentum: float = 0.5
    """Of the coordinator, with several holders."""
    absence: float = 0.3
    """The probability that a holder misses a round, in the scenario with absences."""
    secure: str = "masks"
    seeds: int = 5
    """How often each scenario is run, with another division of the images."""
    private: bool = True
    """Also privacy of records, at the holders, and of whole holders, under the masks."""


def run(settings: Settings) -> Iterator[Row | Figure]:
    """Train every scenario on the same images."""
    train, test = _images(settings)
    _trained(
        replace(settings, rounds=(1, 1), epochs=(1, 1)), tuple(one[:50] for one in train), test, 1, 0, 0
    )  # imports
    found, curves = dict[str, dict[str, float]](), dict[str, list[tuple[float, float]]]()
    for key in _PRINTED:
        clients, at = (1, 0) if key == "central" else (int(key.split("-")[0]), int(key.endswith("b")))
        each = [_trained(settings, train, test, clients, at, seed) for seed in range(settings.seeds)]
        found[key] = _means([one[0] for one in each])
        curves[_NAMES[key]] = each[0][1]
        yield from _rows(settings, key, found)
    yield Curves("ROC of each scenario", "false positive rate", "true positive rate", curves)
    whole = settings.data == "pneumonia"
    absent = _mean(settings, train, test, 10, absence=settings.absence)
    guess = float(np.bincount(test[1]).max() / len(test[1]))
    yield EXPERIMENT.row(
        "absent",
        absent["accuracy"],
        ("reproduced" if absent["accuracy"] > guess + 0.01 else "differs") if whole else "not judged",
        f"10 holders, first setting, each missing a round with a probability of {settings.absence:g}, sums in clear "
        f"so that any number may answer; {_summary(settings, absent)}; always the same answer: {guess:.3f}",
    )
    areas = ", ".join(f"{name.replace('centralised', 'central')} {one['auc']:.3f}" for name, one in found.items())
    yield EXPERIMENT.row("roc", f"AUC: {areas}", "built", "the page of the run draws them")
    if settings.private:
        private = _mean(settings, train, test, 3, epsilon=8.0)
        note = (
            f"3 holders, first setting, DP-SGD at each, epsilon {private['epsilon']:.2f} for a record, delta 1e-5; "
            f"{_summary(settings, private)}; always the same answer: {guess:.3f}"
        )
        yield EXPERIMENT.row("local-dp", private["accuracy"], "built", note)
        many = 100 if whole else 10
        private, _ = _trained(settings, train, test, many, 0, 0, epsilon=8.0, level="client")
        note = (
            f"{many} holders, first setting, noise under the masks: epsilon {private['epsilon']:.2f} for all that one "
            f"holder contributes, delta 1e-5; one run; AUC {private['auc']:.3f}; always the same answer: {guess:.3f}"
        )
        yield EXPERIMENT.row("global-dp", private["accuracy"], "built", note)
    yield EXPERIMENT.row("pseudonyms", *_pseudonyms())


def _pseudonyms() -> tuple[str, str, str]:
    """Join the tables of two holders by the tokens of their patients."""
    import polars as pl

    import sfumato as sf

    images = pl.DataFrame({"patient": range(1_000), "image": range(1_000)})
    visits = pl.DataFrame({"patient": range(500, 1_500), "visit": range(1_000)})
    method = sf.pseudonyms.KeyedTokens(sf.Key(secrets.token_bytes(32)))
    left, right = (sf.pseudonymize(one, method, columns=["patient"]) for one in (images, visits))
    joined, true = (one.join(other, on="patient") for one, other in ((left, right), (images, visits)))
    same = joined.sort("image").select("image", "visit").equals(true.sort("image").select("image", "visit"))
    known = set(left["patient"]) & {str(one) for one in images["patient"]}
    ours = f"{joined.height:,} of {true.height:,} patients of two holders joined by tokens"
    return ours, "built" if same and not known else "differs", "keyed tokens of one key; random and encrypted ones too"


def _mean(settings: Settings, train: Any, test: Any, clients: int, **options: Any) -> dict[str, float]:
    """Return the means over all seeds of a scenario of the first setting."""
    seeds = range(settings.seeds)
    return _means([_trained(settings, train, test, clients, 0, seed, **options)[0] for seed in seeds])


def _means(each: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each value, and the lowest and highest accuracy."""
    accuracies = [one["accuracy"] for one in each]
    means = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
    return means | {"lowest": min(accuracies), "highest": max(accuracies)}


def _summary(settings: Settings, ours: dict[str, float]) -> str:
    if settings.seeds == 1:
        return f"one run; AUC {ours['auc']:.3f}"
    return (
        f"mean of {settings.seeds} runs, from {ours['lowest']:.3f} to {ours['highest']:.3f}; mean AUC {ours['auc']:.3f}"
    )


def _rows(settings: Settings, key: str, found: dict[str, dict[str, float]]) -> Iterator[Row]:
    saved = _PRINTED[key][2]
    ours, xrays = found[key], settings.data == "pneumonia"
    note = _DATA if xrays else "digits in the place of X-rays"
    note = f"{_summary(settings, ours)}; {note}"
    yield EXPERIMENT.compared(f"{key}-accuracy", ours["accuracy"], note, larger=True, comparable=xrays)
    verdict = "differs" if xrays else "not judged"
    note = "CPU seconds of one holder, masks included; other images and another machine: compare the time saved"
    yield EXPERIMENT.row(f"{key}-seconds", round(ours["seconds"], 1), verdict, note)
    if saved is not None:
        less = 100 * (1 - ours["seconds"] / found["central"]["seconds"])
        note = "holders train at the same time, each on its own part: less data each"
        yield EXPERIMENT.compared(f"{key}-saved", round(less, 1), note, larger=True, comparable=xrays)


def _images(settings: Settings) -> tuple[Any, Any]:
    """Return normalised training and test images, with their classes."""
    from sfumato.data import datasets
    from sfumato.federation.coding import SCALE

    if settings.data == "pneumonia":
        images = datasets.pneumonia()
        parts = (images.train_images, images.train_labels), (images.test_images, images.test_labels)
    else:
        images = datasets.mnist()
        parts = (images.train_images, images.train_labels >= 5), (images.test_images, images.test_labels >= 5)
    some = slice(settings.samples)
    train, test = (
        ((one[some, None].astype(np.float32) / 255 - SCALE[0]) / SCALE[1], np.asarray(labels)[some].astype(np.int64))
        for one, labels in parts
    )
    return train, test


def _trained(
    settings: Settings,
    train: Any,
    test: Any,
    clients: int,
    at: int,
    seed: int,
    *,
    absence: float = 0.0,
    epsilon: float | None = None,
    level: str = "record",
) -> tuple[dict[str, float], list[tuple[float, float]]]:
    """Return the accuracy, the AUC and the CPU seconds of a holder, and the ROC curve."""
    from sklearn.metrics import roc_auc_score, roc_curve

    from sfumato.federation import FederationPlan, simulate
    from sfumato.federation.coding import SCALE

    plan = FederationPlan(
        model=settings.model,
        inputs=train[0].shape[1:],
        classes=2,
        rounds=settings.rounds[at],
        epochs=settings.epochs[at],
        learning_rate=settings.learning_rate[clients > 1],
        momentum=settings.momentum if clients > 1 else 0.0,
        decay=True,
        augment=True,
        scale=SCALE,
        threshold=1 if absence else clients,
        absence=absence,
        seed=seed,
    )
    if epsilon is not None:
        plan = replace(plan, level=level, epsilon=epsilon, delta=1e-5, **_PRIVATE)
    order, began = np.random.default_rng(seed).permutation(len(train[0])), time.process_time()
    parts = [(train[0][one], train[1][one]) for one in np.array_split(order, clients)]
    done = simulate(plan, parts, secure="none" if absence or clients == 1 else settings.secure)
    spent = time.process_time() - began
    chances = done.probabilities(test[0])
    alarms, hits, _ = roc_curve(test[1], chances[:, 1])
    some = np.linspace(0, len(alarms) - 1, min(len(alarms), 60)).astype(int)
    values = {
        "accuracy": float((chances.argmax(1) == test[1]).mean()),
        "auc": float(roc_auc_score(test[1], chances[:, 1])),
        "seconds": spent / clients,
        "epsilon": math.nan if done.epsilon is None else done.epsilon,
    }
    return values, [(float(alarms[one]), float(hits[one])) for one in some]


def _facts() -> dict[str, Fact]:
    found = {}
    for key, (accuracy, seconds, saved) in _PRINTED.items():
        found[f"{key}-accuracy"] = Fact(f"{_NAMES[key]}: test accuracy", accuracy, 0.02)
        found[f"{key}-seconds"] = Fact(f"{_NAMES[key]}: seconds", seconds)
        if saved is not None:
            found[f"{key}-saved"] = Fact(f"{_NAMES[key]}: time saved, per cent", saved, 10.0)
    return {
        **found,
        "roc": Fact("ROC curves of each scenario", "drawn without values"),
        "absent": Fact("clients may be absent in some rounds: test accuracy", "allowed"),
        "local-dp": Fact("local differential privacy: test accuracy", "planned"),
        "global-dp": Fact("global differential privacy", "planned"),
        "pseudonyms": Fact("pseudonyms", "planned"),
    }


EXPERIMENT = Experiment(
    name="federated-xrays",
    title="Federated learning on chest X-rays",
    source='"Privacy preserving techniques for data science": pneumonia or not, pooled and with 3 and 10 clients',
    facts=_facts(),
    full=Settings(),
    quick=Settings(data="mnist", samples=1_000, rounds=(4, 6), epochs=(2, 1), seeds=1, private=False),
    run=run,
    needs="PneumoniaMNIST, which is downloaded or read from SFUMATO_DATA",
    extra="torch",
)

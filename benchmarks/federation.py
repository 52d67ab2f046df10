"""Federated training scored on test images: chest X-rays (PneumoniaMNIST) without privacy, digits (MNIST) with it.

All settings, the thresholds of the X-rays included, were chosen on validation images: by the loss there, with one seed.

python benchmarks/federation.py xrays --choose       # the validation losses that the settings follow from
python benchmarks/federation.py xrays --seeds 5 --more 2  # pooled, 3 and 10 clients, absences, masks
python benchmarks/federation.py digits --choose
python benchmarks/federation.py digits --seeds 3     # epsilon 1, 3 and 8 per record and per client
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score, roc_curve

import sfumato as sf
from sfumato.federation import FederationPlan, InProcess, Party, PlainSum, plain_handlers, simulate
from sfumato.federation.client_noise import ClientNoise
from sfumato.federation.coding import SCALE
from sfumato.federation.holder import TrainingHolder
from sfumato.federation.rounds import Share, run_rounds
from sfumato.federation.simulation import Federated

Samples = tuple[np.ndarray, np.ndarray]


def samples(images: np.ndarray, labels: np.ndarray) -> Samples:
    """Return images as numbers from -2 to 2, and their classes."""
    return (images[:, None].astype(np.float32) / 255 - 0.5) * 4, np.asarray(labels).astype(np.int64)


def dealt(given: Samples, clients: int, seed: int) -> list[Samples]:
    """Deal the samples to clients at random."""
    order = np.random.default_rng(seed).permutation(len(given[0]))
    return [(given[0][one], given[1][one]) for one in np.array_split(order, clients)]


# --- X-rays -----------------------------------------------------------------------------------

WAY = {"decay": True, "augment": True}
POOLED = {**WAY, "rounds": 30, "learning_rate": 0.02}
FEDERATED = {**WAY, "rounds": 30, "learning_rate": 0.05, "momentum": 0.5}


def xrays() -> tuple[Samples, Samples, Samples]:
    """Return the images for training, validation and testing."""
    images = sf.datasets.pneumonia()
    return (
        samples(images.train_images, images.train_labels),
        samples(images.validation_images, images.validation_labels),
        samples(images.test_images, images.test_labels),
    )


def xray_plan(clients: int, seed: int, **more: Any) -> FederationPlan:
    """Return the plan of a training on X-rays."""
    of = {"model": "cnn", "inputs": (1, 28, 28), "classes": 2, "batch": 64, "scale": SCALE}
    return FederationPlan(**{**of, "threshold": {1: 1, 3: 1, 10: 4}[clients], "seed": seed, **more})


def choose_for_xrays() -> Iterator[dict[str, Any]]:
    """Train with every setting, and yield the validation losses after each round."""
    train, validation, _ = xrays()
    settings: list[tuple[int, dict[str, Any]]] = [
        (1, POOLED),
        (10, FEDERATED),
        (10, {**FEDERATED, "rounds": 15, "epochs": 2}),
    ]
    for clients, chosen in settings:
        plan, parts = xray_plan(clients, 0, **chosen), dealt(train, clients, 0)
        found = simulate(plan, parts, test=validation, secure="none")
        losses = [round(one.loss, 4) for one in found.rounds if one.loss is not None]
        yield {"set": "xrays", "stage": "choose", "clients": clients, **chosen, "losses": losses}


def test_on_xrays(seeds: int, others: int) -> Iterator[dict[str, Any]]:
    """Train with the chosen settings, and yield the scores on the test images."""
    train, validation, test = xrays()
    cases = [
        *itertools.product(range(seeds), [(1, 0.0, "none"), (10, 0.0, "none")]),
        *itertools.product(range(others), [(10, 0.0, "masks"), (10, 0.3, "none"), (3, 0.0, "none"), (3, 0.3, "none")]),
    ]
    for seed, (clients, absence, secure) in cases:
        chosen = POOLED if clients == 1 else FEDERATED
        more = {"threshold": 6} if secure == "masks" else {}  # more than half of the parties
        plan = xray_plan(clients, seed, absence=absence, **more, **chosen)
        began = time.process_time()
        found = simulate(plan, dealt(train, clients, seed), secure=secure)
        cpu = time.process_time() - began
        known, asked = (found.probabilities(one[0])[:, 1] for one in (validation, test))
        wrong, right, thresholds = roc_curve(validation[1], known)
        threshold = float(thresholds[np.argmax(right - wrong)])
        yield {
            "set": "xrays",
            "stage": "test",
            "seed": seed,
            "clients": clients,
            "absence": absence,
            "secure": secure,
            "accuracy": float(((asked >= 0.5) == test[1]).mean()),
            "accuracy_at_threshold": float(((asked >= threshold) == test[1]).mean()),
            "threshold": threshold,
            "auc": float(roc_auc_score(test[1], asked)),
            "validation_accuracy": float(((known >= 0.5) == validation[1]).mean()),
            "validation_auc": float(roc_auc_score(validation[1], known)),
            "cpu_of_a_client": cpu / clients,
            "bytes_of_a_client": sum(one.bytes for one in found.rounds),
        }


# --- digits -----------------------------------------------------------------------------------

PER_RECORD: dict[str, Any] = {"rounds": 5, "batch": 200, "learning_rate": 0.5, "epochs": 4}
PER_CLIENT: dict[str, Any] = {"rounds": 4, "learning_rate": 0.02, "clip": 0.3}
"""Set once and not searched: 500 simulated clients take long."""


def digits() -> tuple[Samples, Samples, Samples]:
    """Return 8,000 images for training, 2,000 for validation and 2,000 for testing."""
    images = sf.datasets.mnist()
    train, test = (
        samples(images.train_images, images.train_labels),
        samples(images.test_images, images.test_labels),
    )
    return (train[0][:8000], train[1][:8000]), (train[0][8000:], train[1][8000:]), test


def private(level: str, train: Samples, epsilon: float, seed: int, **more: Any) -> Federated:
    """Train on digits: 10 clients at record level, 500 at client level.

    The sums of so many clients are made in clear, because the masks of 500 x 500 pairs take long; they cancel out and
    change nothing. The coordinator of a real run must not see the updates, so `simulate` insists on masks.
    """
    clients = 10 if level == "record" else 500
    of = {"model": "logistic", "inputs": (1, 28, 28), "classes": 10, "threshold": clients, "spare": 0, "seed": seed}
    plan = FederationPlan(**{**of, "level": level, "epsilon": epsilon, "delta": 1e-5, **more})
    parts = dealt(train, clients, seed)
    if level == "record":
        return simulate(plan, parts, secure="none")
    those = {f"{at:03}": TrainingHolder(f"{at:03}", plan, *part, parties=clients) for at, part in enumerate(parts)}
    parties = [
        Party(name, {**plain_handlers(one.contribute), "train/describe": one.describe}) for name, one in those.items()
    ]
    state = run_rounds(plan, InProcess(parties), PlainSum(clients))
    shared = Share(events=ClientNoise.of(plan, clients, len(state.weights)).events)
    return Federated(plan, state.weights, tuple(state.rounds), dict.fromkeys(those, shared))


def scored(found: Federated, given: Samples) -> dict[str, float]:
    """Return the accuracy and the loss."""
    chances = found.probabilities(given[0])
    right = chances[np.arange(len(chances)), given[1]]
    return {
        "accuracy": float((chances.argmax(1) == given[1]).mean()),
        "loss": float(-np.log(np.maximum(right, 1e-12)).mean()),
    }


def choose_for_digits() -> Iterator[dict[str, Any]]:
    """Train with every setting at epsilon 3, and yield the scores on validation images."""
    train, validation, _ = digits()
    settings = [
        ("record", {"rounds": 5, "batch": 200, "learning_rate": 0.2, "epochs": 2}),
        ("record", {"rounds": 5, "batch": 200, "learning_rate": 0.05, "epochs": 2}),
        ("record", {"rounds": 5, "batch": 200, "learning_rate": 1.0, "epochs": 2}),
        ("record", {"rounds": 5, "batch": 200, "learning_rate": 0.5, "epochs": 4}),
    ]
    for level, more in settings:
        began = time.process_time()
        found = private(level, train, 3.0, 0, **more)
        facts = {"level": level, "epsilon": 3.0, **more, **scored(found, validation)}
        yield {"set": "digits", "stage": "choose", **facts, "cpu": time.process_time() - began}


def test_on_digits(seeds: int) -> Iterator[dict[str, Any]]:
    """Train with the chosen settings on the 10,000 images, and yield the scores on the test images."""
    (train, validation, test) = digits()
    everything = (np.concatenate([train[0], validation[0]]), np.concatenate([train[1], validation[1]]))
    cases = [("record", PER_RECORD), ("client", PER_CLIENT)]
    for seed, (level, chosen), epsilon in itertools.product(range(seeds), cases, (1.0, 3.0, 8.0)):
        found = private(level, everything, epsilon, seed, **chosen)
        facts = {"set": "digits", "stage": "test", "seed": seed, "level": level, "epsilon": epsilon}
        yield {**facts, "spent": found.epsilon, **scored(found, test)}


def main() -> None:
    """Print one line of JSON per run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("set", choices=("xrays", "digits"))
    options.add_argument("--choose", action="store_true")
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--more", type=int, default=1, help="seeds of the other rows of X-rays")
    given = options.parse_args()
    torch.set_num_threads(1)
    if given.set == "xrays":
        lines = choose_for_xrays() if given.choose else test_on_xrays(given.seeds, given.more)
    else:
        lines = choose_for_digits() if given.choose else test_on_digits(given.seeds)
    for line in lines:
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

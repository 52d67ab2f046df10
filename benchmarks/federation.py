"""Federated training scored on test images: chest X-rays (PneumoniaMNIST) without privacy, digits (MNIST) with it.

The settings and thresholds of the X-rays were chosen on validation images, with one seed. Those of the digits follow
from a rule, at client level with rounds and a distance that were chosen on training and validation images.

python benchmarks/federation.py xrays --choose       # the validation scores that the settings follow from
python benchmarks/federation.py xrays --seeds 5      # pooled, 3 and 10 clients, masks, absences
python benchmarks/federation.py digits --level record --seeds 3  # epsilon 1, 3 and 8 per record
python benchmarks/federation.py digits --level client --seeds 5 --at-once  # and per client
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score, roc_curve

import sfumato as sf
from sfumato.budget.noise import Source
from sfumato.federation import FederationPlan, InProcess, Party, PlainSum, plain_handlers, simulate
from sfumato.federation.client_noise import ClientNoise
from sfumato.federation.coding import SCALE, Coding
from sfumato.federation.federate import defaults_of
from sfumato.federation.holder import TrainingHolder
from sfumato.federation.rounds import Share, run_rounds
from sfumato.federation.simulation import Federated
from sfumato.federation.weights import features_of, get_weights, network_of, set_weights
from sfumato.learners.images.views import Views
from sfumato.learners.networks.scattering import learning_rate_of, signal_of

Samples = tuple[np.ndarray, np.ndarray]


def samples(images: np.ndarray, labels: np.ndarray) -> Samples:
    """Return images as numbers from -2 to 2, and their classes."""
    return (images[:, None].astype(np.float32) / 255 - 0.5) * 4, np.asarray(labels).astype(np.int64)


def dealt(given: Samples, clients: int, seed: int) -> list[Samples]:
    """Deal the samples to clients at random."""
    order = np.random.default_rng(seed).permutation(len(given[0]))
    return [(given[0][one], given[1][one]) for one in np.array_split(order, clients)]


# --- X-rays -----------------------------------------------------------------------------------

RECIPE = defaults_of(Coding((0, 1), (1, 28, 28), scale=SCALE), "cnn", None)
"""What `sfumato federate pneumonia` does."""
POOLED = {**RECIPE, "rounds": 30, "batch": 64, "momentum": 0.0, "learning_rate": 0.02}
"""And with all records in one place."""
BEFORE = {**RECIPE, "rounds": 30, "batch": 64, "learning_rate": 0.1, "momentum": 0.7}
"""The recipe before, with a quarter of the steps."""
HARDER = Views(affine=1.0, gamma=0.6)
"""Twice the warps of training: validation images are of the same hospitals' children, test images may differ."""


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
    of = {"model": "cnn", "inputs": (1, 28, 28), "classes": 2, "scale": SCALE}
    return FederationPlan(**{**of, "threshold": {1: 1, 3: 1, 10: 4}[clients], "seed": seed, **more})


def warped(given: Samples) -> Samples:
    """Return three warped views of each image."""
    generator, images = torch.Generator().manual_seed(0), torch.from_numpy(given[0]) / 4 + 0.5
    views = [((HARDER(images, generator) - 0.5) * 4).numpy() for _ in range(3)]
    return np.concatenate(views), np.tile(given[1], 3)


def choose_for_xrays() -> Iterator[dict[str, Any]]:
    """Train with every setting, and yield the scores on validation images, as they are and warped."""
    train, validation, _ = xrays()
    harder = warped(validation)
    fewer = {**RECIPE, "rounds": 10, "epochs": 3, "batch": 64}
    settings: list[tuple[int, int, dict[str, Any]]] = [
        (1, 0, POOLED),
        (1, 1, POOLED),
        (1, 0, {**POOLED, "learning_rate": 0.05}),
        (10, 0, BEFORE),
        (10, 0, {**BEFORE, "learning_rate": 0.05}),
        (10, 0, fewer),
        (10, 0, {**fewer, "momentum": 0.0}),
        (10, 0, {**fewer, "momentum": 0.9}),
        (10, 0, {**fewer, "momentum": 0.7, "learning_rate": 0.1}),
        (10, 0, {**RECIPE, "rounds": 30, "epochs": 3, "batch": 16, "momentum": 0.0}),
        (10, 0, {**RECIPE, "rounds": 80, "batch": 16, "momentum": 0.0, "learning_rate": 0.02}),
        (10, 4, RECIPE),
        (3, 0, BEFORE),
        (3, 0, {**BEFORE, "learning_rate": 0.05}),
    ]
    for clients, seed, chosen in settings:
        began = time.process_time()
        found = simulate(xray_plan(clients, seed, **chosen), dealt(train, clients, seed), secure="none")
        facts = {
            "set": "xrays",
            "stage": "choose",
            "seed": seed,
            "clients": clients,
            **chosen,
            "cpu": time.process_time() - began,
        }
        for name, one in (("validation", validation), ("warped", harder)):
            auc = float(roc_auc_score(one[1], found.probabilities(one[0])[:, 1]))
            facts[name] = {**scored(found, one), "auc": auc}
        yield facts


ROWS = {
    "pooled": (1, 0.0, "none"),
    "10": (10, 0.0, "none"),
    "10-masks": (10, 0.0, "masks"),
    "10-absent": (10, 0.3, "none"),
    "3": (3, 0.0, "none"),
    "3-absent": (3, 0.3, "none"),
}
"""The rows of the table: how many clients, how often each is absent, and how updates are added up."""


def test_on_xrays(seeds: range, rows: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Train with the chosen settings, and yield the scores on the test images."""
    train, validation, test = xrays()
    for row, seed in itertools.product(rows, seeds):
        clients, absence, secure = ROWS[row]
        chosen = POOLED if clients == 1 else RECIPE
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
            "recipe": chosen,
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

CLIENTS = {"record": 10, "client": 500}
ROUNDS, MOMENTUM, CLIP = {"record": 16, "client": 24}, 0.5, 0.1
STEPS = 4
"""Of a holder in a round, with all its records each, at record level; a client makes one."""
DISTANCE = {"record": 1.0, "client": 0.5}
"""How far the weights travel, in distances of the rule. The gradient of a client is the mean of its images', which are
mostly noise to each other: clients agree more than images do, and steps of the same clip carry the weights farther."""


def settings_of(level: str, images: int, epsilon: float) -> dict[str, Any]:
    """Return the settings of a linear model of scattered images.

    How far the weights travel follows from the signal, the number of records or clients over the noise multiplier, by
    the rule of `sfumato.learners.networks.scattering`, which was made for one holder and at least 20 steps. The noise
    of ten holders who add their own is sqrt(10) times that of one who has all records.
    """
    clients = CLIENTS[level]
    signal = signal_of(round(images / math.sqrt(clients)) if level == "record" else clients, epsilon, 1e-5)
    steps = ROUNDS[level] * (STEPS if level == "record" else 1)
    rate = DISTANCE[level] * learning_rate_of(signal, steps=steps, inputs=3969, clip=CLIP, momentum=MOMENTUM)
    common = {"rounds": ROUNDS[level], "momentum": MOMENTUM, "batch": images}
    if level == "record":
        return {**common, "epochs": STEPS, "clip": CLIP, "learning_rate": rate}
    # Almost every update is longer than the clip, so it is the clip that says how far a round goes.
    return {**common, "clip": CLIP * rate, "learning_rate": 1.0}


def digits() -> tuple[Samples, Samples, Samples]:
    """Return 8,000 images for training, 2,000 for validation and 2,000 for testing."""
    images = sf.datasets.mnist()
    train, test = (
        samples(images.train_images, images.train_labels),
        samples(images.test_images, images.test_labels),
    )
    return (train[0][:8000], train[1][:8000]), (train[0][8000:], train[1][8000:]), test


def private(level: str, train: Samples, epsilon: float, seed: int, *, at_once: bool) -> Federated:
    """Train on digits: 10 clients at record level, 500 at client level.

    The sums of so many clients are made in clear, because the masks of 500 x 500 pairs take long; they cancel out and
    change nothing. The coordinator of a real run must not see the updates, so `simulate` insists on masks.
    """
    clients = CLIENTS[level]
    of = {"model": "scattering-linear", "inputs": (1, 28, 28), "classes": 10, "threshold": clients, "spare": 0}
    settings = settings_of(level, len(train[0]), epsilon)
    plan = FederationPlan(**{**of, **settings, "seed": seed, "level": level, "epsilon": epsilon, "delta": 1e-5})
    parts = dealt(train, clients, seed)
    if level == "record":
        return simulate(plan, parts, secure="none")
    if at_once:
        return _at_once(plan, parts)
    those = {f"{at:03}": TrainingHolder(f"{at:03}", plan, *part, parties=clients) for at, part in enumerate(parts)}
    parties = [
        Party(name, {**plain_handlers(one.contribute), "train/describe": one.describe}) for name, one in those.items()
    ]
    state = run_rounds(plan, InProcess(parties), PlainSum(clients))
    shared = Share(events=ClientNoise.of(plan, clients, len(state.weights)).events)
    return Federated(plan, state.weights, tuple(state.rounds), dict.fromkeys(those, shared))


def _at_once(plan: FederationPlan, parts: Sequence[Samples]) -> Federated:
    """Do what so many `TrainingHolder`s do: the gradients of a round in few products, the noise of all in one draw.

    The sum of the shares of noise is drawn as one discrete Gaussian of the same variance, which it nearly is (see
    `NoiseShares`); drawing them one by one is what takes long.
    """
    clients, rows = len(parts), len(parts[0][1])
    features = torch.stack([features_of(plan, torch.from_numpy(one)) for one, _ in parts])
    wanted = torch.stack([torch.nn.functional.one_hot(torch.from_numpy(one), plan.classes) for _, one in parts])
    module = network_of(plan)
    weights = get_weights(module)
    noise, source = ClientNoise.of(plan, clients, len(weights)), Source()
    velocity, products = np.zeros(len(weights)), features @ features.mT + 1  # the bias is a feature of one
    for _ in range(plan.rounds):
        set_weights(module, weights)
        with torch.no_grad():
            left = (wanted - module(features.flatten(0, 1)).softmax(1).view(clients, rows, -1)) / rows
            lengths = plan.learning_rate * (left @ left.mT * products).sum((1, 2)).sqrt()
            left *= (plan.learning_rate * (plan.clip / lengths).clamp(max=1.0))[:, None, None]
            of_features = left.flatten(0, 1).T @ features.flatten(0, 1)
        total = np.concatenate([of_features.flatten().numpy(), left.sum((0, 1)).numpy()]).astype(np.float64)
        spread = float(noise.scale) * math.sqrt(clients)
        total += source.discrete_gaussian(spread, len(total)) * noise.code.step
        velocity = plan.momentum * velocity + total / clients
        weights = (weights + velocity).astype(np.float32)
    return Federated(plan, weights, (), {"each": Share(events=noise.events)})


def scored(found: Federated, given: Samples) -> dict[str, float]:
    """Return the accuracy and the loss."""
    chances = found.probabilities(given[0])
    right = chances[np.arange(len(chances)), given[1]]
    return {
        "accuracy": float((chances.argmax(1) == given[1]).mean()),
        "loss": float(-np.log(np.maximum(right, 1e-12)).mean()),
    }


def test_on_digits(
    seeds: range, level: str, epsilons: Sequence[float], *, validate: bool, at_once: bool
) -> Iterator[dict[str, Any]]:
    """Train on the 10,000 images, and yield the scores on the test images; or on 8,000, and on the other 2,000."""
    (train, validation, test) = digits()
    if not validate:
        train = (np.concatenate([train[0], validation[0]]), np.concatenate([train[1], validation[1]]))
    for seed, epsilon in itertools.product(seeds, epsilons):
        began = time.process_time()
        found = private(level, train, epsilon, seed, at_once=at_once)
        facts: dict[str, Any] = {
            "set": "digits",
            "stage": "validation" if validate else "test",
            "seed": seed,
            "level": level,
            "rounds": ROUNDS[level],
            "distance": DISTANCE[level],
            "at_once": at_once,
        }
        facts |= {"model": found.plan.model, "clients": CLIENTS[level], "epsilon": epsilon, "spent": found.epsilon}
        yield {**facts, **scored(found, validation if validate else test), "cpu": time.process_time() - began}


def main() -> None:
    """Print one line of JSON per run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("set", choices=("xrays", "digits"))
    options.add_argument("--choose", action="store_true")
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument("--row", action="append", choices=tuple(ROWS), help="only these rows of X-rays")
    options.add_argument("--epsilon", type=float, action="append", help="of digits; 1, 3 and 8 by default")
    options.add_argument("--at-once", action="store_true", help="draw the noise of all clients in one")
    options.add_argument("--level", choices=("record", "client"), default="record")
    given = options.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    torch.set_num_threads(1)
    if given.set == "xrays":
        lines = choose_for_xrays() if given.choose else test_on_xrays(seeds, given.row or tuple(ROWS))
    else:
        lines = test_on_digits(
            seeds, given.level, given.epsilon or (1.0, 3.0, 8.0), validate=given.choose, at_once=given.at_once
        )
    for line in lines:
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

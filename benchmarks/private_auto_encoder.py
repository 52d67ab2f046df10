"""A published study of auto-encoders for synthetic images at its full length, and our private auto-encoders on MNIST.

    python private_auto_encoder.py --device cuda        both parts as in RESULTS.md: 60,000 images, 100 + 50 epochs
    python private_auto_encoder.py --part private       our methods only, on a processor
    python private_auto_encoder.py --short              a minute, to see that everything runs; its figures mean nothing
    python private_auto_encoder.py --print              the tables of all runs kept

The study trained a dense auto-encoder (784-64-784, rectified and from 0 to 1, squared error) and a linear classifier of
five layers, both by Adam in batches of 32, and put normal noise into finished weights: .1 in the auto-encoder, .05 in
the classifier. It does not say which images the classifier learned from and was tested on, so every combination of real
images, decoded ones, and ones decoded by noisy weights is tried. No number of this part has a guarantee. All runs are
trained at once, as a stack of networks, with the same order of batches; weights begin as in torch or as in Keras.

The private part trains the network of synthetic_images.py on as many images as there are real ones. Images are read
from the folder that ``SFUMATO_DATA`` names.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.budget.noise import Source
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.learners.images.teacher import as_tensor
from sfumato.synthesizers.images.base import Canvas, ImageRecords
from sfumato.synthesizers.images.catalogue import image_method_of
from sfumato.synthesizers.plan import multiplier
from synthetic_images import DELTA, Part, load, student

KEPT = Path(__file__).with_suffix(".jsonl")
PIXELS, CODE, CLASSES = 784, 64, 10
CLASSIFIER = (PIXELS, 512, 256, 128, 64, CLASSES)
BATCH = 32
NOISE, NOISE_OF_CLASSIFIER = 0.1, 0.05
AT_ONCE = 2000


class Stack:
    """Dense networks of one shape, a run each, trained at once."""

    def __init__(self, runs: int, sizes: tuple[int, ...], begin: str, device: str) -> None:
        self.layers = []
        for inputs, outputs in itertools.pairwise(sizes):
            most = math.sqrt(6 / (inputs + outputs)) if begin == "glorot" else 1 / math.sqrt(inputs)
            weights = (torch.rand(runs, inputs, outputs, device=device) * 2 - 1) * most
            biases = (torch.rand(runs, 1, outputs, device=device) * 2 - 1) * (0.0 if begin == "glorot" else most)
            self.layers.append((weights.requires_grad_(), biases.requires_grad_()))

    @property
    def parameters(self) -> list[Tensor]:
        """All weights and biases."""
        return [one for layer in self.layers for one in layer]

    def __call__(self, values: Tensor) -> Tensor:
        """Return what the last layer gives for inputs of shape (runs, images, pixels), without activations between."""
        for weights, biases in self.layers:
            values = torch.baddbmm(biases, values, weights)
        return values

    def decoded(self, values: Tensor) -> Tensor:
        """Return images that went through an auto-encoder of two layers."""
        (inwards, first), (outwards, second) = self.layers
        codes = torch.relu(torch.baddbmm(first, values, inwards))
        return torch.sigmoid(torch.baddbmm(second, codes, outwards))

    @torch.no_grad()
    def with_noise(self, deviation: float) -> Stack:
        """Return the same networks with normal noise in all weights and biases."""
        noisy = Stack.__new__(Stack)
        noisy.layers = [
            (weights + deviation * torch.randn_like(weights), biases + deviation * torch.randn_like(biases))
            for weights, biases in self.layers
        ]
        return noisy


def batches(count: int, epochs: int, device: str) -> Iterator[Tensor]:
    """Return the places of the images of each step."""
    for _ in range(epochs):
        yield from torch.randperm(count, device=device)[: count // BATCH * BATCH].reshape(-1, BATCH)


def through(stack: Stack, images: Tensor, runs: int) -> Tensor:
    """Return decoded images as bytes, of shape (runs, images, pixels)."""
    with torch.no_grad():
        parts = [
            (stack.decoded(part.float().expand(runs, -1, -1) / 255) * 255).round().byte()
            for part in images.split(AT_ONCE, dim=1)
        ]
    return torch.cat(parts, dim=1)


def train_auto_encoders(images: Tensor, runs: int, begin: str, epochs: int, device: str) -> tuple[Stack, float]:
    """Return auto-encoders of images of shape (1, count, pixels), and their mean loss in the last epoch."""
    stack = Stack(runs, (PIXELS, CODE, PIXELS), begin, device)
    rule = torch.optim.Adam(stack.parameters)
    per_epoch = images.shape[1] // BATCH
    last = torch.zeros((), device=device)
    for step, at in enumerate(batches(images.shape[1], epochs, device)):
        own = images[:, at].float().expand(runs, -1, -1) / 255
        rule.zero_grad()
        loss = (stack.decoded(own) - own).square().mean(dim=(1, 2))  # of each run: their gradients do not mix
        loss.sum().backward()
        rule.step()
        if step >= per_epoch * (epochs - 1):
            last += loss.detach().mean() / per_epoch
    return stack, float(last)


def train_classifiers(images: Tensor, labels: Tensor, runs: int, begin: str, epochs: int, device: str) -> Stack:
    """Return classifiers of images of shape (1 or runs, count, pixels)."""
    stack = Stack(runs, CLASSIFIER, begin, device)
    rule = torch.optim.Adam(stack.parameters)
    for at in batches(images.shape[1], epochs, device):
        scores = stack(images[:, at].float().expand(runs, -1, -1) / 255)
        rule.zero_grad()
        loss: Any = nn.functional.cross_entropy(scores.flatten(0, 1), labels[at].repeat(runs)) * runs
        loss.backward()
        rule.step()
    return stack


def accuracies(stack: Stack, images: Tensor, labels: Tensor, runs: int) -> list[float]:
    """Return the accuracy of each classifier."""
    with torch.no_grad():
        found = [stack(part.float().expand(runs, -1, -1) / 255).argmax(dim=2) for part in images.split(AT_ONCE, dim=1)]
    return [round(float(one), 4) for one in (torch.cat(found, dim=1) == labels).double().mean(dim=1)]


def study(train: Part, test: Part, begin: str, runs: int, epochs: int, device: str) -> Iterator[dict[str, Any]]:
    """Yield the accuracies of all readings of the study."""
    torch.manual_seed(0)
    half = max(1, epochs // 2)
    (images, labels), (tests, truth) = (
        (torch.from_numpy(pixels.reshape(1, len(pixels), PIXELS)).to(device), torch.from_numpy(known).to(device))
        for pixels, known in (train, test)
    )
    coders, loss = train_auto_encoders(images, runs, begin, epochs, device)
    noisy = coders.with_noise(NOISE)
    kinds = {
        "real": (images, tests),
        "before": (through(coders, images, runs), through(coders, tests, runs)),
        "after": (through(noisy, images, runs), through(noisy, tests, runs)),
    }
    name = f"{epochs} epochs, {half} of the classifier"
    for trained, (shown, _) in kinds.items():
        plain = train_classifiers(shown, labels, runs, begin, half, device)
        for deviation in (0.0, NOISE_OF_CLASSIFIER):
            used = plain.with_noise(deviation)
            for tested, (_, seen) in kinds.items():
                yield {
                    "study": name,
                    "weights_begin": begin,
                    "loss": round(loss, 4),
                    "trained": trained,
                    "tested": tested,
                    "classifier_noise": deviation,
                    "accuracy": accuracies(used, seen, truth, runs),
                }


def private(train: Part, test: Part, method: str, epsilon: float, seed: int, device: str) -> dict[str, Any]:
    """Return the accuracy of the network that learns from images of a private auto-encoder with default settings."""
    images, labels = train
    made, canvas = image_method_of(method), Canvas(28, 28, 1, CLASSES)
    shares = made.shares(canvas)
    sums = NoisySums(shares, multiplier([], shares, epsilon, DELTA), Source())
    spent = time.process_time()
    model = made.learn(ImageRecords(images, labels, canvas), sums, np.random.default_rng(seed))
    cost = time.process_time() - spent
    drawn, own = model.sample(len(labels), np.random.default_rng(seed))
    inputs, known = as_tensor(test[0], device), torch.from_numpy(test[1]).to(device)
    shown = torch.from_numpy(np.moveaxis(drawn, 3, 1).copy()).to(device)
    reached = student(shown, torch.from_numpy(own).to(device), CLASSES, inputs, known, seed)
    found = {"data": "mnist", "method": method, "epsilon": epsilon, "seed": seed, "images": len(labels)}
    return {**found, "learn_cpu": cost, "student": reached}


def table(rows: list[dict[str, Any]]) -> None:
    """Print the mean and the range of all runs of each setting."""
    kinds: dict[str, list[float]] = defaultdict(list)
    for one in rows:
        if "study" in one:
            begin = one.get("weights_begin", "torch, first call")
            key = f"{one['study']}, weights as in {begin}: {one['trained']} -> {one['tested']}"
            kinds[f"{key}, noise {one['classifier_noise']:g}"] += one["accuracy"]
        else:
            kinds[f"{one['method']}, {one['images']:,} images, epsilon {one['epsilon']:g}"].append(one["student"])
    for name, values in kinds.items():
        print(f"{name}: {statistics.mean(values):.4f} ({min(values):.4f}-{max(values):.4f}), {len(values)} runs")


def main() -> None:
    """Run what the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["study", "private"], nargs="+", default=["study", "private"])
    parser.add_argument("--weights", choices=["torch", "glorot"], nargs="+", default=["torch", "glorot"])
    parser.add_argument("--method", nargs="+", default=["auto-encoder", "variational"])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--runs", type=int, default=5, help="of the study")
    parser.add_argument("--seeds", type=int, default=3, help="of the private methods")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--short", action="store_true", help="1,000 images, 2 epochs, nothing kept")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("--keep", type=Path, default=KEPT)
    options = parser.parse_args()
    if options.print:
        return table([json.loads(line) for line in options.keep.read_text().splitlines()])
    train, test, _ = load("mnist")
    if options.short:
        train, test = ((pixels[:1000], known[:1000]) for pixels, known in (train, test))
        options.epochs, options.runs, options.seeds, options.keep = 2, 2, 1, Path("/dev/null")
    rows = []

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        print(json.dumps(row), flush=True)
        with options.keep.open("a") as file:
            file.write(json.dumps(row) + "\n")

    for begin in options.weights if "study" in options.part else ():
        for row in study(train, test, begin, options.runs, options.epochs, options.device):
            keep(row)
    for method, epsilon, seed in itertools.product(
        options.method if "private" in options.part else (), options.epsilon, range(options.seeds)
    ):
        keep(private(train, test, method, epsilon, seed, options.device))
    return table(rows)


if __name__ == "__main__":
    main()

"""Networks that learn from images without privacy, to see what the images are good for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from sfumato.attacks.statistics import clopper_pearson
from sfumato.frontier.images.evaluation import Score
from sfumato.learners.images.teacher import as_tensor, features_of
from sfumato.learners.networks.architectures import architecture
from sfumato.synthesizers.images.base import Canvas, ImageRecords

__all__ = ["Exam", "Student", "students_for", "train_student"]

Bytes = NDArray[np.uint8]

_SCATTERING = "scattering-linear"
_SMALLEST = 14  # pixels a side that the convolutional network needs
_BATCH = 128
_RATES = {_SCATTERING: 1e-3}
_RATE = 3e-3
_MOST_FEATURES = 2**26  # numbers that are kept in memory
_MOST_SCATTERED = 10_000  # images of which scattering features are computed
_AT_ONCE = 2000  # images that are classified at a time


@dataclass(frozen=True, eq=False, repr=False)
class Student:
    """A trained model of images."""

    name: str
    module: nn.Module
    prepare: Callable[[Bytes], Tensor]

    def predict(self, images: Bytes) -> NDArray[np.int64]:
        """Return the class of each image."""
        return self.classes_of(self.prepare(images))

    @torch.no_grad()
    def classes_of(self, inputs: Tensor) -> NDArray[np.int64]:
        """Return the class of each image whose inputs are prepared."""
        starts = range(0, len(inputs), _AT_ONCE)
        parts = [self.module(inputs[at : at + _AT_ONCE]).argmax(dim=1).cpu().numpy() for at in starts]
        found: NDArray[np.int64] = np.concatenate(parts)
        return found


class Exam:
    """Real test images, prepared once for all models of a kind."""

    def __init__(self, test: ImageRecords) -> None:
        self.test = test
        self._inputs: dict[str, Tensor] = {}

    def score(self, student: Student, trained: int) -> Score:
        """Return how a model does that was trained on so many images."""
        if student.name not in self._inputs:
            self._inputs[student.name] = student.prepare(self.test.images)
        guessed, classes = student.classes_of(self._inputs[student.name]), self.test.canvas.classes
        confusion = np.bincount(self.test.labels * classes + guessed, minlength=classes**2).reshape(classes, classes)
        right, count = int(np.trace(confusion)), len(self.test.labels)
        interval = clopper_pearson(right, count)
        rows = tuple(tuple(int(one) for one in row) for row in confusion)
        return Score(student.name, trained, count, right / count, (interval.low, interval.high), rows)


def students_for(canvas: Canvas) -> tuple[str, str]:
    """Return the models that fit images of this size: a small network, and a linear one on scattering features.

    Examples
    --------
    >>> students_for(Canvas(28, 28, 1, 10)), students_for(Canvas(8, 8, 1, 10))
    (('cnn', 'scattering-linear'), ('mlp', 'scattering-linear'))
    """
    return ("cnn" if min(canvas.height, canvas.width) >= _SMALLEST else "mlp"), _SCATTERING


def train_student(
    name: str,
    records: ImageRecords,
    *,
    seen: int,
    seed: int,
    device: str = "cpu",
    progress: Callable[[float], None] | None = None,
) -> Student:
    """Return a model that has learned from images, without privacy.

    Parameters
    ----------
    name : {"cnn", "mlp", "scattering-linear"}
    records : ImageRecords
    seen : int
        How many images it sees in all: of a smaller set, each is seen more often.
    seed : int
        Of the initial weights, and of the order of the images.
    device : str
        "cpu" or "cuda".
    progress : callable, optional
    """
    rng = np.random.default_rng(seed)
    prepare = _prepare(name, device)
    inputs, labels = _inputs(name, records, prepare, rng)
    targets, count = torch.from_numpy(labels).to(device), len(labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = _module(name, records.canvas, inputs.shape[1:]).to(device)
    steps, rate = max(1, seen // _BATCH), _RATES.get(name, _RATE)
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1)
    order = np.empty(0, dtype=np.int64)
    for step in range(steps):
        while len(order) < _BATCH:
            order = np.concatenate([order, rng.permutation(count)])
        batch, order = torch.from_numpy(order[:_BATCH]).to(device), order[_BATCH:]
        optimizer.zero_grad(set_to_none=True)
        loss: Any = functional.cross_entropy(module(inputs[batch]), targets[batch])
        loss.backward()
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress((step + 1) / steps)
    return Student(name, module.eval(), prepare)


class _Scaled(nn.Module):
    """Bytes as numbers from 0 to 1."""

    def forward(self, images: Tensor) -> Tensor:
        return images.float() / 255


def _prepare(name: str, device: str) -> Callable[[Bytes], Tensor]:
    """Return the function that makes inputs of a model from images."""
    if name == _SCATTERING:
        return lambda images: features_of(as_tensor(images, device))
    return lambda images: torch.from_numpy(np.require(np.moveaxis(images, 3, 1), requirements=["C", "W"])).to(device)


def _inputs(
    name: str, records: ImageRecords, prepare: Callable[[Bytes], Tensor], rng: np.random.Generator
) -> tuple[Tensor, NDArray[np.int64]]:
    """Return inputs and labels; of many images, the scattering features of some."""
    images, labels = records.images, records.labels
    if name == _SCATTERING:
        size = prepare(images[:1]).shape[1]
        most = min(_MOST_SCATTERED, max(1, _MOST_FEATURES // size))
        if len(images) > most:
            some = np.sort(rng.choice(len(images), most, replace=False))
            images, labels = images[some], labels[some]
    return prepare(images), labels


def _module(name: str, canvas: Canvas, shape: torch.Size) -> nn.Module:
    if name == _SCATTERING:
        return architecture("logistic", tuple(shape), canvas.classes).module
    return nn.Sequential(_Scaled(), architecture(name, tuple(shape), canvas.classes).module)

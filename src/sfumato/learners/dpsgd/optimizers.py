"""Optimizers (SGD, Adam) and learning-rate schedules.

They use only the noisy gradients that a private step has released, so they cost no privacy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sfumato.data.validate import by_name, real
from sfumato.errors import OptionError

__all__ = ["SCHEDULES", "Adam", "Optimizer", "Schedule", "Sgd", "schedule_of"]

Schedule = Callable[[float], float]
"""A factor as a function of the fraction of steps done, from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Optimizer(ABC):
    """How the weights follow a gradient."""

    learning_rate: float
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        real("the learning rate", self.learning_rate, above=0)
        real("the weight decay", self.weight_decay, least=0)

    @abstractmethod
    def begin(self, weights: Tensor) -> dict[str, Tensor]:
        """Return the optimizer state before the first step."""

    @abstractmethod
    def follow(self, weights: Tensor, gradient: Tensor, memory: dict[str, Tensor], rate: float | Tensor) -> None:
        """Update the weights in place; ``rate`` is the learning rate of this step."""

    def to_dict(self) -> dict[str, Any]:
        """Return the optimizer as plain values."""
        return {"rule": type(self).__name__.lower(), **vars(self)}


@dataclass(frozen=True, kw_only=True)
class Sgd(Optimizer):
    """Gradient descent with momentum.

    Examples
    --------
    >>> sgd, weights = Sgd(learning_rate=0.5), torch.tensor([1.0, 2.0])
    >>> sgd.follow(weights, torch.tensor([1.0, 0.0]), sgd.begin(weights), 0.5)
    >>> weights
    tensor([0.5000, 2.0000])
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        real("the momentum", self.momentum, least=0, below=1)
        if self.nesterov and not self.momentum:
            raise OptionError("Nesterov momentum needs a momentum above 0")

    def begin(self, weights: Tensor) -> dict[str, Tensor]:
        """Return a velocity of zero."""
        return {"velocity": torch.zeros_like(weights)} if self.momentum else {}

    def follow(self, weights: Tensor, gradient: Tensor, memory: dict[str, Tensor], rate: float | Tensor) -> None:
        """Update the weights in place."""
        if self.weight_decay:
            gradient = gradient.add(weights, alpha=self.weight_decay)
        if self.momentum:
            velocity = memory["velocity"].mul_(self.momentum).add_(gradient)
            gradient = gradient.add(velocity, alpha=self.momentum) if self.nesterov else velocity
        _subtract(weights, gradient, rate)


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015) on private gradients; the weight decay is decoupled (AdamW)."""

    learning_rate: float = 1e-3
    first: float = 0.9
    second: float = 0.999
    small: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("first", "second"):
            real(f"Adam's {name}", getattr(self, name), least=0, below=1)
        real("Adam's small", self.small, above=0)

    def begin(self, weights: Tensor) -> dict[str, Tensor]:
        """Return moments of zero."""
        return {
            "mean": torch.zeros_like(weights),
            "square": torch.zeros_like(weights),
            "steps": torch.zeros((), device=weights.device, dtype=torch.float64),  # keeps 1 - 0.999 exact
        }

    def follow(self, weights: Tensor, gradient: Tensor, memory: dict[str, Tensor], rate: float | Tensor) -> None:
        """Divide the mean gradient by the root of its mean square, both corrected for their bias to 0."""
        steps = memory["steps"].add_(1)
        mean = memory["mean"].lerp_(gradient, 1 - self.first)
        square = memory["square"].mul_(self.second).addcmul_(gradient, gradient, value=1 - self.second)
        root = (square / (1 - self.second**steps)).sqrt_().add_(self.small)
        if self.weight_decay:
            weights.mul_(1 - rate * self.weight_decay)
        _subtract(weights, (mean / (1 - self.first**steps)).div_(root), rate)


def _subtract(weights: Tensor, change: Tensor, rate: float | Tensor) -> None:
    if isinstance(rate, Tensor):
        weights.addcmul_(change, rate, value=-1)
    else:
        weights.add_(change, alpha=-rate)


SCHEDULES: dict[str, Schedule] = {
    "constant": lambda way: 1.0,
    "linear": lambda way: 1 - way,
    "cosine": lambda way: (1 + math.cos(math.pi * way)) / 2,
    "warm-cosine": lambda way: min(1.0, way / 0.1) * ((1 + math.cos(math.pi * way)) / 2),
}


def schedule_of(schedule: str | Schedule) -> Schedule:
    """Return a schedule by its name; a function is returned as it is.

    Examples
    --------
    >>> [round(schedule_of("cosine")(way), 2) for way in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    """
    return by_name("schedule", schedule, SCHEDULES)

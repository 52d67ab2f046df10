"""The training samples, the batches drawn from them, and the event that a draw is to the accountant.

Every sampler divides by the expected batch size, never by the actual one, because the number of samples drawn is
private. So is the number of samples in the data: rate, steps and divisor come from ``rows``, which is public, and only
`Sampler.draw` uses the actual number.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.budget.accounting.training_events import step_event
from sfumato.budget.events import ApproximateEvent, Composed, Event
from sfumato.budget.noise import Source, rounding_event
from sfumato.errors import ModelError, OptionError
from sfumato.learners.gradients.clipping import Loss, cross_entropy, squared_error, to_layout

__all__ = ["Batch", "FixedPoisson", "Full", "Poisson", "Sampler", "Samples", "in_mode"]

_SMALLEST = 2.0**-40  # at smaller rates, the gaps between samples would overflow an integer
_FILL = 8  # batches are padded to multiples of this, so few shapes occur
_AT_ONCE = 1024  # samples scored at once


@dataclass(frozen=True)
class Sampler(ABC):
    """A way to draw samples from about ``rows``, the public number of samples.

    ``dimensions`` is how many numbers get noise in a step, which `rounding_event` charges for; 0 charges for ideal
    noise.
    """

    rows: int
    dimensions: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise OptionError("there are no samples to train on")

    @property
    @abstractmethod
    def expected(self) -> float:
        """The average number of samples per step, by which sums are divided."""

    @abstractmethod
    def draw(self, source: Source, there: int | None = None) -> NDArray[np.int64]:
        """Return the indices of the samples of the next step, out of ``there`` samples (by default ``rows``)."""

    def event(self, noise_multiplier: float) -> Event:
        """Return the event of one step: Gaussian noise on the sum over the samples drawn, and the cost of rounding."""
        more = self._more(noise_multiplier)
        ideal = self._ideal(noise_multiplier)
        return Composed((ideal, *more)) if more else ideal

    @abstractmethod
    def _ideal(self, noise_multiplier: float) -> Event:
        """Return the event of a step with ideal noise."""

    def _more(self, noise_multiplier: float) -> list[Event]:
        """Return the events of a step beyond the ideal one."""
        return [rounding_event(self.dimensions, noise_multiplier)] if self.dimensions else []

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the sampler as plain values."""


@dataclass(frozen=True)
class Poisson(Sampler):
    """Poisson sampling: each sample is drawn independently, with the same probability.

    Examples
    --------
    >>> sampler = Poisson(rows=60_000, rate=64 / 60_000)
    >>> sampler.expected
    64.0
    >>> print(sampler.event(1.2))
    on a Poisson sample of rate 0.00106667: Gaussian noise of scale 1.2 on a sensitivity of 1
    >>> 20 < len(sampler.draw(Source())) < 130
    True
    """

    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _SMALLEST <= self.rate <= 1:
            raise OptionError(f"the sampling rate must be at least 2**-40 and at most 1, got {self.rate!r}")

    @property
    def expected(self) -> float:
        """The rate times the number of rows."""
        return self.rate * self.rows

    def draw(self, source: Source, there: int | None = None) -> NDArray[np.int64]:
        """Draw the gaps between samples, which have a geometric distribution."""
        count = self.rows if there is None else there
        if self.rate == 1:
            return np.arange(count)
        scale = -1 / math.log1p(-self.rate)  # a gap is at least m with the probability (1 - rate)^m
        many = int(self.rate * count + 5 * math.sqrt(self.rate * count)) + 8
        taken = np.cumsum(source.geometric(scale, many) + 1) - 1
        while taken[-1] < count:
            taken = np.concatenate([taken, taken[-1] + np.cumsum(source.geometric(scale, many) + 1)])
        return taken[taken < count]

    def _ideal(self, noise_multiplier: float) -> Event:
        return step_event("poisson", self.rate, noise_multiplier)

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the rate."""
        return {"kind": "poisson", "rate": self.rate}


@dataclass(frozen=True)
class FixedPoisson(Poisson):
    """Poisson sampling into batches of a fixed size; samples beyond the size are dropped.

    A step that differs from Poisson sampling with probability t, whatever the data, costs an additional delta of
    ``(1 + e^epsilon) t``. Every step is charged for it, for an epsilon of at most ``up_to`` and at most ``most``
    samples in the data; with more samples, none is dropped.

    Examples
    --------
    >>> sampler = FixedPoisson.of(Poisson(60_000, 512 / 60_000), delta=1e-5, up_to=20)
    >>> sampler.size
    752
    >>> sampler.beyond < 1e-5 / 1e9
    True
    """

    size: int
    up_to: float
    most: int

    @classmethod
    def of(cls, sampler: Poisson, delta: float, up_to: float, most: int | None = None) -> FixedPoisson:
        """Choose the size such that a million steps cost less than a thousandth of delta."""
        from scipy.stats import binom

        rows = sampler.rows if most is None else most
        chance, sizes = delta * 1e-9 / (1 + math.exp(up_to)), range(0, rows + 8, 8)
        enough = bisect_left(sizes, True, key=lambda size: bool(binom.sf(size, rows, sampler.rate) <= chance))
        size = min(rows, sizes[enough])
        return cls(sampler.rows, sampler.rate, size, up_to, rows, dimensions=sampler.dimensions)

    @property
    def beyond(self) -> float:
        """The delta that dropping samples costs per step."""
        from scipy.stats import binom

        return float((1 + math.exp(self.up_to)) * binom.sf(self.size, self.most, self.rate))

    def draw(self, source: Source, there: int | None = None) -> NDArray[np.int64]:
        """Draw a Poisson sample, and drop samples beyond the size."""
        taken = super().draw(source, there)
        return taken[: self.size] if (there or 0) <= self.most else taken

    def _more(self, noise_multiplier: float) -> list[Event]:
        beyond = [ApproximateEvent(0.0, self.beyond)] if self.beyond else []
        return [*super()._more(noise_multiplier), *beyond]

    def to_dict(self) -> dict[str, Any]:
        """Return the kind, the rate and the size."""
        return {**super().to_dict(), "size": self.size}


@dataclass(frozen=True)
class Full(Sampler):
    """Full batches: every step takes all samples, without amplification by sampling.

    Examples
    --------
    >>> print(Full(rows=100).event(2.0))
    Gaussian noise of scale 2 on a sensitivity of 1
    """

    @property
    def expected(self) -> float:
        """The public number of samples."""
        return float(self.rows)

    def draw(self, source: Source, there: int | None = None) -> NDArray[np.int64]:
        """Return all samples."""
        return np.arange(self.rows if there is None else there)

    def _ideal(self, noise_multiplier: float) -> Event:
        return step_event("full", 1.0, noise_multiplier)

    def to_dict(self) -> dict[str, Any]:
        """Return the kind."""
        return {"kind": "full", "rate": 1.0}


class Batch(NamedTuple):
    """A batch of samples; samples of weight 0 are padding."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None = None

    def to(self, device: torch.device, layout: torch.memory_format) -> Batch:
        """Return the batch on a device and in a memory format."""
        weights = None if self.weights is None else self.weights.to(device)
        return Batch(to_layout(self.inputs.to(device), layout), self.targets.to(device), weights)

    def augmented(self, augment: Callable[[Tensor], Tensor] | None, views: int) -> Batch:
        """Return several augmented views of each sample, one after another."""
        if augment is None or not len(self.inputs):
            return self
        seen = [augment(self.inputs) for _ in range(views)]
        if any(len(view) != len(self.inputs) for view in seen):
            raise OptionError("augment must return as many samples as it gets")
        return Batch(torch.stack(seen, 1).flatten(0, 1), self.targets.repeat_interleave(views, 0), self.weights)


@dataclass(frozen=True)
class Samples:
    """Inputs and targets, a row per sample.

    Examples
    --------
    >>> samples = Samples.of(np.eye(3), [0, 1, 1], nn.Linear(3, 2), cross_entropy)
    >>> samples.inputs.dtype, samples.targets
    (torch.float32, tensor([0, 1, 1]))
    """

    inputs: Tensor
    targets: Tensor

    @classmethod
    def of(cls, inputs: Any, targets: Any, module: nn.Module, loss: Loss) -> Samples:
        """Convert inputs and targets to tensors, and check that they fit the module and the loss.

        Floats and bytes get the type of the weights; longer integers keep their type, because they may be token ids.
        """
        if isinstance(inputs, torch.utils.data.DataLoader):
            raise OptionError(
                "the batches of a DataLoader are not Poisson samples, so their privacy cost is unknown",
                hint="give all inputs and targets as tensors or arrays",
            )
        dtype = next((one.dtype for one in module.parameters() if one.is_floating_point()), torch.float32)
        data, wanted = _tensor(inputs, "inputs"), _tensor(targets, "targets")
        if len(data) != len(wanted):
            raise OptionError(f"there are {len(data):,} inputs and {len(wanted):,} targets")
        if not len(data):
            raise OptionError("there are no samples")
        if data.dtype not in (torch.int32, torch.int64):
            data = data.to(dtype)
        counted = not wanted.is_floating_point() and loss is not squared_error
        samples = cls(data, wanted.to(torch.int64 if counted else dtype))
        samples._refuse_misfits(module, loss)
        return samples

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, sampler: Sampler, source: Source, weight: torch.dtype | None = None) -> Batch:
        """Draw a batch; given a type for the weights, pad it with samples of weight 0."""
        if isinstance(sampler, Full):
            return Batch(self.inputs, self.targets, None)
        taken = sampler.draw(source, len(self))
        lacking = -len(taken) % _FILL if weight else 0
        rows = torch.from_numpy(np.pad(taken, (0, lacking))).to(self.inputs.device)
        weights = None
        if lacking:
            weights = torch.ones(len(rows), device=self.inputs.device, dtype=weight)
            weights[len(taken) :] = 0
        return Batch(self.inputs[rows], self.targets[rows], weights)

    def parts(self) -> Iterator[Batch]:
        """Yield all samples in parts of bounded size."""
        yield from map(Batch, self.inputs.split(_AT_ONCE), self.targets.split(_AT_ONCE))

    def _refuse_misfits(self, module: nn.Module, loss: Loss) -> None:
        """Run the module on two samples of zeros, never on the data, and check that the targets fit its outputs."""
        device = next((one.device for one in module.parameters()), None)
        example = torch.zeros(2, *self.inputs.shape[1:], dtype=self.inputs.dtype, device=device)
        with in_mode(module, training=False), torch.no_grad():
            try:
                outputs = module(example)
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                shape, kind = " x ".join(map(str, example.shape[1:])), str(example.dtype).removeprefix("torch.")
                raise ModelError(
                    f"the model does not take inputs of shape {shape or '1'} ({kind})",
                    hint=str(error).partition("\n")[0],
                ) from error
            if isinstance(outputs, Tensor):
                self._refuse_targets(outputs, loss)
            losses = loss(outputs, torch.zeros(2, *self.targets.shape[1:], dtype=self.targets.dtype, device=device))
        if losses.shape != (2,):
            raise OptionError(
                f"the loss must return one number per sample, got the shape {tuple(losses.shape)} for two samples",
                hint='use reduction="none"',
            )

    def _refuse_targets(self, outputs: Tensor, loss: Loss) -> None:
        width = outputs.flatten(1).shape[1] if outputs.dim() > 1 else 1
        if loss is squared_error and width != self.targets[0].numel():
            raise OptionError(
                f"the model returns {width} numbers per sample, but the targets have {self.targets[0].numel()}"
            )
        if loss is cross_entropy and (self.targets.dim() > 1 or outputs.dim() != 2):
            raise OptionError(
                f"targets must be one class per sample, and outputs one number per class, got the shapes "
                f"{tuple(self.targets.shape[1:])} and {tuple(outputs.shape[1:])} per sample"
            )
        if loss is cross_entropy and (
            self.targets.is_floating_point() or bool(((self.targets < 0) | (self.targets >= width)).any())
        ):
            raise OptionError(f"targets must be whole numbers from 0 to {width - 1}, one class per output of the model")


@contextmanager
def in_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Put a module into training or evaluation mode, and restore the mode of each of its parts afterwards."""
    before = {one: one.training for one in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for one, was in before.items():
            one.training = was


def _tensor(values: Any, name: str) -> Tensor:
    """Return values as a tensor with one row per sample, or raise an `OptionError` if they are not finite numbers."""
    try:
        # Torch needs arrays that are contiguous and writable; others are copied.
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(np.require(values, requirements=["C", "W"]))
    except (TypeError, ValueError):
        raise OptionError(f"the {name} must be numbers, got {type(values).__name__}") from None
    if tensor.dim() == 0:
        raise OptionError(f"the {name} must be one row per sample, got a single value")
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise OptionError(f"the {name} contain missing or infinite numbers", hint="fill them in, or leave them out")
    return tensor.detach()

"""All samples of a training as tensors: what is refused of them, and the batches that are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.budget.noise import Source
from sfumato.errors import ModelError, OptionError
from sfumato.learners.dpsgd.sampling import Full, Sampler
from sfumato.learners.gpu.memory_format import arranged
from sfumato.learners.gradients.clipping import Loss, cross_entropy, squared_error

__all__ = ["Batch", "Samples", "in_mode"]

_FILL = 8  # batches are filled up to multiples of it, so that few shapes occur
_AT_ONCE = 1024  # how many samples are scored at once


class Batch(NamedTuple):
    """Some samples; those of weight 0 only fill it up."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None = None

    def at(self, device: torch.device, layout: torch.memory_format) -> Batch:
        """Bring it where the module is, and as the module wants it."""
        weights = None if self.weights is None else self.weights.to(device)
        return Batch(arranged(self.inputs.to(device), layout), self.targets.to(device), weights)

    def viewed(self, augment: Callable[[Tensor], Tensor] | None, views: int) -> Batch:
        """Put several views of each sample one after another."""
        if augment is None or not len(self.inputs):
            return self
        seen = [augment(self.inputs) for _ in range(views)]
        if any(len(view) != len(self.inputs) for view in seen):
            raise OptionError("augment must give as many samples as it got")
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
        """Read samples for a module: finite numbers that it takes, and targets that its outputs can have.

        Fractions get the type of the weights. Bytes become numbers like them; longer whole numbers
        stay what they are, for they may be words.
        """
        if isinstance(inputs, torch.utils.data.DataLoader):
            raise OptionError(
                "a loader's batches are no Poisson sample, so what they cost cannot be said",
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
        """Draw a batch; with a type of weights, fill it up."""
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
        """Yield all samples, some at a time."""
        yield from map(Batch, self.inputs.split(_AT_ONCE), self.targets.split(_AT_ONCE))

    def _refuse_misfits(self, module: nn.Module, loss: Loss) -> None:
        """Try the module on two samples of zeros, never on the data, and look whether the targets suit its outputs."""
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
                f"the loss must give one number per sample, got the shape {tuple(losses.shape)} for two samples",
                hint='use reduction="none"',
            )

    def _refuse_targets(self, outputs: Tensor, loss: Loss) -> None:
        found = outputs.flatten(1).shape[1] if outputs.dim() > 1 else 1
        if loss is squared_error and found != self.targets[0].numel():
            raise OptionError(
                f"the model has an output of {found} numbers per sample, and the targets have {self.targets[0].numel()}"
            )
        if loss is cross_entropy and (self.targets.dim() > 1 or outputs.dim() != 2):
            raise OptionError(
                f"targets must be one class per sample, and outputs one number per class, got the shapes "
                f"{tuple(self.targets.shape[1:])} and {tuple(outputs.shape[1:])} per sample"
            )
        if loss is cross_entropy and (
            self.targets.is_floating_point() or bool(((self.targets < 0) | (self.targets >= found)).any())
        ):
            raise OptionError(f"targets must be whole numbers from 0 to {found - 1}, one class per output of the model")


@contextmanager
def in_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Let a module train or not, and then let each of its parts be as it was."""
    before = {one: one.training for one in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for one, was in before.items():
            one.training = was


def _tensor(values: Any, name: str) -> Tensor:
    """Return values as a tensor if they are finite numbers, a row per sample."""
    try:
        # Torch wants arrays in order that it may write to; others are copied.
        found = values if isinstance(values, Tensor) else torch.as_tensor(np.require(values, requirements=["C", "W"]))
    except (TypeError, ValueError):
        raise OptionError(f"the {name} must be numbers, got {type(values).__name__}") from None
    if found.dim() == 0:
        raise OptionError(f"the {name} must be one row per sample, got a single value")
    if found.is_floating_point() and not bool(found.isfinite().all()):
        raise OptionError(
            f"the {name} hold numbers that are missing or infinite", hint="fill them in, or leave them out"
        )
    return found.detach()

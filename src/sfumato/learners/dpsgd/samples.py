"""The training samples as tensors: validation, and the batches drawn from them."""

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
from sfumato.learners.gradients.clipping import Loss, cross_entropy, squared_error, to_memory_format

__all__ = ["Batch", "Samples", "in_mode"]

_FILL = 8  # batches are padded to multiples of this, so few shapes occur
_AT_ONCE = 1024  # samples scored at once


class Batch(NamedTuple):
    """A batch of samples; samples of weight 0 are padding."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None = None

    def to(self, device: torch.device, memory_format: torch.memory_format) -> Batch:
        """Return the batch on a device and in a memory format."""
        weights = None if self.weights is None else self.weights.to(device)
        return Batch(to_memory_format(self.inputs.to(device), memory_format), self.targets.to(device), weights)

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

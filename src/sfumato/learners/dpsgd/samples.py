"""The training samples as tensors: validation, and the batches drawn from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.budget.noise import Source
from sfumato.data.validate import whole
from sfumato.errors import ModelError, OptionError
from sfumato.learners.dpsgd.sampling import Full, Sampler
from sfumato.learners.gradients.clipping import Loss, cross_entropy, squared_error, to_memory_format
from sfumato.learners.gradients.people import People

__all__ = ["Batch", "Samples", "in_mode"]

_FILL = 8  # batches are padded to multiples of this, so few shapes occur
_AT_ONCE = 1024  # samples scored at once


class Batch(NamedTuple):
    """A batch of samples, or of people with several rows each; those of weight 0 are padding."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None = None
    people: People | None = None

    def to(self, device: torch.device, memory_format: torch.memory_format) -> Batch:
        """Return the batch on a device and in a memory format."""
        weights = None if self.weights is None else self.weights.to(device)
        people = None if self.people is None else self.people.to(device)
        return Batch(to_memory_format(self.inputs.to(device), memory_format), self.targets.to(device), weights, people)

    def augmented(self, augment: Callable[[Tensor], Tensor] | None, views: int) -> Batch:
        """Return several augmented views of each sample, one after another."""
        if augment is None or not len(self.inputs):
            return self
        seen = [augment(self.inputs) for _ in range(views)]
        if any(len(view) != len(self.inputs) for view in seen):
            raise OptionError("augment must return as many samples as it gets")
        inputs, targets = torch.stack(seen, 1).flatten(0, 1), self.targets.repeat_interleave(views, 0)
        return self._replace(inputs=inputs, targets=targets)


@dataclass(frozen=True)
class Samples:
    """Inputs and targets, a row per sample.

    With ``owners``, the rows are those of people: the code of a person per row, negative for a row of nobody, which is
    a person of its own. Batches then are of people; `drawn` first leaves out rows beyond ``rows_per_person``.

    Examples
    --------
    >>> samples = Samples.of(np.eye(3), [0, 1, 1], nn.Linear(3, 2), cross_entropy)
    >>> samples.inputs.dtype, samples.targets
    (torch.float32, tensor([0, 1, 1]))
    """

    inputs: Tensor
    targets: Tensor
    owners: NDArray[np.int64] | None = None
    rows_per_person: int | None = None

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

    def of_people(self, people: Any, rows_per_person: int | None) -> Samples:
        """Return the samples as rows of people, given the code of each row's person."""
        if people is None and rows_per_person is None:
            return self
        if people is None or rows_per_person is None:
            raise OptionError("people and rows_per_person go together: whose each row is, and how many rows count")
        owners = np.asarray(people)
        if owners.ndim != 1 or owners.dtype.kind not in "iu":
            raise OptionError(
                "people must be one whole number per row, negative for a row of nobody",
                hint="codes_of_people gives every person of a column a number",
            )
        if len(owners) != len(self.inputs):
            raise OptionError(f"there are {len(self.inputs):,} inputs and {len(owners):,} people")
        bound = whole("the rows of a person", rows_per_person)
        return replace(self, owners=owners.astype(np.int64), rows_per_person=bound)

    def drawn(self, rows: NDArray[np.int64]) -> Samples:
        """Return only these rows, those of a person one after another."""
        assert self.owners is not None
        owners = self.owners[rows]
        if self.rows_per_person != 1:  # else the rows keep their order, as if there were no people
            _, first, person = np.unique(_each_their_own(owners), return_index=True, return_inverse=True)
            order = np.argsort(first[person], kind="stable")
            rows, owners = rows[order], owners[order]
        taken = torch.from_numpy(rows).to(self.inputs.device)
        return replace(self, inputs=self.inputs[taken], targets=self.targets[taken], owners=owners)

    def __len__(self) -> int:
        return len(self.inputs) if self.owners is None else len(np.unique(_each_their_own(self.owners)))

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        """How many rows each person has, who are in the order of their rows."""
        assert self.owners is not None
        codes = _each_their_own(self.owners)
        starts = np.flatnonzero(np.diff(codes, prepend=codes[:1] - 1))
        return np.diff(starts, append=len(codes))

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """The first row of each person."""
        return np.cumsum(self._counts) - self._counts

    @cached_property
    def _everyone(self) -> People:
        assert self.rows_per_person is not None
        return People(torch.from_numpy(self._counts).to(self.inputs.device), self.rows_per_person)

    def batch(self, sampler: Sampler, source: Source, weight: torch.dtype | None = None) -> Batch:
        """Draw a batch; given a type for the weights, pad it with samples or people of weight 0."""
        several = self.rows_per_person is not None and self.rows_per_person > 1
        if isinstance(sampler, Full):
            return Batch(self.inputs, self.targets, None, self._everyone if several else None)
        taken = sampler.draw(source, len(self._counts) if several else len(self.inputs))
        if several:
            return self._people(taken, weight)
        lacking = -len(taken) % _FILL if weight else 0
        rows = torch.from_numpy(np.pad(taken, (0, lacking))).to(self.inputs.device)
        return Batch(self.inputs[rows], self.targets[rows], self._weights(len(taken), lacking, weight))

    def _people(self, taken: NDArray[np.int64], weight: torch.dtype | None) -> Batch:
        """Return the rows of the people taken; people who are padding have one row each."""
        counts, starts = self._counts[taken], self._starts[taken]
        rows = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        lacking = -len(rows) % _FILL if weight else 0
        at = torch.from_numpy(np.pad(rows, (0, lacking))).to(self.inputs.device)
        each = torch.from_numpy(np.pad(counts, (0, lacking), constant_values=1)).to(self.inputs.device)
        people = People(each, self._everyone.most)
        return Batch(self.inputs[at], self.targets[at], self._weights(len(taken), lacking, weight), people)

    def _weights(self, taken: int, lacking: int, kind: torch.dtype | None) -> Tensor | None:
        if not lacking:
            return None
        weights = torch.ones(taken + lacking, device=self.inputs.device, dtype=kind)
        weights[taken:] = 0
        return weights

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


def _each_their_own(owners: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give each row of nobody a code of its own."""
    return np.where(owners >= 0, owners, -1 - np.arange(len(owners)))


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

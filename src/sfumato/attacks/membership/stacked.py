"""Stacked networks: train the networks of all references at once, as one batched network.

A small network leaves most of a processor idle, and its steps cost more to start than to compute. So the weights of all
references are stacked along a new axis, and each step updates all of them: a linear layer is then a batched matrix
product, and a convolution a grouped one. Every network has its own initial weights, its own rows and its own batches,
and becomes what it would have become alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.attacks.base import Records
from sfumato.attacks.predictions import label_codes
from sfumato.data.validate import real, whole
from sfumato.errors import InputError, ModelError, OptionError, require_extra

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["StackedNetworks", "TrainedNetwork"]

Ints = NDArray[np.int64]
Batches = list[Ints]

_AT_ONCE = 4096  # records that are predicted together


class StackedNetworks(Discreet):
    """Train a torch network on arrays; many of them at once, if an attack needs references.

    Parameters
    ----------
    classes : sequence
        The classes; the network has one output for each.
    model : str or callable
        "mlp", "logistic" or "cnn", see `sfumato.learners.architecture`, or a picklable function without arguments that
        returns a module. Batch normalization is refused: it mixes the records of a batch.
    options : mapping, optional
        Of a named model, such as ``{"hidden": (100, 50)}``.
    epochs, batch_size, learning_rate
        Of the training; each record is once in every epoch.
    optimizer : {"adam", "sgd"}
        "sgd" has a momentum of 0.9.
    device : str
        "cpu" or "cuda".

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> people = Records(rng.normal(size=(64, 5)), rng.integers(0, 2, 64))
    >>> train = StackedNetworks([0, 1], options={"hidden": (8,)}, epochs=2)
    >>> models = train.together(people, np.arange(64) % 2 == np.arange(2)[:, None], seeds=[1, 2])
    >>> [model.predict_proba(people.rows).shape for model in models]
    [(64, 2), (64, 2)]
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("model", "epochs")
    notes: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        classes: Any,
        *,
        model: str | Callable[[], nn.Module] = "mlp",
        options: Mapping[str, Any] | None = None,
        epochs: int = 20,
        batch_size: int = 100,
        learning_rate: float = 0.001,
        optimizer: str = "adam",
        device: str = "cpu",
    ) -> None:
        require_extra("torch", "torch", "training networks")
        self.classes, self.model, self.options = np.asarray(classes), model, dict(options or {})
        self.epochs, self.batch_size = whole("epochs", epochs), whole("the batch size", batch_size)
        self.learning_rate = real("the learning rate", learning_rate, above=0)
        if optimizer not in ("adam", "sgd"):
            raise OptionError(f"the optimizer must be adam or sgd, got {optimizer!r}")
        self.optimizer, self.device = optimizer, device

    def __call__(self, records: Records, seed: int) -> TrainedNetwork:
        """Return one network, trained alone."""
        import torch

        inputs, labels = self._tensors(records)
        module = self._module(records, seed).to(self.device)
        optimizer = self._optimizer(list(module.parameters()))
        for batch in self._batches(np.arange(len(records)), seed):
            rows = torch.from_numpy(batch).to(self.device)
            loss = torch.nn.functional.cross_entropy(module(inputs[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return TrainedNetwork(module.eval(), self.classes, self.device)

    def together(
        self,
        pool: Records,
        inside: NDArray[np.bool_],
        seeds: list[int],
        progress: Callable[[float], None] | None = None,
    ) -> list[TrainedNetwork]:
        """Return a network for each row of `inside`, trained on these records of the pool with a seed of its own.

        Networks with as many records are trained at once.
        """
        rows = [np.flatnonzero(one) for one in inside]
        made: dict[int, TrainedNetwork] = {}
        for size in sorted({len(one) for one in rows}):
            alike = [number for number, one in enumerate(rows) if len(one) == size]
            trained = self._stack(pool, [rows[number] for number in alike], [seeds[number] for number in alike])
            made |= dict(zip(alike, trained, strict=True))
            if progress:
                progress(len(made) / len(rows))
        return [made[number] for number in range(len(rows))]

    def _stack(self, pool: Records, rows: list[Ints], seeds: list[int]) -> list[TrainedNetwork]:
        import torch
        from torch.func import functional_call, stack_module_state, vmap

        inputs, labels = self._tensors(pool)
        modules = [self._module(pool, seed).to(self.device) for seed in seeds]
        weights, _ = stack_module_state(modules)

        def loss(own: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return torch.nn.functional.cross_entropy(functional_call(modules[0], own, (x,)), y)

        losses = vmap(loss, randomness="different")
        optimizer = self._optimizer(list(weights.values()))
        plans = [self._batches(own, seed) for own, seed in zip(rows, seeds, strict=True)]
        for step in zip(*plans, strict=True):
            batch = torch.from_numpy(np.stack(step)).to(self.device)
            total = losses(weights, inputs[batch], labels[batch]).sum()  # of networks that share no weight
            optimizer.zero_grad()
            total.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        for number, module in enumerate(modules):
            module.load_state_dict({name: one[number].detach() for name, one in weights.items()})
        return [TrainedNetwork(module.eval(), self.classes, self.device) for module in modules]

    def _tensors(self, records: Records) -> tuple[Tensor, Tensor]:
        import torch

        if not isinstance(records.rows, np.ndarray) or records.rows.dtype.kind not in "fiub":
            raise InputError("networks are trained on arrays of numbers", hint="encode the table first")
        if records.labels is None:
            raise InputError("a model cannot be trained on records without labels")
        codes = torch.from_numpy(label_codes(records.labels, self.classes))
        return _inputs(records.rows).to(self.device), codes.to(self.device)

    def _module(self, records: Records, seed: int) -> nn.Module:
        """Return a new network, with initial weights that follow from the seed."""
        import torch

        from sfumato.learners.networks.architectures import architecture

        shape = tuple(_inputs(records.rows[:1]).shape[1:])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if callable(self.model):
                module = self.model()
            else:
                module = architecture(self.model, shape, len(self.classes), **self.options).module
        if list(module.buffers()):
            raise ModelError(f"{type(module).__name__} has buffers, such as those of batch normalization")
        return module.train()

    def _optimizer(self, weights: list[Tensor]) -> Any:
        import torch

        if self.optimizer == "adam":
            return torch.optim.Adam(weights, lr=self.learning_rate)
        return torch.optim.SGD(weights, lr=self.learning_rate, momentum=0.9)

    def _batches(self, rows: Ints, seed: int) -> Batches:
        """Return the batches of all epochs: the rows in a random order, divided into equal parts."""
        rng = np.random.default_rng(seed)
        parts = math.ceil(len(rows) / self.batch_size)
        return [one for _ in range(self.epochs) for one in np.array_split(rng.permutation(rows), parts)]


class TrainedNetwork(Discreet):
    """A trained network as a model: it has classes and predicts them."""

    _repr_fields: ClassVar[tuple[str, ...]] = ("classes_",)

    def __init__(self, module: nn.Module, classes: NDArray[Any], device: str) -> None:
        self.module, self.classes_, self.device = module, classes, device

    def predict_proba(self, rows: Any) -> NDArray[np.float64]:
        """Return the probability of each class."""
        import torch

        parts = torch.split(_inputs(np.asarray(rows)), _AT_ONCE)
        with torch.no_grad():
            found = torch.cat([self.module(one.to(self.device)).double().softmax(1).cpu() for one in parts])
        result: NDArray[np.float64] = found.numpy()
        return result

    def predict(self, rows: Any) -> NDArray[Any]:
        """Return the most probable class."""
        return np.asarray(self.classes_[self.predict_proba(rows).argmax(axis=1)])


def _inputs(rows: Any) -> Tensor:
    """Return records as a tensor: bytes from 0 to 1, and grey images with their channel."""
    import torch

    values = np.ascontiguousarray(rows)
    scaled = torch.from_numpy(values.astype(np.float32)) / (255 if values.dtype == np.uint8 else 1)
    return scaled.unsqueeze(1) if scaled.ndim == 3 else scaled

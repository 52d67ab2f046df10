"""The clipped sum: what one batch says about the weights, no sample saying more than a bound.

One forward pass that notes what enters every layer, one backward pass to the outputs of the
layers (no gradient of a weight is computed), the norm of every sample's gradient over all
trained weights together, and one weighted sum per layer (see `layers`). The sum changes by at
most ``clip`` when one sample is added or removed; noise in proportion to it makes a step
differentially private (Abadi et al. 2016).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional

from sfumato._errors import OptionError
from sfumato.learners.layers import Call, Factors, Layer, layer_of, norm, tensors

__all__ = ["ClippedSum", "Clipper", "Loss", "private_step"]

Loss = Callable[[Any, Tensor], Tensor]


class ClippedSum(NamedTuple):
    """What a batch says about the weights."""

    gradients: list[Tensor]
    """The sum of the clipped gradients, per trained parameter."""
    norms: Tensor
    """The norm of every sample's gradient before it was clipped."""
    losses: Tensor
    """The loss of every sample, before the step."""


def private_step(
    module: nn.Module,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    *,
    clip: float = 1.0,
) -> dict[str, Tensor]:
    """Return the sum of the clipped gradients of single samples, by the name of the parameter.

    Adding or removing one sample changes all of it together by at most ``clip`` in the Euclidean
    norm. It is not private until noise in proportion to ``clip`` is added; `Trainer` does that.

    Parameters
    ----------
    module : torch.nn.Module
        No layer of it may mix samples; see `check`.
    loss : callable
        Gives one number per sample for outputs and targets, like ``cross_entropy`` with
        ``reduction="none"``.
    inputs, targets : Tensor
    weights : Tensor, optional
        One number from 0 to 1 per sample; 0 leaves it out. All are 1 by default.
    clip : float

    Examples
    --------
    >>> model = nn.Linear(2, 1, bias=False)
    >>> def squared(outputs, targets):
    ...     return (outputs.squeeze(1) - targets) ** 2
    >>> gradient = private_step(model, squared, torch.eye(2) * 1e6, torch.zeros(2), clip=0.5)["weight"]
    >>> gradient.abs()
    tensor([[0.5000, 0.5000]])
    """
    with Clipper(module, loss) as clipper:
        found = clipper(inputs, targets, weights, clip)
    return dict(zip(clipper.names, found.gradients, strict=True))


class Clipper:
    """Makes clipped sums of a module, step after step.

    It listens to the layers of the module in a ``with`` block, or from `listen` to `close`.

    Parameters
    ----------
    module : torch.nn.Module
    loss : callable
        One number per sample.
    views : int
        How many views of a sample follow each other in a batch; the mean of their gradients is clipped.
    """

    def __init__(self, module: nn.Module, loss: Loss, *, views: int = 1) -> None:
        self.module, self.loss, self.views = module, loss, views
        trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
        self.names, self.parameters = list(trained), list(trained.values())
        if not self.parameters:
            raise OptionError("the model has no weights to train")
        memory: dict[str, Tensor] = {}
        self.layers = [layer_of(unit, views, memory) for unit in units(module)]
        used = Counter(one for layer in self.layers for one in layer.parameters)
        self._shared = {one for one, times in used.items() if times > 1}
        self._calls: list[tuple[Layer, Call]] | None = None
        self._hooks: list[Any] = []

    def __enter__(self) -> Clipper:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def listen(self) -> None:
        """Begin to listen to the module."""
        if not self._hooks:
            self._hooks = [
                layer.module.register_forward_hook(self._listener(layer), with_kwargs=True) for layer in self.layers
            ]

    def close(self) -> None:
        """Stop listening to the module."""
        while self._hooks:
            self._hooks.pop().remove()

    def __call__(
        self, inputs: Tensor, targets: Tensor, weights: Tensor | None = None, clip: float | Tensor = 1.0
    ) -> ClippedSum:
        """Return the sum of the clipped gradients of a batch."""
        losses, calls = self._passes(inputs, targets)
        with _exact(inputs.device.type):  # whatever the passes ran in: the norms are those of what is added
            gradients, norms = self._clipped(calls, weights, clip)
        return ClippedSum(gradients, norms, losses)

    def _clipped(
        self, calls: list[tuple[Layer, Call]], weights: Tensor | None, clip: float | Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Return the sum of the clipped gradients, and the norms before clipping."""
        times = Counter(id(layer) for layer, _ in calls)
        once: list[tuple[Layer, Call]] = []
        more: list[tuple[Layer, Call]] = []
        for layer, call in calls:
            is_alone = times[id(layer)] == 1 and self._shared.isdisjoint(layer.parameters)
            (once if is_alone else more).append((layer, call))
        several = self._summed(more)
        norms = [one for layer, call in once for one in layer.norms(call)] + [norm(one) for one in several.values()]
        if not norms:
            raise OptionError("no weight of the model has a part in the loss")
        length = torch.linalg.vector_norm(torch.stack(norms), dim=0)
        known = length.isfinite()
        values = torch.where(known, clip / length.clamp(min=clip), 0.0)
        # On a GPU it is not waited for whether a gradient is not finite.
        factors = Factors(
            values if weights is None else values * weights, doubtful=length.is_cuda or not bool(known.all())
        )
        sums = {one: factors.summed(gradients) for one, gradients in several.items()}
        for layer, call in once:
            sums.update(zip(layer.parameters, layer.weighted_sum(call, factors), strict=True))
        return [sums[one] if one in sums else torch.zeros_like(one) for one in self.parameters], length

    def _passes(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, list[tuple[Layer, Call]]]:
        """Run forward, and backward to the outputs of the layers."""
        self.listen()
        with self._listening() as calls, torch.enable_grad():
            losses = self.loss(self.module(inputs), targets)
        if losses.shape != (len(inputs),):
            raise OptionError(
                f"the loss must give one number per sample, a vector of {len(inputs)}, "
                f"got the shape {tuple(losses.shape)}",
                hint='use reduction="none"',
            )
        edges = [edge for _, call in calls for edge in call.edges]
        found = iter(torch.autograd.grad(losses.sum() / self.views, edges, allow_unused=True) if edges else ())
        dtype = self.parameters[0].dtype
        reached = []
        for layer, call in calls:
            backs = [next(found) for _ in call.edges]
            if all(back is None for back in backs):
                continue
            call.gradients = tuple(
                losses.new_zeros(shape, dtype=dtype) if back is None else back.to(dtype)
                for back, shape in zip(backs, call.shapes, strict=True)
            )
            call.inputs = tuple(
                one.to(dtype) if isinstance(one, Tensor) and one.is_floating_point() else one for one in call.inputs
            )
            reached.append((layer, call))
        losses = losses.detach()
        return (losses.view(-1, self.views).mean(1) if self.views > 1 else losses), reached

    def _summed(self, calls: list[tuple[Layer, Call]]) -> dict[nn.Parameter, Tensor]:
        """Add, sample by sample, the gradients of weights that were used more than once."""
        found: dict[nn.Parameter, Tensor] = {}
        for layer, call in calls:
            for one, gradients in zip(layer.parameters, layer.per_sample(call), strict=True):
                found[one] = found[one] + gradients if one in found else gradients
        return found

    @contextmanager
    def _listening(self) -> Iterator[list[tuple[Layer, Call]]]:
        calls: list[tuple[Layer, Call]] = []
        self._calls = calls
        try:
            yield calls
        finally:
            self._calls = None

    def _listener(self, layer: Layer) -> Callable[..., None]:
        def listen(_: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], outputs: Any) -> None:
            if self._calls is None:
                return
            given = [one for one in tensors(outputs) if one.requires_grad]
            self._calls.append(
                (
                    layer,
                    Call(
                        tuple(one.detach() if isinstance(one, Tensor) else one for one in inputs),
                        options,
                        tuple(get_gradient_edge(one) for one in given),
                        tuple(one.shape for one in given),
                    ),
                )
            )

        return listen


@contextmanager
def _exact(device: str) -> Iterator[None]:
    """Multiply matrices in full precision; what convolutions lose is accounted for where they are."""
    with torch.autocast(device, enabled=False):
        before = torch.get_float32_matmul_precision()
        if before != "highest":
            torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            if before != "highest":
                torch.set_float32_matmul_precision(before)


def units(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules whose gradients are found each as one: those that hold weights of their own."""
    if any(one.requires_grad for one in module.parameters(recurse=False)):
        yield module
        return
    for child in module.children():
        yield from units(child)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of every sample."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error of every sample."""
    return (outputs.flatten(1) - targets.reshape(len(targets), -1)).square().mean(1)

"""The clipped gradient sum of a batch, in which each sample's contribution is bounded.

It takes one forward pass that records the inputs of every layer, one backward pass to the outputs of the layers (no
weight gradient is computed), the norm of every sample's gradient over all trained weights, and one weighted sum per
layer (see `layers`). The sum changes by at most ``clip`` when one sample is added or removed; noise in proportion to
``clip`` makes a step differentially private (Abadi et al. 2016).

`fastest_memory_format` measures which memory format of weights and images makes that faster.
"""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._pytree import tree_map_only

from sfumato.errors import ModelError, OptionError
from sfumato.learners.dpsgd.module_checks import refuse_wrong_gradients
from sfumato.learners.dpsgd.sample_independence import refuse_mixing_loss
from sfumato.learners.gradients.gradients import Call, Factors, Layer, norm, tensors
from sfumato.learners.gradients.layers import OtherModule, layer_of
from sfumato.learners.gradients.people import People

__all__ = [
    "MEMORY_FORMATS",
    "ClippedSum",
    "Clipper",
    "Loss",
    "fastest_memory_format",
    "in_memory_format",
    "mean_losses",
    "private_step",
    "set_memory_format",
    "to_memory_format",
]

Loss = Callable[[Any, Tensor], Tensor]
_NEVER = 1e30  # a clip that no gradient reaches
MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}


class ClippedSum(NamedTuple):
    """The clipped gradient sum of a batch, with norms and losses per sample."""

    gradients: list[Tensor]
    """The sum of the clipped gradients, per trained parameter."""
    norms: Tensor
    """The norm of every sample's (or person's) gradient before clipping."""
    losses: Tensor
    """The loss of every sample (or person), before the step."""


def private_step(
    module: nn.Module,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    *,
    clip: float = 1.0,
) -> dict[str, Tensor]:
    """Return the sum of the clipped per-sample gradients, by parameter name.

    Adding or removing one sample changes the sum over all parameters by at most ``clip`` in the Euclidean norm. It is
    not private until noise in proportion to ``clip`` is added, as `Trainer` does.

    Parameters
    ----------
    module : torch.nn.Module
        No layer may mix samples; see `check`.
    loss : callable
        Returns one number per sample for outputs and targets, like ``cross_entropy`` with ``reduction="none"``. A loss
        that is found to mix samples is rejected.
    inputs, targets : Tensor
    weights : Tensor, optional
        One number from 0 to 1 per sample; 0 leaves the sample out. By default 1 for all.
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
        clipped = clipper(inputs, targets, weights, clip)
    return dict(zip(clipper.names, clipped.gradients, strict=True))


class Clipper:
    """Computes clipped gradient sums of a module, step after step.

    It hooks into the layers of the module in a ``with`` block, or from `listen` to `close`.

    Parameters
    ----------
    module : torch.nn.Module
    loss : callable
        One number per sample.
    views : int
        The number of consecutive rows that are views of one sample; the mean of their gradients is clipped.
    """

    def __init__(self, module: nn.Module, loss: Loss, *, views: int = 1) -> None:
        self.module, self.loss, self.views = module, loss, views
        trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
        self.names, self.parameters = list(trained), list(trained.values())
        if not self.parameters:
            raise OptionError("the model has no weights to train")
        kinds = {one.dtype for one in self.parameters}
        if not (kinds <= {torch.float32} or kinds <= {torch.float64}):
            names = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
            raise ModelError(
                f"the trained weights must all be float32 or all be float64, got {names}",
                hint="call float() on the model; forward and backward pass can still run in half precision",
            )
        memory: dict[str, Tensor] = {}
        self.layers = [layer_of(unit, views, memory) for unit in dict.fromkeys(units(module))]
        used = Counter(one for layer in self.layers for one in layer.parameters)
        self._shared = {one for one, times in used.items() if times > 1}
        self._calls: list[tuple[Layer, Call]] | None = None
        self._hooks: list[Any] = []
        self._inside: list[Tensor] = []  # random states before the unknown layers that are running
        self._checked = False

    def __enter__(self) -> Clipper:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def listen(self) -> None:
        """Register the hooks."""
        if self._hooks:
            return
        if [id(one) for one in self.module.parameters() if one.requires_grad] != [id(one) for one in self.parameters]:
            raise ModelError("the trained weights of the model have changed since the clipper was created")
        for layer in self.layers:
            if isinstance(layer, OtherModule):
                self._hooks.append(layer.module.register_forward_pre_hook(self._enter))
            # Before the user's own hooks, which may change the outputs.
            listener = self._listener(layer)
            self._hooks.append(layer.module.register_forward_hook(listener, with_kwargs=True, prepend=True))

    def close(self) -> None:
        """Remove the hooks."""
        while self._hooks:
            self._hooks.pop().remove()

    def __call__(
        self,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        clip: float | Tensor = 1.0,
        people: People | None = None,
    ) -> ClippedSum:
        """Return the clipped gradient sum of a batch.

        If the samples are rows of people, the mean of the gradients of a person is clipped, and weights, norms and
        losses are those of people.

        Before the first batch, per-sample gradients of random samples are compared with torch's own, and the loss is
        tested on random outputs; a loss that mixes samples is rejected.
        """
        if isinstance(clip, int | float) and not 0 < clip < math.inf:
            raise OptionError(f"the clip must be a finite number above 0, got {clip!r}")
        if weights is not None and not weights.is_cuda and not bool(((weights >= 0) & (weights <= 1)).all()):
            raise OptionError("the weights of samples must be numbers from 0 to 1")
        if not len(inputs):
            nothing = self.parameters[0].new_zeros(0)
            return ClippedSum([torch.zeros_like(one) for one in self.parameters], nothing, nothing)
        if not self._checked:
            refuse_wrong_gradients(self, inputs)
            refuse_mixing_loss(self.module, self.loss, inputs, targets)
            self._checked = True
        losses, calls = self._passes(inputs, targets, self.loss, people)
        with _full_precision(inputs.device.type):  # whatever the passes ran in, norms and sums must agree
            gradients, norms = self._clip(calls, weights, clip)
        return ClippedSum(gradients, norms, losses)

    def _clip(
        self, calls: list[tuple[Layer, Call]], weights: Tensor | None, clip: float | Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Return the sum of the clipped gradients, and the norms before clipping."""
        times = Counter(id(layer) for layer, _ in calls)
        once: list[tuple[Layer, Call]] = []
        more: list[tuple[Layer, Call]] = []
        for layer, call in calls:
            is_alone = times[id(layer)] == 1 and self._shared.isdisjoint(layer.parameters)
            (once if is_alone else more).append((layer, call))
        several = self._sum_uses(more)
        norms = [one for layer, call in once for one in layer.norms(call)] + [norm(one) for one in several.values()]
        if not norms:
            raise OptionError("the loss does not depend on any weight of the model")
        length = torch.linalg.vector_norm(torch.stack(norms), dim=0)
        known = length.isfinite()
        values = torch.where(known, clip / length.clamp(min=clip), 0.0)
        # On a GPU, checking whether all gradients are finite would wait for the device.
        factors = Factors(
            values if weights is None else values * weights, doubtful=length.is_cuda or not bool(known.all())
        )
        sums = {one: factors.weighted_sum(gradients) for one, gradients in several.items()}
        for layer, call in once:
            sums.update(zip(layer.parameters, layer.weighted_sum(call, factors), strict=True))
        return [sums[one] if one in sums else torch.zeros_like(one) for one in self.parameters], length

    def per_sample(self, inputs: Tensor, loss: Callable[[Any], Tensor]) -> Iterator[tuple[list[Tensor], Tensor]]:
        """Yield each sample's gradient as it enters the sum, and its norm as it is used for clipping."""
        _, calls = self._passes(inputs, inputs, lambda outputs, _: loss(outputs))
        samples = len(inputs) // self.views
        for one in torch.eye(samples, device=inputs.device, dtype=self.parameters[0].dtype):
            with _full_precision(inputs.device.type):
                gradients, norms = self._clip(calls, one, _NEVER)
            yield gradients, one @ norms

    def _passes(
        self, inputs: Tensor, targets: Tensor, loss: Loss, people: People | None = None
    ) -> tuple[Tensor, list[tuple[Layer, Call]]]:
        """Run the forward pass, and the backward pass to the outputs of the layers."""
        self.listen()
        with self._listening() as calls, torch.enable_grad():
            losses = loss(self.module(inputs), targets)
        if losses.shape != (len(inputs),):
            raise OptionError(
                f"the loss must return one number per sample, a vector of {len(inputs)}, "
                f"got the shape {tuple(losses.shape)}",
                hint='use reduction="none"',
            )
        edges = [edge for _, call in calls for edge in call.edges]
        if people is None:
            with torch.enable_grad():
                total, weights = losses.sum() / self.views, None
        else:
            total, weights = losses, people.shares(losses.dtype).repeat_interleave(self.views) / self.views
        gradients = iter(torch.autograd.grad(total, edges, weights, allow_unused=True) if edges else ())
        dtype = self.parameters[0].dtype
        reached = []
        for layer, call in calls:
            backs = [next(gradients) for _ in call.edges]
            if all(back is None for back in backs):
                continue
            if any(shape[:1] != losses.shape for shape in call.shapes):
                raise ModelError(
                    f"layer '{self._name(layer)}' must have one row per sample, {len(losses)}, got outputs of the "
                    f"shape {' and '.join(str(tuple(shape)) for shape in call.shapes)}",
                    hint="keep samples separate in the first dimension, and expand tensors that all samples share",
                )
            if call.versions != tuple(one._version for one in call.inputs if isinstance(one, Tensor)):
                raise ModelError(
                    f"the input of layer '{self._name(layer)}' is changed in place after the layer has read it"
                )
            call.gradients = tuple(
                losses.new_zeros(shape, dtype=dtype) if back is None else back.to(dtype)
                for back, shape in zip(backs, call.shapes, strict=True)
            )
            call.inputs = tuple(
                one.to(dtype) if isinstance(one, Tensor) and one.is_floating_point() else one for one in call.inputs
            )
            if call.options:
                call.options = tree_map_only(
                    Tensor, lambda one: one.to(dtype) if one.is_floating_point() else one, call.options
                )
            call.people = people
            reached.append((layer, call))
        return mean_losses(losses.detach(), self.views, people), reached

    def _sum_uses(self, calls: list[tuple[Layer, Call]]) -> dict[nn.Parameter, Tensor]:
        """Add up, person by person, the gradients of weights that were used more than once."""
        sums: dict[nn.Parameter, Tensor] = {}
        for layer, call in calls:
            for one, gradients in zip(layer.parameters, layer.per_person(call), strict=True):
                sums[one] = sums[one] + gradients if one in sums else gradients
        return sums

    @contextmanager
    def _listening(self) -> Iterator[list[tuple[Layer, Call]]]:
        calls: list[tuple[Layer, Call]] = []
        self._calls, self._inside = calls, []
        try:
            yield calls
        finally:
            self._calls = None

    def _name(self, layer: Layer) -> str:
        return next(name for name, one in self.module.named_modules() if one is layer.module)

    def _enter(self, _: nn.Module, __: tuple[Any, ...]) -> None:
        """Record that an unknown layer starts running, and the random state before it."""
        if self._calls is not None:
            self._inside.append(torch.get_rng_state())

    def _listener(self, layer: Layer) -> Callable[..., None]:
        def listen(_: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], outputs: Any) -> None:
            if self._calls is None:
                return
            random = self._inside.pop() if isinstance(layer, OtherModule) else None
            if self._inside:
                return
            if not inputs and not isinstance(layer, OtherModule):  # known layers take one argument, by whatever name
                inputs, options = tuple(options.values()), {}
            results = tensors(outputs)
            given = tuple(at for at, one in enumerate(results) if one.requires_grad)
            self._calls.append(
                (
                    layer,
                    Call(
                        tuple(one.detach() if isinstance(one, Tensor) else one for one in inputs),
                        options,
                        tuple(get_gradient_edge(results[at]) for at in given),
                        tuple(results[at].shape for at in given),
                        given,
                        tuple(one._version for one in inputs if isinstance(one, Tensor)),
                        random,
                    ),
                )
            )

        return listen


@contextmanager
def _full_precision(device: str) -> Iterator[None]:
    """Multiply matrices in full precision; `Convolution.margin` accounts for the precision of convolutions."""
    with torch.autocast(device, enabled=False):
        before = torch.get_float32_matmul_precision()
        if before != "highest":
            torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            if before != "highest":
                torch.set_float32_matmul_precision(before)


def mean_losses(losses: Tensor, views: int, people: People | None) -> Tensor:
    """Return the mean loss of the views of every sample, or of the rows of every person."""
    each = losses.view(-1, views).mean(1) if views > 1 else losses
    return each if people is None else people.sum(each * people.shares(each.dtype))


def units(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that have trained weights of their own; each is treated as one layer."""
    # A parametrized layer may own only the parameters from which its weights are computed.
    if any(one.requires_grad for one in module.parameters(recurse=is_parametrized(module))):
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


def set_memory_format(module: nn.Module, memory_format: torch.memory_format) -> nn.Module:
    """Convert the weights of a module, in place, to a memory format."""
    return module.to(memory_format=memory_format)  # type: ignore[call-overload]


def to_memory_format(inputs: Tensor, memory_format: torch.memory_format) -> Tensor:
    """Return images in a memory format; other inputs are returned as they are."""
    return inputs.contiguous(memory_format=memory_format) if inputs.dim() == 4 else inputs


@contextmanager
def in_memory_format(module: nn.Module, memory_format: torch.memory_format) -> Iterator[None]:
    """Temporarily use another memory format for the weights."""
    set_memory_format(module, memory_format)
    try:
        yield
    finally:
        set_memory_format(module, torch.contiguous_format)


def fastest_memory_format(module: nn.Module, images: Tensor, *, private: bool) -> str:
    """Return the memory format in which a module runs faster, measured on random numbers in the shape of the images.

    Examples
    --------
    >>> fastest_memory_format(nn.Linear(2, 1), torch.zeros(8, 2), private=True)
    'contiguous'
    """
    if images.dim() != 4 or not any(isinstance(one, nn.Conv2d) for one in module.modules()):
        return "contiguous"
    took: dict[str, float] = {}
    for name, wanted in MEMORY_FORMATS.items():
        copied, random = (
            set_memory_format(copy.deepcopy(module), wanted),
            to_memory_format(torch.randn_like(images), wanted),
        )
        clipper = Clipper(copied, _mean_square) if private else None
        for _ in range(4):  # the first is a warm-up
            began = time.process_time()
            if clipper:
                clipper(random, random)
            else:
                _mean_square(copied(random), random).sum().backward()
            took[name] = min(took.get(name, math.inf), time.process_time() - began)
    return min(took, key=lambda name: took[name])


def _mean_square(outputs: Any, _: Tensor) -> Tensor:
    """Return a loss per sample for any outputs."""
    return torch.stack([one.flatten(1).square().mean(1) for one in tensors(outputs)]).sum(0)

"""One private step: the clipped gradient sum of a batch, noise, and the update of the weights.

The noise is Gaussian on a public grid; `budget.noise` has the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from sfumato.budget.noise import Source, grid_of
from sfumato.data.validate import real
from sfumato.errors import ModelError, OptionError
from sfumato.learners.dpsgd.optimizers import Optimizer
from sfumato.learners.gradients.clipping import ClippedSum, Clipper, Loss, mean_losses
from sfumato.learners.gradients.gradients import CHAIN, IN_BLOCKS, ROUNDING
from sfumato.learners.gradients.people import People

__all__ = ["AdaptiveClip", "HostNoise", "NoiseMaker", "ParameterVector", "Step"]

_LITTLE = 0.02  # clips that rounding may add to the sensitivity before batches are divided
_PAIRS = 1 << 14  # per block, to stay in the cache
_BYTES = 24  # per pair: two words for the radius, one for the angle
_POSITIVE = 2**63 - 1  # a word without its sign


class ParameterVector:
    """All trained weights as one vector; the parameters become views of its parts.

    Each part keeps the memory order of its parameter, so the memory format of convolutions (channels last or not)
    does not change.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> vector = ParameterVector(layer.parameters())
    >>> _ = vector.values.fill_(3.0)
    >>> layer.bias
    Parameter containing:
    tensor([3.], requires_grad=True)
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self._strides = [one.stride() for one in self.parameters]
        self._orders = [sorted(range(len(stride)), key=lambda at: -stride[at]) for stride in self._strides]
        self.values = self.join([one.detach() for one in self.parameters])
        self.attach()

    @torch.no_grad()
    def attach(self) -> None:
        """Copy the parameters into the vector, and make them views of it."""
        self.values.copy_(self.join([one.detach() for one in self.parameters]))
        start = 0
        for one, stride in zip(self.parameters, self._strides, strict=True):
            one.data = self.values.as_strided(one.shape, stride, start)
            start += one.numel()

    @torch.no_grad()
    def release(self) -> None:
        """Give every parameter its own memory again."""
        for one in self.parameters:
            one.data = one.data.clone(memory_format=torch.preserve_format)

    def join(self, gradients: Sequence[Tensor]) -> Tensor:
        """Concatenate one tensor per parameter into a vector."""
        return torch.cat([one.permute(order).reshape(-1) for one, order in zip(gradients, self._orders, strict=True)])


@dataclass(frozen=True, kw_only=True)
class AdaptiveClip:
    """A clip that follows a quantile of the norms (Andrew et al. 2021).

    Every step counts, with noise, the samples whose norm is below the clip. Count and sum form one Gaussian mechanism:
    the sum gets slightly more noise, and both together cost what the noise multiplier says.

    Parameters
    ----------
    start : float
        The clip of the first step.
    quantile : float
        The fraction of samples that should remain unclipped.
    rate : float
        How fast the clip adapts, on a logarithmic scale.
    count_noise : float
        The standard deviation of the noise on the count, as a fraction of the expected batch size.
    """

    start: float = 1.0
    quantile: float = 0.5
    rate: float = 0.2
    count_noise: float = 0.05

    def __post_init__(self) -> None:
        real("the clip", self.start, above=0)
        real("the quantile of the clip", self.quantile, above=0, below=1)
        real("the rate of the clip", self.rate, above=0)
        real("the noise on the count", self.count_noise, above=0)

    def for_sum(self, noise_multiplier: float, expected: float) -> float:
        """Return the noise multiplier of the sum with which count and sum together cost the given one.

        Examples
        --------
        >>> round(AdaptiveClip().for_sum(1.0, expected=512), 5)
        1.00019
        """
        # Each sample counts one half or minus one half, so one sample changes the count by one half.
        of_count = 2 * self.count_noise * expected
        if of_count <= noise_multiplier:
            raise OptionError(
                f"the count of clipped samples needs more noise than {self.count_noise:g} of a batch of "
                f"{expected:g} with a noise multiplier of {noise_multiplier:g}",
                hint="raise count_noise or the batch size",
            )
        return (noise_multiplier**-2 - of_count**-2) ** -0.5


class Step:
    """Runs private steps on a module.

    A clip of None trains without clipping and noise. Sums are divided by the expected batch size. Consecutive rows are
    ``views`` (augmentations) of one sample. With people, who have at most ``rows_per_person`` samples each, batches are
    counted in people. The module processes ``micro_batch`` samples at once, halved when memory runs out. ``precision``
    is the type of the forward and backward pass; norms, sums and weights keep their type. ``reduce`` adds up the sums
    of several processes in place, ``share`` copies a tensor of the first process to all.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        optimizer: Optimizer,
        noise: NoiseMaker,
        *,
        clip: float | None,
        expected: float,
        views: int = 1,
        rows_per_person: int = 1,
        adaptive: AdaptiveClip | None = None,
        averaging: float | None = None,
        micro_batch: int | None = None,
        precision: torch.dtype | None = None,
        reduce: Callable[[Tensor], None] | None = None,
        share: Callable[[Tensor], None] | None = None,
    ) -> None:
        real("the clip", 1.0 if clip is None else clip, above=0)
        real("the expected batch", expected, above=0)
        self.module, self.loss, self.optimizer, self.noise = module, loss, optimizer, noise
        self.expected, self.views, self.adaptive, self.averaging = expected, views, adaptive, averaging
        self.micro_batch, self.precision, self.reduce, self.share = micro_batch, precision, reduce, share
        self.clipper = Clipper(module, loss, views=views)
        self.flat = ParameterVector(self.clipper.parameters)
        weights = self.flat.values
        self.memory = optimizer.begin(weights)
        self.clip = None if clip is None else torch.full((), clip, device=weights.device, dtype=weights.dtype)
        self.average = weights.clone() if averaging else None
        self._taken = torch.zeros((), device=weights.device)
        self._decay = torch.full((), averaging or 0.0, device=weights.device)
        graphed = self.flat.values.is_cuda and rows_per_person == 1  # a CUDA graph may take the batch as a whole
        self.micro_batch = micro_batch = self._limit(micro_batch, expected * rows_per_person, whole=graphed)
        self._sensitivity = 1 + self._rounding_error(expected * rows_per_person, micro_batch)
        self._count_noise = weights.new_full((), adaptive.count_noise * expected if adaptive else 0.0)
        self.flat.release()

    def _limit(self, micro_batch: int | None, expected: float, *, whole: bool) -> int | None:
        """Return a micro-batch size small enough that rounding adds little to the sensitivity."""
        most = math.floor(_LITTLE / (expected * torch.finfo(self.flat.values.dtype).eps / 2))
        if self.clip is None or whole or most >= expected or self._is_bounded:
            return micro_batch
        return max(1, most if micro_batch is None else min(micro_batch, most))

    @property
    def _is_bounded(self) -> bool:
        return all(one.is_bounded for one in self.clipper.layers)

    def _rounding_error(self, expected: float, micro_batch: int | None) -> float:
        """Return how much one more sample can change the rounding error of the sum, in clips.

        The factor and the gradient of every sample are off by a few units in the last place, and so is the sum. In
        sequential addition, each addition is off by one unit of the partial sum: n samples in chains of m are off by
        at most n m / 2 units of one clip, and one more sample can change every chain.
        """
        unit = torch.finfo(self.flat.values.dtype).eps / 2
        chain = min(CHAIN, expected) if self._is_bounded else min(micro_batch or math.inf, expected)
        within = min(expected, IN_BLOCKS) if self._is_bounded else expected
        return unit * (2 * expected + 2 * ROUNDING + chain * within)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Attach the parameters and hooks while steps run; leave an ordinary module behind."""
        self.flat.attach()
        self.clipper.listen()
        try:
            yield
        finally:
            self.clipper.close()
            self.flat.release()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Temporarily use the averaged weights, if there are any."""
        if self.average is None:
            yield
            return
        own = self.flat.values.clone()
        self.flat.values.copy_(self.average)
        try:
            yield
        finally:
            self.flat.values.copy_(own)

    @property
    def state(self) -> dict[str, Tensor]:
        """The tensors that the next step depends on, for saving and restoring."""
        state = {"weights": self.flat.values, "taken": self._taken, **self.memory}
        if self.clip is not None:
            state["clip"] = self.clip
        if self.average is not None:
            state["average"] = self.average
        return state

    def __call__(
        self,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor | None,
        rate: float | Tensor,
        noise_multiplier: float | Tensor,
        *,
        people: People | None = None,
        noisy: bool = True,
    ) -> Tensor:
        """Run one step; return the mean loss of the batch before the step, which is not private.

        With people, each has one weight, and the mean of the gradients of their rows is clipped.

        A batch may be empty; weights are 0 for samples that are padding. The noise multiplier is in clips. Exactly one
        of several processes is ``noisy``: it adds the noise.
        """
        total, below, loss = self._sums(inputs, targets, weights, people)
        sums = [total] if below is None else [total, below]
        if self.reduce:
            for one in sums:
                self.reduce(one)
        if self.clip is not None:
            # After the reduction: anything added to the noisy sum later would leave its grid.
            if noisy:
                self.noise.add(total, noise_multiplier * self.clip * self._sensitivity)
                if below is not None:
                    self.noise.add(below, self._count_noise)
            if self.share:
                for one in sums:
                    self.share(one)
        self.optimizer.follow(self.flat.values, total.div_(self.expected), self.memory, rate)
        if self.adaptive and self.clip is not None and below is not None:
            share = below / self.expected + 0.5
            self.clip.mul_(torch.exp(-self.adaptive.rate * (share.squeeze(0) - self.adaptive.quantile)))
        self._taken += 1
        if self.average is not None and self.averaging:
            decay = torch.minimum((1 + self._taken) / (10 + self._taken), self._decay)
            self.average.lerp_(self.flat.values, (1 - decay).to(self.average.dtype))
        return loss

    def _sums(
        self, inputs: Tensor, targets: Tensor, weights: Tensor | None, people: People | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the gradient sum, the number of norms below the clip minus half the samples, and the mean loss."""
        samples = len(inputs) // self.views if people is None else len(people)
        parts: list[tuple[Tensor, Tensor | None, Tensor]] = []
        at = 0
        while at < samples:
            size = min(self.micro_batch or samples, samples - at)
            some, first, last = (None, at, at + size) if people is None else people.part(at, size)
            rows, mine = slice(first * self.views, last * self.views), slice(at, at + size)
            try:
                parts.append(self._part(inputs[rows], targets[rows], None if weights is None else weights[mine], some))
            except RuntimeError as error:
                if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
                    raise
                if size == 1:
                    raise ModelError("there is not enough memory for the gradient of a single sample") from error
                self.micro_batch = math.ceil(size / 2)
                continue
            at += size
        if not parts:
            nothing = self.flat.values.new_zeros(1) if self.adaptive else None
            return torch.zeros_like(self.flat.values), nothing, self.flat.values.new_full((), math.nan)
        total, below, loss = parts[0]
        if len(parts) > 1:  # in 64 bits, so rounding errors do not accumulate
            total = torch.stack([one for one, _, _ in parts]).sum(0, dtype=torch.float64).to(total.dtype)
        for _, more_below, more_loss in parts[1:]:
            loss = loss + more_loss
            below = below + more_below if below is not None and more_below is not None else None
        return total, below, loss / (samples if weights is None else weights.sum())

    def _part(
        self, inputs: Tensor, targets: Tensor, weights: Tensor | None, people: People | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the same for a part of the batch, with the sum of its losses instead of the mean."""
        clipped = self._gradients(inputs, targets, weights, people)
        below = None
        if self.adaptive and self.clip is not None:
            side = (clipped.norms <= self.clip).to(clipped.losses.dtype) - 0.5
            below = (side if weights is None else side * weights).sum(0, keepdim=True)
        loss = clipped.losses.sum() if weights is None else torch.dot(clipped.losses, weights)
        return self.flat.join(clipped.gradients), below, loss

    def _gradients(self, inputs: Tensor, targets: Tensor, weights: Tensor | None, people: People | None) -> ClippedSum:
        with torch.autocast(inputs.device.type, dtype=self.precision) if self.precision else nullcontext():
            if self.clip is not None:
                return self.clipper(inputs, targets, weights, self.clip, people)
            losses = self.loss(self.module(inputs), targets)
        if people is not None:
            shares = people.shares(losses.dtype)
            weights = shares if weights is None else shares * weights[people.owners]
        each = losses if weights is None else losses * weights.repeat_interleave(self.views)
        gradients = torch.autograd.grad(each.sum() / self.views, self.clipper.parameters, allow_unused=True)
        filled = [
            torch.zeros_like(one) if gradient is None else gradient
            for one, gradient in zip(self.clipper.parameters, gradients, strict=True)
        ]
        return ClippedSum(filled, losses.new_zeros(0), mean_losses(losses.detach(), self.views, people))


class NoiseMaker(Protocol):
    """Adds unpredictable Gaussian noise and rounds the result to a grid."""

    def add(self, values: Tensor, scale: Tensor) -> None:
        """Add noise in place and round to the grid of the scale."""
        ...


class HostNoise:
    """Noise from the operating system's entropy through AES (see `budget.noise`), computed on the CPU.

    Examples
    --------
    >>> values = torch.full((3,), 0.1)
    >>> HostNoise(Source()).add(values, torch.tensor(1.0))
    >>> bool((values % grid_of(1.0) == 0).all())
    True
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._pairs, self._dtype = 0, torch.float32

    def add(self, values: Tensor, scale: Tensor) -> None:
        """Add noise in place and round to the grid of the scale."""
        deviation = float(scale)
        if deviation == 0:
            return
        flat = values.reshape(-1).cpu()
        self._prepare(min(_PAIRS, math.ceil(flat.numel() / 2)), flat.dtype)
        grid = grid_of(deviation)
        for part in flat.split(2 * _PAIRS):
            self._add(part, grid, deviation / grid)
        if flat.data_ptr() != values.data_ptr():
            values.copy_(flat.view_as(values))

    def _prepare(self, pairs: int, dtype: torch.dtype) -> None:
        """Allocate buffers for this many pairs; intermediate results reuse them, to stay in the cache."""
        if self._pairs >= pairs and self._dtype == dtype:
            return
        self._pairs, self._dtype = pairs, dtype
        self._bytes = bytearray(max(_BYTES, 4 * dtype.itemsize) * pairs + 16)
        self._noise, self._rest = torch.empty(2, 2 * pairs, dtype=torch.float64)
        self._radius, self._angle = self._rest.split(pairs)
        self._cells, self._whole = torch.frombuffer(self._bytes, dtype=dtype, count=4 * pairs).split(2 * pairs)

    def _add(self, part: Tensor, grid: float, deviation: float) -> None:
        count = len(part)
        noise = self._normal(math.ceil(count / 2), deviation)[:count]
        cells, whole, rest = self._cells[:count], self._whole[:count], self._rest[:count]
        torch.mul(part, 1 / grid, out=cells)  # exact, because the grid is a power of two
        torch.round(cells, out=whole)
        rest.copy_(cells.sub_(whole))  # exact too: the position within a cell is not rounded, however large the sum
        noise.add_(rest).round_()
        torch.mul(cells.copy_(noise).add_(whole), grid, out=part)

    def _normal(self, pairs: int, deviation: float) -> Tensor:
        """Return pairs of normal deviates as 64-bit floats (Box-Muller)."""
        self.source.fill(self._bytes, _BYTES * pairs)
        words = torch.frombuffer(self._bytes, dtype=torch.int64, count=3 * pairs)
        first, more, turned = words.split(pairs)
        radius, angle, noise = self._radius[:pairs], self._angle[:pairs], self._noise[: 2 * pairs]
        # The second word continues the first: a small uniform number (a far tail) keeps full relative precision.
        radius.copy_(first.bitwise_and_(_POSITIVE)).mul_(2.0**-63)
        radius.add_(angle.copy_(more.bitwise_and_(_POSITIVE)).add_(0.5), alpha=2.0**-126)
        radius.log_().mul_(-2 * deviation**2).sqrt_()
        angle.copy_(turned).mul_(math.pi * 2.0**-63)
        torch.cos(angle, out=noise[:pairs]).mul_(radius)
        torch.sin(angle, out=noise[pairs:]).mul_(radius)
        return noise

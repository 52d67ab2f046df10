"""One private step: the clipped sum of a batch, noise, and the weights that follow it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.errors import ModelError, OptionError
from sfumato.learners.dpsgd.optimizers import Rule
from sfumato.learners.dpsgd.parameter_vector import Flat
from sfumato.learners.dpsgd.rounded_noise import NoiseMaker
from sfumato.learners.gradients.clipping import ClippedSum, Clipper, Loss
from sfumato.learners.gradients.gradients import CHAIN, IN_BLOCKS, ROUNDING

__all__ = ["AdaptiveClip", "Step"]

_LITTLE = 0.02  # of a clip, that rounding may add to the sensitivity before batches are divided


@dataclass(frozen=True, kw_only=True)
class AdaptiveClip:
    """A clip that follows a quantile of the norms (Andrew et al. 2021).

    In every step the samples whose norm is below the clip are counted, with noise. Count and sum
    are one Gaussian mechanism: the sum gets a little more noise, so that both together cost what
    the noise multiplier says.

    Parameters
    ----------
    quantile : float
        The share of the samples that is to remain unclipped.
    rate : float
        How fast the clip follows, on a logarithmic scale.
    count_noise : float
        The deviation of the noise on the count, as a share of the expected batch.
    """

    quantile: float = 0.5
    rate: float = 0.2
    count_noise: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.quantile < 1:
            raise OptionError(f"the quantile of the clip must be between 0 and 1, got {self.quantile!r}")
        if not 0 < self.rate < math.inf:
            raise OptionError(f"the rate of the clip must be a finite number above 0, got {self.rate!r}")
        if not 0 < self.count_noise < math.inf:
            raise OptionError(f"the noise on the count must be a finite number above 0, got {self.count_noise!r}")

    def for_sum(self, noise_multiplier: float, expected: float) -> float:
        """Return the noise multiplier that the sum needs, for both to cost what the given one says.

        Examples
        --------
        >>> round(AdaptiveClip().for_sum(1.0, expected=512), 5)
        1.00019
        """
        # The count of samples, less one half each, changes by one half with a sample.
        of_count = 2 * self.count_noise * expected
        if of_count <= noise_multiplier:
            raise OptionError(
                f"the count of clipped samples needs more noise than {self.count_noise:g} of a batch of "
                f"{expected:g} with a noise multiplier of {noise_multiplier:g}",
                hint="raise count_noise or the batch size",
            )
        return (noise_multiplier**-2 - of_count**-2) ** -0.5


class Step:
    """Makes private steps of a module.

    Parameters
    ----------
    module, loss
        See `Clipper`.
    rule : Rule
        How the weights follow.
    noise : NoiseMaker
    clip : float or None
        None trains without clipping and noise: an ordinary step, not private.
    expected : float
        What sums are divided by: the batch size on average.
    views : int
        How many views (augmentations) of a sample follow each other.
    adaptive : AdaptiveClip, optional
    averaging : float, optional
        The decay of an average of the weights along the way.
    micro_batch : int, optional
        How many samples go through the module at once; fewer if memory does not suffice.
    precision : torch.dtype, optional
        What forward and backward pass run in; norms, sums and weights stay as they are.
    reduce : callable, optional
        Adds up the sums of several processes in place.
    share : callable, optional
        Gives all processes what the first one has, in place.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        rule: Rule,
        noise: NoiseMaker,
        *,
        clip: float | None,
        expected: float,
        views: int = 1,
        adaptive: AdaptiveClip | None = None,
        averaging: float | None = None,
        micro_batch: int | None = None,
        precision: torch.dtype | None = None,
        reduce: Callable[[Tensor], None] | None = None,
        share: Callable[[Tensor], None] | None = None,
    ) -> None:
        for name, value in (("clip", 1.0 if clip is None else clip), ("expected batch", expected)):
            if not 0 < value < math.inf:
                raise OptionError(f"the {name} must be a finite number above 0, got {value!r}")
        self.module, self.loss, self.rule, self.noise = module, loss, rule, noise
        self.expected, self.views, self.adaptive, self.averaging = expected, views, adaptive, averaging
        self.micro_batch, self.precision, self.reduce, self.share = micro_batch, precision, reduce, share
        self.clipper = Clipper(module, loss, views=views)
        self.flat = Flat(self.clipper.parameters)
        weights = self.flat.values
        self.memory = rule.begin(weights)
        self.clip = None if clip is None else torch.full((), clip, device=weights.device, dtype=weights.dtype)
        self.average = weights.clone() if averaging else None
        self._taken = torch.zeros((), device=weights.device)
        self._decay = torch.full((), averaging or 0.0, device=weights.device)
        self.micro_batch = micro_batch = self._bounded(micro_batch)
        self._sensitivity = 1 + self._rounded(expected, micro_batch)
        self._count_noise = weights.new_full((), adaptive.count_noise * expected if adaptive else 0.0)
        self.flat.release()

    def _bounded(self, micro_batch: int | None) -> int | None:
        """Return a micro-batch with which rounding adds little to the sensitivity, where that depends on it."""
        most = math.floor(_LITTLE / (self.expected * torch.finfo(self.flat.values.dtype).eps / 2))
        if self.clip is None or self.flat.values.is_cuda or most >= self.expected or self._is_bounded:
            return micro_batch
        return max(1, most if micro_batch is None else min(micro_batch, most))

    @property
    def _is_bounded(self) -> bool:
        return all(one.is_bounded for one in self.clipper.layers)

    def _rounded(self, expected: float, micro_batch: int | None) -> float:
        """Return by how much, in clips, a further sample can change the rounding of a sum of floats.

        The factor and the gradient of every sample are off by a few units in their last place, and so is the sum.
        Where samples are added up one after another, each addition is off by a unit of the sum so far: of n of them in
        chains of m, all together by n m / 2 units of one clip; and with a further sample every chain can be another.
        """
        unit = torch.finfo(self.flat.values.dtype).eps / 2
        chain = min(CHAIN, expected) if self._is_bounded else min(micro_batch or math.inf, expected)
        within = min(expected, IN_BLOCKS) if self._is_bounded else expected
        return unit * (2 * expected + 2 * ROUNDING + chain * within)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take hold of the module while steps are made, and leave it as any other module is."""
        self.flat.attach()
        self.clipper.listen()
        try:
            yield
        finally:
            self.clipper.close()
            self.flat.release()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Let the module have the averaged weights, if there are any."""
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
        """Everything that the next step depends on, to be saved and copied into."""
        found = {"weights": self.flat.values, "taken": self._taken, **self.memory}
        if self.clip is not None:
            found["clip"] = self.clip
        if self.average is not None:
            found["average"] = self.average
        return found

    def __call__(
        self,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor | None,
        rate: float | Tensor,
        noise_multiplier: float | Tensor,
        *,
        noisy: bool = True,
    ) -> Tensor:
        """Step, and return the mean loss of the batch before; it is read from the data and not private.

        Parameters
        ----------
        inputs, targets : Tensor
            ``views`` rows per sample, one after another; possibly none.
        weights : Tensor, optional
            0 for samples that only fill up the batch.
        rate, noise_multiplier : float or Tensor
            The learning rate, and the noise on the sum in clips.
        noisy : bool
            Whether this process adds the noise; of several processes one does.
        """
        total, below, loss = self._sums(inputs, targets, weights)
        sums = [total] if below is None else [total, below]
        if self.reduce:
            for one in sums:
                self.reduce(one)
        if self.clip is not None:
            # After all was added up: whatever were added to the noisy sum later would not be on its grid.
            if noisy:
                self.noise.add(total, noise_multiplier * self.clip * self._sensitivity)
                if below is not None:
                    self.noise.add(below, self._count_noise)
            if self.share:
                for one in sums:
                    self.share(one)
        self.rule.follow(self.flat.values, total.div_(self.expected), self.memory, rate)
        if self.adaptive and self.clip is not None and below is not None:
            share = below / self.expected + 0.5
            self.clip.mul_(torch.exp(-self.adaptive.rate * (share.squeeze(0) - self.adaptive.quantile)))
        self._taken += 1
        if self.average is not None and self.averaging:
            kept = torch.minimum((1 + self._taken) / (10 + self._taken), self._decay)
            self.average.lerp_(self.flat.values, (1 - kept).to(self.average.dtype))
        return loss

    def _sums(self, inputs: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the sum of the gradients, how many more norms are below the clip than half, and the mean loss."""
        samples = len(inputs) // self.views
        found: list[tuple[Tensor, Tensor | None, Tensor]] = []
        at = 0
        while at < samples:
            size = min(self.micro_batch or samples, samples - at)
            rows, mine = slice(at * self.views, (at + size) * self.views), slice(at, at + size)
            try:
                found.append(self._part(inputs[rows], targets[rows], None if weights is None else weights[mine]))
            except RuntimeError as error:
                if not _of_memory(error):
                    raise
                if size == 1:
                    raise ModelError("the memory does not suffice for the gradient of a single sample") from error
                self.micro_batch = math.ceil(size / 2)
                continue
            at += size
        if not found:
            nothing = self.flat.values.new_zeros(1) if self.adaptive else None
            return torch.zeros_like(self.flat.values), nothing, self.flat.values.new_full((), math.nan)
        total, below, loss = found[0]
        if len(found) > 1:  # in 64 bits, so that no rounding adds up
            total = torch.stack([one for one, _, _ in found]).sum(0, dtype=torch.float64).to(total.dtype)
        for _, others, worse in found[1:]:
            loss = loss + worse
            below = below + others if below is not None and others is not None else None
        return total, below, loss / (samples if weights is None else weights.sum())

    def _part(self, inputs: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the same of a part of the batch, with the sum of its losses."""
        found = self._gradients(inputs, targets, weights)
        below = None
        if self.adaptive and self.clip is not None:
            side = (found.norms <= self.clip).to(found.losses.dtype) - 0.5
            below = (side if weights is None else side * weights).sum(0, keepdim=True)
        loss = found.losses.sum() if weights is None else torch.dot(found.losses, weights)
        return self.flat.joined(found.gradients), below, loss

    def _gradients(self, inputs: Tensor, targets: Tensor, weights: Tensor | None) -> ClippedSum:
        with self._autocast(inputs.device.type):
            if self.clip is not None:
                return self.clipper(inputs, targets, weights, self.clip)
            losses = self.loss(self.module(inputs), targets)
        each = losses if weights is None else losses * weights.repeat_interleave(self.views)
        gradients = torch.autograd.grad(each.sum() / self.views, self.clipper.parameters, allow_unused=True)
        filled = [
            torch.zeros_like(one) if found is None else found
            for one, found in zip(self.clipper.parameters, gradients, strict=True)
        ]
        return ClippedSum(filled, losses.new_zeros(0), losses.detach().view(-1, self.views).mean(1))

    def _autocast(self, device: str) -> AbstractContextManager[object]:
        return torch.autocast(device, dtype=self.precision) if self.precision else nullcontext()


def _of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)

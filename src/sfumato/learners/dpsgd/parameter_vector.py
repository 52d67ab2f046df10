"""All trained weights as one vector: one place to add noise to and to step from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

__all__ = ["Flat"]


class Flat:
    """A vector of which the given parameters become parts.

    Each part keeps the order that its parameter has in memory, so that the layout of convolutions
    (channels last or not) stays as it is.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> flat = Flat(layer.parameters())
    >>> _ = flat.values.fill_(3.0)
    >>> layer.bias
    Parameter containing:
    tensor([3.], requires_grad=True)
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self._strides = [one.stride() for one in self.parameters]
        self._orders = [sorted(range(len(stride)), key=lambda at: -stride[at]) for stride in self._strides]
        self.values = self.joined([one.detach() for one in self.parameters])
        self.attach()

    @torch.no_grad()
    def attach(self) -> None:
        """Make the parameters parts of the vector, with the values that they have."""
        self.values.copy_(self.joined([one.detach() for one in self.parameters]))
        start = 0
        for one, stride in zip(self.parameters, self._strides, strict=True):
            one.data = self.values.as_strided(one.shape, stride, start)
            start += one.numel()

    @torch.no_grad()
    def release(self) -> None:
        """Give every parameter memory of its own again."""
        for one in self.parameters:
            one.data = one.data.clone(memory_format=torch.preserve_format)

    def joined(self, gradients: Sequence[Tensor]) -> Tensor:
        """Put what belongs to the parameters together to one vector."""
        return torch.cat([one.permute(order).reshape(-1) for one, order in zip(gradients, self._orders, strict=True)])

"""Noise in the weights of a finished auto-encoder: a published baseline that guarantees nothing.

A dense auto-encoder is trained on the images without privacy, normal noise is added to its weights, and the training
images themselves are sent through it. What comes out is published.

This has no epsilon. Nothing bounds how far one image can move the weights, so no amount of noise on them hides it. And
every published image is a blurred copy of one private image: whoever knows the image recognises the copy, whatever the
noise in the weights. Use it to compare with the study, on public images only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from sfumato.data.validate import real, whole
from sfumato.errors import InputError, require_extra
from sfumato.learners.estimators.noisy_sums import NoisySums, Share
from sfumato.synthesizers.dense import Dense
from sfumato.synthesizers.images.base import (
    Bytes,
    Canvas,
    ImageModel,
    ImageRecords,
    ImageSynthesizer,
    Ints,
    Progress,
)
from sfumato.synthesizers.state import State, Stored

__all__ = ["Networks", "NoisyWeights", "train_openly"]

Floats = NDArray[np.float64]

_AT_ONCE = 10_000  # images encoded or decoded at a time
_MOST = 2**12  # units of the code
_MOST_IMAGES = 10**8
_LARGEST = 1e6  # a weight or a number of a code


@dataclass(frozen=True, eq=False, repr=False)
class Networks:
    """An encoder and a decoder of one dense layer each: rectified, and from 0 to 1."""

    encoder: Dense
    decoder: Dense

    def with_noise(self, deviation: float, rng: np.random.Generator) -> Networks:
        """Return the same networks with normal noise in all weights and biases."""

        def noisy(one: NDArray[Any]) -> NDArray[Any]:
            return (one + rng.normal(scale=deviation, size=one.shape)).astype(np.float32)

        parts = (
            Dense(tuple(map(noisy, one.weights)), tuple(map(noisy, one.biases))) for one in (self.encoder, self.decoder)
        )
        return Networks(*parts)

    def codes(self, images: Bytes) -> NDArray[np.float32]:
        """Return the code of each image."""
        parts = [
            np.maximum(self.encoder(images[at : at + _AT_ONCE].reshape(-1, len(self.encoder.weights[0])) / 255), 0.0)
            for at in range(0, max(len(images), 1), _AT_ONCE)
        ]
        return np.concatenate(parts).astype(np.float32)

    def through(self, images: Bytes) -> Bytes:
        """Return what the decoder makes of images."""
        return _decoded(self.decoder, self.codes(images), images.shape[1:])


def _decoded(decoder: Dense, codes: NDArray[np.float32], shape: tuple[int, ...]) -> Bytes:
    images = np.empty((len(codes), *shape), dtype=np.uint8)
    for at in range(0, len(codes), _AT_ONCE):
        values = expit(decoder(codes[at : at + _AT_ONCE]))
        images[at : at + _AT_ONCE] = np.rint(values * 255).reshape(-1, *shape)
    return images


def train_openly(
    images: Bytes,
    *,
    width: int = 64,
    epochs: int = 10,
    batch_size: int = 32,
    seed: int = 0,
    progress: Progress | None = None,
) -> Networks:
    """Train the study's dense auto-encoder, without privacy: Adam, mean squared error.

    Examples
    --------
    >>> images = np.zeros((40, 4, 4, 1), np.uint8)
    >>> train_openly(images, width=2, epochs=1).through(images).shape
    (40, 4, 4, 1)
    """
    import torch
    from torch import nn

    pixels = math.prod(images.shape[1:])
    inputs = torch.from_numpy(images.reshape(len(images), pixels))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder, decoder = nn.Linear(pixels, width), nn.Linear(width, pixels)
        rule = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
        for epoch in range(epochs):
            for at in torch.split(torch.randperm(len(inputs)), batch_size):
                batch = inputs[at].float() / 255
                rule.zero_grad()
                loss = nn.functional.mse_loss(torch.sigmoid(decoder(torch.relu(encoder(batch)))), batch)
                loss.backward()  # type: ignore[no-untyped-call]
                rule.step()
            if progress is not None:
                progress((epoch + 1) / epochs)
    parts = (
        Dense((one.weight.detach().numpy().T.copy(),), (one.bias.detach().numpy().copy(),))
        for one in (encoder, decoder)
    )
    return Networks(*parts)


@dataclass(frozen=True, eq=False, repr=False)
class NoisyWeightsModel(ImageModel):
    """A decoder with noise in its weights, and the codes of all training images. Not private."""

    canvas: Canvas
    codes: NDArray[np.float32]
    labels: Ints
    decoder: Dense

    @property
    def total(self) -> float:
        """The number of training images, exactly."""
        return float(len(self.codes))

    def sample(
        self, rows: int, rng: np.random.Generator, *, style: str | None = None, progress: Progress | None = None
    ) -> tuple[Bytes, Ints]:
        """Return what the decoder makes of training images, in random order; of each once, then of each again."""
        self.style_of(style)
        turns = -(-rows // len(self.codes))
        at = np.concatenate([rng.permutation(len(self.codes)) for _ in range(turns)] or [np.empty(0, int)])[:rows]
        images = _decoded(self.decoder, self.codes[at], self.canvas.shape)
        if progress is not None:
            progress(1.0)
        return images, self.labels[at]

    def to_state(self) -> State:
        """Return the decoder, the codes and the labels."""
        return State(
            {"images": len(self.codes), "width": self.codes.shape[1]},
            {
                "codes": self.codes,
                "labels": self.labels,
                "weights": self.decoder.weights[0],
                "biases": self.decoder.biases[0],
            },
        )

    @classmethod
    def from_state(cls, canvas: Canvas, state: State) -> Self:
        """Return the model of a state, which may be a stranger's."""
        stored, pixels = Stored(state), math.prod(canvas.shape)
        images, width = stored.whole("images", 1, _MOST_IMAGES), stored.whole("width", 1, _MOST)
        weights = stored.array("weights", (width, pixels), least=-_LARGEST, most=_LARGEST)
        biases = stored.array("biases", (pixels,), least=-_LARGEST, most=_LARGEST)
        codes = stored.array("codes", (images, width), least=0.0, most=_LARGEST)
        labels = stored.array("labels", (images,), kind="i", least=0, most=canvas.classes - 1)
        return cls(canvas, codes.astype(np.float32), labels.astype(np.int64), Dense((weights,), (biases,)))


@dataclass(frozen=True, kw_only=True)
class NoisyWeights(ImageSynthesizer):
    """Noise in the weights of a finished auto-encoder: for comparison only, it guarantees nothing.

    The auto-encoder is trained on the private images in the ordinary way, and normal noise is added to its weights. The
    published images are what it makes of the private images themselves, each a blurred copy of one of them, and the
    stored model holds the codes of all of them. So there is no epsilon (it is infinite), and the certificate says so.

    Parameters
    ----------
    width : int
        The number of units of the code; 64 in the study.
    epochs : int
        How often each image is used; 100 in the study.
    batch_size : int
    deviation : float
        The standard deviation of the noise in the weights; 0.1 in the study.

    Examples
    --------
    >>> method = NoisyWeights(width=2, epochs=1)
    >>> method.private, dict(method.shares(Canvas(4, 4, 1, 2)))
    (False, {})
    """

    name: ClassVar[str] = "noisy-weights"
    model: ClassVar[type[ImageModel]] = NoisyWeightsModel
    private: ClassVar[bool] = False

    width: int = 64
    epochs: int = 10
    batch_size: int = 32
    deviation: float = 0.1

    def __post_init__(self) -> None:
        whole("the width of a code", self.width, most=_MOST)
        whole("the number of epochs", self.epochs)
        whole("the batch size", self.batch_size)
        real("the deviation of the noise", self.deviation, least=0)

    def prepare(self, canvas: Canvas) -> None:
        """Raise an error if torch is missing."""
        require_extra("torch", "torch", "the auto-encoder")

    def shares(self, canvas: Canvas) -> Mapping[str, Share]:
        """Return nothing: no private access is paid for."""
        return {}

    def learn(
        self, records: ImageRecords, sums: NoisySums, rng: np.random.Generator, progress: Progress | None = None
    ) -> NoisyWeightsModel:
        """Train without privacy, and add noise to the weights."""
        if not len(records.images):
            raise InputError("there are no images")
        networks = train_openly(
            records.images,
            width=self.width,
            epochs=self.epochs,
            batch_size=self.batch_size,
            seed=int(rng.integers(2**62)),
            progress=progress,
        )
        noisy = networks.with_noise(self.deviation, rng)
        return NoisyWeightsModel(records.canvas, noisy.codes(records.images), records.labels, noisy.decoder)

"""Illustrations for a report: images of a public data set with noise, and feature maps of the first layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.training.runs import Pictures

__all__ = ["pictures_of"]

Bytes = NDArray[np.uint8]

_LEVELS = (0.0, 0.1, 0.3, 1.0)  # standard deviations of the noise, for pixels from 0 to 1
_SHOWN = 8  # images per row, and feature maps per layer
_LAYERS = 2


def pictures_of(images: Bytes, labels: Any, models: Mapping[str, Any]) -> Pictures:
    """Return the first image of each class with increasing noise, and the feature maps of one image.

    Parameters
    ----------
    images : array of bytes
        Images of a public data set, because they are shown unchanged.
    labels : array
    models : mapping
        The fitted networks by name; networks without convolutions have no feature maps.

    Examples
    --------
    >>> import sfumato as sf
    >>> digits = sf.datasets.mnist()
    >>> pictures = pictures_of(digits.test_images, digits.test_labels, {})
    >>> len(pictures.levels), len(pictures.noisy[0]), pictures.shown.shape
    (4, 8, (28, 28))
    """
    numbers = np.asarray(labels)
    first = [int(np.flatnonzero(numbers == one)[0]) for one in np.unique(numbers)[:_SHOWN]]
    generator = np.random.default_rng(0)  # an illustration, not protection
    clean = images[first].astype(np.float64) / 255
    noisy = tuple(
        tuple(_bytes(image, 0.0, 1.0) for image in clean + level * generator.normal(size=clean.shape))
        for level in _LEVELS
    )
    shown = images[first[-1]]
    maps = {name: _maps(model, shown) for name, model in models.items()}
    return Pictures(_LEVELS, noisy, shown, {name: layers for name, layers in maps.items() if layers})


def _maps(model: Any, image: Bytes) -> dict[str, tuple[Bytes, ...]]:
    """Return the outputs of the first convolutions by title, each map scaled to its own range."""
    import torch
    from torch import nn

    layers = [one for one in model.module_.modules() if isinstance(one, nn.Conv2d)][:_LAYERS]
    caught: dict[int, Any] = {}

    def catch(at: int) -> Any:
        return lambda layer, given, result: caught.__setitem__(at, result)

    handles = [layer.register_forward_hook(catch(at)) for at, layer in enumerate(layers)]
    try:
        with torch.no_grad():
            model.predict(image[None])
    finally:
        for handle in handles:
            handle.remove()
    maps = {}
    for at, result in sorted(caught.items()):
        channels = result[0].float().cpu().numpy()[:_SHOWN]
        title = f"convolution {at + 1} ({layers[at].out_channels} channels)"
        maps[title] = tuple(_bytes(one, float(one.min()), float(one.max())) for one in channels)
    return maps


def _bytes(image: NDArray[np.floating[Any]], low: float, high: float) -> Bytes:
    scaled = (image - low) * (255 / (high - low if high > low else 1.0))
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)

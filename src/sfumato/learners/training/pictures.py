"""Images of a public data set before and after noise, and what the first layers of a network make of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.learners.training.runs import Pictures

__all__ = ["pictures_of"]

Bytes = NDArray[np.uint8]

_LEVELS = (0.0, 0.1, 0.3, 1.0)  # deviations of the noise, of pixels from 0 to 1
_SHOWN = 8  # images in a row, and feature maps of a layer
_LAYERS = 2


def pictures_of(images: Bytes, labels: Any, models: Mapping[str, Any]) -> Pictures:
    """Show the first image of each class with more and more noise, and what the first convolutions make of one.

    Parameters
    ----------
    images : array of bytes
        Of a public data set: they are shown as they are.
    labels : array
    models : mapping
        The fitted networks by name; those without convolutions have no feature maps.

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
    generator = np.random.default_rng(0)  # the noise hides nobody: it is an illustration
    clean = images[first].astype(np.float64) / 255
    noisy = tuple(
        tuple(_bytes(image, 0.0, 1.0) for image in clean + level * generator.normal(size=clean.shape))
        for level in _LEVELS
    )
    shown = images[first[-1]]
    maps = {name: _maps(model, shown) for name, model in models.items()}
    return Pictures(_LEVELS, noisy, shown, {name: found for name, found in maps.items() if found})


def _maps(model: Any, image: Bytes) -> dict[str, tuple[Bytes, ...]]:
    """Return what comes out of the first convolutions, each scaled to its own range."""
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
    found = {}
    for at, result in sorted(caught.items()):
        channels = result[0].float().cpu().numpy()[:_SHOWN]
        kind = layers[at]
        title = f"convolution {at + 1} ({kind.out_channels} channels)"
        found[title] = tuple(_bytes(one, float(one.min()), float(one.max())) for one in channels)
    return found


def _bytes(image: NDArray[np.floating[Any]], low: float, high: float) -> Bytes:
    scaled = (image - low) * (255 / (high - low if high > low else 1.0))
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)

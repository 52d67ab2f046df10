"""The methods that make synthetic images, by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from sfumato.errors import OptionError, did_you_mean
from sfumato.synthesizers.images.base import ImageSynthesizer

__all__ = ["IMAGE_METHODS", "image_method_of"]

IMAGE_METHODS = {
    "distillation": "distillation:Distillation",
    "auto-encoder": "auto_encoder:AutoEncoderImages",
    "variational": "auto_encoder:VariationalImages",
    "noisy-weights": "noisy_weights:NoisyWeights",
}
"""The module and the class of each method, imported when it is used."""


def image_method_of(given: Any = None, parameters: Mapping[str, Any] | None = None) -> ImageSynthesizer:
    """Return a method by its name and parameters; one that is an object already is returned as it is.

    Examples
    --------
    >>> image_method_of("auto-encoder", {"width": 4}).width
    4
    """
    if isinstance(given, ImageSynthesizer):
        return given
    name = "distillation" if given is None else str(given)
    if name not in IMAGE_METHODS:
        raise OptionError(
            f"there is no method '{name[:40]}' for synthetic images", hint=did_you_mean(name, IMAGE_METHODS)
        )
    module, _, kind = IMAGE_METHODS[name].partition(":")
    made: ImageSynthesizer = getattr(importlib.import_module(f"sfumato.synthesizers.images.{module}"), kind)(
        **(parameters or {})
    )
    return made

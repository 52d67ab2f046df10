"""The methods that make synthetic images, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.errors import require_extra
from sfumato.synthesizers.catalogue import find_method
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
    >>> image_method_of("distillation", {"views": 2}).views
    2
    >>> image_method_of("distilation")
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: there is no method 'distilation' for synthetic images (did you mean 'distillation'?)
    """
    if isinstance(given, ImageSynthesizer):
        return given
    require_extra("torch", "torch", "making images")
    made: ImageSynthesizer = find_method(
        "distillation" if given is None else given,
        parameters,
        IMAGE_METHODS,
        package="sfumato.synthesizers.images",
        what="synthetic images",
    )
    return made

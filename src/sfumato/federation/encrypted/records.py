"""How records become the numbers that a client encrypts: the public description of a model's columns or images."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError, ProtocolError, SfumatoError
from sfumato.learners.estimators.features import Features
from sfumato.learners.networks.architectures import ImageInputs

__all__ = ["Records"]


@dataclass(frozen=True)
class Records:
    """The columns of a table, with their public bounds and domains, or the shape and the scale of images.

    Examples
    --------
    >>> import polars as pl
    >>> from sfumato.learners.estimators.features import Feature
    >>> records = Records(Features((Feature("age", bounds=(0.0, 100.0)), Feature("sex", domain=("f", "m")))))
    >>> records.matrix(pl.DataFrame({"sex": ["f"], "age": [25]})).tolist()
    [[-0.5, 1.0, 0.0]]
    >>> Records.from_dict(records.to_dict()) == records, records.width
    (True, 3)
    """

    features: Features | None = None
    knots: int | None = None
    shape: tuple[int, ...] | None = None
    scale: Any = None

    @classmethod
    def of(cls, model: Any) -> Records | None:
        """Return the description of one of our estimators; None for others."""
        if getattr(model, "features_", None) is not None:
            return cls(model.features_, getattr(model, "knots_", None))
        if hasattr(model, "module_"):
            scale = None if model.scale is None else [np.asarray(one, np.float64).tolist() for one in model.scale]
            return cls(shape=tuple(model.inputs_), scale=scale)
        return None

    @property
    def width(self) -> int:
        """How many numbers a record becomes."""
        return math.prod(self.shape or ()) if self.features is None else self.features.width(self.knots)

    def matrix(self, records: Any) -> NDArray[np.float64]:
        """Return a row for each record: a table, a frame, or an array of images."""
        if self.features is None:
            images = ImageInputs.of_array(records)
            if images.shape != self.shape:
                given, wanted = (" x ".join(map(str, one or ())) for one in (images.shape, self.shape))
                raise InputError(f"the images have the shape {given}, and the model takes {wanted}")
            found = images.tensor(self.scale).double().numpy()
        else:
            with warnings.catch_warnings():  # the client's own records: unknown values count as unknown
                warnings.simplefilter("ignore", UserWarning)
                found = self.features.matrix(self.features.align(records, "the model"), self.knots)
        return np.asarray(found.reshape(len(found), -1), np.float64)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        features = None if self.features is None else self.features.to_dict()
        shape = None if self.shape is None else list(self.shape)
        return {"features": features, "knots": self.knots, "shape": shape, "scale": self.scale}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Records:
        """Read what `to_dict` returned, of a stranger perhaps."""
        try:
            features = None if plain["features"] is None else Features.from_dict(plain["features"])
            knots = None if plain["knots"] is None else int(plain["knots"])
            shape = None if plain["shape"] is None else tuple(int(one) for one in plain["shape"])
            if (features is None) == (shape is None) or not 2 <= (knots or 2) <= _MOST or min(shape or (1,)) < 1:
                raise ValueError("records")
            return cls(features, knots, shape, plain["scale"])
        except (KeyError, TypeError, ValueError, AttributeError, SfumatoError) as error:
            raise ProtocolError("the description of the records is damaged") from error


_MOST = 10_000

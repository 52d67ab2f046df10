"""Published limits: the risk thresholds of medicines agencies.

- European Medicines Agency, *External guidance on the implementation of the European Medicines
  Agency policy on the publication of clinical data for medicinal products for human use*
  (EMA/90915/2016): a maximum risk of 0.09.
- Health Canada, *Public release of clinical information: guidance document*, 2019: the same.

None of this is legal advice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sfumato.errors import OptionError, did_you_mean
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.models import KAnonymity
from sfumato.measures.risk.reidentification import THRESHOLD

__all__ = ["PRESETS", "Preset", "preset"]


@dataclass(frozen=True)
class Preset:
    """A limit on the largest risk of a record, and the guarantees that keep it.

    Examples
    --------
    >>> [str(guarantee) for guarantee in preset("ema").guarantees]
    ['k=12']
    """

    name: str
    title: str
    threshold: float
    source: str

    @property
    def guarantees(self) -> tuple[ClassGuarantee, ...]:
        """The required guarantee: the smallest k with 1/k not above the threshold (1/11 is above 0.09)."""
        k = max(1, math.floor(1 / self.threshold))
        return (KAnonymity(k if 1 / k <= self.threshold else k + 1),)

    def to_dict(self) -> dict[str, Any]:
        """Return the preset as plain values."""
        return {
            "name": self.name,
            "title": self.title,
            "threshold": self.threshold,
            "guarantees": [str(guarantee) for guarantee in self.guarantees],
            "source": self.source,
        }


PRESETS: dict[str, Preset] = {
    one.name: one
    for one in (
        Preset("ema", "European Medicines Agency, policy 0070", THRESHOLD, "EMA/90915/2016"),
        Preset("health-canada", "Health Canada, public release of clinical information", THRESHOLD, "Guidance of 2019"),
    )
}
"""The presets by name."""


def preset(name: str) -> Preset:
    """Return a preset by its name.

    Examples
    --------
    >>> preset("health-canada").threshold
    0.09
    """
    if name not in PRESETS:
        raise OptionError(f"the preset '{name}' is unknown", hint=did_you_mean(name, PRESETS))
    return PRESETS[name]

"""Perturb single columns by the classical methods of statistical offices. None of them carries a guarantee."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.masking.masking import Masked as Masked
    from sfumato.masking.masking import NoiseAddition as NoiseAddition
    from sfumato.masking.masking import Pram as Pram
    from sfumato.masking.masking import RankSwap as RankSwap
    from sfumato.masking.masking import TopBottomCode as TopBottomCode

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "masking": "Masked NoiseAddition Pram RankSwap TopBottomCode",
    },
)

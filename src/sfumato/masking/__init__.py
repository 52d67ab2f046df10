"""Perturbation of values: classical masking without a guarantee, or local differential privacy for each record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.masking.masking import MaskedTable as MaskedTable
    from sfumato.masking.masking import NoiseAddition as NoiseAddition
    from sfumato.masking.masking import Pram as Pram
    from sfumato.masking.masking import RankSwap as RankSwap
    from sfumato.masking.masking import TopBottomCode as TopBottomCode
    from sfumato.masking.perturb import Estimated as Estimated
    from sfumato.masking.perturb import PerturbedTable as PerturbedTable

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "masking": "MaskedTable NoiseAddition Pram RankSwap TopBottomCode",
        "perturb": "Estimated PerturbedTable",
    },
)

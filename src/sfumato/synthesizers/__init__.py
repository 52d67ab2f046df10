"""Make synthetic data that do not reveal whether a person was in the original."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.synthesizers.tables.base import Synthesizer as Synthesizer
    from sfumato.synthesizers.tables.columns.constraints import Constraints as Constraints
    from sfumato.synthesizers.tables.columns.constraints import Determines as Determines
    from sfumato.synthesizers.tables.generator import Generator as Generator
    from sfumato.synthesizers.tables.methods.aim import Aim as Aim
    from sfumato.synthesizers.tables.methods.autoencoder import AutoEncoderMixture as AutoEncoderMixture
    from sfumato.synthesizers.tables.methods.catalogue import METHODS as METHODS
    from sfumato.synthesizers.tables.methods.copula import Copula as Copula
    from sfumato.synthesizers.tables.methods.independent import Independent as Independent
    from sfumato.synthesizers.tables.methods.tree.tree import LabelledTree as LabelledTree
    from sfumato.synthesizers.tables.synthesize import synthesize as synthesize

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "tables.methods.aim": "Aim",
        "tables.methods.autoencoder": "AutoEncoderMixture",
        "tables.base": "Synthesizer",
        "tables.methods.catalogue": "METHODS",
        "tables.columns.constraints": "Constraints Determines",
        "tables.methods.copula": "Copula",
        "tables.generator": "Generator",
        "tables.methods.independent": "Independent",
        "tables.synthesize": "synthesize",
        "tables.methods.tree.tree": "LabelledTree",
    },
)

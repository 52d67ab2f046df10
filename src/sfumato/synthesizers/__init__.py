"""Make synthetic data that do not reveal whether a person was in the original."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.synthesizers.images.auto_encoder import AutoEncoderImages as AutoEncoderImages
    from sfumato.synthesizers.images.auto_encoder import VariationalImages as VariationalImages
    from sfumato.synthesizers.images.base import Canvas as Canvas
    from sfumato.synthesizers.images.base import ImageSynthesizer as ImageSynthesizer
    from sfumato.synthesizers.images.catalogue import IMAGE_METHODS as IMAGE_METHODS
    from sfumato.synthesizers.images.distillation import Distillation as Distillation
    from sfumato.synthesizers.images.generator import ImageGenerator as ImageGenerator
    from sfumato.synthesizers.images.noisy_weights import NoisyWeights as NoisyWeights
    from sfumato.synthesizers.synthesis import synthesize as synthesize
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

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "images.auto_encoder": "AutoEncoderImages VariationalImages",
        "images.base": "Canvas ImageSynthesizer",
        "images.catalogue": "IMAGE_METHODS",
        "images.distillation": "Distillation",
        "images.generator": "ImageGenerator",
        "images.noisy_weights": "NoisyWeights",
        "synthesis": "synthesize",
        "tables.methods.aim": "Aim",
        "tables.methods.autoencoder": "AutoEncoderMixture",
        "tables.base": "Synthesizer",
        "tables.methods.catalogue": "METHODS",
        "tables.columns.constraints": "Constraints Determines",
        "tables.methods.copula": "Copula",
        "tables.generator": "Generator",
        "tables.methods.independent": "Independent",
        "tables.methods.tree.tree": "LabelledTree",
    },
)

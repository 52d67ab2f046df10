"""All attacks by name. A new attack is one file with a subclass of `Attack`, and one line here."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sfumato.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from sfumato.attacks.base import Attack

__all__ = ["ATTACKS", "SHOWN_BY", "attacks_of"]

ATTACKS = {
    "loss": "membership.threshold:LossThreshold",
    "gap": "membership.threshold:Gap",
    "lira": "membership.lira:Lira",
    "lira-offline": "membership.lira:LiraOffline",
    "rmia": "membership.rmia:Rmia",
    "rmia-offline": "membership.rmia:RmiaOffline",
    "informia": "membership.rmia:InfoRmia",
    "bavaria": "membership.bavaria:Bavaria",
    "bavaria-offline": "membership.bavaria:BavariaOffline",
    "network": "membership.network:AttackNetwork",
    "quantile": "membership.quantile:QuantileRegression",
    "label-only": "membership.label_only:LabelOnly",
    "linkage": "tables.linkage:Linkage",
    "homogeneity": "tables.homogeneity:Homogeneity",
    "background-knowledge": "tables.background_knowledge:BackgroundKnowledge",
    "skewness": "tables.skewness:Skewness",
    "similarity": "tables.similarity:Similarity",
    "inference": "tables.inference:Inference",
    "linkability": "tables.linkability:Linkability",
    "singling-out": "tables.singling_out:SinglingOut",
    "singling-out-univariate": "tables.singling_out:SinglingOutUnivariate",
    "distance-to-closest-record": "tables.closest_record:ClosestRecord",
    "shadow": "tables.shadow:Shadow",
    "attribute": "attributes:AttributeInference",
    "inversion": "inversion:ModelInversion",
}
"""The class of each attack, imported when it is run."""

SHOWN_BY = {
    "linkage": "linkage",
    "re-identification": "linkage",
    "homogeneity": "homogeneity",
    "background knowledge": "background-knowledge",
    "skewness": "skewness",
    "similarity": "similarity",
    "inference": "inference",
}
"""The attack that shows what an assessment names. A linked row is a re-identified person, so one attack shows both."""


def attacks_of(names: Sequence[str] | None = None) -> tuple[Attack, ...]:
    """Return attacks by name, or all of them.

    Examples
    --------
    >>> [attack.name for attack in attacks_of(["loss", "gap"])]
    ['loss', 'gap']
    >>> attacks_of(["lora"])
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: there is no attack 'lora' (did you mean 'lira'?)
    """
    return tuple(_attack(name) for name in (ATTACKS if names is None else names))


def _attack(name: str) -> Attack:
    if name not in ATTACKS:
        raise OptionError(f"there is no attack '{name}'", hint=did_you_mean(name, ATTACKS))
    module, _, kind = ATTACKS[name].partition(":")
    made: Attack = getattr(importlib.import_module(f"sfumato.attacks.{module}"), kind)()
    return made

"""The methods of anonymization by their names; each is loaded when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sfumato.anonymizers.base import Anonymizer

__all__ = ["METHODS"]

_HOMES = {
    "mondrian": ("mondrian.mondrian", "Mondrian"),
    "hilbert": ("hilbert.hilbert", "Hilbert"),
    "rplus": ("mondrian.rplus", "RPlus"),
    "lattice": ("lattice.lattice", "Lattice"),
    "microaggregate": ("microaggregation.microaggregate", "Microaggregate"),
    "suppress": ("suppression.local_suppression", "LocalSuppression"),
    "guided": ("guided.guided", "Guided"),
}


class _Methods(Mapping[str, "type[Anonymizer]"]):
    """The class of each method, which is imported when it is looked up."""

    def __getitem__(self, name: str) -> type[Anonymizer]:
        module, kind = _HOMES[name]
        found: type[Anonymizer] = getattr(importlib.import_module(f"sfumato.anonymizers.{module}"), kind)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)

    def __contains__(self, name: object) -> bool:
        return name in _HOMES  # without loading it


METHODS: Mapping[str, type[Anonymizer]] = _Methods()
"""The class of each method by the name that the command line has for it."""

"""Guarantees: the promises of a release, which can be printed, parsed, stored and checked.

k-anonymity and its relatives (`sfumato.measures`) are promises about the classes of a table; differential privacy
(`sfumato.budget`) is a promise about the events that made a release. A new kind of guarantee is one class.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sfumato.errors import OptionError

if TYPE_CHECKING:
    from sfumato.data.release import Release

__all__ = ["Guarantee"]

_HOMES = ("sfumato.budget.differential_privacy", "sfumato.measures.models")


class Guarantee(ABC):
    """A promise about a release.

    Examples
    --------
    >>> import sfumato as sf
    >>> [str(guarantee) for guarantee in sf.Guarantee.parse("k=10, l=3, t=0.2")]
    ['k=10', 'l=3', 't=0.2']
    >>> sf.Guarantee.from_dict(sf.DifferentialPrivacy(1.0, 1e-5).to_dict()).epsilon
    1.0
    """

    family: ClassVar[dict[str, type[Guarantee]]] = {}
    """The imported guarantee classes, by the name under which they are stored."""

    def __init_subclass__(cls, *, stored_as: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if stored_as is not None:
            Guarantee.family[stored_as] = cls

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as plain values, its name under ``guarantee``; `from_dict` reads them."""

    @classmethod
    @abstractmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Build a guarantee of this class from the result of `to_dict`."""

    @abstractmethod
    def holds_for(self, release: Release) -> bool:
        """Measure a release, and return whether it keeps the guarantee."""

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Guarantee:
        """Build a guarantee of any class from the result of `to_dict`.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Guarantee.from_dict(sf.TCloseness(0.2).to_dict())
        TCloseness(t=0.2, distance=<Distance.AUTO: 'auto'>)
        """
        for home in _HOMES:
            importlib.import_module(home)
        name = plain.get("guarantee") if isinstance(plain, Mapping) else None
        if not isinstance(name, str) or name not in Guarantee.family:
            raise OptionError(
                f"the guarantee {name!r} is unknown", hint=f"known: {', '.join(sorted(Guarantee.family))}"
            )
        return Guarantee.family[name].from_plain(plain)

    @staticmethod
    def parse(text: str) -> list[Guarantee]:
        """Parse guarantees from a text such as ``k=10,l=3,t=0.2`` or ``epsilon=1,delta=1e-5``.

        The names are those of the outputs: k, alpha, l, entropy_l, recursive_c with recursive_l, t, basic_beta (or
        beta), enhanced_beta, delta_disclosure (or delta), and epsilon, optionally with its delta.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Guarantee.parse("k=3,alpha=0.5")
        [KAnonymity(k=3), AlphaK(alpha=0.5, k=3, values=None)]
        >>> print(*sf.Guarantee.parse("epsilon=1, delta=1e-5"))
        epsilon=1, delta=1e-05 (add or remove one record)
        """
        models = importlib.import_module("sfumato.measures.models")
        parts = [part.partition("=") for part in text.split(",")]
        named = {name.strip().lower(): number.strip() for name, _, number in parts}
        if "epsilon" not in named:
            found: list[Guarantee] = models.parse(text)
            return found
        privacy = importlib.import_module("sfumato.budget.differential_privacy").DifferentialPrivacy
        try:
            numbers = [float(named[name]) for name in ("epsilon", "delta") if name in named]
        except ValueError:
            raise OptionError(f"epsilon and delta must be numbers, got '{text}'", hint="epsilon=1,delta=1e-5") from None
        rest = ",".join("".join(part) for part in parts if part[0].strip().lower() not in ("epsilon", "delta"))
        return [*(models.parse(rest) if rest else []), privacy(*numbers)]

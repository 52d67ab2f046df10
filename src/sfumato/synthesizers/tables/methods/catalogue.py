"""The methods that make synthetic tables, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.synthesizers.catalogue import find_method
from sfumato.synthesizers.tables.base import Synthesizer

__all__ = ["METHODS", "method_of"]

METHODS = {
    "tree": "tree.tree:LabelledTree",
    "aim": "aim:Aim",
    "copula": "copula:Copula",
    "independent": "independent:Independent",
    "autoencoder": "autoencoder:AutoEncoderMixture",
}
"""The module and the class of each method, imported when it is used."""


def method_of(given: str | Synthesizer | None, parameters: Mapping[str, Any] | None = None) -> Synthesizer:
    """Return a method by its name and parameters; one that is an object already is returned as it is.

    Examples
    --------
    >>> method_of("tree", {"pool": 2000}).pool
    2000
    >>> method_of("tre")
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: there is no method 'tre' for synthetic tables (did you mean 'tree'?)
    """
    if isinstance(given, Synthesizer):
        return given
    made: Synthesizer = find_method(
        "tree" if given is None else given,
        parameters,
        METHODS,
        package="sfumato.synthesizers.tables.methods",
        what="synthetic tables",
    )
    return made

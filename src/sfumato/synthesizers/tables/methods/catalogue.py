"""The methods that make synthetic tables, by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sfumato.errors import OptionError, did_you_mean
from sfumato.synthesizers.tables.base import Synthesizer

__all__ = ["METHODS", "method_of", "parameters_of"]

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
    name = "tree" if given is None else given
    if not isinstance(name, str) or name not in METHODS:
        shown = str(name)[:40]
        raise OptionError(f"there is no method '{shown}' for synthetic tables", hint=did_you_mean(shown, METHODS))
    module, _, kind = METHODS[name].partition(":")
    found = getattr(importlib.import_module(f"sfumato.synthesizers.tables.methods.{module}"), kind)
    stated = dict(parameters or {})
    known = [one.name for one in fields(found)]
    for one in stated:
        if one not in known:
            raise OptionError(f"the method '{name}' has no parameter '{one[:40]}'", hint=did_you_mean(one, known))
    made: Synthesizer = found(**stated)
    return made


def parameters_of(method: Synthesizer) -> dict[str, Any]:
    """Return the parameters of a method as plain values.

    Examples
    --------
    >>> parameters_of(method_of("tree"))
    {'pool': None, 'additive': True}
    """
    return {one.name: getattr(method, one.name) for one in fields(method)}  # type: ignore[arg-type]

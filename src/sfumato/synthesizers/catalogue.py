"""Find a method of synthesis by its name and parameters."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sfumato.errors import OptionError, did_you_mean

__all__ = ["find_method", "parameters_of"]


def find_method(
    name: Any, parameters: Mapping[str, Any] | None, known: Mapping[str, str], *, package: str, what: str
) -> Any:
    """Return a method by its name and parameters.

    ``known`` has the module inside the package, and the class, of each name; it is imported only now.
    """
    if not isinstance(name, str) or name not in known:
        shown = str(name)[:40]
        raise OptionError(f"there is no method '{shown}' for {what}", hint=did_you_mean(shown, known))
    module, _, kind = known[name].partition(":")
    found = getattr(importlib.import_module(f"{package}.{module}"), kind)
    stated = dict(parameters or {})
    names = [one.name for one in fields(found)]
    for one in stated:
        if one not in names:
            raise OptionError(f"the method '{name}' has no parameter '{one[:40]}'", hint=did_you_mean(one, names))
    return found(**stated)


def parameters_of(method: Any) -> dict[str, Any]:
    """Return the parameters of a method as plain values, without the device, which decides nothing but the speed."""
    return {one.name: getattr(method, one.name) for one in fields(method) if one.name != "device"}

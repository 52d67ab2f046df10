"""Public names that are loaded on first use, so that importing a package stays cheap."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sfumato.errors import require_extra

__all__ = ["lazy"]


def lazy(
    package: str,
    homes: Mapping[str, str],
    *,
    modules: Mapping[str, str] | None = None,
    packages: Sequence[str] = (),
    needs: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package.

    Parameters
    ----------
    package : str
        The name of the package.
    homes : mapping of str to str
        For each module inside the package the public names that it defines, separated by spaces.
    modules : mapping of str to str, optional
        Modules that are public themselves, by the names under which the package shows them.
    packages : sequence of str, optional
        Packages inside the package that are found as attributes; they are not among the public names.
    needs : mapping of str to sequence of str, optional
        For an extra such as torch the sub-packages that cannot be imported without it.

    Examples
    --------
    >>> get, names, public = lazy("sfumato.data", {"schema": "Role Kind"})
    >>> public, get("Role").__name__
    (['Kind', 'Role'], 'Role')
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}
    shown = dict(modules or {})
    public = sorted([*home_of, *shown])

    def get(name: str) -> Any:
        if name in shown:
            return importlib.import_module(f"{package}.{shown[name]}")
        if name in packages:
            return importlib.import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        for extra, rooms in (needs or {}).items():
            if home_of[name].partition(".")[0] in rooms:
                require_extra(extra, extra, f"{package}.{name}")
        return getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)

    return get, lambda: list(public), public

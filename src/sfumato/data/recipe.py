"""Recipes: a command with its options, stored as TOML, to be run again."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sfumato.data.certificate import is_regular_file
from sfumato.data.io.files import why
from sfumato.data.schema import Schema
from sfumato.errors import FileError, OptionError, SchemaError, did_you_mean

__all__ = ["RECIPE", "RUNNERS", "Recipe"]

RECIPE = "recipe.toml"
RUNNERS = {
    "anonymize": "sfumato.anonymizers.anonymize",
    "federate": "sfumato.federation.federate",
    "mask": "sfumato.masking.masking",
    "perturb": "sfumato.masking.perturb",
    "query": "sfumato.budget.query.query",
    "synthesize": "sfumato.synthesizers.synthesis",
    "train": "sfumato.learners.training.sweep",
}
"""The module of each command that recipes are of; its `run_recipe` does what a recipe says."""

_MOST_BYTES = 4 * 2**20  # tomllib reads about half a megabyte a second


@dataclass(frozen=True)
class Recipe:
    """The name of a command, its options by name, and the schema of its table.

    Options without a value are left out. The schema holds what was declared, never what was inferred
    from the data.

    Examples
    --------
    >>> import sfumato as sf
    >>> recipe = Recipe("anonymize", {"method": "mondrian"}, sf.Schema([sf.Column(name="age", role="quasi")]))
    >>> Recipe.from_toml(recipe.to_toml()) == recipe
    True
    """

    command: str
    options: dict[str, Any]
    schema: Schema

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", _without_none(self.options))

    def run(self, data: Any = None, **options: Any) -> Any:
        """Do what the recipe says, and return the release, or the releases; see `sf.run`."""
        if self.command not in RUNNERS:
            raise OptionError(
                f"a recipe of {self.command[:40]!r} cannot be run", hint=f"known commands: {', '.join(RUNNERS)}"
            )
        return importlib.import_module(RUNNERS[self.command]).run_recipe(self, data, **options)

    def with_values(self, **values: Any) -> Recipe:
        """Return the recipe with other values of its options; the options of a method are found by their name too.

        Examples
        --------
        >>> import sfumato as sf
        >>> masked = Recipe("mask", {"parameters": {"masks": [{"scale": 0.1}, {"keep": 0.8}]}}, sf.Schema([]))
        >>> masked.with_values(scale=0.5).options
        {'parameters': {'masks': [{'scale': 0.5}, {'keep': 0.8}]}}
        >>> masked.with_values(sale=0.5)
        Traceback (most recent call last):
            ...
        sfumato.errors.OptionError: the recipe has no option 'sale' (did you mean 'scale'?)
        """
        options = dict(self.options)
        for name, value in values.items():
            known = [*options, *_names(options)]
            if name not in known:
                raise OptionError(f"the recipe has no option '{name}'", hint=did_you_mean(name, dict.fromkeys(known)))
            options = {**options, name: value} if name in options else _replaced(options, name, value)
        return replace(self, options=options)

    def to_toml(self) -> str:
        """Return the recipe as TOML text."""
        import tomli_w

        return tomli_w.dumps({"command": self.command, self.command: self.options, "schema": self.schema.to_dict()})

    @classmethod
    def from_toml(cls, text: str) -> Recipe:
        """Read a recipe from TOML text."""
        try:
            plain = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise FileError(f"the recipe is not valid TOML: {error}") from error
        except (ValueError, RecursionError) as error:  # a number with thousands of digits, or deeply nested tables
            raise FileError("the recipe is not valid TOML: a value is too long or too deeply nested") from error
        command = plain.get("command")
        options, schema = plain.get(str(command)), plain.get("schema", {"columns": {}})
        if not isinstance(command, str) or not isinstance(options, dict) or not isinstance(schema, dict):
            raise FileError("a recipe must have a command, a table of its options and, for a table, a [schema]")
        return cls(command, options, Schema.from_dict(schema, folder=None))  # a recipe must not read other files

    @classmethod
    def of_release(cls, folder: str | Path, command: str | None = None) -> Recipe:
        """Read the recipe in the folder of a release; if a command is named, refuse a recipe of another one."""
        path = Path(folder, RECIPE)
        if not is_regular_file(path):
            raise FileError(f"{RECIPE} is missing, or not a regular file")
        recipe = cls.load(path)
        if command is not None and recipe.command != command:
            raise FileError(f"{RECIPE} is not a recipe of {command}")
        return recipe

    @classmethod
    def load(cls, path: str | Path) -> Recipe:
        """Read a recipe from a file."""
        try:
            if (size := Path(path).stat().st_size) > _MOST_BYTES:
                raise FileError(f"it has {size:,} bytes, and at most {_MOST_BYTES:,} are read")
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"the recipe '{path}' cannot be read: {why(error)}") from error
        except (FileError, SchemaError) as error:
            raise FileError(f"the recipe '{path}' cannot be used: {error}") from error


def _without_none(plain: Any) -> Any:
    if isinstance(plain, Mapping):
        return {name: _without_none(value) for name, value in plain.items() if value is not None}
    return [_without_none(value) for value in plain] if isinstance(plain, list) else plain


def _names(plain: Any) -> list[str]:
    """Return the names of plain values, at any depth."""
    if isinstance(plain, list):
        return [name for one in plain for name in _names(one)]
    if not isinstance(plain, Mapping):
        return []
    return [
        found for name, one in plain.items() for found in (_names(one) if isinstance(one, list | Mapping) else [name])
    ]


def _replaced(plain: Any, name: str, value: Any) -> Any:
    if isinstance(plain, list):
        return [_replaced(one, name, value) for one in plain]
    if not isinstance(plain, Mapping):
        return plain
    return {
        key: value if key == name and not isinstance(one, list | Mapping) else _replaced(one, name, value)
        for key, one in plain.items()
    }

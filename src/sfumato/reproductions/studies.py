"""Recipes of published studies that are stored with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from sfumato.data.recipe import Recipe

__all__ = ["study"]


def study(package: str, name: str, **changes: Any) -> Any:
    """Train by a stored recipe, with some other options.

    Examples
    --------
    >>> study("learners", "private-cnn", full=False, samples=64, test_samples=20, epochs=1).rows
    64
    """
    from sfumato.learners.training.sweep import run_recipe

    path = Path(str(files("sfumato").joinpath(package, "studies", f"{name}.toml")))
    return run_recipe(Recipe.load(path), None, **changes)

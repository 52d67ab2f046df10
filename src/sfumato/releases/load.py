"""Load a release from its folder, or make it again by its recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfumato.data.recipe import Recipe
from sfumato.data.release import Release, Releases

__all__ = ["load", "run"]


def load(folder: str | Path) -> Release:
    """Read a release of any kind from the folder that `save` wrote.

    Nothing in the folder is run, and its claims are not checked: see `verify`. What only the maker of a release has,
    such as the original table, is not in it.

    Raises
    ------
    FileError
        If the folder is not a release, is damaged, or was written by a version of Sfumato that is too old or too new.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.save(sf.anonymize("patients.csv", "k=4", qi=["zip", "age"]), "loaded")
    >>> release = sf.load("loaded")
    >>> release.kind, release.assessment.k, [str(one) for one in release.guarantees]
    ('table', 4, ['k=4'])
    """
    return Release.read(folder)


def run(recipe: Recipe | str | Path, data: Any = None, **options: Any) -> Release | Releases:
    """Do what a recipe says.

    Parameters
    ----------
    recipe : Recipe or path
        A recipe, its file, or the folder of a release.
    data : Table, frame, path or name of a data set, optional
        What it is done to. A recipe of `train` may name its data; others never do.
    **options
        Options of the protection that a recipe leaves open, such as ``progress`` or ``ledger``.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.save(sf.anonymize("patients.csv", "k=4", qi=["zip", "age"]), "first")
    >>> again = sf.run("first", "patients.csv")
    >>> again.assessment.k, again.recipe == sf.load("first").recipe
    (4, True)
    """
    if not isinstance(recipe, Recipe):
        recipe = Recipe.of_release(recipe) if Path(recipe).is_dir() else Recipe.load(recipe)
    made: Release | Releases = recipe.run(data, **options)
    return made

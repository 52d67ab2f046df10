"""Load a release from its folder."""

from __future__ import annotations

from pathlib import Path

from sfumato.data.release import Release

__all__ = ["load"]


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

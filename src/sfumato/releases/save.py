"""Save a release as a folder: its artifact, a report, the recipe, and the certificate that binds them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from sfumato.data.io.files import refuse_unwritable, write_owned
from sfumato.data.io.folders import atomic_folder
from sfumato.data.recipe import RECIPE
from sfumato.data.release import Release, Releases
from sfumato.errors import OptionError
from sfumato.report.page import Page, page_of, page_of_all

__all__ = ["REPORT", "owner_file", "save", "write_all", "write_release"]

REPORT = "report.html"


def save(
    release: Release | Mapping[str, Release],
    path: str | Path,
    *,
    format: str | None = None,
    models: Sequence[str] = ("forest",),
    escape_formulas: bool = False,
    replace: bool = False,
) -> None:
    """Write a release of any kind into a new folder, all of it or nothing.

    The folder holds the artifact (``table.csv`` or ``table.parquet``; ``model.safetensors`` and ``model.json``),
    ``certificate.json`` with what is promised and was measured, ``recipe.toml`` with how it was made, and
    ``report.html``. What is certified is measured on the files, as `verify` will.

    Parameters
    ----------
    release : Release, Training, or mapping of names to releases
        Not of a Spark frame that stayed where it is: let Spark write its table. Of several releases, each gets a folder
        of its name, and ``report.html`` compares them; so a private model can be handed out without those that are not.
        Of data that is not public, exact scores of models are written to ``PATH.owner.json`` beside the folder, which
        only you can read: do not publish it.
    path : path
        A folder that does not exist, or is empty.
    format : {"csv", "parquet"}, optional
        How a table is stored; as the original was, by default.
    models : sequence of str
        The models whose accuracy on the original and the released table is shown, if the table has a target: some of
        logistic, tree, forest and boosting.
    escape_formulas : bool
        Whether cells of ``table.csv`` that a spreadsheet would compute, such as ``=1+1``, get an apostrophe in front.
    replace : bool
        Whether a release that is there already is replaced.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.save(sf.anonymize("patients.csv", "k=4", qi=["zip", "age"]), "release")
    >>> sorted(file.name for file in Path("release").iterdir())
    ['certificate.json', 'recipe.toml', 'report.html', 'table.csv']
    >>> releases = {f"k{k}": sf.anonymize("patients.csv", f"k={k}", qi=["zip", "age"]) for k in (2, 4)}
    >>> sf.save(releases, "several")
    >>> sorted(file.name for file in Path("several").iterdir())
    ['k2', 'k4', 'report.html']
    >>> sf.save(sf.train("adult", "naive-bayes", target="income", epsilon=1), "model")
    >>> sorted(file.name for file in Path("model").iterdir())
    ['certificate.json', 'model.json', 'model.safetensors', 'recipe.toml', 'report.html']
    """
    options: dict[str, Any] = {"format": format, "models": models, "escape_formulas": escape_formulas}
    if isinstance(release, Release):
        with atomic_folder(path, replace=replace) as folder:
            write_release(release, folder, name=Path(path).name, **options)
        return
    if not isinstance(release, Mapping) or not release:
        raise OptionError(
            f"there is no release to save, got {type(release).__name__}",
            hint="anonymize, mask, perturb and train return one; a mapping of names to releases needs at least one",
        )
    owned = release.for_the_owner() if isinstance(release, Releases) else None
    if owned is not None:
        refuse_unwritable(owner_file(path))
    with atomic_folder(path, replace=replace) as folder:
        write_all(release, folder, name=Path(path).name, **options)
    if owned is not None:
        write_owned(owner_file(path), owned)


def write_release(release: Release, folder: Path, *, name: str, **options: Any) -> Page:
    """Write a release into a folder that is there, and return its page; the certificate comes last."""
    data, artifact = release.artifact.write_into(folder, release.guarantees, origin=release.origin, **options)
    release = changed(release, artifact=artifact)
    page = page_of(release, name=name, **options)
    (folder / REPORT).write_text(page.html, encoding="utf-8")
    (folder / RECIPE).write_text(release.recipe.to_toml(), encoding="utf-8")
    release.certificate(folder, data).write(folder)
    return page


def write_all(releases: Mapping[str, Release], folder: Path, *, name: str, **options: Any) -> None:
    """Write several releases, each into a folder of its name, and the page that compares them."""
    if isinstance(releases, Releases) and len(releases) == 1:
        write_release(next(iter(releases.values())), folder, name=name, **options)
        return
    pages = {}
    for own, release in releases.items():
        if not own or own in (".", "..", REPORT) or re.search(r"[/\\\0]", own):
            raise OptionError(f"{own!r} cannot be the folder of a release", hint="a plain name, such as k10")
        (folder / own).mkdir()
        pages[own] = write_release(release, folder / own, name=f"{name}/{own}", **options)
    page = page_of_all(releases, pages, name=name)
    (folder / REPORT).write_text(page.html, encoding="utf-8")
    if isinstance(releases, Releases):
        for file, text in releases.beside().items():
            (folder / file).write_text(text, encoding="utf-8")


def owner_file(path: str | Path, suffix: str = ".json") -> Path:
    """Return the file for the owner of the data that belongs to the folder of a release.

    Examples
    --------
    >>> owner_file("models/adult").name, owner_file("models/adult", ".html").name
    ('adult.owner.json', 'adult.owner.html')
    """
    folder = Path(path).resolve()
    return folder.with_name(f"{folder.name}.owner{suffix}")

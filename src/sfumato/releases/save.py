"""Save a release as a folder: its data, a report, the recipe, and the certificate that binds them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.anonymizers.anonymize import Release
from sfumato.data.certificate import Certificate, FileFacts
from sfumato.data.column_audit import accounted
from sfumato.data.io.dialect import escape_file
from sfumato.data.io.fingerprint import fingerprint
from sfumato.data.io.folders import atomic_folder
from sfumato.data.io.formulas import refuse_typed
from sfumato.data.io.source import File
from sfumato.data.recipe import RECIPE, Recipe
from sfumato.data.table import Table, read, write
from sfumato.errors import InputError, OptionError, one_of
from sfumato.measures.assess import measure
from sfumato.measures.assessment import Assessment
from sfumato.releases.format import REPORT, Format
from sfumato.releases.verify_table import claims_of, class_loss
from sfumato.report.release.compared import in_spark, release_page
from sfumato.report.release.comparison import Comparison
from sfumato.report.release.side_by_side import Beside, render_side_by_side

if TYPE_CHECKING:
    from sfumato.learners.training.runs import Training

__all__ = ["complete", "save", "write_side_by_side"]


def save(
    release: Release | Training | Mapping[str, Release],
    path: str | Path,
    *,
    format: Format | str | None = None,
    models: Sequence[str] = ("forest",),
    escape_formulas: bool = False,
) -> None:
    """Write a release, of a table or of trained models, into a new folder, all of it or nothing.

    The folder holds the data (``table.csv`` or ``table.parquet``), ``certificate.json`` with what
    was promised and measured, ``recipe.toml`` with how it was made, and ``report.html`` with the
    table before and after. What is certified is measured on the file, as `verify` will.

    Parameters
    ----------
    release : Release, Training, or mapping of names to releases
        For trained models see `save_training`. Not of a Spark frame that stayed where it is: let Spark write its table.
        Of several releases of one table, each gets a folder of its name, and ``report.html`` compares them.
    path : path
        A folder that does not exist, or is empty.
    format : {"csv", "parquet"}, optional
        How the data is stored; as the original was, by default.
    models : sequence of str
        The models whose accuracy on the original and the release is shown, if the table has a target: some of
        logistic, tree, forest and boosting.
    escape_formulas : bool
        Whether cells of ``table.csv`` that a spreadsheet would compute, such as ``=1+1``, get an apostrophe in front.

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
    """
    if not isinstance(release, Release | Mapping):
        from sfumato.releases.save_training import save_training  # with all of the learners

        save_training(release, path)
        return
    how: dict[str, Any] = {"format": format, "models": models, "escape_formulas": escape_formulas}
    if isinstance(release, Release):
        with atomic_folder(path) as folder:
            _write(release, folder, Path(path).name, **how)
        return
    if not release:
        raise OptionError("no release is given to save", hint="a mapping of names to releases needs at least one")
    for name in release:
        if not name or name in (".", "..", REPORT) or re.search(r"[/\\\0]", name):
            raise OptionError(f"{name!r} cannot be the folder of a release", hint="a plain name, such as k10")
    with atomic_folder(path) as folder:
        beside = []
        for name, one in release.items():
            (folder / name).mkdir()
            measured = _write(one, folder / name, f"{Path(path).name}/{name}", **how)
            beside.append(Beside.of(name, one, measured))
        write_side_by_side(beside, folder, name=Path(path).name, rows=measured.before.rows)


def write_side_by_side(ones: Sequence[Beside], folder: Path, *, name: str, rows: int) -> None:
    """Write the page that compares several releases of a table beside their folders."""
    page = render_side_by_side(ones, rows=rows, title=f"{name}: side by side")
    (folder / REPORT).write_text(page, encoding="utf-8")


def _write(
    release: Release,
    folder: Path,
    name: str,
    *,
    format: Format | str | None,
    models: Sequence[str],
    escape_formulas: bool,
) -> Comparison:
    """Write a release into a folder that is there."""
    if release.pairing is None:
        raise in_spark("saved as a folder")
    accounted(release.source)  # whoever made the release
    kind = Format.like(release.origin) if format is None else one_of(Format, format, "format")
    if escape_formulas:
        refuse_typed(kind.file, kind.value)
    source = release.table.source
    if isinstance(source, File) and source.path.suffix == f".{kind.value}":
        shutil.copyfile(source.path, folder / kind.file)
    else:
        write(release.table, folder / kind.file)
    if escape_formulas:
        escape_file(folder / kind.file)
    return complete(release, folder, kind, name=name, models=models)


def complete(
    release: Release, folder: Path, format: Format, *, name: str, models: Sequence[str] = ("forest",)
) -> Comparison:
    """Add all else to the data of a release, which is in the folder already; return it beside its original."""
    data = folder / format.file
    released = Table(read(data).source, release.table.schema)
    assessment = release.assessment if release.table.origin == data else _measured(release, released, format)
    page, comparison = release_page(release, assessment, released, name=name, models=models)
    (folder / REPORT).write_text(page, encoding="utf-8")
    (folder / RECIPE).write_text(_recipe(release).to_toml(), encoding="utf-8")
    certificate = Certificate(
        kind="table",
        data=format.file,
        guarantees=tuple(guarantee.to_dict() for guarantee in release.guarantees),
        claims=claims_of(assessment),
        schema=release.table.schema,
        method=release.method,
        parameters=release.parameters,
        loss=release.loss.to_dict() | class_loss(assessment),  # measured on the file, as `verify` will
        source={
            "name": release.origin and release.origin.name,
            "rows": release.before.rows + release.before.suppressed,
            "fingerprint": fingerprint(release.origin) if release.origin else None,
            "order": release.order,
        },
        files={file: FileFacts.of(folder / file) for file in (format.file, REPORT, RECIPE)},
    )
    certificate.write(folder)
    return comparison


def _measured(release: Release, released: Table, format: Format) -> Assessment:
    """Measure what was written: a text file may mean something else than the table that it was made of."""
    assessment = measure(released, require=release.guarantees)
    assert assessment.verdict is not None
    if not assessment.verdict:
        raise InputError(
            f"read back from {format.value}, the release does not keep {assessment.verdict.failed}",
            hint="a text file forgets types and empty texts: save it as parquet",
        )
    return assessment


def _recipe(release: Release) -> Recipe:
    options = {
        "guarantees": [guarantee.to_dict() for guarantee in release.guarantees],
        "method": release.method,
        "parameters": release.parameters,
        "keep_order": release.kept_order or None,
    }
    return Recipe("anonymize", options, release.declared)

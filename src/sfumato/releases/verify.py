"""Verify a release: measure every claim of its certificate again, on its data alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from sfumato._repr import Discreet
from sfumato.data.certificate import PERSON, Certificate, FileFacts, is_regular_file
from sfumato.data.claim import Claim, quote
from sfumato.data.guarantee import Guarantee
from sfumato.data.io.fingerprint import matches_fingerprint
from sfumato.data.io.folders import private_folder
from sfumato.data.recipe import Recipe
from sfumato.data.release import ARTIFACTS, Layout, Release, artifact_of
from sfumato.data.table import read
from sfumato.engines.engine import Progress
from sfumato.errors import InputError, OptionError, SfumatoError
from sfumato.releases.load import run

__all__ = ["Claim", "Verification", "verify"]

_MOST_FILES = 100  # of a folder that are looked at


@dataclass(frozen=True, repr=False)
class Verification(Discreet):
    """Which claims of a release hold. It is true when none is refuted.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.save(sf.anonymize("patients.csv", "k=4", qi=["zip", "age"]), "another")
    >>> bool(sf.verify("another"))
    True
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("ok",)

    claims: tuple[Claim, ...]
    certificate: Certificate

    @property
    def ok(self) -> bool:
        """Whether every claim that can be checked holds."""
        return not self.failed

    @property
    def failed(self) -> tuple[Claim, ...]:
        """The claims that do not hold."""
        return tuple(claim for claim in self.claims if claim.held is False)

    @property
    def unchecked(self) -> tuple[Claim, ...]:
        """The statements that the release alone neither proves nor refutes."""
        return tuple(claim for claim in self.claims if claim.held is None)

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """Return the verification as plain values, under the names of the command-line contract."""
        certificate = self.certificate
        return {
            "claims": [claim.to_dict() for claim in self.claims],
            "ok": self.ok,
            "kind": certificate.kind,
            "method": certificate.method,
            "made": certificate.made,
            "quasi": list(certificate.schema.quasi),
            "sensitive": list(certificate.schema.sensitive),
            "kept": {name: certificate.schema[name].reason for name in certificate.schema.kept},
        }


def verify(release: str | Path, *, source: str | Path | None = None, progress: Progress | None = None) -> Verification:
    """Check every claim of a release.

    The folder must hold the files of its kind and no others, each with the hash that the certificate names. Every
    guarantee and every number is measured again on the data, by the columns that the certificate declares. Of a
    model, epsilon is derived again from the recorded events, and the events from the noise, the samples and the steps.
    Whatever two files or two fields state must agree. What the release alone neither proves nor refutes, such as
    the losses against the original, is listed as not checkable (``held`` is None).

    That the claims hold does not say who made the release, nor that the roles are well chosen: look at them.

    Parameters
    ----------
    release : path
        The folder of the release.
    source : path, optional
        The original file, to see whether it is the one that the release was made of. Only the maker
        of the release can tell: see `fingerprint`. Guarantees about people, whose column is not released, are
        measured on it: the release is made again, and must be the same.
    progress : callable, optional
        Called now and then with the share of the rows that has been counted.

    Raises
    ------
    FileError
        If the folder is not a release, or its certificate is damaged or of another version.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.save(sf.anonymize("patients.csv", "k=4", qi=["zip", "age"]), "release")
    >>> verdict = sf.verify("release")
    >>> verdict.ok, [one.claim for one in verdict.claims if one.claim.startswith("k")]
    (True, ['k=4', 'k is 4'])
    """
    folder = Path(release)
    certificate = Certificate.read(folder)
    kind = artifact_of(certificate.kind)
    if kind is None:
        known = " or ".join(ARTIFACTS)
        return Verification((Claim(f"it is a {known}", False, quote(certificate.kind)),), certificate)
    claims = [*_files(folder, certificate, kind.layout), *kind.verify(folder, certificate, progress)]
    claims += _source(certificate, source)
    if source is not None and certificate.kind == "table" and certificate.unit == PERSON:
        again = {one.claim: one for one in _people(folder, certificate, source)}
        claims = [one for one in claims if one.held is not None or one.claim not in again] + [*again.values()]
    return Verification(tuple(claims), certificate)


def _files(folder: Path, certificate: Certificate, layout: Layout) -> Iterator[Claim]:
    """Compare the folder with the files that its kind has, and each file with its hash."""
    for name, facts in certificate.files.items():
        claim = f"{quote(name)} is the file that was released"
        if not is_regular_file(folder / name):
            yield Claim(claim, False, "it is missing, or not a file of this folder")
            continue
        size = (folder / name).stat().st_size
        if size != facts.bytes:
            yield Claim(claim, False, f"it has {size:,} bytes, not {quote(facts.bytes)}")
        else:
            same = FileFacts.of(folder / name) == facts
            yield Claim(claim, same, "the same SHA-256" if same else "it was changed: another SHA-256")
    there = {file.name for file in islice(folder.iterdir(), _MOST_FILES)}
    others = layout.others(certificate.data, [*there, *certificate.files])
    others |= {*layout.maybe} & there - {*certificate.files}
    yield Claim("nothing else is in the folder", not others, quote(", ".join(sorted(others))) or "nothing")
    for name in (certificate.data, *layout.always):
        if name not in certificate.files:
            yield Claim(f"the certificate binds {quote(name)}", False, "it does not name its hash")
    if certificate.data not in layout.data:
        known = " or ".join(layout.data)
        yield Claim(f"the {certificate.kind} is in {known}", False, quote(certificate.data))
    if "report.html" in certificate.files:
        yield Claim.unchecked("report.html", "it is written for people, partly from the original")


def _people(folder: Path, certificate: Certificate, source: str | Path) -> Iterator[Claim]:
    """Make a release without a person column again from its original: it counts people, and must be the same table."""
    if certificate.schema.person is not None:
        return
    asked = [f"{Guarantee.from_dict(one)} for people" for one in certificate.guarantees]
    try:
        recipe = Recipe.of_release(folder)
        if recipe.command != "anonymize":
            raise InputError("its recipe is not for anonymize")
        again = run(recipe, source)
        assert isinstance(again, Release)
        with private_folder() as scratch:
            kind = {"format": Path(certificate.data).suffix.removeprefix(".")}
            name, _ = again.artifact.write_into(scratch, again.guarantees, **kind)
            same = _rows_of(scratch / name).equals(_rows_of(folder / certificate.data))
        found = f"made again from '{Path(source).name}': {'the same' if same else 'other'} rows"
    except SfumatoError as error:
        same, found = False, str(error).partition("\n")[0]
    yield from (Claim(one, same, found) for one in asked)


def _rows_of(path: Path) -> pl.DataFrame:
    rows = read(path).to_polars()
    return rows.sort(rows.columns, nulls_last=True)


def _source(certificate: Certificate, source: str | Path | None) -> Iterator[Claim]:
    kind, known = artifact_of(certificate.kind), certificate.source.get("fingerprint")
    needed = {"name", "rows", "fingerprint", *(kind.facts if kind else ())}
    if not needed <= certificate.source.keys():
        missing = ", ".join(sorted(needed - certificate.source.keys()))
        yield Claim("its source is described", False, f"source lacks {missing}")
    more = sorted(certificate.source.keys() - {"name", "rows", "fingerprint"})
    names = ["source.name", *(f"source.{quote(name)}" for name in more)]
    names += [*(["source.fingerprint"] if source is None else []), "made", "software"]
    yield Claim.unchecked(", ".join(names), "only the maker of the release knows")
    if source is None:
        return
    if known is None:
        raise OptionError(
            "the release has no fingerprint of its source, which was not a file", hint="leave --source out"
        )
    same = matches_fingerprint(source, str(known))
    found = "the same fingerprint" if same else "another fingerprint, or made by another user"
    yield Claim(f"it was made of '{Path(source).name}'", same, found)

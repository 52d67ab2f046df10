"""Verify a release: measure every claim of its certificate again, on its data alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sfumato._errors import FileError, OptionError, SfumatoError
from sfumato.data.certificate import CERTIFICATE, Certificate, FileFacts, is_own
from sfumato.data.fingerprint import is_of
from sfumato.data.recipe import RECIPE, Recipe
from sfumato.data.schema import Role, Schema
from sfumato.data.table import Table, read
from sfumato.engines.engine import Progress
from sfumato.measures.assess import assess
from sfumato.measures.assessment import Assessment
from sfumato.measures.claim import Claim
from sfumato.measures.guarantee import Check, Guarantee
from sfumato.measures.verify_model import verify_model

__all__ = ["Claim", "Verification", "claims_of", "verify"]


@dataclass(frozen=True)
class Verification:
    """Which claims of a release hold. It is true when all do.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.save(sf.anonymize("patients.csv", "k=4", qi=["zip", "age"]), "another")
    >>> bool(sf.verify("another"))
    True
    """

    claims: tuple[Claim, ...]
    certificate: Certificate

    @property
    def ok(self) -> bool:
        """Whether every claim holds."""
        return all(claim.held for claim in self.claims)

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
        }


def verify(release: str | Path, *, source: str | Path | None = None, progress: Progress | None = None) -> Verification:
    """Say whether a release is what its certificate says.

    Its files are compared with their hashes, and every guarantee and every number is measured again
    on the data, by the roles of the columns that the certificate names. Of a model, epsilon is derived
    again from the events that were recorded. That the claims hold does not say who made the release, nor
    that the roles are well chosen: look at them.

    Parameters
    ----------
    release : path
        The folder of the release.
    source : path, optional
        The original file, to see whether it is the one that the release was made of. Only who
        made the release can tell: see `fingerprint`.
    progress : callable, optional
        Called now and then with the share of the rows that has been counted.

    Raises
    ------
    FileError
        If the folder is no release, or its certificate is damaged or of another version.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.save(sf.anonymize("patients.csv", "k=4", qi=["zip", "age"]), "release")
    >>> verdict = sf.verify("release")
    >>> verdict.ok, [str(one.claim) for one in verdict.claims if "k" in one.claim.split("=")[0]]
    (True, ['k=4', 'k is 4'])
    """
    folder = Path(release)
    certificate = Certificate.read(folder)
    own = verify_model(folder, certificate) if certificate.kind == "model" else _measured(folder, certificate, progress)
    claims = [*_files(folder, certificate), *own]
    if source is not None:
        claims.append(_source(certificate, source))
    return Verification(tuple(claims), certificate)


def claims_of(assessment: Assessment) -> dict[str, Any]:
    """Return the numbers of an assessment that a certificate claims."""
    counts = {"rows": assessment.rows, "classes": assessment.classes, "suppressed": assessment.suppressed}
    return counts | {name: value for name, value in assessment.numbers().items() if value is not None}


def _files(folder: Path, certificate: Certificate) -> Iterator[Claim]:
    for name, facts in certificate.files.items():
        claim = f"{name} is the file that was released"
        if not is_own(folder / name):
            yield Claim(claim, False, "it is missing, or no file of this folder")
            continue
        found = FileFacts.of(folder / name)
        if found.bytes != facts.bytes:
            yield Claim(claim, False, f"it has {found.bytes:,} bytes, not {facts.bytes:,}")
        else:
            same = found == facts
            yield Claim(claim, same, "the same SHA-256" if same else "it was changed: another SHA-256")
    others = sorted({file.name for file in folder.iterdir()} - {*certificate.files, CERTIFICATE})
    yield Claim("nothing else is in the folder", not others, ", ".join(others) or "nothing")
    if certificate.data not in certificate.files:
        yield Claim(f"{certificate.data} holds the data", False, "the certificate does not bind it")
    if RECIPE in certificate.files and certificate.kind == "table":
        yield from _as_in_recipe(folder, certificate)


def _as_in_recipe(folder: Path, certificate: Certificate) -> Iterator[Claim]:
    """Compare what the certificate says with the recipe: who lowers a promise in one may forget the other."""
    claim = "the recipe says the same"
    try:
        if not is_own(folder / RECIPE):
            raise FileError("it is missing")
        recipe = Recipe.load(folder / RECIPE)
        asked = [
            {name: value for name, value in one.items() if value is not None} for one in certificate.guarantees
        ]  # TOML has no null
        if recipe.options.get("guarantees") != asked:
            yield Claim(claim, False, "it asks for other guarantees")
        if _roles(recipe.schema) != _roles(certificate.schema):
            yield Claim(claim, False, "its columns have other roles")
        if recipe.options.get("method") != certificate.method:
            yield Claim(claim, False, "it names another method")
    except SfumatoError as error:
        yield Claim(claim, False, str(error).partition("\n")[0])


def _roles(schema: Schema) -> dict[str, Role]:
    return {column.name: column.role for column in schema.columns if column.role is not Role.IDENTIFIER}


def _measured(folder: Path, certificate: Certificate, progress: Progress | None) -> Iterator[Claim]:
    """Measure the data; what cannot be measured holds no claim."""
    try:
        asked = [Guarantee.from_dict(one) for one in certificate.guarantees]
        if not is_own(folder / certificate.data):
            raise FileError(f"'{certificate.data}' is missing, or no file of this folder")
        table = Table(read(folder / certificate.data).source, certificate.schema)
        found = assess(table, require=asked, progress=progress)
    except SfumatoError as error:
        yield Claim("the data can be measured", False, str(error).partition("\n")[0])
        return
    unknown = sorted({*table.schema.names} - {*certificate.schema.names})
    if unknown:
        yield Claim("the certificate names all columns", False, ", ".join(unknown))
    if table.schema.identifiers:
        yield Claim("no identifier is released", False, ", ".join(table.schema.identifiers))
    checks = () if found.verdict is None else found.verdict.checks
    yield from (_checked(check) for check in checks)
    if not checks:
        yield Claim("something is guaranteed", False, "the certificate names no guarantee")
    numbers = claims_of(found)
    for name, claimed in certificate.claims.items():
        held = name in numbers and _equal(claimed, numbers[name])
        yield Claim(f"{name} is {_text(claimed)}", held, numbers.get(name))
    for name in sorted(numbers.keys() - certificate.claims.keys()):
        yield Claim(f"{name} is claimed", False, numbers[name])


def _checked(check: Check) -> Claim:
    value = check.measured.value
    return Claim(_with_conventions(check.guarantee), check.held, "inf" if value == math.inf else value)


def _with_conventions(guarantee: Guarantee) -> str:
    """Write a guarantee with what differs from its defaults: alpha of one value is less than alpha of all."""
    numbers = {bound.field for bound in guarantee.bounds.values()}
    chosen = {one.name: getattr(guarantee, one.name) for one in fields(guarantee) if one.name not in numbers}
    usual = {one.name: one.default for one in fields(guarantee)}
    told = [
        f"{name}: {value if isinstance(value, str) else ', '.join(value)}"
        for name, value in chosen.items()
        if value != usual[name]
    ]
    return f"{guarantee} ({'; '.join(told)})" if told else str(guarantee)


def _source(certificate: Certificate, source: str | Path) -> Claim:
    claim = f"it was made of '{Path(source).name}'"
    known = certificate.source.get("fingerprint")
    if known is None:
        raise OptionError("the release has no fingerprint of its source, which was no file", hint="leave --source out")
    same = is_of(source, str(known))
    return Claim(claim, same, "the same fingerprint" if same else "another fingerprint, or made by another user")


def _equal(claimed: Any, found: Any) -> bool:
    if isinstance(claimed, bool) or not isinstance(claimed, int | float) or not isinstance(found, int | float):
        return type(claimed) is type(found) and bool(claimed == found)
    if isinstance(claimed, int) and isinstance(found, int):
        return claimed == found
    try:
        return math.isclose(claimed, found, rel_tol=1e-9, abs_tol=1e-12)
    except OverflowError:  # a whole number of more than 308 digits
        return False


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)

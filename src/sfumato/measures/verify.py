"""Verify a release: measure every claim of its certificate again, on its data alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato._errors import OptionError, SfumatoError
from sfumato.data.certificate import CERTIFICATE, Certificate, FileFacts
from sfumato.data.fingerprint import fingerprint
from sfumato.data.table import Table, read
from sfumato.engines.engine import Progress
from sfumato.measures.assess import assess
from sfumato.measures.assessment import Assessment
from sfumato.measures.guarantee import Check, Guarantee

__all__ = ["Claim", "Verification", "claims_of", "verify"]


@dataclass(frozen=True)
class Claim:
    """Something that a release says of itself, whether it is so, and what was found."""

    claim: str
    held: bool
    measured: float | str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as plain values."""
        return {"claim": self.claim, "held": self.held, "measured": self.measured}


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
    on the data, by the roles of the columns that the certificate names. That the claims hold does
    not say who made the release, nor that the roles are well chosen: look at them.

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
    claims = [*_files(folder, certificate), *_measured(folder, certificate, progress)]
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
        if not (folder / name).is_file():
            yield Claim(claim, False, "it is missing")
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


def _measured(folder: Path, certificate: Certificate, progress: Progress | None) -> Iterator[Claim]:
    """Measure the data; what cannot be measured holds no claim."""
    try:
        asked = [Guarantee.from_dict(one) for one in certificate.guarantees]
        table = Table(read(folder / certificate.data).source, certificate.schema)
        found = assess(table, require=asked, progress=progress)
    except SfumatoError as error:
        yield Claim("the data can be measured", False, str(error).partition("\n")[0])
        return
    checks = () if found.verdict is None else found.verdict.checks
    yield from (_checked(check) for check in checks)
    if not checks:
        yield Claim("something is guaranteed", False, "the certificate names no guarantee")
    numbers = claims_of(found)
    for name, claimed in certificate.claims.items():
        yield Claim(f"{name} is {_text(claimed)}", _equal(claimed, numbers.get(name)), numbers.get(name))
    for name in numbers.keys() - certificate.claims.keys():
        yield Claim(f"{name} is claimed", False, numbers[name])


def _checked(check: Check) -> Claim:
    value = check.measured.value
    return Claim(str(check.guarantee), check.held, "inf" if value == math.inf else value)


def _source(certificate: Certificate, source: str | Path) -> Claim:
    claim = f"it was made of '{Path(source).name}'"
    known = certificate.source.get("fingerprint")
    if known is None:
        raise OptionError("the release has no fingerprint of its source, which was no file", hint="leave --source out")
    same = fingerprint(source) == known
    return Claim(claim, same, "the same fingerprint" if same else "another fingerprint, or made by another user")


def _equal(claimed: Any, found: Any) -> bool:
    if isinstance(claimed, bool) or not isinstance(claimed, int | float) or not isinstance(found, int | float):
        return bool(claimed == found)
    return math.isclose(claimed, found, rel_tol=1e-9, abs_tol=1e-12)


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)

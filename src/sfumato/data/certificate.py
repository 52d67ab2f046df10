"""The certificate of a release: its guarantees, its measurements, and how it was made.

``certificate.json`` is stored beside the data and binds the other files by their SHA-256. It does not prove its author:
anyone who changes both the data and the certificate has made another release, verified on its own data.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

from sfumato._repr import Discreet
from sfumato.data.io.files import why
from sfumato.data.schema import Schema
from sfumato.errors import FileError

__all__ = [
    "CERTIFICATE",
    "CLIENT",
    "FORMAT",
    "PERSON",
    "UNIT",
    "UNITS",
    "Certificate",
    "FileFacts",
    "is_regular_file",
    "read_plain",
]

CERTIFICATE = "certificate.json"
UNIT = "row"
"""The usual unit of protection of a guarantee, event, certificate and ledger: a row, which is not always a person."""
PERSON = "person"
"""The unit where a person column is declared: all rows of one person."""
CLIENT = "client"
"""The unit of federated training at client level: all that one data holder contributes."""
UNITS = (UNIT, PERSON, CLIENT)
FORMAT = 1
"""The version of the certificate format; a reader refuses any other."""
MOST_BYTES = 16 * 2**20
"""The largest JSON file that is read, in bytes."""

_DATE = "$date"
_LIBRARIES = ("numpy", "polars", "numba", "pyarrow", "scikit-learn", "torch")


@dataclass(frozen=True)
class FileFacts:
    """The size and the SHA-256 of a file."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileFacts:
        """Measure a file."""
        try:
            with path.open("rb") as file:
                return cls(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())
        except OSError as error:
            raise FileError(f"'{path}' cannot be read: {why(error)}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values."""
        return {"bytes": self.bytes, "sha256": self.sha256}


@dataclass(frozen=True, kw_only=True, repr=False)
class Certificate(Discreet):
    """The guarantees and measurements of a release, and how it was made.

    Attributes
    ----------
    kind : the kind of artifact, such as ``table``
    data : the name of its main file
    guarantees : the required guarantees, each as plain values
    claims : the measured numbers, by name
    schema : the columns of the data with the roles by which the claims are measured
    method, parameters : how it was made
    loss : the loss compared with the original, which cannot be verified without it
    source : the name, the number of rows and the fingerprint of the original
    files : the other files of the release
    unit : the unit of protection: a row, a person with all of their rows, or a client of a federated training
    made : the time of creation
    software : the versions of the software that made it

    Examples
    --------
    >>> import sfumato as sf
    >>> release = sf.anonymize("patients.csv", "k=4", qi=["zip", "age"])
    >>> sf.save(release, "release")
    >>> Certificate.read("release").claims["k"]
    4
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("kind", "method", "made")

    kind: str
    data: str
    guarantees: tuple[dict[str, Any], ...]
    claims: dict[str, Any]
    schema: Schema
    method: str
    parameters: dict[str, Any]
    loss: dict[str, Any]
    source: dict[str, Any]
    files: dict[str, FileFacts]
    unit: str = UNIT
    made: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    software: dict[str, str] = field(default_factory=lambda: _software())

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as plain values."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            "format": FORMAT,
            **plain,
            "guarantees": list(self.guarantees),
            "schema": self.schema.to_dict(),
            "files": {name: facts.to_dict() for name, facts in self.files.items()},
        }

    def write(self, folder: str | Path) -> None:
        """Write the certificate to the folder of the release, as its last file."""
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False, default=_encode_date)
        Path(folder, CERTIFICATE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: str | Path) -> Certificate:
        """Read the certificate of a release."""
        path = Path(folder, CERTIFICATE)
        if not Path(folder).is_dir() or not is_regular_file(path):
            inner = sorted(one.parent.name for one in Path(folder).glob(f"*/{CERTIFICATE}"))
            raise FileError(
                f"'{folder}' is not a release: it has no {CERTIFICATE}",
                hint=f"it contains releases: {', '.join(inner[:5])}"
                if inner
                else "sfumato anonymize ... -o FOLDER makes one",
            )
        plain = read_plain(path)
        if not isinstance(plain, dict) or "format" not in plain:
            raise FileError(f"'{path}' is not a certificate of Sfumato")
        if type(plain["format"]) is not int or plain["format"] != FORMAT:
            raise FileError(
                f"'{path}' has format {plain['format']!r}, and this version of Sfumato reads format {FORMAT}",
                hint="use the version that its 'software' names",
            )
        return cls._of(plain, path)

    @classmethod
    def _of(cls, plain: Mapping[str, Any], path: Path) -> Certificate:
        types: dict[str, type] = dict.fromkeys(("kind", "data", "method", "made"), str)
        types |= dict.fromkeys(("claims", "schema", "parameters", "loss", "source", "files", "software"), dict)
        types |= {"guarantees": list}
        for name, kind in types.items():
            if not isinstance(plain.get(name), kind):
                raise FileError(f"'{path}' is damaged: its '{name}' is missing or of another type")
        unit = plain.get("unit", UNIT)  # older certificates name no unit
        if unit not in UNITS:
            able = f"{', a '.join(UNITS[:-1])} or a {UNITS[-1]}"
            raise FileError(f"'{path}' protects the unit {str(unit)[:40]!r}, and only a {able} can be verified")
        for name in plain.keys() - types.keys() - {"format", "unit"}:
            raise FileError(f"'{path}' is damaged: it has an unknown field {str(name)[:40]!r}")
        files = {}
        for name, facts in plain["files"].items():
            size, digest = (facts.get("bytes"), facts.get("sha256")) if isinstance(facts, dict) else (None, None)
            if type(size) is not int or not isinstance(digest, str) or facts.keys() != {"bytes", "sha256"}:
                raise FileError(f"'{path}' is damaged: its 'files' are malformed")
            files[name] = FileFacts(size, digest)
        for name in (plain["data"], *files):
            if Path(name).name != name or name in ("", ".", "..") or not name.isprintable() or len(name.encode()) > 255:
                raise FileError(f"'{path}' names a file outside its folder")
        if not all(isinstance(one, dict) for one in plain["guarantees"]):
            raise FileError(f"'{path}' is damaged: its 'guarantees' are malformed")
        if any(one.get("unit", unit) != unit for one in plain["guarantees"]):
            raise FileError(f"'{path}' is damaged: a guarantee protects another unit than the {unit} that it names")
        columns = plain["schema"].get("columns")
        described = columns.values() if isinstance(columns, dict) else ()
        if any(isinstance(column, dict) and isinstance(column.get("hierarchy"), str) for column in described):
            raise FileError(f"'{path}' names a file outside its folder")  # allowed in a schema, not in a certificate
        known: dict[str, Any] = {name: plain[name] for name in types}
        known |= {
            "unit": unit,
            "guarantees": tuple(plain["guarantees"]),
            "schema": Schema.from_dict(plain["schema"], None),
            "files": files,
        }
        return cls(**known)


def read_plain(path: Path) -> Any:
    """Read untrusted JSON: limited in size, without duplicate keys, NaN and Infinity.

    Examples
    --------
    >>> _ = Path("plain.json").write_text('{"k": 4}')
    >>> read_plain(Path("plain.json"))
    {'k': 4}
    """
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8") if size <= MOST_BYTES else ""
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"'{path}' cannot be read: {why(error)}") from error
    if size > MOST_BYTES:
        raise FileError(f"'{path}' has {size:,} bytes, and at most {MOST_BYTES:,} are read")
    try:
        return json.loads(text, object_pairs_hook=_decode_object, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FileError(f"'{path}' is damaged: it is not valid JSON, or has duplicate keys") from error


def is_regular_file(path: Path) -> bool:
    """Return whether a path is a regular file: not a link, a pipe or a device.

    Examples
    --------
    >>> is_regular_file(Path("patients.csv")), is_regular_file(Path("."))
    (True, False)
    """
    return path.is_file() and not path.is_symlink()


def _encode_date(value: Any) -> Any:
    """Encode a date so that it is read back as a date, and any other object as text."""
    return {_DATE: value.isoformat()} if isinstance(value, date) else str(value)


def _decode_object(pairs: list[tuple[str, Any]]) -> Any:
    """Reject duplicate keys, which a reader and a program might resolve differently; decode dates."""
    plain = dict(pairs)
    if len(plain) < len(pairs):
        raise ValueError
    if list(plain) == [_DATE]:
        text = str(plain[_DATE])
        return datetime.fromisoformat(text) if "T" in text else date.fromisoformat(text)
    return plain


def _refuse_constant(name: str) -> None:
    """Reject NaN and Infinity, which are not valid JSON."""
    raise ValueError


def _software() -> dict[str, str]:
    versions = {"sfumato": version("sfumato"), "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions

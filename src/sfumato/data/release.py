"""The release: the result of every protection.

A release is an artifact (a table, a model, ...) with its guarantees, its measurements, the budget events that it was
charged with, and the recipe that makes it again. Saving, loading, verifying, attacking and reporting take any release;
everything that depends on the kind of artifact is in the artifact's class.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from sfumato._repr import Discreet, InNotebooks
from sfumato.data.certificate import CERTIFICATE, UNIT, Certificate, FileFacts
from sfumato.data.claim import Claim
from sfumato.data.guarantee import Guarantee
from sfumato.data.io.fingerprint import fingerprint
from sfumato.data.recipe import Recipe
from sfumato.data.schema import Schema
from sfumato.errors import FileError

__all__ = ["ARTIFACTS", "Artifact", "Layout", "Provenance", "Release", "Releases", "artifact_of"]

ARTIFACTS = {
    "table": "sfumato.measures.released_table:ReleasedTable",
    "federated-model": "sfumato.federation.released:FederatedModel",
    "model": "sfumato.learners.training.released_model:ReleasedModel",
    "statistics": "sfumato.budget.query.answer:QueryAnswer",
    "generator": "sfumato.synthesizers.tables.generator:Generator",
    "image-generator": "sfumato.synthesizers.images.generator:ImageGenerator",
}
"""The class of each kind of artifact, imported when a release of that kind is read."""


@dataclass(frozen=True)
class Layout:
    """The files of a kind of release, beside its certificate.

    Examples
    --------
    >>> layout = Layout(("table.csv", "table.parquet"), ("recipe.toml", "report.html"))
    >>> sorted(layout.others("table.csv", ["table.csv", "notes.txt", "table.parquet", "certificate.json"]))
    ['notes.txt', 'table.parquet']
    """

    data: tuple[str, ...]
    """The possible names of the main file."""
    always: tuple[str, ...]
    maybe: tuple[str, ...] = ()

    def others(self, data: str, names: Iterable[str]) -> set[str]:
        """Return the names that do not belong to a release with this main file."""
        return {*names} - {data, *self.always, *self.maybe, CERTIFICATE}


class Artifact(ABC):
    """The content of a release: it writes, reads and verifies itself."""

    kind: ClassVar[str]
    layout: ClassVar[Layout]
    facts: ClassVar[tuple[str, ...]] = ()
    """What else a certificate says about the source, besides its name, rows and fingerprint."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns of the artifact, and their roles."""

    @property
    @abstractmethod
    def claims(self) -> dict[str, Any]:
        """The measured numbers, by name."""

    @property
    def certified_loss(self) -> dict[str, Any]:
        """The loss or utility that a certificate reports."""
        return {}

    @abstractmethod
    def write_into(self, folder: Path, guarantees: tuple[Guarantee, ...], **options: Any) -> tuple[str, Self]:
        """Write the artifact to a folder; return its main file's name, and the artifact as measured there."""

    @classmethod
    @abstractmethod
    def read(cls, folder: Path, certificate: Certificate) -> Self:
        """Read the artifact of a release."""

    @classmethod
    @abstractmethod
    def verify(
        cls, folder: Path, certificate: Certificate, progress: Callable[[float], None] | None
    ) -> Iterator[Claim]:
        """Measure every claim of a certificate again, and check the other files against it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements as plain values."""
        return {}


def artifact_of(kind: str) -> type[Artifact] | None:
    """Return the class of a kind of artifact; None if this version of Sfumato does not know it.

    Examples
    --------
    >>> artifact_of("table").__name__, artifact_of("hologram")
    ('ReleasedTable', None)
    """
    if kind not in ARTIFACTS:
        return None
    module, _, name = ARTIFACTS[kind].partition(":")
    found: type[Artifact] = getattr(importlib.import_module(module), name)
    return found


@dataclass(frozen=True, repr=False)
class Provenance(Discreet):
    """The source of a release.

    Attributes
    ----------
    name : the name of the file or data set
    rows : its number of rows; None if that is private
    origin : the file itself, published only as a keyed fingerprint
    more : what else a certificate says about the source
    """

    name: str | None = None
    rows: int | None = None
    origin: Path | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, origin: Path | None, rows: int | None, **more: Any) -> Provenance:
        """Describe a file, or a table that is not from a file."""
        return cls(origin.name if origin else None, rows, origin, more)

    def to_dict(self) -> dict[str, Any]:
        """Return the source as a certificate describes it."""
        mark = fingerprint(self.origin) if self.origin else None
        return {"name": self.name, "rows": self.rows, "fingerprint": mark, **self.more}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Release(Discreet, InNotebooks):
    """The result of a protection: an artifact, its guarantees, and how it was made.

    The attributes of the artifact are attributes of the release: ``release.table``, ``release.assessment``,
    ``release.model``.

    Attributes
    ----------
    artifact : the released table or model
    method, parameters : how it was made
    guarantees : the promises that it keeps
    events : the events that the privacy budget was charged with
    recipe : how to make it again
    provenance : the source of the data
    seconds : how long it took to make
    details : results specific to the method, such as the levels that the lattice chose

    Examples
    --------
    >>> import sfumato as sf
    >>> release = sf.anonymize("patients.csv", "k=4", qi=["zip", "age"], sensitive=["disease"])
    >>> release.kind, release.assessment.k, release.method
    ('table', 4, 'mondrian')
    >>> release.table.frame["age"].unique().sort().to_list()
    ['25-54', '28-35']
    >>> all(guarantee.holds_for(release) for guarantee in release.guarantees)
    True
    """

    artifact: Artifact
    method: str
    recipe: Recipe
    provenance: Provenance
    parameters: dict[str, Any] = field(default_factory=dict)
    guarantees: tuple[Guarantee, ...] = ()
    events: tuple[Any, ...] = ()
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of artifact: table, model, statistics, generator or image-generator."""
        return self.artifact.kind

    @property
    def unit(self) -> str:
        """The unit of protection: a row, unless a guarantee or the artifact protects another one."""
        named = (str(one.unit) for one in self.guarantees if hasattr(one, "unit"))
        return next(named, getattr(self.artifact, "unit", UNIT))

    @property
    def origin(self) -> Path | None:
        """The source file, or None if the source is not a file."""
        return self.provenance.origin

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "artifact":
            raise AttributeError(name)
        try:
            return getattr(self.artifact, name)
        except AttributeError:
            raise AttributeError(f"a release of kind '{self.kind}' has no attribute '{name}'") from None

    def __repr__(self) -> str:
        asked = ", ".join(map(str, self.guarantees)) or "nothing is guaranteed"
        return f"Release({self.kind}, {self.method}, {asked}: {self.artifact!r})"

    def certificate(self, folder: Path, data: str) -> Certificate:
        """Return the certificate of the files in a folder."""
        names = (data, *self.artifact.layout.always, *self.artifact.layout.maybe)
        there = [name for name in names if (folder / name).exists()]
        return Certificate(
            kind=self.kind,
            data=data,
            guarantees=tuple(guarantee.to_dict() for guarantee in self.guarantees),
            claims=self.artifact.claims,
            schema=self.artifact.schema,
            method=self.method,
            parameters=self.parameters,
            loss=self.artifact.certified_loss,
            source=self.provenance.to_dict(),
            files={name: FileFacts.of(folder / name) for name in there},
            unit=self.unit,
        )

    @classmethod
    def read(cls, folder: str | Path) -> Release:
        """Read a release from its folder without verifying it; see `sf.load` and `sf.verify`."""
        certificate = Certificate.read(folder)
        kind = artifact_of(certificate.kind)
        if kind is None:
            raise FileError(
                f"'{folder}' has the kind {certificate.kind[:40]!r}, which this version of Sfumato does not know",
                hint=f"it was made by Sfumato {str(certificate.software.get('sfumato'))[:20]}",
            )
        return cls(
            artifact=kind.read(Path(folder), certificate),
            method=certificate.method,
            recipe=Recipe.of_release(folder),
            provenance=Provenance(
                certificate.source.get("name"),
                certificate.source.get("rows"),
                more={key: value for key, value in certificate.source.items() if key not in ("name", "rows")},
            ),
            parameters=certificate.parameters,
            guarantees=tuple(Guarantee.from_dict(one) for one in certificate.guarantees),
            events=_events(certificate),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the data as plain values."""
        plain = {"method": self.method, "parameters": self.parameters, "seconds": self.seconds, "details": self.details}
        return {**plain, **self.artifact.to_dict()}


def _events(certificate: Certificate) -> tuple[Any, ...]:
    found = certificate.parameters.get("events", ())
    if not found:
        return ()
    events: tuple[Any, ...] = importlib.import_module("sfumato.budget.differential_privacy").read_events(found)
    return events


class Releases(Mapping[str, Release]):
    """Several releases of the same data by folder name, such as a model at several epsilons."""

    @property
    @abstractmethod
    def releases(self) -> Mapping[str, Release]:
        """The releases, by name."""

    def __getitem__(self, name: str) -> Release:
        return self.releases[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.releases)

    def __len__(self) -> int:
        return len(self.releases)

    def beside(self) -> dict[str, str]:
        """Return the texts of further files in the common folder, by file name."""
        return {}

    def for_the_owner(self) -> dict[str, Any] | None:
        """Return unreleased numbers for the data owner, stored in a file beside the folder; None if there are none."""
        return None

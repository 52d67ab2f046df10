"""The schema of a table: the role and kind of each column, and what is publicly known about it."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sfumato._repr import InNotebooks, named
from sfumato.data.hierarchies.hierarchy import Hierarchy
from sfumato.data.hierarchies.label_paths import is_missing
from sfumato.data.io.files import atomic_path, why
from sfumato.errors import ColumnError, FileError, OptionError, SchemaError, did_you_mean

if TYPE_CHECKING:
    from sfumato.data.table import Table

__all__ = ["Column", "Kind", "Role", "Schema"]

_E = TypeVar("_E", bound=StrEnum)


class Role(StrEnum):
    """The role of a column for an attacker or an analyst.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.Role("quasi")
    <Role.QUASI: 'quasi'>
    """

    IDENTIFIER = "identifier"
    """Identifies a person by itself: removed or replaced before any release."""
    PERSON = "person"
    """An identifier that says which rows are of the same person: people are then counted and protected, not rows."""
    QUASI = "quasi"
    """Known to outsiders, and identifying in combination."""
    SENSITIVE = "sensitive"
    """Information that a person would not want others to learn."""
    TARGET = "target"
    """The column that a model predicts."""
    KEPT = "kept"
    """Released unchanged on purpose, although it may look like an identifier, a text or a copy of another column."""
    OTHER = "other"
    """None of these."""

    @property
    def is_identifier(self) -> bool:
        """Whether a column identifies a person by itself, so that it is left out of every release."""
        return self in (Role.IDENTIFIER, Role.PERSON)


class Kind(StrEnum):
    """The kind of values in a column, which determines the meaningful distances.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.Kind("date").is_ordered
    True
    """

    AUTO = "auto"
    """Determined by the type of the column; a table replaces it with one of the other kinds."""
    NUMBER = "number"
    """A quantity, whose differences are meaningful."""
    ORDINAL = "ordinal"
    """A rank, whose order is meaningful and is that of the domain."""
    CATEGORY = "category"
    """One of a set of categories."""
    DATE = "date"
    """A date or a timestamp."""
    TEXT = "text"
    """Free text."""

    @property
    def is_ordered(self) -> bool:
        """Whether the values have a meaningful order."""
        return self in (Kind.NUMBER, Kind.ORDINAL, Kind.DATE)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: its name, role and kind, and what is publicly known about its values.

    Parameters
    ----------
    name : str
        The name of the column.
    role : Role or str
        What the column is: identifier, quasi, sensitive, target, kept or other.
    kind : Kind or str
        By default determined by the type of the column in the table.
    bounds : (float, float) or (date, date), optional
        Public lower and upper bound of a number. Public means: not taken from the data. Two dates, or texts such as
        ``"2023-01-31"``, bound a column of dates or of times on days; they are kept in ``dates``.
    domain : sequence, optional
        Public list of all possible values; for an ordinal column, in order.
    step : float or str, optional
        Public distance between neighbouring values: 1 for whole numbers, 0.01 for amounts with two decimals; for dates
        and times a text such as ``"1d"``, ``"15m"`` or ``"1s"``. Synthetic values are multiples of it.
    hierarchy : Hierarchy, optional
        How its values generalise.
    reason : str
        Why `Schema.suggest` proposed this role and kind; for a kept column, the case against keeping it.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.Column(name="age", role="quasi", kind="number", bounds=(0, 120)).role
    <Role.QUASI: 'quasi'>
    >>> sf.Column(name="seen", bounds=("2023-01-01", "2023-12-31"))
    Column(seen, other, date, dates 2023-01-01 to 2023-12-31)
    """

    name: str
    role: Role = Role.OTHER
    kind: Kind = Kind.AUTO
    bounds: tuple[float, float] | None = None
    domain: tuple[Any, ...] | None = None
    step: float | str | None = None
    hierarchy: Hierarchy | None = None
    reason: str = field(default="", compare=False)
    dates: tuple[date, date] | None = None
    """The public first and last day of a column of dates."""
    inferred: bool = field(default=False, compare=False, repr=False)
    """Whether the kind was inferred from the cells of a text file instead of declared; set by `Table`, never stored."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(f"a column name must be a text of at least one character, got {self.name!r}")
        object.__setattr__(self, "role", _member(Role, self.role, f"role of column '{self.name}'"))
        object.__setattr__(self, "kind", _member(Kind, self.kind, f"kind of column '{self.name}'"))
        days = self.dates if self.bounds is None else _days(self.bounds)
        object.__setattr__(self, "dates", None if days is None else _dates(self.name, self.kind, days))
        if days is not None:
            object.__setattr__(self, "kind", Kind.DATE)
            object.__setattr__(self, "bounds", None)
        if self.bounds is not None:
            object.__setattr__(self, "bounds", _bounds(self.name, self.kind, self.bounds))
            object.__setattr__(self, "kind", Kind.NUMBER)  # bounds declare a number, whatever the cells look like
        if self.domain is not None:
            object.__setattr__(self, "domain", _domain(self.name, self.domain))
        if self.step is not None:
            _check_step(self.name, self.step)
        if self.hierarchy is not None and self.domain is not None:
            self.hierarchy.check(self.domain, self.name)

    def __repr__(self) -> str:
        parts = [named([self.name]), self.role.value, self.kind.value]
        parts += [] if self.bounds is None else [f"bounds {list(self.bounds)}"]
        parts += [] if self.dates is None else [f"dates {self.dates[0]} to {self.dates[1]}"]
        parts += [] if self.domain is None else [f"domain of {len(self.domain)} values"]
        parts += [] if self.step is None else [f"step {self.step}"]
        parts += [] if self.hierarchy is None else [f"hierarchy {type(self.hierarchy).__name__}"]
        return f"Column({', '.join(parts)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults as plain values, ready for TOML or JSON."""
        plain: dict[str, Any] = {"role": self.role.value, "kind": self.kind.value}
        if self.bounds is not None:
            plain["bounds"] = list(self.bounds)
        if self.dates is not None:
            plain["bounds"] = [one.isoformat() for one in self.dates]
        if self.domain is not None:
            plain["domain"] = list(self.domain)
        if self.step is not None:
            plain["step"] = self.step
        if self.hierarchy is not None:
            plain["hierarchy"] = self.hierarchy.to_dict()
        if self.reason:
            plain["reason"] = self.reason
        return plain

    @classmethod
    def from_dict(cls, name: str, plain: Mapping[str, Any], folder: Path | None = Path()) -> Column:
        """Build a column from the result of `to_dict`.

        A hierarchy may also be a list of rows, or the name of a file in the given folder, if there is one.
        """
        allowed = ("role", "kind", "bounds", "domain", "step", "hierarchy", "reason")
        for key in plain:
            if key not in allowed:
                raise SchemaError(f"column '{name}' has an unknown key '{key}'", hint=did_you_mean(key, allowed))
        values = dict(plain)
        if "hierarchy" in values:
            values["hierarchy"] = _hierarchy(name, values["hierarchy"], folder)
        return cls(name=name, **values)


@dataclass(frozen=True)
class Schema(InNotebooks):
    """The columns of a table, with the role and kind of each.

    Examples
    --------
    >>> import sfumato as sf
    >>> schema = sf.Schema([
    ...     sf.Column(name="age", role="quasi", kind="number", bounds=(0, 120)),
    ...     sf.Column(name="disease", role="sensitive"),
    ... ])
    >>> schema.quasi
    ('age',)
    >>> print(schema.to_toml())
    [columns.age]
    role = "quasi"
    kind = "number"
    bounds = [
        0.0,
        120.0,
    ]
    <BLANKLINE>
    [columns.disease]
    role = "sensitive"
    kind = "auto"
    <BLANKLINE>
    >>> sf.Schema.from_toml(schema.to_toml()) == schema
    True
    """

    columns: tuple[Column, ...]
    constraints: tuple[str, ...] = ()
    """What every synthetic row must meet, such as ``start <= end``; see `sfumato.synthesizers.Constraints`."""

    def __init__(self, columns: Iterable[Column], constraints: Iterable[str] = ()) -> None:
        object.__setattr__(self, "columns", tuple(columns) if isinstance(columns, Iterable) else (columns,))
        listed = isinstance(constraints, Iterable) and not isinstance(constraints, str | Mapping)
        object.__setattr__(self, "constraints", tuple(constraints) if listed else (constraints,))
        if not listed or not all(isinstance(one, str) for one in self.constraints):
            raise SchemaError(
                "the constraints of a schema must be a list of texts", hint='for example ["start <= end"]'
            )
        for one in self.columns:
            if not isinstance(one, Column):
                raise SchemaError(
                    f"a schema lists columns, got {type(one).__name__}",
                    hint='for example [Column(name="age", role="quasi")], or Schema.of({"age": "quasi"})',
                )
        seen: set[str] = set()
        for column in self.columns:
            if column.name in seen:
                raise SchemaError(f"the schema lists the column '{column.name}' twice")
            seen.add(column.name)
        targets = self._with_role(Role.TARGET)
        if len(targets) > 1:
            raise SchemaError(f"a schema has at most one target, got {', '.join(targets)}")
        people = self._with_role(Role.PERSON)
        if len(people) > 1:
            raise SchemaError(
                f"a schema has at most one person column, got {', '.join(people)}",
                hint="make the others identifiers, or join them into one column",
            )

    def __repr__(self) -> str:
        roles = {role: self._with_role(role) for role in Role}
        return f"Schema({'; '.join(f'{role.value}: {named(names)}' for role, names in roles.items() if names)})"

    def __getitem__(self, name: str) -> Column:
        if name not in self._by_name:
            raise ColumnError(f"there is no column '{name}'", hint=did_you_mean(name, self.names))
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def identifiers(self) -> tuple[str, ...]:
        """The names of the columns that identify a person by themselves, with that of the person."""
        return tuple(column.name for column in self.columns if column.role.is_identifier)

    @property
    def person(self) -> str | None:
        """The name of the column that says which rows are of the same person, if there is one."""
        return next(iter(self._with_role(Role.PERSON)), None)

    @property
    def quasi(self) -> tuple[str, ...]:
        """The names of the quasi-identifiers."""
        return self._with_role(Role.QUASI)

    @property
    def sensitive(self) -> tuple[str, ...]:
        """The names of the sensitive attributes."""
        return self._with_role(Role.SENSITIVE)

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the columns that are released unchanged on purpose."""
        return self._with_role(Role.KEPT)

    @property
    def target(self) -> str | None:
        """The name of the column that a model predicts, if there is one."""
        return next(iter(self._with_role(Role.TARGET)), None)

    def _with_role(self, role: Role) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.role is role)

    def with_roles(
        self,
        *,
        qi: Sequence[str] = (),
        sensitive: Sequence[str] = (),
        identifiers: Sequence[str] = (),
        person: str | None = None,
        target: str | None = None,
        keep: Sequence[str] = (),
    ) -> Schema:
        """Return a schema in which the named columns have these roles.

        Columns that had a named role before lose it; other roles stay.

        Examples
        --------
        >>> import sfumato as sf
        >>> schema = sf.Schema([sf.Column(name="age"), sf.Column(name="sex", role="quasi")])
        >>> schema.with_roles(qi=["age"]).quasi
        ('age',)
        """
        asked: dict[str, Role] = {}
        replaced: set[Role] = set()
        for role, names in (
            (Role.QUASI, qi),
            (Role.SENSITIVE, sensitive),
            (Role.IDENTIFIER, identifiers),
            (Role.PERSON, () if person is None else (person,)),
            (Role.TARGET, () if target is None else (target,)),
            (Role.KEPT, keep),
        ):
            if isinstance(names, str):
                raise SchemaError(f"the {role.value} columns must be a list of names, got the text '{names}'")
            if not isinstance(names, Iterable):
                raise SchemaError(f"the {role.value} columns must be a list of names, got {type(names).__name__}")
            names = list(names)
            for name in names:
                if not isinstance(name, str):
                    raise SchemaError(f"the name of a {role.value} column must be a text, got {type(name).__name__}")
            if names:
                replaced.add(role)
            for name in names:
                if asked.setdefault(self[name].name, role) is not role:
                    raise SchemaError(
                        f"column '{name}' cannot be both {asked[name].value} and {role.value}",
                        hint="give each column one role",
                    )
        columns = []
        for column in self.columns:
            role = asked.get(column.name, Role.OTHER if column.role in replaced else column.role)
            columns.append(column if role is column.role else replace(column, role=role, reason=""))
        return Schema(columns, self.constraints)

    def refuse_person(self, what: str) -> None:
        """Raise an error if people are to be protected, for what protects rows alone.

        Examples
        --------
        >>> import sfumato as sf
        >>> try:
        ...     sf.Schema.of({"patient_id": "person"}).refuse_person("masking")
        ... except sf.errors.OptionError as refused:
        ...     print(refused.message)
        masking is about rows, and column 'patient_id' asks to protect people
        """
        if self.person is not None:
            raise OptionError(
                f"{what} is about rows, and column '{self.person}' asks to protect people",
                hint="make it an identifier to protect rows, or use a table with one row per person",
            )

    def declared(self) -> Schema:
        """Return the schema without the kinds that were inferred from cells.

        Examples
        --------
        >>> import sfumato as sf
        >>> table = sf.read("patients.csv")
        >>> table.schema["age"].kind.value, table.schema.declared()["age"].kind.value
        ('number', 'auto')
        """
        columns = (replace(one, kind=Kind.AUTO) if one.inferred else one for one in self.columns)
        return Schema(columns, self.constraints)

    def released(self, *, tokens: bool = False) -> Schema:
        """Return the schema of an anonymized release of the table.

        Identifiers are dropped, but for that of the person if it is replaced by `tokens`. A quasi-identifier keeps only
        its role, because its new values have another kind.

        Examples
        --------
        >>> import sfumato as sf
        >>> schema = sf.Schema([sf.Column(name="age", role="quasi", bounds=(0, 120)), sf.Column(name="disease")])
        >>> schema.released()["age"].bounds is None
        True
        """
        return Schema(
            Column(name=column.name, role=column.role) if column.role in (Role.QUASI, Role.PERSON) else column
            for column in self.columns
            if not column.role.is_identifier or (tokens and column.role is Role.PERSON)
        )

    @classmethod
    def of(cls, given: Any) -> Schema:
        """Build a schema from a schema, the path of its file, columns, or a mapping.

        A mapping is the result of `to_dict`, or maps each column to its role or to a mapping of its settings.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Schema.of({"age": "quasi", "disease": {"role": "sensitive", "domain": ["flu", "ulcer"]}}).quasi
        ('age',)
        """
        if isinstance(given, Schema):
            return given
        if isinstance(given, str | Path):
            return cls.load(given)
        if isinstance(given, Mapping):
            listed = given.get("columns")
            if set(given) <= {"columns", "constraints"} and isinstance(listed, Mapping):
                return cls.from_dict(given)
            return cls(_column_of(name, said) for name, said in given.items())
        if isinstance(given, Sequence) and all(isinstance(one, Column) for one in given):
            return cls(given)
        raise SchemaError(
            f"a schema must be a Schema, its file, or a mapping of columns, got {type(given).__name__}",
            hint='for example {"age": "quasi", "disease": "sensitive"}',
        )

    @staticmethod
    def suggest(table: Table | Any) -> Schema:
        """Propose a role and a kind for every column, each with its reason.

        The proposal is based on the data. It is a starting point for a person; Sfumato never
        applies it on its own.

        Examples
        --------
        >>> import sfumato as sf
        >>> import polars as pl
        >>> frame = pl.DataFrame({"email": ["a@x.org", "b@x.org"], "zip": ["0123", "0124"]})
        >>> for column in sf.Schema.suggest(frame).columns:
        ...     print(column.name, column.role.value, "-", column.reason)
        email identifier - its values look like e-mail addresses
        zip quasi - its name suggests something that others know about a person
        """
        from sfumato.data.suggest import suggest

        return suggest(table)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values."""
        plain: dict[str, Any] = {"constraints": list(self.constraints)} if self.constraints else {}
        return {**plain, "columns": {column.name: column.to_dict() for column in self.columns}}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], folder: Path | None = Path()) -> Schema:
        """Build a schema from the result of `to_dict`; hierarchy files are read from the folder, if one is given."""
        columns = plain.get("columns")
        if not set(plain) <= {"columns", "constraints"} or not isinstance(columns, Mapping):
            raise SchemaError(
                "a schema must have one table [columns] with a table per column, and at most constraints beside it",
                hint='for example [columns.age] with role = "quasi" and kind = "number"',
            )
        for name, values in columns.items():
            if not isinstance(values, Mapping):
                raise SchemaError(f"[columns.{name}] must be a table with keys such as role and kind")
        listed = (Column.from_dict(name, values, folder) for name, values in columns.items())
        return cls(listed, plain.get("constraints", ()))

    def to_toml(self) -> str:
        """Return the schema as TOML text."""
        import tomli_w

        return tomli_w.dumps(self.to_dict())

    @classmethod
    def from_toml(cls, text: str, folder: Path = Path()) -> Schema:
        """Read a schema from TOML text, and hierarchy files from the folder."""
        try:
            plain = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(f"the schema is not valid TOML: {error}") from error
        return cls.from_dict(plain, folder)

    def save(self, path: str | Path) -> None:
        """Write the schema to a TOML file."""
        with atomic_path(path) as temporary:
            temporary.write_text(self.to_toml(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema from a TOML file, and hierarchy files from its folder."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"the schema '{path}' cannot be read: {why(error)}") from error
        return cls.from_toml(text, Path(path).parent)


def _column_of(name: Any, given: Any) -> Column:
    """Build a column from its name and its role or settings in a mapping."""
    if isinstance(given, Column):
        return given if given.name == name else replace(given, name=name)
    if isinstance(given, Mapping):
        return Column.from_dict(name, given)
    if not isinstance(given, str):
        raise SchemaError(f"column '{name}' must have a role or a mapping in a schema, got {type(given).__name__}")
    return Column(name=name, role=given)  # type: ignore[arg-type]


def _member(kind: type[_E], value: Any, what: str) -> _E:
    try:
        return kind(value)
    except ValueError:
        known = [member.value for member in kind]
        raise SchemaError(f"the {what} must be one of {', '.join(known)}, got {value!r}") from None


def _hierarchy(name: str, given: Any, folder: Path | None) -> Hierarchy:
    if isinstance(given, Hierarchy):
        return given
    if isinstance(given, str) and folder is not None:
        return Hierarchy.read(folder / given)
    try:
        return Hierarchy.from_dict(given if isinstance(given, Mapping) else {"kind": "tree", "rows": given})
    except SchemaError as error:
        raise SchemaError(f"column '{name}': {error.message}", hint=error.hint) from None


_ISO = re.compile(r"\d{4}-")


def _days(bounds: Any) -> tuple[Any, Any] | None:
    """Return bounds that are two dates, or begin like a date."""
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        return None
    low, high = bounds
    dated = all(isinstance(one, date) or (isinstance(one, str) and _ISO.match(one)) for one in bounds)
    return (low, high) if dated else None


def _dates(name: str, kind: Kind, days: tuple[Any, Any]) -> tuple[date, date]:
    if kind not in (Kind.DATE, Kind.AUTO):
        raise SchemaError(f"column '{name}' has dates as bounds, but its kind is {kind.value}")
    try:
        low, high = (date.fromisoformat(one) if isinstance(one, str) else one for one in days)
    except ValueError:
        raise SchemaError(f"the bounds of column '{name}' must be two dates, got {days!r}") from None
    if isinstance(low, datetime) or isinstance(high, datetime) or low > high:
        raise SchemaError(f"the bounds of column '{name}' must be two days in order, got {low} and {high}")
    return low, high


def _bounds(name: str, kind: Kind, bounds: Sequence[float]) -> tuple[float, float]:
    if kind not in (Kind.NUMBER, Kind.AUTO):
        raise SchemaError(
            f"column '{name}' has bounds, but only a number can have them, not a {kind.value}",
            hint='the bounds of dates are two dates, for example ["2023-01-01", "2023-12-31"]'
            if kind is Kind.DATE
            else "",
        )
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(f"the bounds of column '{name}' must be two numbers, got {bounds!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise SchemaError(f"the bounds of column '{name}' must be finite and in order, got [{low}, {high}]")
    return low, high


def _check_step(name: str, step: Any) -> None:
    if isinstance(step, str) and re.fullmatch(r"[1-9]\d{0,5}[dhms]", step):
        return
    if isinstance(step, str | bool) or not isinstance(step, int | float):
        raise SchemaError(
            f"the step of column '{name}' must be a number, or a text such as 1d, 15m or 1s, got {str(step)[:40]!r}"
        )
    if not 1e-15 <= step <= 1e15:
        raise SchemaError(f"the step of column '{name}' must be above 0, and at most 1e15, got {step:g}")


def _domain(name: str, domain: Sequence[Any]) -> tuple[Any, ...]:
    if isinstance(domain, str) or not isinstance(domain, Sequence) or not len(domain):
        raise SchemaError(f"the domain of column '{name}' must be a list of at least one value")
    if any(map(is_missing, domain)):
        raise SchemaError(
            f"the domain of column '{name}' lists a missing value",
            hint="leave it out: every column may have missing values",
        )
    if any(isinstance(value, list | tuple | dict | set) for value in domain):
        raise SchemaError(f"the domain of column '{name}' must list single values")
    if len(set(domain)) != len(domain):
        raise SchemaError(f"the domain of column '{name}' lists a value twice")
    return tuple(domain)

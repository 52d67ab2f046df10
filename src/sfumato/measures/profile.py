"""Profiles of the columns of a table, in numbers that a page may show.

Values are put into the bins of `bins`, each with at least `SMALLEST_SHOWN` rows, and shares are rounded as in
`comparison`. The page decides whether values are shown at all: for identifiers, and for sensitive columns of an
original table, it shows only the number of values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sfumato.data.io.source import File
from sfumato.data.schema import Role
from sfumato.data.table import Table
from sfumato.errors import SfumatoError
from sfumato.measures.bins import bins_of, round_shares
from sfumato.measures.loss.universe import universe

__all__ = ["MOST_ROWS", "Profile", "profiles_of"]

MOST_ROWS = 1_000_000
"""The most rows of a table that is read again just to describe its columns."""


@dataclass(frozen=True)
class Profile:
    """The profile of a column.

    Attributes
    ----------
    column, role, kind : its name, role and kind
    values : the number of distinct values, without the missing one; None if they cannot be counted
    missing : the share of rows with a missing value
    bins, shares : the label of each bin, and the share of rows in it; empty for an identifier
    """

    column: str
    role: Role
    kind: str
    values: int | None
    missing: float | None
    bins: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as plain values."""
        plain = asdict(self) | {"bins": list(self.bins), "shares": list(self.shares)}
        return plain | {"role": self.role.value}


def profiles_of(table: Table, names: Sequence[str] | None = None, *, most: int = 12) -> tuple[Profile, ...]:
    """Describe the named columns, all by default; return nothing for a table that is too long or in a database.

    Values are put into at most `most` bins; with 0, they are only counted.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> table = sf.Table(pl.DataFrame({"sex": ["f"] * 30 + ["m"] * 20, "id": range(50)}))
    >>> sex, id = profiles_of(table)
    >>> sex.values, sex.bins, sex.shares
    (2, ('f', 'm'), (0.6, 0.4))
    """
    if (table.is_lazy and not isinstance(table.source, File)) or table.rows > MOST_ROWS:
        return ()
    known = Table(table.to_polars(), table.schema) if table.is_lazy else table  # reads a file only once
    return tuple(_profile(known, name, most) for name in (table.schema.names if names is None else names))


def _profile(table: Table, name: str, most: int) -> Profile:
    role = table.schema[name].role
    try:
        codes = table.encode([name])
        of = universe(codes.domains[0])
    except SfumatoError:  # lists, or values outside the schema: only this profile fails
        return Profile(name, role, table.schema[name].kind.value, None, None)
    rows, domain = len(codes.values), codes.domains[0]
    count = np.bincount(codes.values[:, 0], minlength=len(domain))
    missing = int(count[domain.missing]) if domain.missing is not None else 0
    profile = Profile(
        name,
        role,
        domain.column.kind.value,
        len(domain) - (missing > 0),
        float(round_shares(missing / max(rows, 1), rows)),
    )
    if role is Role.IDENTIFIER or not rows or not most:
        return profile
    total = np.bincount(of.place, weights=count, minlength=len(of)).astype(np.int64)
    found = bins_of(of, total, most)
    part = np.bincount(found.of_value, weights=total, minlength=len(found)) / rows
    return replace(profile, bins=found.labels, shares=tuple(round_shares(part, rows).tolist()))

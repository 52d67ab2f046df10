"""The fingerprint of the content of a table, independent of its file and format.

A budget protects people, not a file: the same rows as CSV or Parquet, under another name, in
another order or in a database are one data set.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars as pl

from sfumato.data.coding import texts_of
from sfumato.data.io.database import Database
from sfumato.data.io.fingerprint import fingerprint, user_hmac
from sfumato.data.io.notation import Conventions, Meaning, find_cells
from sfumato.data.table import Table
from sfumato.engines.dispatch import reduce
from sfumato.engines.tuples import group

__all__ = ["content_fingerprint", "origin_marks"]


def content_fingerprint(table: Table) -> tuple[str, int]:
    """Return the HMAC-SHA256 of the rows of a table under this user's key, and the number of rows.

    It depends neither on the order of rows and columns nor on types: values are compared as texts.

    Examples
    --------
    >>> import sfumato as sf
    >>> table = sf.read("patients.csv")
    >>> backwards = sf.Table(table.frame.reverse())
    >>> content_fingerprint(table) == content_fingerprint(backwards)
    True
    """
    names = sorted(table.schema.names)
    rows = Table(table.source, origin=table.origin)  # the schema is not part of the content
    tuples = reduce(rows.mixed_as_texts(), names)
    mac = user_hmac()
    codes = np.empty_like(tuples.codes)
    for position, domain in enumerate(tuples.domains):
        texts = texts_of(replace(domain, values=_parse_cells(domain.values)))
        order = sorted(range(len(texts)), key=lambda code: (texts[code] is None, texts[code] or ""))
        codes[:, position] = np.argsort(order)[tuples.codes[:, position]] if order else 0
        mac.update(json.dumps([domain.name, [texts[code] for code in order]]).encode())
    first, _ = group(codes, [len(domain) for domain in tuples.domains])
    mac.update(np.ascontiguousarray(codes[first], dtype="<i4").tobytes())
    mac.update(tuples.count[first].astype("<i8").tobytes())
    return f"hmac-sha256:{mac.hexdigest()}", int(tuples.count.sum())


def _parse_cells(values: pl.Series) -> pl.Series:
    """Parse texts that are numbers or dates in any notation, so that the fingerprint does not depend on it."""
    if values.dtype != pl.String:
        return values
    trimmed = values.str.strip_chars()
    cells = find_cells(trimmed.drop_nulls().unique(), Conventions())
    return values if cells.meaning is Meaning.TEXT else cells.read(trimmed)


def origin_marks(table: Table) -> frozenset[str]:
    """Return keyed hashes of the location and the bytes of a table's file, or of its database table.

    A file that is read with other options or has a changed header has another content fingerprint, but contains the
    same people; these hashes recognize it.

    Examples
    --------
    >>> import sfumato as sf
    >>> marks = origin_marks(sf.read("patients.csv"))
    >>> marks == origin_marks(sf.read("patients.csv", na=["flu"]))
    True
    >>> origin_marks(sf.Table(sf.read("patients.csv").frame))
    frozenset()
    """
    if isinstance(table.source, Database):
        return frozenset({_mark(f"{table.source.place}\n{table.source.table}")})
    if table.origin is None or not table.origin.is_file():
        return frozenset()
    return frozenset({_mark(str(table.origin.resolve())), fingerprint(table.origin, salt="origin")})


def _mark(place: str) -> str:
    mac = user_hmac()
    mac.update(b"place\n" + place.encode(errors="surrogateescape"))
    return f"hmac-sha256:{mac.hexdigest()}"

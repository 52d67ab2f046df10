"""The fingerprint of what a table holds, whatever file it is in.

A budget protects people, and not a file: the same rows as CSV or Parquet, under another name, in
another order or in a database are one data set.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime

import numpy as np
import polars as pl

from sfumato.data.coding import Domain
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.io.database import Database
from sfumato.data.io.fingerprint import fingerprint, user_hmac
from sfumato.data.io.notation import Conventions, Meaning, find_cells
from sfumato.data.table import Table
from sfumato.engines.dispatch import reduce
from sfumato.engines.tuples import group

__all__ = ["content_fingerprint", "origin_marks", "reading", "texts_of"]

_NUMBER = re.compile(r"[+-]?(?:(?!0\d)\d+\.?\d*|\.\d+)(?:[eE][+-]\d+)?|[+-]?(?:inf|nan|Inf|NaN)")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?")


def content_fingerprint(table: Table) -> tuple[str, int]:
    """Return the HMAC-SHA256 of the rows of a table under this user's key, and the number of rows.

    Neither the order of the rows, nor that of the columns, nor the types of the values count: a
    value is what it reads as.

    Examples
    --------
    >>> import sfumato as sf
    >>> table = sf.read("patients.csv")
    >>> backwards = sf.Table(table.frame.reverse())
    >>> content_fingerprint(table) == content_fingerprint(backwards)
    True
    """
    names = sorted(table.schema.names)
    tuples = reduce(Table(table.source, origin=table.origin), names)  # without its schema, which is no content
    mac = user_hmac()
    codes = np.empty_like(tuples.codes)
    for position, domain in enumerate(tuples.domains):
        texts = texts_of(replace(domain, values=_meant(domain.values)))
        order = sorted(range(len(texts)), key=lambda code: (texts[code] is None, texts[code] or ""))
        codes[:, position] = np.argsort(order)[tuples.codes[:, position]] if order else 0
        mac.update(json.dumps([domain.name, [texts[code] for code in order]]).encode())
    first, _ = group(codes, [len(domain) for domain in tuples.domains])
    mac.update(np.ascontiguousarray(codes[first], dtype="<i4").tobytes())
    mac.update(tuples.count[first].astype("<i8").tobytes())
    return f"hmac-sha256:{mac.hexdigest()}", int(tuples.count.sum())


def _meant(values: pl.Series) -> pl.Series:
    """Read texts that are numbers or dates in another notation: however they are read, they are the same content."""
    if values.dtype != pl.String:
        return values
    trimmed = values.str.strip_chars()
    cells = find_cells(trimmed.drop_nulls().unique(), Conventions())
    return values if cells.meaning is Meaning.TEXT else cells.read(trimmed)


def origin_marks(table: Table) -> frozenset[str]:
    """Return what tells where a table is from, as only this user can compare it: the place and the bytes of its file.

    A file that is read with other options, or whose header was changed, has another content; but the people in it
    are the same.

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


def texts_of(domain: Domain) -> list[str | None]:
    """Return the values of a domain as texts, in the order of their codes; None for a missing one.

    Examples
    --------
    >>> import sfumato as sf
    >>> table = sf.Table(pl.DataFrame({"age": [30.0, None, 7.5]}))
    >>> texts_of(table.encode(["age"]).domains[0])
    ['7.5', '30', None]
    """
    values = domain.values
    if values.dtype == pl.String:
        return values.to_list()
    if values.dtype.is_numeric() and values.dtype != pl.Float32:
        return [None if value is None else text_of(value) for value in values.to_list()]
    return [None if code == domain.missing else domain.label(code) for code in range(len(domain))]


def reading(text: str) -> str | None:
    """Return what a text reads as, whatever the type of its column: a number in its shortest form, or the text.

    In a text file, all the values of a column decide together whether it holds numbers, so that one record
    could change how every other one reads. What a text stands for must not depend on the others.

    Examples
    --------
    >>> reading("30.0"), reading(" 30"), reading("030"), reading("f"), reading("nan")
    ('30', '30', '030', 'f', None)
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        number = float(text)
        return text_of(number + 0.0) if number == number else None
    if _MOMENT.fullmatch(text):
        try:
            return str(datetime.fromisoformat(text))
        except ValueError:  # no day or hour of the calendar
            return text
    return text

"""Count a Parquet file by the positions in its dictionaries: no text is ever built.

A Parquet column of few distinct values is stored as a dictionary and positions in it. We number
the entries of each dictionary once and then only move integers. Columns that are no texts, and
pages without a dictionary, arrive as values and are numbered like any other.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.source import File
from sfumato.engines.counter import Counter
from sfumato.engines.engine import Progress
from sfumato.engines.numbering import Numbering

__all__ = ["can_read", "count"]

_BATCH = 2**20


def can_read(file: File) -> bool:
    """Say whether this way of reading is open: it needs pyarrow."""
    return file.format == "parquet" and importlib.util.find_spec("pyarrow") is not None


def count(file: File, names: Sequence[str], counter: Counter, tell: Progress) -> None:
    """Add the rows of the file to the counter."""
    import pyarrow
    import pyarrow.parquet

    with file.reading():
        schema = pyarrow.parquet.read_schema(file.path)
        types = file.types()
        counter.add([pl.Series(dtype=types[name]) for name in names])  # even without rows a column has a type
        texts = [name for name in names if _is_text(schema.field(name).type)]
        with pyarrow.parquet.ParquetFile(file.path, read_dictionary=texts, page_checksum_verification=True) as parquet:
            rows = 0
            for batch in parquet.iter_batches(_BATCH, columns=list(names)):
                columns = (batch.column(name) for name in names)
                counter.add_numbers(
                    [
                        _numbers(numbering, column, file.na)
                        for numbering, column in zip(counter.numberings, columns, strict=True)
                    ]
                )
                rows += len(batch)
                tell(rows / parquet.metadata.num_rows)


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind))


def _numbers(numbering: Numbering, column: Any, na: Sequence[str]) -> NDArray[np.uint32]:
    """Return the number of each value of an Arrow column."""
    import pyarrow.compute
    import pyarrow.types as types

    if not types.is_dictionary(column.type):
        return numbering.numbers(_without_marks(pl.Series(column), na))
    entries = numbering.numbers(_without_marks(pl.Series(column.dictionary), na))
    numbers = pyarrow.compute.take(pyarrow.array(entries), column.indices)
    return np.asarray(numbers.fill_null(0) if numbers.null_count else numbers)


def _without_marks(values: pl.Series, na: Sequence[str]) -> pl.Series:
    return values.set(values.is_in(list(na)), None) if na and values.dtype == pl.String else values

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
from sfumato.engines.counter import BATCH, Counter
from sfumato.engines.engine import Progress
from sfumato.engines.numbering import Numbering

__all__ = ["can_read", "count"]


def can_read(file: File) -> bool:
    """Say whether this way of reading is open: it needs pyarrow."""
    return file.format == "parquet" and importlib.util.find_spec("pyarrow") is not None


def count(file: File, names: Sequence[str], counter: Counter, tell: Progress) -> None:
    """Add the rows of the file to the counter."""
    import pyarrow
    import pyarrow.parquet

    types = [file.types()[name] for name in names]
    counter.add([pl.Series(dtype=dtype) for dtype in types])  # even without rows a column has a type
    with file.reading():
        try:
            schema = pyarrow.parquet.read_schema(file.path)
            texts = [name for name in names if _is_text(schema.field(name).type)]
            with pyarrow.parquet.ParquetFile(
                file.path, read_dictionary=texts, page_checksum_verification=True, pre_buffer=False
            ) as parquet:
                rows = 0
                for batch in parquet.iter_batches(BATCH, columns=list(names), use_threads=False):
                    columns = zip(counter.numberings, names, types, strict=True)
                    counter.add_numbers(
                        [_numbers(numbering, batch.column(name), dtype, file.na) for numbering, name, dtype in columns]
                    )
                    rows += len(batch)
                    tell(rows / parquet.metadata.num_rows)
        except pyarrow.ArrowException as error:  # not all of them are of a kind that `reading` knows
            raise ValueError from error


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind))


def _numbers(numbering: Numbering, column: Any, dtype: pl.DataType, na: Sequence[str]) -> NDArray[np.uint32]:
    """Return the number of each value of an Arrow column."""
    import pyarrow.compute
    import pyarrow.types as types

    is_encoded = types.is_dictionary(column.type)
    values = pl.Series(column.dictionary if is_encoded else column)
    if values.dtype == pl.String:
        values = values.set(values.is_in(list(na)), None) if na else values
    elif values.dtype != dtype:  # Arrow and Polars read some types differently, such as date64
        values = values.cast(dtype)
    numbers = numbering.numbers(values)
    if not is_encoded:
        return numbers
    taken = pyarrow.compute.take(pyarrow.array(numbers), column.indices)
    return np.asarray(taken.fill_null(0) if taken.null_count else taken)

"""Rows without what a frame carries besides them: its index, categories that no row has, notes of its makers.

A frame that is released must hold what its columns hold, and nothing else. A pandas index is a column that nobody
accounted for, the categories of a type list values of rows that were filtered out, ``attrs`` and metadata say what
somebody once noted, and the order of the rows says who comes before whom in the original.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["permutation", "sanitized", "without_unused"]


def permutation(rows: int) -> NDArray[np.int64]:
    """Return a random order of so many rows, each equally likely, from the operating system's entropy.

    It depends on no seed: whoever publishes a seed must not publish the order with it.

    Examples
    --------
    >>> sorted(permutation(4).tolist())
    [0, 1, 2, 3]
    """
    return np.argsort(random_keys(rows), kind="stable")


def random_keys(number: int) -> NDArray[np.uint64]:
    """Return random numbers of 64 bits; two of a billion rows are equal with a chance of 3 %, and that moves nothing.

    Examples
    --------
    >>> random_keys(3).dtype
    dtype('uint64')
    """
    return np.frombuffer(os.urandom(8 * number), dtype=np.uint64)


def sanitized(frame: Any, *, shuffle: bool = False) -> Any:
    """Return a frame of the same kind with the same columns and nothing else; its rows shuffled, if that is asked for.

    A pandas frame gets a new index from 0 on and loses ``attrs``; categories that no row has go (pandas, Polars' Enum,
    Arrow's dictionaries, ordered or not), and so does the metadata of an Arrow table. A lazy Polars frame is collected.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"sex": pd.Categorical(["f", "m"])}, index=["Ada", "Bob"])[:1]
    >>> clean = sanitized(frame)
    >>> list(clean.index), list(clean["sex"].cat.categories)
    ([0], ['f'])
    """
    implementation = nw.from_native(frame).implementation
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    order = permutation(len(frame)) if shuffle else None
    if implementation.is_pandas():
        return _pandas(frame if order is None else frame.take(order))
    if implementation.is_pyarrow():
        return _arrow(frame if order is None else frame.take(order))
    rows: pl.DataFrame = frame if order is None else frame[order]
    return rows.with_columns(_polars(column) for column in rows.get_columns() if _holds_enum(column.dtype))


def without_unused(values: Any) -> Any:
    """Return an Arrow dictionary array without the entries that no row has; the others keep their order.

    Examples
    --------
    >>> import pyarrow
    >>> array = pyarrow.array(["b", "a", "b"]).dictionary_encode().filter(pyarrow.array([True, False, True]))
    >>> without_unused(array).dictionary.to_pylist()
    ['b']
    """
    import pyarrow
    import pyarrow.compute as compute

    used = compute.unique(values.indices).drop_null()
    used = used.take(compute.sort_indices(used))
    position = compute.index_in(values.indices, used).cast(values.type.index_type)
    return pyarrow.DictionaryArray.from_arrays(position, values.dictionary.take(used), ordered=values.type.ordered)


def _pandas(frame: Any) -> Any:
    import pandas as pd

    clean = frame.reset_index(drop=True)
    for name, dtype in clean.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            clean[name] = clean[name].cat.remove_unused_categories()
        elif isinstance(dtype, pd.ArrowDtype):
            values = _arrow_column(clean[name].array.__arrow_array__())
            clean[name] = pd.Series(pd.arrays.ArrowExtensionArray(values))
    clean.columns = pd.Index(list(clean.columns))
    clean.attrs = {}
    return clean


def _arrow(frame: Any) -> Any:
    import pyarrow

    columns = [_arrow_column(column) for column in frame.columns]
    fields = [
        pyarrow.field(field.name, column.type, field.nullable)
        for field, column in zip(frame.schema, columns, strict=True)
    ]
    return pyarrow.Table.from_arrays(columns, schema=pyarrow.schema(fields))


def _arrow_column(column: Any) -> Any:
    import pyarrow
    import pyarrow.types as types

    if types.is_dictionary(column.type):
        if isinstance(column, pyarrow.ChunkedArray):
            column = column.unify_dictionaries().combine_chunks()
        whole = pyarrow.concat_arrays(column.chunks) if isinstance(column, pyarrow.ChunkedArray) else column
        return pyarrow.chunked_array([without_unused(whole)])
    plain = _arrow_plain(column.type)
    return column if plain == column.type else column.cast(plain)


def _arrow_plain(kind: Any) -> Any:
    """Return a nested type with the values of its dictionaries in place of these."""
    import pyarrow
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return kind.value_type
    if types.is_struct(kind):
        return pyarrow.struct([field.with_type(_arrow_plain(field.type)).remove_metadata() for field in kind.fields])
    if types.is_list(kind) or types.is_large_list(kind):
        make = pyarrow.list_ if types.is_list(kind) else pyarrow.large_list
        return make(kind.value_field.with_type(_arrow_plain(kind.value_type)).remove_metadata())
    return kind


def _polars(column: pl.Series) -> pl.Series:
    if not isinstance(column.dtype, pl.Enum):
        return column.cast(_polars_plain(column.dtype))
    present = set(column.cast(pl.String).unique().to_list())
    return column.cast(pl.String).cast(pl.Enum([one for one in column.dtype.categories if one in present]))


def _holds_enum(dtype: Any) -> bool:
    return isinstance(dtype, pl.Enum) or any(map(_holds_enum, _inner(dtype)))


def _inner(dtype: Any) -> Sequence[Any]:
    if isinstance(dtype, pl.Struct):
        return [field.dtype for field in dtype.fields]
    return [dtype.inner] if isinstance(dtype, pl.List | pl.Array) else []


def _polars_plain(dtype: Any) -> Any:
    """Return a nested type with texts in place of categories."""
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _polars_plain(field.dtype) for field in dtype.fields})
    if isinstance(dtype, pl.List):
        return pl.List(_polars_plain(dtype.inner))
    if isinstance(dtype, pl.Array):
        return pl.Array(_polars_plain(dtype.inner), dtype.shape[0])
    return pl.String() if isinstance(dtype, pl.Enum) else dtype

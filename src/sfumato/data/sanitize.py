"""Strip a frame of everything but its columns: the index, unused categories, metadata, the order of the rows.

A released frame must hold its columns and nothing else. A pandas index is an unchecked column, a categorical type
lists values of rows that were filtered out, ``attrs`` and metadata may hold notes, and the order of the rows reveals
their order in the original.
"""

from __future__ import annotations

import os
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["drop_unused_entries", "permutation", "sanitize"]


def permutation(rows: int) -> NDArray[np.int64]:
    """Return a uniformly random permutation from the operating system's entropy.

    It never depends on a seed, because publishing the seed would publish the original order.

    Examples
    --------
    >>> sorted(permutation(4).tolist())
    [0, 1, 2, 3]
    """
    return np.argsort(random_keys(rows), kind="stable")


def random_keys(number: int) -> NDArray[np.uint64]:
    """Return random 64-bit sort keys; in a billion rows, two are equal with probability 3 %, which is harmless.

    Examples
    --------
    >>> random_keys(3).dtype
    dtype('uint64')
    """
    return np.frombuffer(os.urandom(8 * number), dtype=np.uint64)


def sanitize(frame: Any, *, shuffle: bool = False) -> Any:
    """Return a frame of the same kind with only the columns, and with shuffled rows on request.

    A pandas frame gets a new index and loses ``attrs``; unused categories are dropped (pandas, Polars Enum, Arrow
    dictionaries), and so is the metadata of an Arrow table. A lazy Polars frame is collected.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"sex": pd.Categorical(["f", "m"])}, index=["Ada", "Bob"])[:1]
    >>> clean = sanitize(frame)
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


def drop_unused_entries(values: Any) -> Any:
    """Return an Arrow dictionary array without unused entries; the others keep their order.

    Examples
    --------
    >>> import pyarrow
    >>> array = pyarrow.array(["b", "a", "b"]).dictionary_encode().filter(pyarrow.array([True, False, True]))
    >>> drop_unused_entries(array).dictionary.to_pylist()
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
        return pyarrow.chunked_array([drop_unused_entries(whole)])
    plain = _arrow_plain(column.type)
    return column if plain == column.type else column.cast(plain)


def _arrow_plain(kind: Any) -> Any:
    """Return a nested type with its dictionary types replaced by their value types."""
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
    if isinstance(dtype, pl.Struct):
        return any(_holds_enum(field.dtype) for field in dtype.fields)
    return isinstance(dtype, pl.Enum) or (isinstance(dtype, pl.List | pl.Array) and _holds_enum(dtype.inner))


def _polars_plain(dtype: Any) -> Any:
    """Return a nested type with its categories replaced by texts."""
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _polars_plain(field.dtype) for field in dtype.fields})
    if isinstance(dtype, pl.List):
        return pl.List(_polars_plain(dtype.inner))
    if isinstance(dtype, pl.Array):
        return pl.Array(_polars_plain(dtype.inner), dtype.shape[0])
    return pl.String() if isinstance(dtype, pl.Enum) else dtype

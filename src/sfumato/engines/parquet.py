"""Count and recode a Parquet file by dictionary positions, without building a text per row.

Parquet stores a column with few distinct values as a dictionary and positions in it. Each dictionary entry is numbered
once; after that only integers are processed. Other columns, and pages without a dictionary, arrive as values and are
numbered like any others. A recoded file is written in the same way, in batches: the new values of the tuples form a
dictionary, and each row is a position in it.
"""

from __future__ import annotations

import base64
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.coding import Domain, positions_in
from sfumato.data.io.files import format_of
from sfumato.data.io.source import File
from sfumato.data.sanitize import drop_unused_entries
from sfumato.engines.counter import BATCH, Counter, Dictionary
from sfumato.engines.engine import Progress, Recoding
from sfumato.engines.lookup import Lookup
from sfumato.engines.shuffle import shuffle_batches
from sfumato.errors import FileError, InputError

__all__ = ["can_read", "can_write", "count", "recode"]

_DICTIONARY_BYTES = 2**28
"""The largest dictionary that is written, in bytes; by default Arrow writes texts instead from 2^20 on."""


def can_read(file: File) -> bool:
    """Return whether a file is Parquet and pyarrow is installed."""
    return file.format == "parquet" and importlib.util.find_spec("pyarrow") is not None


def can_write(to: str | Path | None) -> bool:
    """Return whether a file of this name would be Parquet."""
    return to is not None and format_of(Path(to)) == "parquet"


def count(file: File, names: Sequence[str], counter: Counter, report: Progress) -> None:
    """Add the rows of the file to the counter."""
    types = [file.types()[name] for name in names]
    counter.add([pl.Series(dtype=dtype) for dtype in types])  # sets the types even if there are no rows
    with _open(file, names) as parquet:
        rows = 0
        for batch in _batches(parquet, list(names)):
            columns = zip(counter.dictionaries, names, types, strict=True)
            counter.add_numbers(
                [
                    _map_values(batch.column(name), dtype, file.na, dictionary.numbers)
                    for dictionary, name, dtype in columns
                ]
            )
            rows += len(batch)
            report(rows / parquet.metadata.num_rows)


def recode(file: File, recoding: Recoding, to: Path, report: Progress) -> None:
    """Write the recoded file in batches, with shuffled rows if the recoding asks for it."""
    import pyarrow

    new = {series.name: _Column(series) for series in recoding.values}
    fields, encoded = _fields(file)
    kept = [name for name in fields if name not in recoding.without]
    stay = [name for name in kept if name not in new]
    plain = pyarrow.schema([new[name].field if name in new else _clean_field(fields[name], file.na) for name in kept])
    with _open(file, [*recoding.names, *encoded]) as parquet:
        rows = parquet.metadata.num_rows
        batches = _read_groups(file, parquet, recoding, stay, report)
        if recoding.shuffle:
            batches = shuffle_batches(batches, rows)
        writer = None
        try:
            for batch in batches:
                group = batch.column(0).to_numpy()
                columns = dict(zip(stay, batch.columns[1:], strict=True)) | {one: new[one].of(group) for one in new}
                written = (field.with_type(columns[field.name].type) for field in plain)
                recoded = pyarrow.RecordBatch.from_arrays(
                    [columns[name] for name in kept], schema=pyarrow.schema(written)
                )
                with _writing(to):
                    writer = writer or _writer(to, recoded.schema, plain)
                    writer.write_batch(recoded)
            with _writing(to):
                writer = writer or _writer(to, plain, plain)
                writer.close()
        finally:
            if writer is not None:
                with suppress(OSError, pyarrow.ArrowException):
                    writer.close()


def _read_groups(file: File, parquet: Any, recoding: Recoding, stay: Sequence[str], report: Progress) -> Iterator[Any]:
    """Yield batches of the group of each row, and the unchanged columns."""
    import pyarrow

    tuples, types = recoding.tuples, file.types()
    finder = Lookup(tuples.codes, [len(domain) for domain in tuples.domains])
    coders = [_Coder(domain) for domain in tuples.domains]
    rows = 0
    for batch in _batches(parquet, list(dict.fromkeys([*stay, *recoding.names]))):
        tuple_of = finder.find(
            [_map_values(batch.column(one.name), types[one.name], file.na, one.codes) for one in coders]
        )
        if len(tuple_of) and tuple_of.min() < 0:
            raise InputError("the recoding belongs to another table", hint="check that the file has not changed")
        group = _as_arrow(recoding.group[tuple_of])
        columns = [_clean_column(batch.column(name), file.na) for name in stay]
        yield pyarrow.RecordBatch.from_arrays([group, *columns], names=["", *stay])
        rows += len(batch)
        report(rows / parquet.metadata.num_rows)


@contextmanager
def _open(file: File, texts: Sequence[str]) -> Iterator[Any]:
    """Open a file, and read the texts among these columns as dictionaries."""
    import pyarrow
    import pyarrow.parquet

    with file.reading():
        try:
            schema = pyarrow.parquet.read_schema(file.path)
            encoded = [name for name in dict.fromkeys(texts) if _is_text(schema.field(name).type)]
            with pyarrow.parquet.ParquetFile(
                file.path, read_dictionary=encoded, page_checksum_verification=True, pre_buffer=False
            ) as parquet:
                yield parquet
        except pyarrow.ArrowException as error:  # `reading` does not know all of these
            raise ValueError from error


def _batches(parquet: Any, columns: Sequence[str]) -> Iterator[Any]:
    """Yield batches of columns; validate the texts, because Arrow does not and Polars relies on it."""
    import pyarrow.types as types

    for batch in parquet.iter_batches(BATCH, columns=columns, use_threads=False):
        for column in batch.columns:
            (column.dictionary if types.is_dictionary(column.type) else column).validate(full=True)
        yield batch


def _fields(file: File) -> tuple[dict[str, Any], list[str]]:
    """Return the columns of a file, and the names of those stored as dictionaries."""
    import pyarrow.parquet

    with file.reading():
        metadata = pyarrow.parquet.read_metadata(file.path)
        group = metadata.row_group(0) if metadata.num_row_groups else None
        stored = [group.column(position) for position in range(group.num_columns)] if group else []
    encoded = [one.path_in_schema for one in stored if any("DICTIONARY" in way for way in one.encodings)]
    fields = {field.name: field for field in metadata.schema.to_arrow_schema()}
    return fields, [name for name in encoded if name in fields]


@contextmanager
def _writing(to: Path) -> Iterator[None]:
    """Turn an error in writing into a `FileError`, distinct from errors in reading."""
    import pyarrow

    try:
        yield
    except (OSError, pyarrow.ArrowException) as error:
        code = getattr(error, "errno", None)
        reason = os.strerror(code) if code else "the system refused"
        raise FileError(f"the Parquet file cannot be written: {reason}") from error


def _writer(to: Path, schema: Any, plain: Any) -> Any:
    """Return a writer of dictionary columns whose file declares them as texts."""
    import pyarrow.parquet

    writer = pyarrow.parquet.ParquetWriter(
        to,
        schema,
        store_schema=False,
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
        write_batch_size=2**16,
        write_page_checksum=True,
        # Page statistics of texts are unused, and would take half of the time.
        write_statistics=[field.name for field in schema if not _is_text(field.type)],
    )
    writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(plain.serialize()).decode()})
    return writer


class _Coder:
    """Encode the values of a column as codes of a domain."""

    def __init__(self, domain: Domain) -> None:
        self.name, self._values = domain.name, domain.values
        self._numbering, self._code_of = Dictionary(), np.zeros(0, dtype=np.int32)

    def codes(self, values: pl.Series) -> NDArray[np.int32]:
        """Return the code of each value, or -1 if the domain lacks it."""
        numbers = self._numbering.numbers(values)
        if len(numbers) and numbers.max() >= len(self._code_of):
            found = positions_in(self._numbering.values(), self._values)
            self._code_of = found.cast(pl.Int32).fill_null(-1).to_numpy()
        return self._code_of[numbers]


class _Column:
    """The new values of each group in one column, as a dictionary and positions in it."""

    def __init__(self, values: pl.Series) -> None:
        import pyarrow

        distinct = values.unique(maintain_order=True).drop_nulls()
        self._position = positions_in(values, distinct).cast(pl.Int32).fill_null(-1).to_numpy()
        self._misses = bool((self._position < 0).any())
        self._values = pyarrow.array(distinct.to_arrow())
        if pyarrow.types.is_large_string(self._values.type) or pyarrow.types.is_string_view(self._values.type):
            self._values = self._values.cast(pyarrow.string())
        self.field = pyarrow.field(values.name, self._values.type)

    def of(self, group: NDArray[np.int64]) -> Any:
        """Return an Arrow column with the new values of these groups."""
        import pyarrow
        import pyarrow.compute
        import pyarrow.types

        position = self._position[group]
        indices = _as_arrow(position)
        if self._misses:
            indices = pyarrow.compute.if_else(_as_arrow(position < 0), None, indices)
        column = pyarrow.DictionaryArray.from_arrays(indices, self._values)
        return column if pyarrow.types.is_string(self._values.type) else column.dictionary_decode()


def _clean_field(field: Any, na: Sequence[str]) -> Any:
    """Return the field of an unchanged column; it is nullable if marks of missing values are replaced.

    Its metadata is dropped, because it may list the categories of the whole table. So is the order of categories, which
    would need all of them; the schema of a release has it.
    """
    import pyarrow.types as types

    if types.is_dictionary(field.type) and field.type.ordered:
        field = field.with_type(field.type.value_type)
    return (field.with_nullable(True) if na and _is_text(field.type) else field).remove_metadata()


def _clean_column(column: Any, na: Sequence[str]) -> Any:
    """Return an unchanged column without marks of missing values and unused categories."""
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.types as types

    is_encoded = types.is_dictionary(column.type)
    values = column.dictionary if is_encoded else column
    if na and _is_text(values.type):
        marked = compute.is_in(values, pyarrow.array(na, values.type))
        if is_encoded:
            indices = compute.if_else(marked.take(column.indices).fill_null(False), None, column.indices)
            column = pyarrow.DictionaryArray.from_arrays(indices, values, ordered=column.type.ordered)
        else:
            column = compute.if_else(marked, None, column)
    return drop_unused_entries(column) if is_encoded else column


def _as_arrow(numbers: NDArray[Any]) -> Any:
    """Return numbers as an Arrow array; pyarrow itself would load pandas to look at them, if it is installed."""
    return pl.Series(numbers).to_arrow()


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind))


def _map_values(
    column: Any, dtype: pl.DataType, na: Sequence[str], numbers_of: Callable[[pl.Series], NDArray[Any]]
) -> NDArray[Any]:
    """Map each value of an Arrow column to a number; of a dictionary, only the entries are mapped."""
    import pyarrow.compute
    import pyarrow.types as types

    is_encoded = types.is_dictionary(column.type)
    values = pl.Series(column.dictionary if is_encoded else column)
    if values.dtype == pl.String:
        values = values.set(values.is_in(list(na)), None) if na else values
    elif values.dtype != dtype:  # Arrow and Polars read some types differently: date64, for example
        values = values.cast(dtype)
    if not is_encoded:
        return numbers_of(values)
    missing = pl.Series([None], dtype=values.dtype)
    numbers = numbers_of(pl.concat([values, missing]) if column.null_count else values)
    taken = pyarrow.compute.take(_as_arrow(numbers), column.indices)
    return pl.Series(taken.fill_null(numbers[-1].item()) if column.null_count else taken).to_numpy()

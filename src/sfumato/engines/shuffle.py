"""Shuffle rows that do not fit in memory: scatter them to buckets on disk, then shuffle each bucket.

Every row draws its bucket independently, and each bucket is put into a uniformly random order when it is read back. So
every order of all rows is equally likely, and memory holds only one bucket at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.data.io.folders import disk_errors, private_folder
from sfumato.data.sanitize import permutation, random_keys

__all__ = ["shuffle_batches"]

_BUCKET = 2**27
"""The number of bytes of rows that are shuffled in memory at a time."""
_MOST_BUCKETS = 256  # each is an open file
_PENDING = 2**16  # rows of a bucket that are written at a time


def shuffle_batches(batches: Iterator[Any], rows: int, *, bucket: int = _BUCKET) -> Iterator[Any]:
    """Yield Arrow batches with the same rows in random order; dictionary columns are decoded.

    Parameters
    ----------
    batches : iterator of RecordBatch
    rows : int
        The approximate number of rows.
    bucket : int
        The number of bytes that are shuffled in memory at a time.

    Examples
    --------
    >>> import pyarrow
    >>> ages = pyarrow.RecordBatch.from_pydict({"age": [30, 40, 50]})
    >>> sorted(age for batch in shuffle_batches(iter([ages, ages]), 6) for age in batch.to_pydict()["age"])
    [30, 30, 40, 40, 50, 50]
    """
    import pyarrow

    first = next(batches, None)
    if first is None:
        return
    first = _plain(first)
    number = min(_MOST_BUCKETS, 1 + int(rows * first.nbytes / max(1, len(first)) / bucket))
    with private_folder() if number > 1 else nullcontext(Path()) as folder, disk_errors(folder):
        buckets = _Buckets(folder, number, first.schema)
        with buckets.open:
            buckets.add(first)
            for batch in batches:
                buckets.add(_plain(batch))
            buckets.flush()
        for index in range(number):
            table = pyarrow.Table.from_batches(buckets.read(index), first.schema)
            yield from table.take(permutation(len(table))).combine_chunks().to_batches()


class _Buckets:
    """Rows scattered to several files, with unwritten rows in memory."""

    def __init__(self, folder: Path, number: int, schema: Any) -> None:
        self._folder, self._schema, self.open = folder, schema, ExitStack()
        self._pending: list[list[Any]] = [[] for _ in range(number)]
        self._writers: dict[int, Any] = {}

    def add(self, batch: Any) -> None:
        """Scatter the rows of a batch; if there is only one bucket, they stay in memory."""
        number = len(self._pending)
        if number == 1:
            self._pending[0].append(batch)
            return
        drawn = (random_keys(len(batch)) % np.uint64(number)).astype(np.int64)
        order, start = np.argsort(drawn, kind="stable"), np.zeros(number + 1, dtype=np.int64)
        np.cumsum(np.bincount(drawn, minlength=number), out=start[1:])
        scattered = batch.take(order)
        for index in range(number):
            self._pending[index].append(scattered.slice(start[index], start[index + 1] - start[index]))
            if sum(map(len, self._pending[index])) >= _PENDING:
                self._write(index)

    def flush(self) -> None:
        """Write the remaining rows, unless all rows are in memory."""
        for index in range(len(self._pending)) if len(self._pending) > 1 else ():
            self._write(index)

    def read(self, index: int) -> list[Any]:
        """Return the rows of a bucket."""
        import pyarrow

        if len(self._pending) == 1:
            return self._pending[0]
        with pyarrow.OSFile(str(self._path(index))) as file, pyarrow.ipc.open_stream(file) as reader:
            return list(reader)

    def _write(self, index: int) -> None:
        import pyarrow

        if index not in self._writers:
            file = self.open.enter_context(pyarrow.OSFile(str(self._path(index)), "wb"))
            self._writers[index] = self.open.enter_context(pyarrow.ipc.new_stream(file, self._schema))
        table = pyarrow.Table.from_batches(self._pending[index], self._schema)
        self._writers[index].write_table(table.combine_chunks())
        self._pending[index] = []

    def _path(self, index: int) -> Path:
        return self._folder / f"bucket{index}"


def _plain(batch: Any) -> Any:
    """Decode the dictionaries of a batch, because each slice would carry the whole dictionary."""
    import pyarrow
    import pyarrow.types as types

    columns = [column.dictionary_decode() if types.is_dictionary(column.type) else column for column in batch.columns]
    return pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)

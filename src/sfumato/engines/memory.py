"""Count frames in memory and files in batches, keeping only the distinct tuples.

A Parquet file is read as dictionary positions, without building texts (see `parquet`). Text files, Arrow files and lazy
Polars frames stream through Polars.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import narwhals as nw
import numpy as np
import polars as pl
import polars.selectors as cs

from sfumato.data.coding import Codes
from sfumato.data.io.files import atomic_path
from sfumato.data.io.source import DataSource, File, column
from sfumato.data.io.text import EVERY_FIELD
from sfumato.data.table import Table, collect, frame_errors
from sfumato.data.table import write as write_table
from sfumato.engines import parquet
from sfumato.engines.counter import BATCH, Counter
from sfumato.engines.engine import Engine, Progress, Recoding
from sfumato.engines.tuples import Tuples, group
from sfumato.errors import InputError

__all__ = ["Memory", "can_stream"]


@dataclass(frozen=True)
class Memory(Engine):
    """Counts in this process. Memory grows with the distinct tuples of a file, not with its rows.

    Examples
    --------
    >>> import sfumato as sf
    >>> tuples = Memory().joint_count(sf.read("patients.csv"), ["sex"])
    >>> tuples.domains[0].values.to_list(), tuples.count.tolist()
    (['f', 'm'], [5, 3])
    """

    name: ClassVar[str] = "memory"
    counts: ClassVar[str] = "any table"

    def joint_count(self, table: Table, names: Sequence[str], progress: Progress | None = None) -> Tuples:
        """Count how often each distinct tuple of the named columns occurs."""
        source = table.source
        counter = Counter([table.schema[name] for name in names])
        report = progress or (lambda share: None)
        if isinstance(source, File) and source.is_text:
            return _count_text(source, names, counter, report)
        if isinstance(source, File) and parquet.can_read(source):
            parquet.count(source, names, counter, report)
        elif isinstance(source, File):
            with source.reading():
                _count_lazy(source.scan(), names, counter, report)
        elif isinstance(source, pl.LazyFrame):
            with frame_errors():
                _count_lazy(source, names, counter, report)
        else:
            columns = _columns(table, names)
            for start in range(0, max(1, len(columns[0])), BATCH):  # sets the types even if there are no rows
                counter.add([one.slice(start, BATCH) for one in columns])
                report(min(1.0, (start + BATCH) / max(1, len(columns[0]))))
        return counter.tuples()

    def recode(
        self, table: Table, recoding: Recoding, to: str | Path | None = None, progress: Progress | None = None
    ) -> Table:
        """Replace every tuple by its new values."""
        source = table.source
        if to is not None and isinstance(source, File) and can_stream(table, to):
            with atomic_path(to) as temporary:
                parquet.recode(source, recoding, temporary, progress or (lambda share: None))
            return Table(File(Path(to)))
        lazy = source.scan() if isinstance(source, File) and not source.is_text else source
        if isinstance(lazy, pl.LazyFrame):
            recoded = Table(_join(lazy, recoding))
        else:
            whole = Table(
                table.with_columns(_gather_values(table.encode(recoding.names), recoding)), layout=table.layout
            )
            recoded = Table(whole.drop(recoding.without), layout=table.layout) if recoding.without else whole
        if to is None:
            return recoded
        write_table(recoded, to)
        return Table(File(Path(to)))


def can_stream(table: Table, to: str | Path | None) -> bool:
    """Return whether the rows can be streamed from one Parquet file to another, without loading them into memory.

    Examples
    --------
    >>> import sfumato as sf
    >>> can_stream(sf.read("patients.csv"), "release.parquet")
    False
    """
    return isinstance(table.source, File) and parquet.can_read(table.source) and parquet.can_write(to)


def _count_text(file: File, names: Sequence[str], counter: Counter, report: Progress) -> Tuples:
    """Count the texts of a text file, then infer their meaning."""
    text = file.text
    last = text.names[-1]  # missing in short and blank lines
    rows, expected, incomplete = 0, text.expected_rows(), False
    with file.reading():
        try:
            # Encoding texts while they are read is faster, but then Polars overlooks wrong quotes.
            numbered = [] if text.has_quotes() else zip(names, counter.dictionaries, strict=True)
            kinds: dict[str, pl.DataType] = {name: dictionary.categories for name, dictionary in numbered}
            scan = text.scan(kinds).select(cs.by_name(*dict.fromkeys([*names, last])))
            for batch in scan.collect_batches(chunk_size=BATCH, maintain_order=False, optimizations=EVERY_FIELD):
                counter.add([batch[name] for name in names])
                incomplete |= batch[last].has_nulls()
                rows += len(batch)
                report(min(1.0, rows / expected))
        except pl.exceptions.PolarsError as error:
            raise text.read_error(error) from None
        report(1.0)
        if incomplete:
            counter.take_back(len(text.blank_lines()))
    return counter.tuples(text.parse)


def _count_lazy(lazy: pl.LazyFrame, names: Sequence[str], counter: Counter, report: Progress) -> None:
    expected = lazy.select(pl.len()).collect(engine="streaming").item()
    rows = 0
    chosen = lazy.select(map(column, names))
    counter.add([pl.Series(dtype=dtype) for dtype in chosen.collect_schema().dtypes()])
    for batch in chosen.collect_batches(chunk_size=BATCH, maintain_order=False, engine="streaming"):
        counter.add([batch[name] for name in names])
        rows += len(batch)
        report(rows / max(1, expected))


def _columns(table: Table, names: Sequence[str]) -> list[pl.Series]:
    """Return the columns of a frame, fetched together if they are elsewhere."""
    source = table.source
    if isinstance(source, DataSource):
        return source.read(names).get_columns()
    if not table.is_lazy:
        return [table.column(name) for name in names]
    return collect(nw.from_native(source), lambda rows: rows.select(*names)).to_polars().get_columns()


def _gather_values(rows: Codes, recoding: Recoding) -> Iterator[pl.Series]:
    """Yield the new columns, in which each row has the values of its tuple."""
    known = recoding.tuples
    if any(not mine.values.equals(theirs.values) for mine, theirs in zip(rows.domains, known.domains, strict=True)):
        raise InputError("the recoding belongs to another table")
    _, of_row = group(np.concatenate([known.codes, rows.values]), [len(domain) for domain in known.domains])
    group_of = np.empty(len(of_row), dtype=np.int64)
    group_of[of_row[: len(known.codes)]] = recoding.group
    for series in recoding.values:
        yield series.gather(group_of[of_row[len(known.codes) :]])


def _join(lazy: pl.LazyFrame, recoding: Recoding) -> pl.LazyFrame:
    """Return a lazy frame that gives each row the new values of its tuple."""
    types = lazy.collect_schema()
    before, after = "before ", "after "
    while any(name.startswith((before, after)) for name in types):  # avoids the names of existing columns
        before, after = f"_{before}", f"_{after}"
    look_up = recoding.look_up(before, after)
    keys = [_comparable(column(name), types[name]) for name in recoding.names]
    new = {series.name: column(f"{after}{series.name}") for series in recoding.values}
    return lazy.join(
        look_up.lazy(),
        left_on=keys,
        right_on=[column(f"{before}{name}") for name in recoding.names],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    ).select(new.get(name, column(name)).alias(name) for name in types if name not in recoding.without)


def _comparable(values: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if dtype.is_float():
        return values.fill_nan(None)
    return values.cast(pl.String) if isinstance(dtype, pl.Categorical | pl.Enum) else values

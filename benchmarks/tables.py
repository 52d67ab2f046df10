"""Make the large tables of the benchmarks, once: rows like Adult's, with a long tail of rare combinations.

Each row is a random row of the embedded Adult table, and each of its cells is drawn anew, from
all values of its column, with a probability called ``mix``. So the columns hang together as they
do in a census, some combinations are frequent, and the rare ones never end. The integer columns
that widen a table follow from the other nine: they lengthen the key that is counted and add no
distinct tuple, so that the two can be told apart.

The same seed gives the same rows in every format, and a smaller table is the beginning of a
larger one. Rows are made and written a batch at a time, so memory does not grow with them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl
import pyarrow.parquet
from numpy.typing import NDArray

import sfumato as sf
from sfumato.data.io.files import atomic_path

__all__ = ["ALL", "MIX", "NAMES", "QI", "SENSITIVE", "Format", "batches", "large_table", "rows_of"]

QI = ["age", "workclass", "education", "marital-status", "relationship", "race", "sex", "native-country"]
SENSITIVE = ["occupation"]
NAMES = [*QI, *SENSITIVE]

MIX = 0.22
"""With this, 10^8 rows have about 7 million distinct tuples, and 10^7 rows have 1.8 million."""

BATCH = 2**20
"""Rows made at a time, and in a row group of a Parquet file."""

# The largest value of each integer column; the smallest is 1.
INTEGERS = {
    "zip-code": 30_000,
    "year-of-birth": 90,
    "day-of-birth": 366,
    "month-of-admission": 120,
    "days-in-hospital": 60,
    "ward": 40,
    "physician": 800,
    "employer": 5_000,
    "household-size": 9,
    "children": 7,
    "rooms": 12,
    "cars": 4,
    "year-of-arrival": 70,
    "height-in-cm": 110,
    "weight-in-kg": 140,
}
ALL = [*QI, *INTEGERS, *SENSITIVE]
_ODD = np.uint64(0x9E3779B97F4A7C15)  # multiplying by it spreads neighbouring numbers over all 64 bits


class Format(StrEnum):
    """How a table is written."""

    PARQUET = "parquet"
    """Parquet as everyone writes it: columns of few distinct values have dictionaries."""
    PLAIN = "plain"
    """Parquet without dictionaries."""
    CSV = "csv"


def batches(rows: int, *, mix: float = MIX, wide: bool = False, seed: int = 0) -> Iterator[pl.DataFrame]:
    """Yield the rows in batches."""
    adult = sf.datasets.adult().frame.select(NAMES).cast({pl.Categorical: pl.String})
    people = len(adult)
    codes = [adult[name].rank("dense").to_numpy().astype(np.uint64) for name in NAMES]
    for batch in range(-(-rows // BATCH)):
        generator = np.random.default_rng([seed, batch])
        who = generator.integers(0, people, BATCH)
        columns = []
        combination = np.zeros(BATCH, dtype=np.uint64)
        for name, code in zip(NAMES, codes, strict=True):
            source = np.where(generator.random(BATCH) < mix, generator.integers(0, people, BATCH), who)
            columns.append(adult[name].gather(source))
            combination = combination * np.uint64(128) + code[source]
        if wide:
            columns.extend(_following(combination, name, position) for position, name in enumerate(INTEGERS))
        yield pl.DataFrame(columns).head(rows - batch * BATCH)


def _following(combination: NDArray[np.uint64], name: str, position: int) -> pl.Series:
    """Return an integer column in which equal combinations have equal values, and others look random."""
    scattered = (combination + np.uint64(position)) * _ODD
    scattered = (scattered ^ (scattered >> np.uint64(32))) * _ODD
    return pl.Series(name, (scattered >> np.uint64(32)) % np.uint64(INTEGERS[name]) + np.uint64(1)).cast(pl.Int64)


def large_table(
    rows: int,
    kind: Format = Format.PARQUET,
    *,
    mix: float = MIX,
    wide: bool = False,
    seed: int = 0,
    folder: Path | None = None,
) -> Path:
    """Return the path of a table, which is made unless it is there already.

    Parameters
    ----------
    rows : int
    kind : Format
    mix : float
        The probability that a cell is drawn anew: 0 repeats Adult's rows, with 1 no two columns are related.
    wide : bool
        Whether to add 15 integer columns, such as zip code, year and day of birth, to the 9 of Adult.
    seed : int
    folder : Path, optional
        Where tables are kept: ``$SFUMATO_BENCH``, or a folder in the system's temporary directory.
    """
    folder = folder or default_folder()
    folder.mkdir(parents=True, exist_ok=True)
    width = len(ALL if wide else NAMES)
    ending = "csv" if kind is Format.CSV else f"{kind}.parquet" if kind is Format.PLAIN else "parquet"
    path = folder / f"adult-{rows}-rows-{width}-columns-mix-{mix:g}-seed-{seed}.{ending}"
    if not path.exists():
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            _write(batches(rows, mix=mix, wide=wide, seed=seed), kind, file)
    return path


def default_folder() -> Path:
    """Return where tables are kept unless a folder is named."""
    return Path(os.environ.get("SFUMATO_BENCH") or Path(tempfile.gettempdir(), "sfumato-bench"))


def rows_of(text: str) -> int:
    """Read a number of rows: ``1e7`` and ``10_000_000`` are both understood."""
    rows = float(text)
    if not (rows.is_integer() and rows > 0):
        raise argparse.ArgumentTypeError(f"a number of rows is a whole number above 0, got {text}")
    return int(rows)


def _write(frames: Iterator[pl.DataFrame], kind: Format, file: BinaryIO) -> None:
    if kind is Format.CSV:
        for position, frame in enumerate(frames):
            frame.write_csv(file, include_header=position == 0)
        return
    writer = None
    for frame in frames:
        batch = frame.to_arrow()
        # Without Arrow's own schema beside it, the file is what any writer would have made of texts and integers.
        writer = writer or pyarrow.parquet.ParquetWriter(
            file, batch.schema, use_dictionary=kind is Format.PARQUET, store_schema=False
        )
        writer.write_table(batch, row_group_size=BATCH)
    if writer:
        writer.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=rows_of, help="how many rows, such as 1e7")
    parser.add_argument("--format", type=Format, choices=list(Format), default=Format.PARQUET, dest="kind")
    parser.add_argument("--mix", type=float, default=MIX, help=f"probability that a cell is drawn anew ({MIX})")
    parser.add_argument("--wide", action="store_true", help=f"{len(ALL)} columns instead of {len(NAMES)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where tables are kept ($SFUMATO_BENCH, or a temporary folder)")
    print(large_table(**vars(parser.parse_args(arguments))))


if __name__ == "__main__":
    main()

"""Large tables, counted and anonymized, against bare group-bys of Polars and DuckDB; 10^8 rows; Spark."""

from __future__ import annotations

import argparse
import statistics
from functools import partial

from clock import alternate, cpu_seconds
from tables import NAMES, QI, Format, large_table, rows_of
from work import apart, by_anonymizing, by_duckdb, by_polars, by_publishing, by_sfumato

ROWS, HUGE = 10**7, 10**8

# A bare group-by of the same file is 1; we count and measure.
ASKED = {Format.PARQUET: 0.7, Format.PLAIN: 1.1, Format.CSV: 1.1}
NAMED = {Format.PARQUET: "Parquet", Format.PLAIN: "Parquet without dictionaries", Format.CSV: "CSV"}


def against_a_group_by(kind: Format, rows: int) -> tuple[str, str, str]:
    path = large_table(rows, kind)
    ours, polars = alternate(partial(by_sfumato, path, NAMES), partial(by_polars, path, NAMES), rounds=3)
    duckdb = statistics.median(cpu_seconds(partial(by_duckdb, path, NAMES)) for _ in range(3))
    tuples = by_polars(path, NAMES)["tuples"]
    return (
        f"reduce and nine measures, {rows:,} rows of {NAMED[kind]}, {len(QI)} quasi-identifiers, {tuples:,} distinct "
        f"tuples: Sfumato {ours:.1f} CPU s; bare streaming group-by of Polars {polars:.1f}, of DuckDB {duckdb:.1f}",
        f"{ours / polars:.2f} of Polars",
        f"at most {ASKED[kind]}",
    )


def huge_table(rows: int) -> tuple[str, str, str]:
    path = large_table(rows)
    ours, duckdb = apart("sfumato", path, NAMES), apart("duckdb", path, NAMES)
    return (
        f"reduce and nine measures, {rows:,} rows of Parquet, {duckdb.answer['tuples']:,} distinct tuples, in a "
        f"process of its own (bare group-by of DuckDB: {duckdb.cpu:.0f} CPU s, {duckdb.peak / 1e9:.1f} GB)",
        f"{ours.cpu:.0f} CPU s, {ours.peak / 1e9:.1f} GB",
        "under 40 CPU s, under 3 GB",
    )


def released(rows: int) -> tuple[str, str, str]:
    path = large_table(rows)
    by_anonymizing(large_table(10**5), NAMES)  # compiled
    ours, polars = alternate(partial(by_publishing, path, NAMES), partial(by_polars, path, NAMES), rounds=3)
    whole = statistics.median(cpu_seconds(partial(by_anonymizing, path, NAMES)) for _ in range(3))
    return (
        f"anonymize (Mondrian, k = 10, l = 2), {rows:,} rows, Parquet to Parquet: Sfumato {ours:.1f} CPU s, with the "
        f"release read back and measured and its loss {whole:.1f}; bare streaming group-by of Polars {polars:.1f}",
        f"{ours / polars:.2f} of Polars, {whole / polars:.2f} measured",
        "at most 2",
    )


def huge_release(rows: int) -> tuple[str, str, str]:
    cost = apart("anonymize", large_table(rows), NAMES)
    return (
        f"the same, {rows:,} rows, in a process of its own: k = {cost.answer['k']}, l = {cost.answer['l']}, "
        f"GCP {cost.answer['gcp']:.4f}",
        f"{cost.cpu:.0f} CPU s, {cost.peak / 1e9:.1f} GB",
        "under 3 GB",
    )


def on_spark(rows: int) -> tuple[str, str, str]:
    path = large_table(rows)
    ours, spark = apart("sfumato", path, NAMES), apart("spark", path, NAMES)
    # Nine measures look at the worst class alone, and here that is one person; the risks look at all of them.
    differ = [key for key, value in ours.answer.items() if spark.answer[key] != value]
    return (
        f"reduce on a local Spark session and nine measures, {rows:,} rows of Parquet, start of Python and Java "
        f"included: {spark.cpu:.0f} CPU s, {spark.peak / 1e9:.1f} GB; without Spark {ours.cpu:.1f} CPU s, "
        f"{ours.peak / 1e9:.1f} GB",
        f"other {', '.join(differ)}" if differ else "same answers",
        "same answers",
    )


def main(rows: int = ROWS, huge: int = HUGE) -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows."""
    counted = [*(against_a_group_by(kind, rows) for kind in Format), huge_table(huge)]
    return [*counted, released(rows), huge_release(huge), on_spark(rows)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=rows_of, default=ROWS, help=f"rows of most tables ({ROWS:.0e})")
    parser.add_argument("--huge", type=rows_of, default=HUGE, help=f"rows of the largest table ({HUGE:.0e})")
    for row in main(**vars(parser.parse_args())):
        print(" | ".join(row))

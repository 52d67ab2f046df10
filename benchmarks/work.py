"""Count one table: by Sfumato with all nine measures, or by a bare group-by of a peer; here or in a process apart.

What a process apart took is that of the whole process, start and imports included, and of those
that it has started (Spark's Java machine). If it counts a small table first to warm up, its CPU
seconds are those after that.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    *("WORKS", "Cost", "apart", "by_anonymizing", "by_duckdb", "by_polars", "by_publishing", "by_sfumato", "by_spark"),
    *("spark_session", "used"),
]

Answer = dict[str, Any]
"""The measures and risks, or how many distinct tuples a peer found."""

NINE = ("k", "alpha", "l", "entropy_l", "recursive_c", "t", "basic_beta", "enhanced_beta", "delta_disclosure")


@dataclass(frozen=True)
class Cost:
    """What a piece of work took."""

    cpu: float
    """Seconds."""
    peak: float
    """Bytes of memory."""
    answer: Answer


def by_sfumato(data: Any, names: Sequence[str]) -> Answer:
    """Reduce a file or a frame, and measure; the last name is the sensitive column."""
    import sfumato as sf

    result = sf.assess(data, qi=list(names[:-1]), sensitive=list(names[-1:])).to_dict()
    return {key: result[key] for key in ("rows", "classes", *NINE, "risk")}


def by_anonymizing(path: Path, names: Sequence[str]) -> Answer:
    """Anonymize with Mondrian from Parquet to Parquet (k = 10, l = 2), measure the release again, and its loss."""
    import sfumato as sf

    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        to = Path(folder, "release.parquet")
        release = sf.anonymize(path, "k=10,l=2", qi=list(names[:-1]), sensitive=list(names[-1:]), to=to)
        return {"k": release.assessment.k, "l": release.assessment.l, "gcp": release.loss.gcp}


def by_publishing(path: Path, names: Sequence[str]) -> Answer:
    """Only publish, from Parquet to Parquet: neither the release nor its loss is measured."""
    import sfumato as sf

    table = sf.Table.of(path, qi=list(names[:-1]), sensitive=list(names[-1:]))
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        published = sf.Mondrian("k=10,l=2").fit(table).apply(table, to=Path(folder, "release.parquet"))
        return {"rows": published.rows}


def by_spark(path: Path, names: Sequence[str]) -> Answer:
    """Reduce in a local Spark session, and measure."""
    return by_sfumato(spark_session().read.parquet(str(path)), names)


def spark_session() -> Any:
    """Start a local Spark session that says little."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def by_polars(path: Path, names: Sequence[str]) -> Answer:
    """Group by the same columns with Polars' streaming engine, and measure nothing."""
    import polars as pl

    scan = pl.scan_csv(path) if path.suffix == ".csv" else pl.scan_parquet(path)
    return {"tuples": scan.group_by(names).len().collect(engine="streaming").height}


def by_duckdb(path: Path, names: Sequence[str]) -> Answer:
    """Group by the same columns with DuckDB, and measure nothing."""
    import duckdb

    columns = ", ".join(f'"{name}"' for name in names)
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")  # it would be printed among the figures
        connection.execute(f"CREATE TABLE counted AS SELECT {columns}, count(*) FROM '{path}' GROUP BY {columns}")
        found = connection.execute("SELECT count(*) FROM counted").fetchone()
    return {"tuples": found[0] if found else 0}


WORKS: dict[str, Callable[[Path, Sequence[str]], Answer]] = {
    "sfumato": by_sfumato,
    "polars": by_polars,
    "duckdb": by_duckdb,
    "spark": by_spark,
    "anonymize": by_anonymizing,
}


def apart(who: str, path: Path, names: Sequence[str], warm_up: Path | None = None) -> Cost:
    """Do the work in a process of its own."""
    paths = [str(one) for one in (warm_up, path) if one]
    program = [sys.executable, __file__, who, *paths, "--", *names]
    ran = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True)
    return Cost(**json.loads(ran.stdout.splitlines()[-1]))


def _main(who: str, *rest: str) -> None:
    end = rest.index("--")
    paths, names = [Path(path) for path in rest[:end]], rest[end + 1 :]
    before = 0.0
    for path in paths[:-1]:
        WORKS[who](path, names)
        before, _ = used()
    answer = WORKS[who](paths[-1], names)
    cpu, peak = used()
    print(json.dumps({"cpu": cpu - before, "peak": peak, "answer": answer}))


def used() -> tuple[float, float]:
    """Return the CPU seconds and the peak memory of this process and its descendants so far."""
    # Not getrusage: a new process begins with the ru_maxrss of the one that started it.
    cpu = peak = 0.0
    for process in _processes():
        with suppress(OSError):  # it has ended meanwhile
            ticks = _stat(process)[11:15]  # its own, and those of its children that have ended
            cpu += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
            highest = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
            peak += 1024 * int(highest[1]) if highest else 0
    return cpu, peak


def _processes() -> Iterator[int]:
    """Yield this process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            children.setdefault(int(_stat(int(folder.name))[1]), []).append(int(folder.name))
    found = [os.getpid()]
    while found:
        process = found.pop()
        yield process
        found.extend(children.get(process, []))


def _stat(process: int) -> list[str]:
    """Return what the system knows of a process, from its state on; its name before may hold anything."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


if __name__ == "__main__":
    _main(*sys.argv[1:])

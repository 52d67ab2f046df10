"""What the tests share: the same table as every kind of frame, and a clean command line."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, settings

import sfumato as sf
from tests.effort import effort
from tests.postgres import database_url, postgres_server  # noqa: F401 - fixtures of all tests

# The machines that run the tests are shared and noisy, so that no example is too slow. Continuous integration tries
# the same examples every time, so that a failure is that of the change; elsewhere each run tries new ones.
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    max_examples=effort(25, 400),
)
settings.load_profile("patient")

# Java would compile, at length, what the tests run only a few times: all sessions start with its quick compiler alone.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

FRAMES = ("pandas", "polars", "pyarrow", "duckdb", "spark")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A real local Spark session."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(params=FRAMES)
def as_frame(request: pytest.FixtureRequest) -> Callable[[pl.DataFrame], Any]:
    """Turn a Polars frame into a frame of each kind."""
    kind = request.param
    if kind == "polars":
        return lambda frame: frame
    if kind == "pandas":
        return lambda frame: frame.to_pandas()
    if kind == "pyarrow":
        return lambda frame: frame.to_arrow()
    if kind == "duckdb":
        import duckdb

        return lambda frame: duckdb.from_arrow(frame.to_arrow())
    session = request.getfixturevalue("spark")
    return lambda frame: session.createDataFrame(frame.to_arrow())


# Where rows can be, and the engine that is asked to count them there.
PLACES = (
    ("pandas", "memory"),
    ("polars", "memory"),
    ("pyarrow", "memory"),
    ("lazy", "memory"),
    ("csv", "memory"),
    ("parquet", "memory"),
    ("plain parquet", "memory"),
    ("arrow", "memory"),
    ("duckdb", "auto"),
    ("duckdb", "memory"),
    ("duckdb file", "auto"),
    ("sqlite", "auto"),
    ("postgresql", "auto"),
    ("spark", "auto"),
)


@pytest.fixture(params=PLACES, ids=" ".join)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[[pl.DataFrame], Any], str]:
    """How rows get to a place, and the engine that is asked to count them there."""
    from sfumato.data.io.source import File

    where, engine = request.param
    number = itertools.count()

    def put(frame: pl.DataFrame) -> Any:
        path = tmp_path / f"{next(number)}.{where.rpartition(' ')[2]}"
        if where == "pandas":
            return frame.to_pandas(use_pyarrow_extension_array=True)
        if where == "polars":
            return frame
        if where == "pyarrow":
            return frame.to_arrow()
        if where == "lazy":
            return frame.lazy()
        if where == "duckdb":
            import duckdb

            return duckdb.from_arrow(frame.to_arrow())
        if where == "duckdb file":
            import duckdb

            with duckdb.connect(str(path)) as connection:
                connection.register("rows", frame.to_arrow())
                connection.execute('CREATE TABLE "peo""ple" AS SELECT * FROM rows')
            return sf.read(path.rename(path.with_suffix(".duckdb"))).source
        if where == "spark":
            return request.getfixturevalue("spark").createDataFrame(frame.to_arrow())
        if where in ("sqlite", "postgresql"):
            from sfumato.data.io.database import Database
            from tests.postgres import store

            if where == "sqlite":
                path.touch()
            server = None if where == "sqlite" else request.getfixturevalue("postgres_server")
            url = server.fresh_database() if server else f"sqlite:///{path}"
            store(url, 'peo"ple', frame)
            return Database(url, 'peo"ple')
        if where == "plain parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(frame.to_arrow(), path, use_dictionary=False)
        else:
            sf.write(frame, path)
        return File(path)

    return put, engine


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def refused(ran: Ran, *parts: str) -> None:
    """Check that a command ended with one sentence that holds these parts."""
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("Error: ")
    assert ran.err.count("\n") == 1, "one sentence"
    for part in parts:
        assert part in ran.err


@pytest.fixture
def sfumato(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run a command in an empty folder, in this process, through the real entry point."""
    from sfumato.cli.main import main

    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ran:
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err or "--debug" in arguments
        return Ran(int(exit_.value.code or 0), out, err)

    return run


@pytest.fixture
def run_python() -> Callable[[str], str]:
    """Run a program in a fresh interpreter and return what it prints."""

    def run(program: str) -> str:
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    return run

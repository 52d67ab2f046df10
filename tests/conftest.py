"""What the tests share: the same table as every kind of frame, and a clean command line."""

from __future__ import annotations

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

# The machines that run the tests are shared and noisy, so that no example is too slow. Continuous integration tries
# the same examples every time, so that a failure is that of the change; elsewhere each run tries new ones.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("patient")

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


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


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

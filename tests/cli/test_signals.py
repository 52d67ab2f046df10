"""A command that is told to stop does so in order: nothing of the rows is left on the disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

COMMAND = "from sfumato.cli.main import main; main()"
ENDED = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


@contextmanager
def spilling(folder: Path, program: str = COMMAND) -> Iterator[subprocess.Popen[str]]:
    """Run a command until DuckDB has rows of the table in the temporary folder."""
    table, temporary = folder / "x.parquet", folder / "temporary"
    letters = pl.int_range(6_000_000, eager=True).cast(pl.String).str.zfill(60)
    pl.DataFrame({"a": letters}).write_parquet(table)
    temporary.mkdir()
    arguments = ["assess", table, "--qi", "a", "--engine", "duckdb", "--memory", "60MB"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            while process.poll() is None and not any(file.stat().st_size for file in temporary.glob("sfumato-*/*")):
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("name", ENDED)
def test_a_command_that_is_stopped_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    with spilling(tmp_path) as process:
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (ENDED[name], "", "Stopped.")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    program = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); {COMMAND}"  # as nohup does
    with spilling(tmp_path, program) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == ENDED["SIGTERM"]

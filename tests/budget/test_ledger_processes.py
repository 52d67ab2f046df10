"""Many processes on one ledger, and processes that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import sfumato as sf
from sfumato.budget import Gaussian, PureEvent
from tests.effort import effort

PEOPLE = pl.DataFrame({"age": [30, 41]})
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for a ledger; in memory if the system has one, for thousands of writes to a disk take minutes."""
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder, "some.ledger")


def _spend(*arguments: object) -> list[int]:
    command = [sys.executable, "-m", "tests.budget.spenders", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return [int(number) for number in ran.stdout.split()]


def test_many_processes_that_charge_at_once_never_overspend(path: Path) -> None:
    processes, charges = effort(20, 50), effort(50, 200)
    affordable = processes * charges * 3 // 4
    sf.Ledger.grant(PEOPLE, epsilon=affordable / 1000, path=path)
    admitted, ended_well = _spend("many", path, processes, charges)
    ledger = sf.Ledger(path)
    assert ended_well == processes
    assert admitted == len(ledger.events) == affordable
    assert ledger.spent.epsilon == pytest.approx(affordable / 1000, rel=1e-12)
    assert ledger.left == 0
    with pytest.raises(sf.errors.BudgetError, match="nothing is left"):
        ledger.charge(PureEvent(0.001))


def test_hundreds_of_killed_processes_lose_no_charge_and_block_nobody(path: Path) -> None:
    for number in range(
        effort(1, 5)
    ):  # a ledger that is opened is read whole: five short ones take less time than a long one
        one = path.with_name(f"{number}.ledger")
        sf.Ledger.grant(PEOPLE, epsilon=1e6, path=one)
        told, ours, lost = _spend("killed", one, 200, number)
        ledger = sf.Ledger(one)
        assert lost == 0
        assert told >= 150, "most were killed while they charged"
        assert told + ours <= len(ledger.events) <= told + ours + 200, "at most one charge per kill was not yet told"
        ledger.charge(PureEvent(0.001))
        assert not list(path.parent.glob("*-journal"))


def test_threads_share_a_ledger(path: Path) -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=1, delta=1e-6, path=path)
    refused = []

    def spend() -> None:
        for _ in range(10):
            try:
                ledger.charge(Gaussian(30.0))
            except sf.errors.BudgetError:
                refused.append(1)

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.events) + len(refused) == 80
    assert refused
    assert ledger.spent.epsilon <= 1

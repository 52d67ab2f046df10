"""A studio with a small table, and a browser that has entered it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sfumato.studio import jobs
from sfumato.studio.workspace import Workspace
from tests.studio.client import Browser


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of 400 people; their classes have 6 or 7 rows, and one sensitive value each."""
    rows = (f"{13000 + i % 5},{20 + i % 60},{'fm'[i % 2]},{('flu', 'ulcer', 'cancer')[i % 3]}\n" for i in range(400))
    path = tmp_path / "patients.csv"
    path.write_text("zip,age,sex,disease\n" + "".join(rows), encoding="utf-8")
    return path


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A browser that has entered a studio; all work is stopped at the end."""
    made = Browser(tmp_path / "work")
    made.enter()
    yield made
    stop_all(tmp_path / "work")


def stop_all(folder: Path) -> None:
    """Cancel what still runs, and wait until it has ended."""
    for project in Workspace(folder):
        for job in jobs.running(project):
            jobs.cancel(project, job.id)
        while jobs.running(project):
            pass
    for child in jobs._CHILDREN:
        child.wait()

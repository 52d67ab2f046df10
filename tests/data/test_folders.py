"""A folder is written whole or not at all, whatever happens to who writes it."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.data.io.folders import atomic_folder

WRITER = """
import sys, time
from sfumato.data.io.folders import atomic_folder
with atomic_folder(sys.argv[1]) as folder:
    (folder / "half").write_text("x")
    print("writing", flush=True)
    time.sleep(float(sys.argv[2]))
    (folder / "whole").write_text("x")
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def writer(target: Path, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", WRITER, target, str(seconds)], stdout=-1, stderr=-1, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


def test_a_folder_appears_when_all_went_well(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "release") as folder:
        (folder / "table.csv").write_text("age")
        assert not (tmp_path / "release").exists()
    assert names(tmp_path) == ["release"]
    assert names(tmp_path / "release") == ["table.csv"]


def test_nothing_is_left_when_something_goes_wrong(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_folder(tmp_path / "release") as folder:
            (folder / "table.csv").write_text("age")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert names(tmp_path) == []


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(sf.errors.FileError, match="No space left"), atomic_folder(tmp_path / "release"):
        raise full
    assert names(tmp_path) == []


def test_an_empty_folder_is_filled_and_any_other_is_kept(tmp_path: Path) -> None:
    empty, taken, file = tmp_path / "empty", tmp_path / "taken", tmp_path / "file"
    empty.mkdir()
    taken.mkdir()
    (taken / "old").write_text("old")
    file.write_text("old")
    with atomic_folder(empty) as folder:
        (folder / "new").write_text("new")
    assert names(empty) == ["new"]
    for path in (taken, file):
        with pytest.raises(sf.errors.FileError, match="exists already"), atomic_folder(path):
            pytest.fail("it was written to")
    assert names(taken) == ["old"]
    with pytest.raises(sf.errors.FileError, match="there is no folder"), atomic_folder(tmp_path / "none" / "release"):
        pytest.fail("it was written to")


def test_of_two_writers_one_wins_and_the_other_is_told(tmp_path: Path) -> None:
    target = tmp_path / "release"
    slow = writer(target, 1.0)
    with atomic_folder(target) as folder:  # what the other writes meanwhile is not taken for abandoned
        (folder / "mine").write_text("x")
    _, error = slow.communicate()
    assert slow.returncode == 1
    assert "exists already" in error
    assert names(target) == ["mine"]
    assert names(tmp_path) == ["release"]


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is removed there")
def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    target = tmp_path / "release"
    killed, alive = writer(target, 60), writer(target, 60)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert len(names(tmp_path)) == 2
    with pytest.raises(KeyError), atomic_folder(target):
        raise KeyError
    assert len(names(tmp_path)) == 1  # that of the living one
    alive.send_signal(signal.SIGTERM)
    alive.communicate()


def test_a_folder_that_is_just_being_made_is_not_taken_for_an_abandoned_one(tmp_path: Path) -> None:
    def write(name: str) -> str:
        try:
            with atomic_folder(tmp_path / name) as folder:
                (folder / "table.csv").write_text("age\n30\n")
        except sf.errors.FileError as error:
            return str(error)
        return "written"

    with ThreadPoolExecutor(8) as pool:
        for round_ in range(100):
            said = sorted(pool.map(write, [f"release{round_}"] * 8))
            assert said.count("written") == 1
            assert all(re.search("written|exists already|has created it meanwhile", text) for text in said), said
    assert {path.name for path in tmp_path.iterdir()} == {f"release{n}" for n in range(100)}

"""The file of a ledger: only its owner's, only added to, and refused when it is damaged."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import sfumato as sf
from sfumato.budget import PureEvent
from sfumato.budget.ledger import store

PEOPLE = pl.DataFrame({"age": [30, 41]})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a ledger with a few charges, which are written to the disk one by one."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SFUMATO_HOME", str(folder / "home"))
        with sf.Ledger.grant(PEOPLE, epsilon=10, path=folder / "some.ledger") as ledger:
            for number in range(40):
                ledger.charge(PureEvent(0.1), note=f"number {number}")
    return folder


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """A copy of it, with the keys of its owner."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True), "some.ledger")


def test_only_its_owner_can_read_it(path: Path) -> None:
    for file in path.parent.iterdir():
        if file.is_file():
            assert file.stat().st_mode & 0o777 == 0o600, file.name
    path.chmod(0o640)
    with pytest.raises(sf.errors.FileError, match=r"accessible to other users \(chmod 600"):
        sf.Ledger(path)


def test_nothing_else_is_left_beside_it(path: Path) -> None:
    assert sorted(file.name for file in path.parent.iterdir()) == [".some.ledger.lock", "home", "some.ledger"]


def test_a_file_that_cannot_be_written_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(sf.errors.FileError, match="there is no folder"):
        sf.Ledger.grant(PEOPLE, epsilon=1, path=path.parent / "none" / "a.ledger")
    with pytest.raises(sf.errors.FileError, match="is not a regular file"):
        sf.Ledger.grant(PEOPLE, epsilon=1, path=path.parent)


def test_any_flipped_bit_is_refused_or_changes_nothing(path: Path) -> None:
    before, sound = sf.Ledger(path).export(), path.read_bytes()
    copy, dice = path.with_name("copy.ledger"), random.Random(8)
    refused = 0
    for _ in range(400):
        damaged = bytearray(sound)
        damaged[dice.randrange(len(sound))] ^= 1 << dice.randrange(8)
        copy.write_bytes(damaged)
        copy.chmod(0o600)
        try:
            with sf.Ledger(copy) as ledger:
                assert ledger.export() == before
        except sf.errors.FileError:
            refused += 1
        assert copy.read_bytes() == damaged, "it was left as it is"
    assert refused > 100


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 5000, -1])
def test_a_file_cut_short_is_refused_and_never_begun_anew(path: Path, size: int) -> None:
    cut = path.read_bytes()[:size]
    path.write_bytes(cut)
    with pytest.raises(sf.errors.FileError, match="damaged"):
        sf.Ledger(path)
    with pytest.raises(sf.errors.FileError, match="damaged"):
        sf.Ledger.grant(PEOPLE, epsilon=1, path=path)
    assert path.read_bytes() == cut


def test_a_file_of_something_else_is_refused(path: Path) -> None:
    path.write_text("age,sex\n30,f\n" * 1000)
    with pytest.raises(sf.errors.FileError, match="damaged"):
        sf.Ledger(path)
    path.unlink()
    _edit(path, "CREATE TABLE people (age INTEGER)")
    path.chmod(0o600)
    with pytest.raises(sf.errors.FileError, match="damaged"):
        sf.Ledger(path)


def _edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_entries_can_be_neither_changed_nor_removed(path: Path) -> None:
    for change in ("UPDATE entries SET content = '{}'", "DELETE FROM entries"):
        with pytest.raises(sqlite3.IntegrityError, match="entries stay"):
            _edit(path, change)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET content = replace(content, '0.1', '0.01') WHERE number = 7",
        "UPDATE entries SET time = 0 WHERE number = 7",
        "DELETE FROM entries WHERE number = 7",
        "DELETE FROM entries",
        "INSERT INTO entries VALUES (99, 0, 'grant', '{\"epsilon\": 99}', 'seal')",
        "DELETE FROM entries WHERE number = 42",
        "DELETE FROM entries WHERE number > 10",
        "DELETE FROM ending",
        "INSERT INTO ending VALUES ('zzz')",
        "UPDATE ending SET seal = (SELECT seal FROM entries WHERE number = 42)",
    ],
)
def test_a_file_that_was_edited_is_refused(path: Path, change: str) -> None:
    _edit_anyway(path, change)
    with pytest.raises(sf.errors.FileError, match="damaged"):
        sf.Ledger(path)


def _edit_anyway(path: Path, *changes: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        triggers = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
    _edit(path, *(f"DROP TRIGGER {name}" for name in triggers), *changes, *triggers.values())


def test_the_last_charge_cannot_be_cut_off_while_the_ledger_is_open_either(path: Path) -> None:
    ledger = sf.Ledger(path)
    ledger.close()  # it is read again when it is used again
    _edit_anyway(path, "DELETE FROM entries WHERE number = 42")
    with pytest.raises(sf.errors.FileError, match="damaged"):
        ledger.charge(PureEvent(0.1))


def test_the_file_keeps_no_seal_of_an_earlier_end(path: Path) -> None:
    """With it, charges could be cut off after all."""
    ends = []
    with sf.Ledger(path) as ledger:
        for _ in range(300):  # numbers grow, and pages fill up
            with closing(sqlite3.connect(path)) as connection:
                ends.append(connection.execute("SELECT seal FROM ending").fetchone()[0].encode())
            ledger.charge(PureEvent(0.001))
    content = path.read_bytes()
    assert len(set(ends)) == 300
    assert not any(end in content for end in ends)


def test_a_ledger_of_the_earlier_format_is_refused_and_left_as_it_is(path: Path) -> None:
    """Its end has no seal: to take it over would be a way to cut it off."""
    earlier = f"PRAGMA application_id = {store._EARLIER}"
    _edit_anyway(path, "DELETE FROM entries WHERE number = 42", "DROP TABLE ending", earlier)
    before = path.read_bytes()
    for opened in (lambda: sf.Ledger(path), lambda: sf.Ledger.grant(PEOPLE, epsilon=1, path=path)):
        with pytest.raises(sf.errors.FileError, match="has an earlier format"):
            opened()
    assert path.read_bytes() == before


def test_a_file_without_its_triggers_is_refused(path: Path) -> None:
    _edit(path, "DROP TRIGGER never_delete")
    with pytest.raises(sf.errors.FileError, match="damaged"):
        sf.Ledger(path)


def test_a_file_that_is_replaced_or_removed_while_it_is_open_is_refused(path: Path) -> None:
    ledger = sf.Ledger(path)
    shutil.copy(path, path.with_name("old"))
    ledger.charge(PureEvent(0.1))
    path.with_name("old").chmod(0o600)
    path.with_name("old").replace(path)
    with pytest.raises(sf.errors.FileError, match="was replaced while it was open"):
        ledger.charge(PureEvent(0.1))
    path.unlink()
    with pytest.raises(sf.errors.FileError, match="cannot be read"):
        ledger.charge(PureEvent(0.1))


def test_an_older_copy_written_over_an_open_ledger_is_refused(path: Path) -> None:
    ledger, old = sf.Ledger(path), path.read_bytes()
    ledger.charge(PureEvent(0.1))
    path.write_bytes(old)
    with pytest.raises(sf.errors.FileError, match="damaged"):
        ledger.charge(PureEvent(0.1))


def test_a_closed_ledger_can_be_used_again(path: Path) -> None:
    ledger = sf.Ledger(path)
    ledger.close()
    ledger.charge(PureEvent(0.1))
    assert len(ledger.events) == 41


MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/local\\040disk ext4 rw 0 0
"""


def test_a_file_system_of_the_network_is_refused(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store._file_system(Path("/home/ada/x.ledger"), MOUNTS) == "nfs4"
    assert store._file_system(Path("/home/local disk/x.ledger"), MOUNTS) == "ext4"
    assert store._file_system(Path("/var/x.ledger"), MOUNTS) == "ext4"
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {path.parent.resolve()} nfs rw 0 0\n")
    monkeypatch.setattr(store, "_MOUNTS", mounts)
    with pytest.raises(sf.errors.FileError, match=r"network file system \(nfs\), where two machines could"):
        sf.Ledger(path)
    with pytest.raises(sf.errors.FileError, match="network file system"):
        sf.Ledger.grant(PEOPLE, epsilon=1, path=path.with_name("new.ledger"))


def test_a_second_name_of_the_file_is_refused(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.ledger"
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(sf.errors.FileError, match=r"has a second name \(hard link\)"):
            sf.Ledger(name)
    other.unlink()
    assert len(sf.Ledger(path).events) == 40


def test_the_name_that_a_killed_process_left_is_removed(path: Path) -> None:
    left = path.with_name(f".{path.name}.0123abcd.tmp")
    left.hardlink_to(path)
    assert len(sf.Ledger(path).events) == 40
    assert not left.exists()

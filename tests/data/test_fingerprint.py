"""A fingerprint can be compared by who holds the key, and by nobody else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.data.io.fingerprint import fingerprint, matches_fingerprint


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_fingerprint_is_that_of_every_file_with_the_same_content(tmp_path: Path) -> None:
    for name, text in (("a", "age"), ("b", "age"), ("c", "Age")):
        (tmp_path / name).write_text(text)
    mine = fingerprint(tmp_path / "a")
    assert [matches_fingerprint(tmp_path / name, mine) for name in "abc"] == [True, True, False]


def test_two_fingerprints_of_one_file_have_nothing_in_common(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("age")
    first, second = (fingerprint(tmp_path / "a").split(":") for _ in range(2))
    assert first[0] == second[0] == "hmac-sha256"
    assert first[1] != second[1]
    assert first[2] != second[2]


@pytest.mark.parametrize("known", ["", "hmac-sha256:00", "hmac-sha256:x:y", "sha256:00:00", "hmac-sha256:\ud800:00"])
def test_what_is_not_a_fingerprint_is_that_of_no_file(tmp_path: Path, known: str) -> None:
    (tmp_path / "a").write_text("age")
    assert not matches_fingerprint(tmp_path / "a", known)


def test_it_is_no_plain_hash_and_other_users_get_another(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("age")
    mine = fingerprint(tmp_path / "a")
    assert hashlib.sha256(b"age").hexdigest() not in mine
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "other"))
    assert not matches_fingerprint(tmp_path / "a", mine)


def test_the_key_is_its_owners_alone(tmp_path: Path, home: Path) -> None:
    (tmp_path / "a").write_text("age")
    fingerprint(tmp_path / "a")
    assert [path.name for path in home.iterdir()] == ["fingerprint.key"]
    assert (home / "fingerprint.key").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o077 == 0


def test_a_damaged_key_is_refused(tmp_path: Path, home: Path) -> None:
    (tmp_path / "a").write_text("age")
    home.mkdir()
    (home / "fingerprint.key").write_bytes(b"short")
    with pytest.raises(sf.errors.FileError, match="damaged"):
        fingerprint(tmp_path / "a")
    (home / "fingerprint.key").unlink()
    with pytest.raises(sf.errors.FileError, match="cannot be read"):
        fingerprint(tmp_path / "none")

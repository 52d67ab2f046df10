"""Keys are for their owner alone; a sealed mapping opens with its own key, whole, or not at all."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.pseudonyms.keys import Mapping, Passphrase, SealedMapping
from tests.effort import effort

KEY = sf.Key(bytes(range(32)))
OTHER = sf.Key(bytes(range(1, 33)))


def write(path: Path, secret: sf.Key | Passphrase, mapping: Mapping) -> SealedMapping:
    sealed = SealedMapping(path, secret)
    with sealed.extending() as opened:
        opened.update(mapping)
    return sealed


# Keys


def test_a_new_key_is_random_and_for_its_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        sf.Key.new(tmp_path / "a.key")
    finally:
        os.umask(old)
    sf.Key.new(tmp_path / "b.key")
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600
    header, a = (tmp_path / "a.key").read_text().splitlines()
    assert header.startswith("sfumato key 1: makes and opens pseudonyms")
    assert len(bytes.fromhex(a)) == 32
    assert a not in (tmp_path / "b.key").read_text()


def test_a_key_that_is_loaded_is_the_one_that_was_made(tmp_path: Path) -> None:
    made = sf.Key.new(tmp_path / "a.key")
    assert sf.Key.load(tmp_path / "a.key").derive("x", 32) == made.derive("x", 32)


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    for name, make in [("file", Path.touch), ("folder", Path.mkdir)]:
        make(tmp_path / name)
        with pytest.raises(sf.errors.FileError, match="exists, and a key is never overwritten"):
            sf.Key.new(tmp_path / name)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(sf.errors.FileError, match="never overwritten"):
        sf.Key.new(tmp_path / "link")
    with pytest.raises(sf.errors.FileError, match="cannot be written: No such file"):
        sf.Key.new(tmp_path / "no" / "folder.key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o777])
def test_a_key_that_is_open_to_others_is_refused_with_what_mends_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "my key"
    sf.Key.new(path)
    path.chmod(mode)
    with pytest.raises(sf.errors.FileError, match="is accessible to other users") as raised:
        sf.Key.load(path)
    subprocess.run(raised.value.hint, shell=True, check=True)
    sf.Key.load(path)


def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "k"
    good = "sfumato key 1: x\n" + "ab" * 32
    for content in ["", "secret", "sfumato key 1: x\n" + "ab" * 31, good + "00", good.upper(), good.replace("1", "2")]:
        path.unlink(missing_ok=True)
        path.write_text(content)
        path.chmod(0o600)
        with pytest.raises(sf.errors.FileError, match="is not a Sfumato key") as raised:
            sf.Key.load(path)
        assert "secret" not in str(raised.value)
        assert "abab" not in str(raised.value)
    path.write_text(good + "\n")
    sf.Key.load(path)
    with pytest.raises(sf.errors.FileError, match=r"cannot be read: No such file .*sfumato key new"):
        sf.Key.load(tmp_path / "nowhere")
    with pytest.raises(sf.errors.FileError, match="cannot be read: Is a directory"):
        sf.Key.load(tmp_path)


def test_a_short_key_or_passphrase_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.OptionError, match="at least 32 random bytes"):
        sf.Key(b"x" * 31)
    with pytest.raises(sf.errors.OptionError, match="at least 12 characters") as raised:
        sf.pseudonyms.RandomTokens(tmp_path / "m", passphrase="hunter2")
    assert "hunter2" not in str(raised.value)
    for secrets in ({}, {"key": KEY, "passphrase": "correct horse"}):
        with pytest.raises(sf.errors.OptionError, match="with either a key or a passphrase"):
            sf.pseudonyms.RandomTokens(tmp_path / "m", **secrets)  # type: ignore[arg-type]
    with pytest.raises(sf.errors.OptionError, match="a Key or the path of a key file, got bytes"):
        sf.pseudonyms.KeyedTokens(bytes(32))  # type: ignore[arg-type]


# Sealed mappings


def test_a_mapping_is_sealed_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "m"
    sealed = write(path, KEY, {"id": {"identifier": "pseudonym"}})
    content = path.read_bytes()
    assert b"identifier" not in content
    assert b"pseudonym" not in content
    assert content.startswith(b"sfumato mapping 1 key\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sealed.read() == {"id": {"identifier": "pseudonym"}}
    assert sorted(one.name for one in tmp_path.iterdir()) == [".m.lock", "m"]


def test_every_write_has_a_new_key_and_no_write_happens_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m"
    sealed = write(path, KEY, {"id": {"a": "b"}})
    first = path.read_bytes()
    with sealed.extending():
        pass
    assert path.read_bytes() == first
    write(path, KEY, {"no": {"c": "d"}})
    assert path.read_bytes()[22:86] != first[22:86]
    assert sealed.read() == {"id": {"a": "b"}, "no": {"c": "d"}}


def test_a_wrong_key_is_one_clear_sentence(tmp_path: Path) -> None:
    write(tmp_path / "m", KEY, {"id": {"a": "b"}})
    before = (tmp_path / "m").read_bytes()
    with pytest.raises(sf.errors.FileError, match="this key does not open the mapping"):
        SealedMapping(tmp_path / "m", OTHER).read()
    with (
        pytest.raises(sf.errors.FileError, match="this key does not open the mapping"),
        SealedMapping(tmp_path / "m", OTHER).extending(),
    ):
        pass
    with pytest.raises(sf.errors.FileError, match="was sealed with a key, not with a passphrase"):
        SealedMapping(tmp_path / "m", Passphrase("correct horse battery")).read()
    assert (tmp_path / "m").read_bytes() == before


def test_a_passphrase_opens_what_it_has_sealed(tmp_path: Path) -> None:
    write(tmp_path / "m", Passphrase("correct horse batteri\u00e9s"), {"id": {"a": "b"}})
    assert SealedMapping(tmp_path / "m", Passphrase("correct horse batterie\u0301s")).read() == {"id": {"a": "b"}}
    with pytest.raises(sf.errors.FileError, match="this passphrase does not open the mapping"):
        SealedMapping(tmp_path / "m", Passphrase("correct horse batteries")).read()


def test_a_mapping_with_any_byte_changed_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "m"
    sealed = write(path, KEY, {"id": {"a": "b"}})
    good = path.read_bytes()
    for at in range(len(good)):
        for flip in (0x01, 0x80):
            bad = good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :]
            path.write_bytes(bad)
            with pytest.raises(sf.errors.FileError, match=r"damaged|was sealed with|does not open"), sealed.extending():
                pass
            assert path.read_bytes() == bad, "never reset"
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(sf.errors.FileError, match=r"damaged|does not open"):
            sealed.read()
    path.write_bytes(good + b"x")
    with pytest.raises(sf.errors.FileError, match="damaged"):
        sealed.read()
    path.write_bytes(good)
    assert sealed.read() == {"id": {"a": "b"}}


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    sealed = write(tmp_path / "m", KEY, {"id": {"a": "b"}})
    sealed.path.write_bytes(sealed.path.read_bytes().replace(b"mapping 1", b"mapping 2"))
    with pytest.raises(sf.errors.FileError, match="does not have version 1"):
        sealed.read()


def test_a_mapping_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.FileError, match="cannot be written: No such file"):
        write(tmp_path / "no" / "m", KEY, {"id": {"a": "b"}})
    (tmp_path / "folder").mkdir()
    with pytest.raises(sf.errors.FileError, match="cannot be read: Is a directory"):
        write(tmp_path / "folder", KEY, {"id": {"a": "b"}})
    with pytest.raises(sf.errors.FileError, match=r"the mapping .* cannot be read: No such file"):
        SealedMapping(tmp_path / "nowhere", KEY).read()


def test_a_failure_while_extending_writes_nothing(tmp_path: Path) -> None:
    sealed = write(tmp_path / "m", KEY, {"id": {"a": "b"}})
    with pytest.raises(KeyError), sealed.extending() as mapping:
        mapping["id"]["c"], mapping["no"]["such space"] = "d", "e"
    assert sealed.read() == {"id": {"a": "b"}}


EXTEND = """
import sys
import sfumato as sf
path, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
method = sf.pseudonyms.RandomTokens(path, sf.Key(bytes(range(32))))
method.make({"others": [str(first)]})  # what is imported on first use is there before it starts
print("ready", flush=True)
sys.stdin.readline()
for number in range(first, last):
    token = method.make({"id": [str(number), str(number + 1)]})["id"][0]
    print(number, token, flush=True)
"""


def extend(path: Path, first: int, last: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", EXTEND, str(path), str(first), str(last)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def printed(lines: str) -> dict[str, str]:
    """What a process has told; a line that was cut off by its end was not told."""
    return dict(line.split() for line in lines.splitlines(keepends=True) if line.endswith("\n"))  # type: ignore[misc]


def test_two_processes_extend_one_mapping_and_nothing_is_lost(tmp_path: Path) -> None:
    processes = [extend(tmp_path / "m", 0, 60), extend(tmp_path / "m", 30, 90)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [printed(process.communicate(timeout=120)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    mapping = SealedMapping(tmp_path / "m", KEY).read()["id"]
    assert set(mapping) == {str(number) for number in range(91)}
    assert len(set(mapping.values())) == 91
    for one in told:
        assert len(one) == 60
        assert one.items() <= mapping.items(), "both were told what the mapping says"


def test_a_process_that_is_killed_leaves_the_old_or_the_new_mapping(tmp_path: Path) -> None:
    others = {str(-number): f"token{number}" for number in range(1, 5001)}  # so that writing takes a while
    sealed = write(tmp_path / "m", KEY, {"id": dict(others)})
    known = others
    moments = random.Random(7)
    for kill in range(effort(6, 50)):
        process = extend(tmp_path / "m", 1000 * kill, 1000 * kill + 1000)
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        time.sleep(moments.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        known |= printed(process.communicate(timeout=60)[0])
        mapping = sealed.read()
        assert known.items() <= mapping["id"].items(), "what was told is there"
        assert str(1000 * kill) in mapping["others"]
    with sealed.extending() as mapping:  # a killed process holds no lock
        mapping["id"]["last"] = "one"
    assert sealed.read()["id"]["last"] == "one"

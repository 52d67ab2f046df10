"""Parties as processes of Flower, each with its own node: one deployment for all tests, which run in this order."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from sfumato.federation.channel import Channel
from sfumato.federation.flower import Holder, deploy
from sfumato.federation.flower.frames import PIECE
from sfumato.federation.secure.sum import MaskedSum, PlainSum
from tests.effort import THOROUGH
from tests.federation.parties import NAMES, noise, roster

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="flwr is not installed"),
    pytest.mark.skipif(not THOROUGH, reason="two minutes of real processes: make thorough runs them"),
]

FACTOR = {"east": 1, "north": 2, "south": 3}
REQUESTS = {name: {"by": 10} for name in NAMES}
MARK = "SFUMATO_TEST_DEPLOYMENT"


class Patient(Channel):
    """A channel that gives a busy machine time."""

    def __init__(self, channel):
        self.channel = channel

    @property
    def names(self):
        return self.channel.names

    def ask(self, requests, *, timeout=60.0):
        return self.channel.ask(requests, timeout=max(timeout, 180.0))


class Running:
    """The deployment, where it keeps its files, and how to leave it before the last test ends."""

    def __init__(self, folder, scratch, mark):
        self.folder, self.scratch, self.mark = folder, scratch, f"{MARK}={mark}".encode()
        self.stack = contextlib.ExitStack()
        holders = {name: Holder("tests.federation.parties:make", {"factor": FACTOR[name]}) for name in NAMES}
        self.deployment = self.stack.enter_context(deploy(holders, folder, seconds=300))
        self.channel = Patient(self.deployment.channel)

    def processes(self):
        """Return the processes that inherited this deployment's mark."""
        found = []
        for one in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark in (one / "environ").read_bytes().split(b"\0"):
                    found.append((one.name, (one / "cmdline").read_bytes().replace(b"\0", b" ")))
        return found


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flower")
    scratch = Path(tempfile.mkdtemp(prefix="flower-"))  # short: a socket's path has at most 107 bytes
    root = Path(__file__).parents[2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(root), prepend=os.pathsep)
        patch.setenv("TMPDIR", str(scratch))
        patch.setenv(MARK, scratch.name)
        patch.setattr(tempfile, "tempdir", str(scratch))
        one = Running(folder, scratch, scratch.name)
        with one.stack:
            yield one
    shutil.rmtree(scratch)


def test_a_masked_sum_over_processes_is_the_plain_one(running):
    plain = PlainSum().total(running.channel, 1, REQUESTS)
    masked = MaskedSum(roster()).total(running.channel, 2, REQUESTS)
    assert plain.total.tolist() == masked.total.tolist() == [36 * one for one in range(5)]
    assert plain.present == masked.present == NAMES
    assert plain.seen == masked.seen == {name: {"rows": FACTOR[name]} for name in NAMES}


def test_messages_of_several_pieces_arrive_bit_by_bit(running):
    there, size = noise(7, PIECE + 5), 20_000_000
    assert size > PIECE
    replies = running.channel.ask({"north": {"kind": "mirror", "data": there, "size": size}})
    reply = replies.require(["north"], "answer")["north"]
    assert reply["arrived"] == hashlib.sha256(there).hexdigest()
    assert reply["data"] == noise(FACTOR["north"], size)
    assert running.deployment.channel.sent["north"] > size
    assert running.deployment.channel.received["north"] > len(there)


def test_a_straggler_is_waited_for_as_long_as_is_set_and_comes_back(running):
    channel = running.deployment.channel
    channel.timeout = 100.0
    waits = {name: {"kind": "sleep", "seconds": 130.0 if name == "north" else 0.0} for name in NAMES}
    replies = channel.ask(waits)
    assert sorted(replies.arrived) == ["east", "south"]
    assert not replies.refused
    channel.timeout = None
    assert MaskedSum(roster()).total(running.channel, 5, REQUESTS).present == NAMES


def test_the_others_go_on_without_a_killed_party(running):
    process = running.deployment.processes["south"]
    process.kill()
    process.wait()
    found = MaskedSum(roster()).total(running.channel, 6, REQUESTS)
    assert found.present == ("east", "north")
    assert found.total.tolist() == [23 * one for one in range(5)]


def test_nothing_is_left_but_files_that_only_their_owner_reads(running):
    if sys.platform == "linux":
        assert len(running.processes()) >= 2 * 3 + 2  # a party, its node and its executor twice; the server's two
    running.stack.close()
    if sys.platform == "linux":
        assert running.processes() == []
    assert all(one.poll() is not None for one in running.deployment.processes.values())
    assert sorted(running.scratch.glob("sfumato-*")) == []
    files = [one for one in running.folder.rglob("*") if one.is_file()]
    secret = [one for one in files if b"PRIVATE KEY" in one.read_bytes() or one.name in ("secret", "arguments.json")]
    assert {one.name for one in secret} == {"node.key", "server.key", "secret", "arguments.json"}
    assert {stat.S_IMODE(one.stat().st_mode) for one in secret} == {0o600}

"""Sums over a channel: masked and plain ones agree, parties may be absent, and too few end in one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.errors import ProtocolError
from sfumato.federation.channel import InProcess, Party, Replies
from sfumato.federation.secure.masks import Roster
from sfumato.federation.secure.sum import MaskedSum, PlainSum, masked_handlers, plain_handlers

NAMES = ("east", "north", "south", "west")


class Unsteady(InProcess):
    """A channel on which parties fall silent from a step on."""

    def __init__(self, parties, silent):
        super().__init__(parties)
        self.silent = silent

    def ask(self, requests, *, timeout=60.0):
        return super().ask({n: r for n, r in requests.items() if (n, r["kind"]) not in self.silent}, timeout=timeout)


def setting(threshold=3, silent=()):
    own = {name: Ed25519PrivateKey.generate() for name in NAMES}
    roster = Roster(bytes(32), {name: one.public_key().public_bytes_raw() for name, one in own.items()}, threshold)

    def contribute(name):
        return lambda request: (np.arange(5, dtype=np.uint32) * (NAMES.index(name) + request["by"]), {"rows": 10})

    parties = [
        Party(name, {**masked_handlers(roster, name, own[name], contribute(name)), **plain_handlers(contribute(name))})
        for name in NAMES
    ]
    return roster, Unsteady(parties, set(silent))


REQUESTS = {key: {"by": 1} for key in NAMES}


def test_masked_and_plain_sums_agree():
    roster, channel = setting()
    plain = PlainSum().total(channel, 1, REQUESTS)
    masked = MaskedSum(roster).total(channel, 2, REQUESTS)
    assert plain.total.tolist() == masked.total.tolist() == [0, 10, 20, 30, 40]
    assert plain.present == masked.present == NAMES
    assert plain.seen == masked.seen == {key: {"rows": 10} for key in NAMES}


@pytest.mark.parametrize("step", ["keys", "share", "vector", "agree", "open"])
def test_a_party_may_fall_silent_at_any_step(step):
    roster, channel = setting(silent=[("south", f"sum/{step}")])
    found = MaskedSum(roster).total(channel, 1, REQUESTS)
    gone = step in ("keys", "share", "vector")
    assert found.present == (("east", "north", "west") if gone else NAMES)
    assert found.total.tolist() == [one * (7 if gone else 10) for one in range(5)]


@pytest.mark.parametrize("step", ["keys", "share", "vector", "agree", "open"])
def test_too_few_parties_open_nothing(step):
    roster, channel = setting(silent=[(name, f"sum/{step}") for name in ("south", "west")])
    with pytest.raises(ProtocolError, match="only 2 of 4 parties answered, but 3 are needed"):
        MaskedSum(roster).total(channel, 1, REQUESTS)


def test_a_round_is_never_run_twice():
    roster, channel = setting()
    MaskedSum(roster).total(channel, 5, REQUESTS)
    for old in (5, 4):
        with pytest.raises(ProtocolError, match="has taken part in round"):
            MaskedSum(roster).total(channel, old, REQUESTS)
    assert MaskedSum(roster).total(channel, 6, REQUESTS).present == NAMES


def test_a_reason_for_refusing_reaches_the_coordinator():
    _roster, channel = setting()
    with pytest.raises(ProtocolError, match="failed with KeyError"):
        PlainSum(least=4).total(channel, 1, {**REQUESTS, "south": {}})


def test_vectors_of_other_lengths_or_types_are_refused():
    parties = [Party(name, plain_handlers(lambda request: (request["vector"], {}))) for name in NAMES]
    channel = InProcess(parties)
    good = {name: {"vector": np.zeros(3, np.uint32)} for name in NAMES}
    for bad in (np.zeros(2, np.uint32), np.zeros(3), np.zeros((3, 1), np.uint32)):
        with pytest.raises(ProtocolError):
            PlainSum().total(channel, 1, {**good, "west": {"vector": bad}})


def test_replies_name_the_party_that_is_missing():
    with pytest.raises(ProtocolError, match="party 'west' did not count its rows"):
        Replies.sorted({"east": {}}).require(("east", "west"), "count its rows")

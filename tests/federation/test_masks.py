"""Secure sums by masks: the sum is right whoever drops out, and whatever is replayed, forged or split is refused."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import InputError, OptionError, ProtocolError
from sfumato.federation.secure.fixed_point import FixedPoint
from sfumato.federation.secure.masks import MaskingParty, MaskingServer, Roster, default_threshold
from sfumato.federation.secure.shamir import SHARE_BYTES, combine, share

Step = Callable[[str], bool]


class Play:
    """A round that can be stopped, looked into, and tampered with."""

    def __init__(self, parties: int, threshold: int | None = None, round_: int = 1, before: Play | None = None) -> None:
        names = [f"hospital {one}" for one in range(parties)]
        self.own = before.own if before else {name: Ed25519PrivateKey.generate() for name in names}
        public = {name: one.public_key().public_bytes_raw() for name, one in self.own.items()}
        run = before.roster.run if before else secrets.token_bytes(32)
        self.roster = Roster(run, public, threshold or default_threshold(parties))
        self.parties = {name: MaskingParty(self.roster, round_, name, one) for name, one in self.own.items()}
        self.server = MaskingServer(self.roster, round_)

    def advertise(self, there: list[str]) -> Any:
        return self.server.keys({name: self.parties[name].advertise() for name in there})

    def share(self, keys: Any, there: list[str]) -> Any:
        return self.server.mail({name: self.parties[name].share(keys) for name in there})

    def mask(self, mail: Any, vectors: Any, there: list[str]) -> Any:
        return {name: self.parties[name].mask(mail[name], vectors[name]) for name in there}

    def open(self, sent: Any, signing: list[str], opening: list[str], bits: int = 32) -> Any:
        stayed = self.server.arrived(sent, bits)
        signatures = {name: self.parties[name].agree(stayed) for name in signing}
        agreed = self.server.agreed(signatures)
        return self.server.total({name: self.parties[name].open(agreed) for name in opening})


def vectors_of(play: Play, length: int = 5, kind: Any = np.uint32) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, np.iinfo(kind).max, length, dtype=kind) for name in play.parties}


def total_of(vectors: dict[str, Any], names: list[str]) -> list[int]:
    return list(np.sum([vectors[name] for name in names], axis=0, dtype=next(iter(vectors.values())).dtype))


@given(st.data(), st.integers(2, 6), st.sampled_from([np.uint32, np.uint64]))
def test_the_sum_is_that_of_the_vectors_that_arrived_whoever_drops_out(data: Any, count: int, kind: Any) -> None:
    play = Play(count, threshold=count // 2 + 1)
    need, names = play.roster.threshold, list(play.parties)
    vectors = vectors_of(play, 3, kind)

    def some(of: list[str]) -> list[str]:
        return data.draw(st.lists(st.sampled_from(of), min_size=need, max_size=len(of), unique=True))

    first = some(names)
    keys = play.advertise(first)
    second = some(first)
    mail = play.share(keys, second)
    third = some(second)
    sent = play.mask(mail, vectors, third)
    fourth = some(third)
    found = play.open(sent, fourth, some(fourth), bits=8 * np.dtype(kind).itemsize)
    assert found.tolist() == total_of(vectors, third)


@pytest.mark.parametrize("phase", ["keys", "shares", "a vector", "agreed on who stayed", "opened their shares"])
def test_below_the_threshold_nothing_is_opened_in_any_phase(phase: str) -> None:
    play = Play(4, threshold=3)
    names = list(play.parties)
    few, vectors = names[:2], vectors_of(play)

    def all_phases() -> None:
        keys = play.advertise(few if phase == "keys" else names)
        mail = play.share(keys, few if phase == "shares" else names)
        sent = play.mask(mail, vectors, few if phase == "a vector" else names)
        play.open(sent, few if phase.startswith("agreed") else names, few if phase.startswith("opened") else names)

    with pytest.raises(ProtocolError, match=f"only 2 of 4 parties .*{phase}"):
        all_phases()


def test_what_a_party_sends_looks_random_without_the_others() -> None:
    play = Play(3)
    names = list(play.parties)
    zeros = {name: np.zeros(2000, np.uint32) for name in names}
    sent = play.mask(play.share(play.advertise(names), names), zeros, names)
    for one in sent.values():
        words = np.frombuffer(one, "<u4")
        bits = np.unpackbits(words.view(np.uint8)).mean()
        assert abs(bits - 0.5) < 6 * 0.5 / np.sqrt(64_000)  # fails once in 5e8 times
        assert len(np.unique(words)) > 1990


def test_keys_of_another_round_or_run_are_refused() -> None:
    old = Play(3, round_=1)
    names = list(old.parties)
    advertised = {name: old.parties[name].advertise() for name in names}
    new = Play(3, round_=2, before=old)
    with pytest.raises(ProtocolError, match="signature"):
        new.server.keys(advertised)
    fresh = {name: new.parties[name].advertise() for name in names}
    with pytest.raises(ProtocolError, match="signature"):
        new.parties[names[0]].share({**fresh, names[1]: advertised[names[1]]})


def test_shares_of_another_round_are_refused() -> None:
    old = Play(3, round_=1)
    names = list(old.parties)
    stale = old.share(old.advertise(names), names)
    new = Play(3, round_=2, before=old)
    mail = new.share(new.advertise(names), names)
    mail[names[0]][names[1]] = stale[names[0]][names[1]]
    with pytest.raises(ProtocolError, match="damaged, or of another round"):
        new.parties[names[0]].mask(mail[names[0]], np.zeros(2, np.uint32))


def test_signatures_of_another_round_open_nothing() -> None:
    old = Play(3, round_=1)
    names = list(old.parties)
    old.mask(old.share(old.advertise(names), names), vectors_of(old), names)
    stale = {name: old.parties[name].agree(names) for name in names}
    new = Play(3, round_=2, before=old)
    new.mask(new.share(new.advertise(names), names), vectors_of(new), names)
    new.parties[names[0]].agree(names)
    with pytest.raises(ProtocolError, match="signature"):
        new.parties[names[0]].open(stale)


def test_masks_of_two_rounds_differ() -> None:
    old = Play(3, round_=1)
    names = list(old.parties)
    zeros = {name: np.zeros(8, np.uint32) for name in names}
    one = old.mask(old.share(old.advertise(names), names), zeros, names)
    new = Play(3, round_=2, before=old)
    two = new.mask(new.share(new.advertise(names), names), zeros, names)
    assert all(one[name] != two[name] for name in names)


def test_a_wrong_identity_is_refused() -> None:
    play = Play(3)
    name = next(iter(play.parties))
    with pytest.raises(OptionError, match="not the one in the roster"):
        MaskingParty(play.roster, 1, name, Ed25519PrivateKey.generate())
    stranger = {**play.parties[name].advertise(), "signature": bytes(64)}
    rest = {one: play.parties[one].advertise() for one in play.parties if one != name}
    with pytest.raises(ProtocolError, match=f"signature of party '{name}'"):
        play.server.keys({**rest, name: stranger})
    with pytest.raises(ProtocolError, match="not a party"):
        play.server.keys({**rest, "mallory": stranger})


def test_a_replaced_key_is_found_by_the_parties() -> None:
    play = Play(3)
    names = list(play.parties)
    keys = dict(play.advertise(names))
    keys[names[2]] = {**keys[names[2]], "pair": secrets.token_bytes(32)}
    with pytest.raises(ProtocolError, match="signature"):
        play.parties[names[0]].share(keys)


def test_a_party_that_is_left_out_of_the_list_notices() -> None:
    play = Play(4, threshold=3)
    names = list(play.parties)
    keys = play.advertise(names)
    with pytest.raises(ProtocolError, match="does not hold those of"):
        play.parties[names[0]].share({name: keys[name] for name in names[1:]})


def test_two_lists_of_those_who_stayed_open_nothing() -> None:
    play = Play(5, threshold=4)
    names = list(play.parties)
    play.mask(play.share(play.advertise(names), names), vectors_of(play), names)
    one, other = names[:4], names[1:]  # a server that claims that different parties dropped out
    signatures = {name: play.parties[name].agree(one if name == names[0] else other) for name in names}
    with pytest.raises(ProtocolError):
        play.parties[names[0]].open({name: signatures[name] for name in one})
    with pytest.raises(ProtocolError):
        play.parties[names[1]].open({name: signatures[name] for name in one})


def test_of_no_party_are_both_secrets_opened() -> None:
    play = Play(4, threshold=3)
    names = list(play.parties)
    sent = play.mask(play.share(play.advertise(names), names), vectors_of(play), names[:3])
    stayed = play.server.arrived(sent)
    signatures = {name: play.parties[name].agree(stayed) for name in names[:3]}
    party = play.parties[names[0]]
    opened = party.open(signatures)
    assert opened.keys() == {*names}
    for name in names:
        own, pair = party._shares[name]
        assert opened[name] == (own if name in stayed else pair)
    with pytest.raises(ProtocolError, match="once, and in order"):
        party.open(signatures)


def test_a_wrong_share_is_found_out() -> None:
    play = Play(3)
    names = list(play.parties)
    sent = play.mask(play.share(play.advertise(names), names), vectors_of(play), names)
    signatures = play.server.agreed({name: play.parties[name].agree(play.server.arrived(sent)) for name in names})
    opened = {name: dict(play.parties[name].open(signatures)) for name in names}
    opened[names[0]][names[1]] = (7).to_bytes(SHARE_BYTES)
    with pytest.raises(ProtocolError, match=r"wrong share|do not belong together"):
        play.server.total(opened)


def test_steps_are_taken_once_and_in_order() -> None:
    play = Play(2)
    party = play.parties["hospital 0"]
    with pytest.raises(ProtocolError, match="in order"):
        party.agree(["hospital 0", "hospital 1"])
    party.advertise()
    with pytest.raises(ProtocolError, match="once"):
        party.advertise()


def test_vectors_of_different_lengths_are_refused_with_the_name() -> None:
    play = Play(3)
    names = list(play.parties)
    vectors = {**vectors_of(play), names[1]: np.zeros(4, np.uint32)}
    sent = play.mask(play.share(play.advertise(names), names), vectors, names)
    with pytest.raises(ProtocolError, match="'hospital 1' has another length"):
        play.server.arrived(sent)


def test_no_secret_is_in_a_repr() -> None:
    play = Play(2)
    assert repr(play.parties["hospital 0"]) == "MaskingParty('hospital 0', round 1)"


@pytest.mark.parametrize(
    ("parties", "threshold", "said"), [(1, 1, "at least 2"), (4, 2, "more than half"), (4, 5, "at most all")]
)
def test_a_roster_that_protects_nobody_is_refused(parties: int, threshold: int, said: str) -> None:
    keys = {str(one): secrets.token_bytes(32) for one in range(parties)}
    with pytest.raises(OptionError, match=said):
        Roster(bytes(32), keys, threshold)


# --- shares ------------------------------------------------------------------------------------


@given(st.binary(min_size=32, max_size=32), st.integers(1, 8), st.data())
def test_any_threshold_of_shares_gives_the_secret_and_one_fewer_does_not(
    secret: bytes, holders: int, data: Any
) -> None:
    threshold = data.draw(st.integers(1, holders))
    shares = share(secret, threshold, holders)
    places = data.draw(st.permutations(range(holders)))
    assert combine({at + 1: shares[at] for at in places[:threshold]}) == secret
    if threshold > 1:
        few = {at + 1: shares[at] for at in places[: threshold - 1]}
        with contextlib.suppress(ProtocolError):
            assert combine(few) != secret  # by chance once in 2^256 times


# --- numbers -----------------------------------------------------------------------------------


@given(
    st.integers(1, 50),
    st.floats(1e-6, 1e6),
    st.sampled_from([32, 64]),
    st.lists(st.floats(-1, 1), min_size=1, max_size=5),
)
def test_the_largest_numbers_of_all_parties_do_not_overflow(
    parties: int, bound: float, bits: int, shares: list[float]
) -> None:
    code = FixedPoint(bound, parties, bits)
    values = np.clip(np.array([*shares, 1.0, -1.0]) * bound, -bound, bound)
    total = np.sum([code.encode(values)] * parties, axis=0, dtype=code.type)
    assert np.abs(code.decode(total) - parties * values).max() <= parties * code.step
    assert code.step <= 2 * bound * (parties + 1) / 2 ** (min(bits, 54) - 1) * 1.001


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1.5, -1.0000001])
def test_numbers_that_are_not_finite_or_out_of_bounds_are_refused(wrong: float) -> None:
    with pytest.raises(InputError):
        FixedPoint(1.0, 3).encode([0.0, wrong])

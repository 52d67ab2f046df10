"""Sums by CKKS are exact after rounding, and what is forged, replayed or of another key is refused."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import OptionError, ProtocolError
from sfumato.federation.channel import InProcess, Party
from sfumato.federation.secure import ckks_sum as module
from sfumato.federation.secure.ckks_sum import CkksSum, ckks_handlers
from sfumato.federation.secure.connect import SECURE, connect, handlers_of, sum_of
from sfumato.federation.secure.forms import form_of, from_bytes
from sfumato.federation.secure.masks import Roster
from sfumato.federation.secure.seal import seal, to_bytes

NAMES = ("east", "north", "south")


class Tampering(InProcess):
    """A channel that changes what parties send."""

    change = staticmethod(lambda name, kind, reply: reply)

    def ask(self, requests, *, timeout=60.0):
        replies = super().ask(requests, timeout=timeout)
        for name in replies.arrived:
            replies.arrived[name] = self.change(name, requests[name]["kind"], replies.arrived[name])
        return replies


def setting(vectors=None, threshold=2):
    own = {name: Ed25519PrivateKey.generate() for name in NAMES}
    roster = Roster(bytes(32), {name: one.public_key().public_bytes_raw() for name, one in own.items()}, threshold)
    vectors = vectors or dict.fromkeys(NAMES, np.arange(5, dtype=np.uint32))

    def party(name):
        return Party(name, ckks_handlers(roster, name, own[name], lambda _: (vectors[name], {"rows": 2})))

    return roster, Tampering([party(name) for name in NAMES]), own


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("size", [0, 1, 9_000])
def test_the_sum_is_exact_modulo_the_word_size(bits, size):
    kind, rng = np.dtype(f"u{bits // 8}"), np.random.default_rng(size)
    vectors = {name: rng.integers(0, np.iinfo(kind).max, size, dtype=kind, endpoint=True) for name in NAMES}
    vectors["south"] = np.full(size, np.iinfo(kind).max, kind)
    roster, channel, _ = setting(vectors)
    found = CkksSum(roster).total(channel, 1, {key: {} for key in NAMES}, bits=bits)
    assert (found.total == np.sum([*vectors.values()], axis=0, dtype=kind)).all()
    assert found.seen == {key: {"rows": 2} for key in NAMES}


def test_parties_may_be_absent_but_not_the_key_holder():
    roster, channel, _ = setting()
    assert CkksSum(roster).total(channel, 1, {"north": {}, "south": {}}).total.tolist() == [0, 2, 4, 6, 8]
    with pytest.raises(ProtocolError, match="only 1 of 3 parties answered, but 2 are needed"):
        CkksSum(roster).total(channel, 2, {"south": {}})
    channel.parties["east"].handlers.clear()
    with pytest.raises(ProtocolError, match="party 'east' did not take the step 'key'"):
        CkksSum(roster).total(channel, 3, {key: {} for key in NAMES})


def test_the_key_holder_opens_no_sum_of_fewer_parties_than_the_threshold():
    for names in (["north"], ["north", "north"], ["north", "west"], ["north", 3]):
        roster, channel, _ = setting()
        holder = channel.parties["east"]
        (part,) = holder.answer({"kind": "ckks/key", "round": 1})["parts"]
        parts, size = module._encrypted(part, np.arange(3), roster.place("north"))
        request = {"kind": "ckks/open", "round": 1, "sums": parts, "size": size, "parties": names}
        said = holder.answer(request)["error"]
        assert "only 1 of 3 parties are in the sum to open" in said or "damaged" in said


def test_the_error_before_rounding_is_far_below_the_bound():
    holder = module._KeyHolder(1)
    lanes = np.random.default_rng(0).integers(0, 2**32, module._ROOM)
    parts, _ = module._encrypted(holder.public, lanes, 1)
    plain = seal().Plaintext()
    holder._decryptor.decrypt(module._ciphertext(parts[0]), plain)
    found = np.asarray(seal().CKKSEncoder(module._PARAMETERS.context).decode_double(plain))
    assert np.abs(found[: module._ROOM] - lanes).max() < 2**-14  # 2^-17 was measured; 255 parties add 2^8 of these


def test_a_tampered_or_foreign_message_is_refused():
    roster, channel, _ = setting()

    def flipped(reply):
        wrong = bytearray(reply["parts"][0])
        wrong[-40] ^= 1
        return {**reply, "parts": [bytes(wrong), *reply["parts"][1:]]}

    for name, kind in (("south", "ckks/vector"), ("east", "ckks/key")):
        channel.change = lambda one, step, reply, name=name, kind=kind: (
            flipped(reply) if (one, step) == (name, kind) else reply
        )
        with pytest.raises(ProtocolError, match=r"does not hold|only 0 of 3"):
            CkksSum(roster).total(channel, 1, {key: {} for key in NAMES})
        roster, channel, _ = setting()
    channel.change = lambda one, step, reply: {**reply, "lanes": bytes(40)} if step == "ckks/open" else reply
    with pytest.raises(ProtocolError, match="signature of party 'east' does not hold"):
        CkksSum(roster).total(channel, 1, {key: {} for key in NAMES})


def test_a_sum_of_another_key_is_found_and_a_key_opens_once():
    holder, other = module._KeyHolder(1), module._KeyHolder(2)
    parts, size = module._encrypted(other.public, np.arange(3), 1)
    with pytest.raises(ProtocolError, match="damaged, or encrypted with another key"):
        holder.open(parts, size, 1)
    with pytest.raises(ProtocolError, match="opened already"):
        holder.open(parts, size, 1)
    with pytest.raises(ProtocolError, match="damaged, or encrypted with another key"):
        other.open(parts, size, 3)


def test_a_round_is_never_run_twice_and_lengths_agree():
    roster, channel, own = setting()
    CkksSum(roster).total(channel, 5, {key: {} for key in NAMES})
    with pytest.raises(ProtocolError, match="has taken part in round 5"):
        CkksSum(roster).total(channel, 5, {key: {} for key in NAMES})
    roster, channel, own = setting({**dict.fromkeys(NAMES, np.zeros(2, np.uint32)), "south": np.zeros(3, np.uint32)})
    with pytest.raises(ProtocolError, match="different lengths"):
        CkksSum(roster).total(channel, 1, {key: {} for key in NAMES})
    with pytest.raises(OptionError, match="'west' is not a party"):
        CkksSum(roster, keyholder="west")
    with pytest.raises(OptionError, match="not the one in the roster"):
        ckks_handlers(roster, "east", own["north"], lambda _: (np.zeros(1, np.uint32), {}))


def test_a_ciphertext_of_other_parameters_is_refused():
    other = module.CkksParameters.for_depth(3)
    context = other.context
    keys = seal().KeyGenerator(context)
    plain = seal().Plaintext()
    seal().CKKSEncoder(context).encode([1.0], 2.0**35, plain)
    sealed = to_bytes(seal().Encryptor(context, keys.secret_key()).encrypt_symmetric(plain))
    with pytest.raises(ProtocolError):
        module._ciphertext(sealed)
    with pytest.raises(ProtocolError):
        from_bytes(form_of(module._PARAMETERS, "public"), module._PARAMETERS, sealed)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_damaged_messages_end_in_one_sentence(data):
    roster, channel, _ = setting()
    step = data.draw(st.sampled_from(["ckks/key", "ckks/vector", "ckks/open"]))
    part = data.draw(st.sampled_from(["parts", "size", "signature", "lanes"]))
    junk = data.draw(st.one_of(st.none(), st.integers(), st.text(max_size=3), st.binary(max_size=40), st.just([b"x"])))
    channel.change = lambda name, kind, reply: {**reply, part: junk} if kind == step and part in reply else reply
    with contextlib.suppress(ProtocolError):
        found = CkksSum(roster).total(channel, 1, {key: {} for key in NAMES})
        assert found.total.tolist() == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("secure", ["none", "masks", "ckks"])
def test_every_kind_of_sum_is_connected_by_its_name(secure):
    parts = {name: lambda _, at=at: (np.array([at], np.uint64), {}) for at, name in enumerate(NAMES)}
    handlers, sums = connect(secure, parts, threshold=3)
    channel = InProcess([Party(name, one) for name, one in handlers.items()])
    assert sums.total(channel, 1, {key: {} for key in NAMES}, bits=64).total.tolist() == [3]
    assert secure in SECURE


def test_an_unknown_kind_is_refused_with_those_that_exist():
    roster, _, own = setting()
    for call in (
        lambda: sum_of("magic", roster),
        lambda: handlers_of("magic", roster, "east", own["east"], lambda _: (np.zeros(1, np.uint32), {})),
        lambda: connect("magic", dict.fromkeys(NAMES), threshold=2),
    ):
        with pytest.raises(OptionError, match="secure must be one of none, masks, threshold, ckks, mpc, got 'magic'"):
            call()

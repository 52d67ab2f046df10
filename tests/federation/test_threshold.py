"""Sums by threshold encryption are exact, open with every share only, and whatever is forged or replayed is refused."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import MissingExtra, OptionError, ProtocolError
from sfumato.federation.channel import InProcess, Party
from sfumato.federation.secure import openfhe as process
from sfumato.federation.secure import threshold as module
from sfumato.federation.secure.masks import Roster
from sfumato.federation.secure.openfhe import OpenFhe, openfhe
from sfumato.federation.secure.threshold import ThresholdParty, ThresholdServer
from sfumato.federation.secure.threshold_sum import ThresholdSum, threshold_handlers

try:
    openfhe()
    _MISSING = ""
except MissingExtra as error:
    _MISSING = str(error)
needs_openfhe = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)

NAMES = ("east", "north", "south")


class Play:
    """A round that can be stopped after any step, and tampered with."""

    def __init__(self, round_=1, before=None, vectors=None):
        self.own = before.own if before else {name: Ed25519PrivateKey.generate() for name in NAMES}
        public = {name: one.public_key().public_bytes_raw() for name, one in self.own.items()}
        self.roster = Roster(before.roster.run if before else secrets.token_bytes(32), public, 3)
        self.parties = {name: ThresholdParty(self.roster, round_, name, one) for name, one in self.own.items()}
        self.server = ThresholdServer(self.roster, round_)
        self.words = vectors or {name: np.array([at, 2**32 - 1], np.uint32) for at, name in enumerate(NAMES)}

    def commit(self):
        self.commitments = self.server.commitments({name: one.commit() for name, one in self.parties.items()})
        return self

    def key(self):
        self.keys = self.server.keys({name: one.key(self.commitments) for name, one in self.parties.items()})
        return self

    def encrypt(self):
        sent = {name: one.encrypt(self.keys, self.words[name]) for name, one in self.parties.items()}
        self.vectors = self.server.vectors(sent)
        return self

    def open(self):
        self.opened = {name: one.open(self.vectors) for name, one in self.parties.items()}
        return self


@pytest.fixture(scope="module")
def done():
    return Play().commit().key().encrypt().open()


@needs_openfhe
@pytest.mark.parametrize("bits", [32, 64])
def test_the_sum_is_exact_modulo_the_word_size(bits):
    kind, rng = np.dtype(f"u{bits // 8}"), np.random.default_rng(0)
    vectors = {name: rng.integers(0, np.iinfo(kind).max, 20_000, dtype=kind, endpoint=True) for name in NAMES}
    play = Play(vectors=vectors)

    def party(name):
        handlers = threshold_handlers(play.roster, name, play.own[name], lambda _: (vectors[name], {"rows": 1}))
        return Party(name, handlers)

    channel = InProcess([party(name) for name in NAMES])
    found = ThresholdSum(play.roster).total(channel, 7, {key: {} for key in NAMES}, bits=bits)
    assert (found.total == np.sum([*vectors.values()], axis=0, dtype=kind)).all()
    assert found.present == NAMES
    assert found.seen == {key: {"rows": 1} for key in NAMES}
    with pytest.raises(ProtocolError, match="has taken part in round 7"):
        ThresholdSum(play.roster).total(channel, 7, {key: {} for key in NAMES}, bits=bits)
    silent = InProcess([Party(name, {} if name == "south" else party(name).handlers) for name in NAMES])
    with pytest.raises(ProtocolError, match="only 2 of 3 parties answered, but 3 are needed"):
        ThresholdSum(play.roster).total(silent, 8, {key: {} for key in NAMES}, bits=bits)


@needs_openfhe
def test_all_shares_but_one_open_nothing(done):
    for name in NAMES:
        with pytest.raises(ProtocolError, match=f"party '{name}' has not opened the sum, and nothing opens without it"):
            done.server.total({other: one for other, one in done.opened.items() if other != name})
    # Even if nobody counted the shares: what two of three shares give is garbage, and the known places show it.
    form = module._form(3)
    (found,) = module._ask("fuse", 3, [form.main.add([done.opened[name]["parts"][0] for name in NAMES[:2]])])
    numbers = np.frombuffer(found, np.int64) % module._MODULUS
    assert len(np.unique(numbers)) > 16_000
    assert numbers[:2].tolist() != [3, (3 * (2**32 - 1))]
    assert done.server.total(done.opened).tolist() == [3, 2**32 - 3]


@needs_openfhe
def test_a_wrong_share_that_is_signed_is_found_by_the_known_places(done):
    party, size = done.parties["south"], done.opened["south"]["size"]
    layout = module._form(3).main
    wrong = bytearray(done.opened["south"]["parts"][0])
    wrong[layout.starts[0] + 3] ^= 1
    forged = party._signed(module._opening(done.vectors), [bytes(wrong)], size)
    with pytest.raises(ProtocolError, match="did not open: a share is missing or wrong"):
        done.server.total({**done.opened, "south": forged})


@needs_openfhe
def test_shares_of_another_run_round_or_party_are_refused(done):
    later = Play(2, before=done).commit().key().encrypt().open()
    assert later.server.total(later.opened).tolist() == [3, 2**32 - 3]
    for other in (later, Play().commit().key().encrypt().open()):
        with pytest.raises(ProtocolError, match="signature of party 'south' does not hold"):
            done.server.total({**done.opened, "south": other.opened["south"]})
    with pytest.raises(ProtocolError, match="signature of party 'south' does not hold"):
        done.server.total({**done.opened, "south": done.opened["north"]})


@needs_openfhe
def test_a_party_opens_once_in_order_and_only_a_sum_with_its_own_vector(done):
    with pytest.raises(ProtocolError, match="once, and in order"):
        done.parties["east"].open(done.vectors)
    play = Play().commit().key().encrypt()
    with pytest.raises(ProtocolError, match="party 'south' has not sent a vector"):
        play.parties["north"].open({name: one for name, one in play.vectors.items() if name != "south"})
    replaced = play.parties["south"]._signed(b"vector", play.vectors["north"]["parts"], play.vectors["north"]["size"])
    with pytest.raises(ProtocolError, match="the vector of party 'south' was replaced"):
        play.parties["south"].open({**play.vectors, "south": replaced})
    with pytest.raises(ProtocolError, match="once, and in order"):
        play.parties["south"].open(play.vectors)


@needs_openfhe
def test_keys_are_those_that_were_committed_and_of_this_round(done):
    play = Play().commit()
    with pytest.raises(ProtocolError, match="only 2 of 3 parties sent a commitment"):
        Play(2, before=play).parties["east"].roster.enough(["east", "north"], "sent a commitment")
    play.key()
    chosen = play.parties["south"]._signed(b"key", [done.keys["south"]["parts"][0]])
    with pytest.raises(ProtocolError, match="not the one that it committed itself to"):
        play.parties["north"].encrypt({**play.keys, "south": chosen}, np.zeros(1, np.uint32))
    # South commits itself to a key of another run, so that the random polynomial is another one.
    cheat = Play()
    cheat.parties["south"]._done = 1
    cheat.parties["south"]._public = done.keys["south"]["parts"][0]
    mark = hashlib.sha256(cheat.parties["south"]._public).digest()
    first = {name: cheat.parties[name].commit() for name in NAMES[:2]}
    cheat.commitments = cheat.server.commitments({**first, "south": cheat.parties["south"]._signed(b"commit", [mark])})
    cheat.key()
    with pytest.raises(ProtocolError, match="the key of party 'south' is of another run or round"):
        cheat.parties["north"].encrypt(cheat.keys, np.zeros(1, np.uint32))


@needs_openfhe
def test_vectors_of_other_lengths_and_too_many_parties_are_refused():
    play = Play().commit().key()
    play.words["south"] = np.zeros(3, np.uint32)
    with pytest.raises(ProtocolError, match="different lengths"):
        play.encrypt()
    with pytest.raises(OptionError, match="at most 255 parties, got 256"):
        module._form(256)
    large = Play().commit().key()
    with pytest.raises(OptionError, match="at most 5,592,405 numbers of 32 bits from each of 3 parties"):
        large.parties["east"].encrypt(large.keys, np.zeros(5_592_406, np.uint32))
    with pytest.raises(OptionError, match="words of 32 or 64 bits, got float64"):
        module.to_lanes(np.zeros(2))


@needs_openfhe
def test_a_tampered_ciphertext_is_refused(done):
    one = done.vectors["south"]
    for at in (0, 700, 5000, len(one["parts"][0]) - 1):
        wrong = bytearray(one["parts"][0])
        wrong[at] ^= 255
        for vectors in (
            {**done.vectors, "south": {**one, "parts": [bytes(wrong)]}},
            {**done.vectors, "south": done.parties["south"]._signed(b"vector", [bytes(wrong)], one["size"])},
        ):
            if vectors["south"]["signature"] != one["signature"] and at == 5000:
                continue  # signed by the party itself, and of the right form: its own vector
            with pytest.raises(ProtocolError, match=r"does not hold|is damaged, or of other parameters"):
                done.server._bound.vectors(vectors)


@needs_openfhe
def test_ciphertexts_of_other_parameters_are_refused(done):
    more = {"parties": 3, "modulus": 1152921504606683137 // 2**5}
    with pytest.raises(ProtocolError, match=r"OpenFHE refuses|OpenFHE ended"):
        openfhe().ask("template", **more)
    other = {"parties": 3, "modulus": 1099511922689}
    key, *_ = openfhe().ask("template", **other)
    with pytest.raises(ProtocolError, match="is damaged, or of other parameters"):
        module._form(3).key.check(key[:-1], "the key")
    assert len(openfhe().ask("encrypt", [key, np.zeros(16384, np.int64).tobytes()], **other)) == 1


@needs_openfhe
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_messages_end_in_one_sentence(done, data):
    step = data.draw(st.sampled_from(["commitments", "keys", "vectors", "opened"]))
    good = {name: dict(one) for name, one in getattr(done, step).items()}
    name = data.draw(st.sampled_from(NAMES))
    junk = st.one_of(
        st.none(), st.integers(), st.text(max_size=3), st.binary(max_size=80), st.lists(st.binary(max_size=9))
    )
    for part in data.draw(st.lists(st.sampled_from(["parts", "size", "signature"]), min_size=1, max_size=2)):
        good[name][part] = data.draw(junk)
    if good == getattr(done, step):
        return
    server = ThresholdServer(done.roster, 1)
    with contextlib.suppress(ProtocolError):
        if step == "commitments":
            server.commitments(good)
        else:
            server.commitments(done.commitments)
            if step == "keys":
                server.keys(good)
            elif step == "vectors":
                server.vectors(good)
            else:
                server.vectors(done.vectors)
                server.total(good)
        raise AssertionError("damaged messages were accepted")


@needs_openfhe
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_worker_survives_or_is_replaced_whatever_it_is_sent(done, data):
    good = [done.keys["east"]["parts"][0], done.vectors["east"]["parts"][0], b""]
    sent = bytearray(data.draw(st.sampled_from(good)))
    for _ in range(data.draw(st.integers(0, 4))):
        if sent:
            sent[data.draw(st.integers(0, min(len(sent), 900) - 1))] = data.draw(st.integers(0, 255))
    op = data.draw(st.sampled_from(["share", "encrypt", "open", "fuse", "template", "nothing"]))
    parts = [bytes(sent)] * data.draw(st.integers(0, 2))
    with contextlib.suppress(ProtocolError):
        openfhe().ask(op, parts, parties=3, modulus=module._MODULUS, lead=True)
    assert openfhe().ask("hello") == []


@needs_openfhe
def test_the_worker_ends_with_its_parent():
    code = """if True:
        import time
        from sfumato.federation.secure.openfhe import openfhe
        print(openfhe().process, flush=True)
        time.sleep(600)"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        os.kill(number, 0)
        parent.kill()
        parent.wait()
    for _ in range(600):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return
        with contextlib.suppress(FileNotFoundError):
            if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        time.sleep(0.1)
    raise AssertionError("the worker outlives its parent")


def test_without_openfhe_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(process, "_running", [])
    monkeypatch.setenv("SFUMATO_OPENFHE_PYTHON", "/nowhere/python")
    with pytest.raises(MissingExtra, match=r"'/nowhere/python' of SFUMATO_OPENFHE_PYTHON does not import .*pip"):
        openfhe()
    monkeypatch.setenv("SFUMATO_OPENFHE_PYTHON", sys.executable)
    with pytest.raises(MissingExtra, match="does not import openfhe"):
        openfhe()


@needs_openfhe
def test_no_repr_shows_a_key(done):
    assert repr(done.parties["east"]) == "ThresholdParty('east', round 1)"
    assert repr(openfhe()) == f"OpenFhe(process {openfhe().process})"
    with contextlib.closing(OpenFhe(os.environ.get("SFUMATO_OPENFHE_PYTHON", "python3.10"))) as own:
        assert own.alive
    assert not own.alive

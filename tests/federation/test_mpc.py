"""Multi-party computation opens the result of a function alone; what is forged or replayed is refused."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import MissingExtra, OptionError, ProtocolError, SfumatoError
from sfumato.federation import (
    AnalysisPlan,
    CrossTable,
    Histogram,
    JointFunction,
    LogisticRegression,
    Moments,
    Quantiles,
    analyse_together,
)
from sfumato.federation.channel import InProcess, Party
from sfumato.federation.secure import mpc as module
from sfumato.federation.secure.connect import check_sum
from sfumato.federation.secure.masks import Roster
from sfumato.federation.secure.mpc import MpcSum, mpc_handlers
from sfumato.federation.secure.process import Process
from tests.effort import effort

needs_mpyc = pytest.mark.skipif(importlib.util.find_spec("mpyc") is None, reason="needs MPyC")
NAMES = ("east", "north", "south")
SCHEMA = sf.Schema([sf.Column(name="age", bounds=(0, 120)), sf.Column(name="ill", domain=("no", "maybe", "yes"))])
ROWS = pl.DataFrame({"age": [1, 7, 7, 30, 31, 90, 44, 45, 46, 120], "ill": ["no"] * 5 + ["yes"] * 4 + ["maybe"]})
HOLDERS = {"east": ROWS[:4], "north": ROWS[4:5], "south": ROWS[5:]}


def found(analysis, holders=None, **more):
    plan = AnalysisPlan(**{"analysis": analysis, "schema": SCHEMA, "parties": 3, "secure": "mpc", "rows": 1000, **more})
    return analyse_together(plan, holders or HOLDERS).values


class Tampering(InProcess):
    """A channel that may change what passes it, and keeps it."""

    def __init__(self, parties):
        super().__init__(parties)
        self.change = lambda name, kind, request: request
        self.passed = []

    def ask(self, requests, *, timeout=60.0):
        requests = {name: self.change(name, one["kind"], dict(one)) for name, one in requests.items()}
        replies = super().ask(requests, timeout=timeout)
        self.passed += [(name, requests[name], replies.arrived.get(name)) for name in requests]
        return replies


def setting(function=module.SUM, vectors=None, only=None):
    own = {name: Ed25519PrivateKey.generate() for name in NAMES}
    roster = Roster(bytes(32), {name: one.public_key().public_bytes_raw() for name, one in own.items()}, 3)
    vectors = vectors or {name: np.array([at, 5], np.uint64) for at, name in enumerate(NAMES)}

    def party(name):
        its = (only or {}).get(name, function)
        return Party(name, mpc_handlers(roster, name, own[name], lambda _: (vectors[name], {"rows": 2}), its))

    return MpcSum(roster, function), Tampering([party(name) for name in NAMES])


def total(secure, channel, round_=1):
    return secure.total(channel, round_, {name: {} for name in NAMES}, bits=64).total.tolist()


@needs_mpyc
def test_the_sum_is_exact_modulo_the_word_size():
    vectors = {name: np.array([2**63 + at, 2**64 - 1], np.uint64) for at, name in enumerate(NAMES)}
    secure, channel = setting(vectors=vectors)
    assert total(secure, channel) == np.sum([*vectors.values()], axis=0, dtype=np.uint64).tolist()
    with pytest.raises(ProtocolError, match="has taken part in round 1"):
        total(secure, channel)


@needs_mpyc
def test_quantiles_open_their_bins_and_nothing_of_the_histogram():
    one = found(Quantiles("age", probabilities=(0, 0.3, 0.5, 0.75, 1), bins=120))["age"]
    assert one["resolution"] == pytest.approx(1)
    assert one["quantiles"] == pytest.approx({"0": 1.5, "0.3": 7.5, "0.5": 31.5, "0.75": 46.5, "1": 119.5})
    assert found(Quantiles("age", bins=3), holders=dict.fromkeys(NAMES, ROWS[:0]))["age"]["quantiles"] == {}


@needs_mpyc
def test_small_counts_are_never_opened():
    cells = found(CrossTable(("ill",), least=4))["cells"]
    assert [one["count"] for one in cells] == [5, None, 4]
    # What is opened by all parties has nothing of the hidden count either.
    function = {"name": "large", "least": 4, "bits": 12}
    vectors = {name: np.array([at + 1, 1], np.uint64) for at, name in enumerate(NAMES)}
    secure, channel = setting(function, vectors)
    assert total(secure, channel) == [6, 0]
    assert found(Histogram("age", bins=4, least=4))["age"]["counts"] == [None, 5, None, None]


@needs_mpyc
def test_any_function_can_be_computed_and_its_errors_end_in_one_sentence():
    plan = {"schema": SCHEMA, "parties": 3, "secure": "mpc"}
    largest = "def function(mpc, vectors):\n    return [mpc.max([one[0] for one in vectors]), mpc.np_sum(vectors[2])]"
    rows = {name: one[:1] for name, one in HOLDERS.items()}
    one = analyse_together(AnalysisPlan(analysis=JointFunction("age", 1, largest), **plan), rows).values
    assert one == {"age": {"opened": [90, 90]}}
    wrong = JointFunction("age", 1, "def function(mpc, vectors):\n    return 1 / 0")
    with pytest.raises(ProtocolError, match=r"computation of party '\w+' failed with ZeroDivisionError"):
        analyse_together(AnalysisPlan(analysis=wrong, **plan), rows)


@needs_mpyc
def test_the_coordinator_sees_no_share_and_every_message_belongs_to_its_place():
    secure, channel = setting()
    assert total(secure, channel) == [3, 15]
    (mail,) = [reply["mail"] for name, request, reply in channel.passed if name == "east" and "keys" in request]
    earlier = mail["south"]
    secure, channel = setting()

    def replayed(name, kind, request):
        if kind == "mpc/mail" and name == "south":
            request["mail"] = {**request["mail"], "east": earlier}
        return request

    channel.change = replayed
    with pytest.raises(ProtocolError, match="a message of party 'east' is damaged, or not the next one"):
        total(secure, channel)
    begun = channel.parties["north"]
    for wrong in ({"west": b"x"}, {"east": None}, {"north": b""}, {"south": 3}):
        said = begun.answer({"kind": "mpc/mail", "round": 1, "mail": wrong})["error"]
        assert "damaged, or not the next one" in said or "does not take part" in said


@needs_mpyc
def test_parties_that_agreed_to_another_function_or_key_do_not_begin():
    secure, channel = setting(only={"south": {"name": "large", "least": 3, "bits": 9}})
    with pytest.raises(ProtocolError, match="signature of party 'south' does not hold"):
        total(secure, channel)
    secure, channel = setting()
    _, other = setting()
    forged = other.parties["south"].answer({"kind": "mpc/key", "round": 1})
    channel.change = lambda name, kind, request: (
        {**request, "keys": {**request["keys"], "south": forged}} if kind == "mpc/begin" else request
    )
    with pytest.raises(ProtocolError, match=r"party 'east' did not take part.*signature of party 'south'"):
        total(secure, channel)


@needs_mpyc
def test_a_silent_party_ends_the_computation_with_its_name():
    secure, channel = setting()
    del channel.parties["south"].handlers["mpc/mail"]
    with pytest.raises(ProtocolError, match="party 'south' did not take part, and nothing opens without it"):
        total(secure, channel)
    for party in channel.parties.values():
        assert "MpcParty" not in repr(party.handlers)


@needs_mpyc
def test_results_that_differ_or_are_forged_are_refused():
    secure, channel = setting()
    wrong = np.array([3, 16], "<u8").tobytes()
    ask = InProcess.ask

    def forged(requests, *, timeout=60.0):
        replies = ask(channel, requests, timeout=timeout)
        for one in replies.arrived.values():
            if "opened" in one:
                one["opened"] = wrong
        return replies

    channel.ask = forged
    with pytest.raises(ProtocolError, match=r"signature of party '\w+' does not hold"):
        total(secure, channel)


@needs_mpyc
def test_the_process_never_unpickles_and_refuses_junk():
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (Path("exploded"),))

    import pickle

    with contextlib.closing(Process(sys.executable, module._WORKER, "MPyC")) as process:
        begin = {"op": "begin", "own": 2, "parties": 3, "function": {"name": "sum"}}
        reply, _ = process.exchange(begin, [np.array([1, 2], "<i8").tobytes()])
        assert not reply["done"]
        payload = pickle.dumps(Bomb())
        for peer in (0, 1):
            keys = bytes(16)  # of the pseudorandom shares, after the number of the peer
            for pc in range(3):
                sent = (
                    peer.to_bytes(2, "little")
                    + 2 * keys
                    + pc.to_bytes(8, "little")
                    + len(payload).to_bytes(4, "little")
                )
                with contextlib.suppress(ProtocolError):
                    process.exchange({"op": "mail", "peers": [peer]}, [sent + payload])
    assert not Path("exploded").exists()
    assert "_NoPickle" in module._WORKER.read_text()


@needs_mpyc
@settings(max_examples=effort(5, 200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=60)), min_size=1, max_size=4))
def test_the_process_answers_or_ends_whatever_it_is_sent(mail):
    with (
        contextlib.closing(Process(sys.executable, module._WORKER, "MPyC")) as process,
        contextlib.suppress(ProtocolError),
    ):
        begin = {"op": "begin", "own": 1, "parties": 3, "function": {"name": "sum"}}
        process.exchange(begin, [np.array([1, 2], "<i8").tobytes()])
        for peer, data in mail:
            reply, _ = process.exchange({"op": "mail", "peers": [peer]}, [data])
            assert "error" in reply or not reply["done"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_messages_end_in_one_sentence(data):
    bound = module._Bound(Roster(bytes(32), {"a": bytes(32), "b": bytes([1] * 32)}, 2), 1, module.SUM)
    junk = data.draw(st.one_of(st.none(), st.integers(), st.text(max_size=3), st.binary(max_size=80)))
    with pytest.raises(ProtocolError):
        bound.key("a", {"key": junk, "signature": data.draw(st.sampled_from([junk, bytes(64), None]))})
    with pytest.raises(ProtocolError):
        bound.opened("a", {"opened": junk, "signature": data.draw(st.sampled_from([junk, bytes(64)]))}, 64)
    link = module._Link(bytes(32), bytes(32))
    with pytest.raises(ProtocolError, match="not the next one"):
        link.opened(junk, "a")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"analysis": CrossTable(("ill",), least=5), "secure": "masks"}, "only stay hidden by multi-party computation"),
        ({"analysis": Moments(("age",)), "epsilon": 1.0}, "adds no noise"),
        ({"analysis": Moments(("age",)), "threshold": 2}, "all holders take part"),
        ({"analysis": Moments(("age",)), "parties": 2}, "at least 3 parties, most of them honest, got 2"),
        ({"analysis": JointFunction("age", 1, "function"), "secure": "threshold"}, "needs multi-party computation"),
        ({"analysis": JointFunction("age", 1, "function"), "epsilon": 1.0}, "no noise"),
        ({"analysis": Histogram("age", bins=200_000)}, "at most 131,072 numbers of each party, got 200,000"),
        ({"analysis": Quantiles("age"), "rows": 2**40}, "overflow"),
    ],
)
def test_plans_that_cannot_be_computed_are_refused(more, words):
    with pytest.raises(OptionError, match=words):
        AnalysisPlan(**{"schema": SCHEMA, "parties": 3, "secure": "mpc", **more})


def test_wrong_functions_are_refused():
    for source in ("", 3, "x = 1", "function" * 20_000):
        with pytest.raises(OptionError, match="must define function"):
            JointFunction("age", 1, source)
    with pytest.raises(OptionError, match="a whole number of at least 1, got 0"):
        CrossTable(("ill",), least=0)
    with pytest.raises(OptionError, match="no least count"):
        Quantiles("age", least=2)
    with pytest.raises(OptionError, match="at least 3 parties"):
        check_sum("mpc", parties=2, words=1)


@needs_mpyc
def test_a_vector_of_fractions_and_one_of_another_length_are_refused():
    plan = AnalysisPlan(analysis=JointFunction("age", 1, "function"), schema=SCHEMA, parties=3, secure="mpc")
    with pytest.raises(SfumatoError, match="must be whole numbers"):
        analyse_together(plan, {name: pl.DataFrame({"age": [1.5]}) for name in NAMES})
    with pytest.raises(SfumatoError, match="has 2 numbers, but the plan is for 1"):
        analyse_together(plan, {name: pl.DataFrame({"age": [1, 2]}) for name in NAMES})


@needs_mpyc
def test_several_sums_are_computed_one_after_another():
    holders = {name: ROWS.with_columns(ill=pl.col("ill").replace("maybe", "no")) for name in NAMES}
    schema = sf.Schema([sf.Column(name="age", bounds=(0, 120)), sf.Column(name="ill", domain=("no", "yes"))])
    analysis = LogisticRegression(("age",), "ill", iterations=2)
    plans = {one: AnalysisPlan(analysis=analysis, schema=schema, parties=3, secure=one) for one in ("none", "mpc")}
    first, other = (analyse_together(plans[one], holders).values for one in plans)
    assert first == other


def test_without_mpyc_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs MPyC .pip install 'sfumato\[federation\]'"):
        setting()

"""Federated training over a channel: rounds, absences, checkpoints, privacy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfumato.errors import FileError, InputError, OptionError, ProtocolError
from sfumato.federation.channel import InProcess, Party, Replies
from sfumato.federation.client_noise import ClientNoise
from sfumato.federation.holder import TrainingHolder
from sfumato.federation.plan import FederationPlan
from sfumato.federation.rounds import run_rounds
from sfumato.federation.secure.fixed_point import FixedPoint
from sfumato.federation.secure.sum import PlainSum, plain_handlers
from sfumato.federation.simulation import check_secure, simulate
from sfumato.federation.weights import get_weights, network_of
from tests.federation.test_threshold import needs_openfhe


def data(holders: int = 4, rows: int = 40) -> list:
    make = np.random.default_rng(1)
    found = []
    for _ in range(holders):
        inputs = make.normal(size=(rows, 3)).astype(np.float32)
        found.append((inputs, (inputs[:, 0] > 0).astype(np.int64)))
    return found


def plan(**more) -> FederationPlan:
    return FederationPlan(**{"model": "logistic", "inputs": (3,), "classes": 2, "rounds": 4, "threshold": 3, **more})


@pytest.fixture(scope="module")
def in_clear():
    return simulate(plan(rounds=2, absence=0.3), data(), secure="none").weights


@pytest.mark.parametrize("secure", ["masks", "ckks", pytest.param("threshold", marks=needs_openfhe)])
def test_training_with_a_secure_sum_equals_that_in_clear_bit_by_bit(secure, in_clear):
    """Words are added modulo their size, however they are hidden."""
    assert np.array_equal(simulate(plan(rounds=2, absence=0.3), data(), secure=secure).weights, in_clear)


@pytest.mark.parametrize("secure", ["ckks", pytest.param("threshold", marks=needs_openfhe)])
def test_clients_add_their_noise_under_encryption_too(secure):
    honest = 1 if secure == "ckks" else None
    found = simulate(plan(level="client", epsilon=2.0, rounds=1, delta=1e-3, honest=honest), data(), secure=secure)
    assert 1.2 < found.epsilon <= 2.0


def test_by_ckks_the_noise_of_one_client_is_enough():
    """A coordinator that lies can have a single update opened, with one share of the noise."""
    how = plan(level="client", epsilon=2.0)
    with pytest.raises(OptionError, match="the noise of one holder must do"):
        check_secure(how, "ckks", 4)
    alone = ClientNoise.of(replace(how, honest=1), parties=4, weights=8)
    assert alone.event.shares == 1
    assert alone.epsilon <= 2.0
    assert alone.scale * alone.code.step > 1.7 * ClientNoise.of(how, 4, 8).scale * ClientNoise.of(how, 4, 8).code.step


def test_no_more_shares_of_noise_are_counted_than_holders_must_answer():
    with pytest.raises(OptionError, match="4 shares of noise cannot be relied on: only 3 holders"):
        plan(honest=4)


def test_sums_under_encryption_are_for_at_most_255_holders():
    with pytest.raises(OptionError, match="at most 255 holders, got 256"):
        check_secure(plan(), "threshold", 256)


def test_fifty_clients_with_absences_learn():
    found = simulate(plan(absence=0.3, threshold=26), data(50, 20), test=data(1, 500)[0], secure="none")
    assert found.rounds[-1].accuracy > 0.9
    assert {one.clients for one in found.rounds} != {50}


def test_an_interrupted_training_resumes_with_the_same_result(tmp_path):
    whole = simulate(plan(momentum=0.5), data())

    class Stopped(Exception):
        pass

    def stop(done):
        if done.round == 2:
            raise Stopped

    with pytest.raises(Stopped):
        simulate(plan(momentum=0.5), data(), checkpoint=tmp_path / "c", progress=stop)
    again = simulate(plan(momentum=0.5), data(), checkpoint=tmp_path / "c")
    assert np.array_equal(whole.weights, again.weights)
    assert [one.round for one in again.rounds] == [1, 2, 3, 4]


@pytest.mark.parametrize("level", ["record", "client"])
def test_private_training_costs_at_most_epsilon(level):
    found = simulate(plan(level=level, epsilon=2.0, rounds=2, delta=1e-3), data(), secure="masks")
    assert 1.2 < found.epsilon <= 2.0
    assert np.isfinite(found.weights).all()


def test_a_steep_batch_moves_the_weights_no_further_than_any_other():
    """Without it, one of five trainings on X-rays ended with a network that answers the same for every image."""
    inputs, targets = data(1)[0]
    moved = []
    for scale in (1, 1e6):
        how = plan(rounds=1, threshold=1, batch=len(inputs), learning_rate=0.05)
        start = get_weights(network_of(how))
        found = simulate(how, [(inputs * np.float32(scale), 1 - targets)], secure="none")
        moved.append(float(np.linalg.norm(found.weights - start)))
    assert moved[1] == pytest.approx(0.05, rel=1e-3)  # one step of the rate, with a gradient of norm 1
    assert moved[0] < 0.06


def test_a_poisoned_update_is_bounded_by_clipping():
    from sfumato.budget.noise import Source

    noise = ClientNoise.of(plan(level="client", epsilon=50.0), 4, 8)
    sent = noise.code.decode(noise.protect(np.full(8, 1e9), Source(insecure_seed=1)))
    spread = noise.scale * noise.code.step
    assert np.linalg.norm(sent) < 1.01 + 10 * spread * np.sqrt(8)


def test_an_update_that_is_not_finite_is_refused():
    from sfumato.budget.noise import Source

    with pytest.raises(InputError, match="finite"):
        ClientNoise.of(plan(level="client", epsilon=1.0), 4, 8).protect(np.full(8, np.nan), Source(insecure_seed=1))


@pytest.mark.parametrize("size", [0, 7, 9])
def test_a_wrong_shape_ends_the_round(size):
    words = np.zeros(size, np.uint32)
    handlers = {"train/describe": lambda _: {"rows": 1}, "sum/plain": lambda _: {"vector": words, "seen": {}}}
    channel = InProcess([Party(name, handlers) for name in "abc"])
    with pytest.raises(ProtocolError, match="length"):
        run_rounds(plan(), channel, PlainSum(3))


def test_the_parties_are_in_their_own_order_and_not_in_that_of_their_answers():
    class Backwards(InProcess):
        def ask(self, requests, *, timeout=60.0):
            found = super().ask(requests, timeout=timeout)
            return Replies(dict(reversed(found.arrived.items())), found.refused)

    holders = {
        name: TrainingHolder(name, plan(rounds=1), *one, parties=3) for name, one in zip("abc", data(3), strict=True)
    }
    parties = [
        Party(name, {**plain_handlers(one.contribute), "train/describe": one.describe}) for name, one in holders.items()
    ]
    assert [*run_rounds(plan(rounds=1), Backwards(parties), PlainSum(3)).parties] == ["a", "b", "c"]


def test_a_round_with_too_few_replies_fails():
    handlers = {"train/describe": lambda _: {"rows": 1}}
    with pytest.raises(ProtocolError, match="0 of 3"):
        run_rounds(plan(), InProcess([Party(name, handlers) for name in "abc"]), PlainSum(3))


def test_bad_holders_are_refused_in_one_sentence():
    good = data()
    with pytest.raises(InputError, match="no rows"):
        simulate(plan(), [*good, (np.zeros((0, 3)), np.zeros(0))])
    with pytest.raises(InputError, match="shape"):
        simulate(plan(), [*good, (np.zeros((5, 2)), np.zeros(5))])
    with pytest.raises(InputError, match="classes"):
        simulate(plan(), [*good, (np.zeros((5, 3)), np.full(5, 2))])
    with pytest.raises(OptionError, match="threshold"):
        simulate(plan(threshold=9), good)


def holder_of(how: FederationPlan, record=None):
    return TrainingHolder("a", how, *data()[0], parties=4, record=record)


def request_of(how: FederationPlan, number: int) -> dict:
    return {"round": number, "weight": 1.0, "weights": get_weights(network_of(how))}


@pytest.mark.parametrize("level", ["record", "client"])
def test_a_private_holder_sends_no_more_than_its_noise_is_for_also_if_it_is_started_again(level, tmp_path):
    how = plan(level=level, epsilon=1.0, delta=1e-3, rounds=2, spare=1)
    holder_of(how, tmp_path / "a").contribute(request_of(how, 1))
    holder_of(how, tmp_path / "a").contribute(request_of(how, 1))
    last = holder_of(how, tmp_path / "a")
    last.contribute(request_of(how, 2))
    with pytest.raises(ProtocolError, match="has sent 3 updates"):
        last.contribute(request_of(how, 2))
    with pytest.raises(ProtocolError, match="has sent 3 updates"):
        holder_of(how, tmp_path / "a").contribute(request_of(how, 2))
    assert len(last.events) == 3


def test_a_record_of_another_plan_or_a_damaged_one_is_refused(tmp_path):
    how = plan(level="client", epsilon=1.0)
    holder_of(how, tmp_path / "a").contribute(request_of(how, 1))
    with pytest.raises(FileError, match="another plan"):
        holder_of(plan(level="client", epsilon=2.0), tmp_path / "a")
    (tmp_path / "a").write_bytes(b"garbage")
    with pytest.raises(FileError, match="damaged"):
        holder_of(how, tmp_path / "a")


@pytest.mark.parametrize("level", ["record", "client"])
def test_epsilon_after_a_repeated_round_covers_every_update_that_was_sent(level, tmp_path):
    how = plan(level=level, epsilon=2.0, rounds=3, delta=1e-3)

    class Stopped(Exception):
        pass

    def stop(done):
        if done.round == 2:
            (tmp_path / "c").write_bytes(
                (tmp_path / "first").read_bytes()
            )  # the checkpoint of the second round is lost
            raise Stopped
        (tmp_path / "first").write_bytes((tmp_path / "c").read_bytes())

    with pytest.raises(Stopped):
        simulate(how, data(), checkpoint=tmp_path / "c", progress=stop)
    found = simulate(how, data(), checkpoint=tmp_path / "c")
    assert [one.round for one in found.rounds] == [1, 2, 3]
    assert 1.9 < found.epsilon <= 2.0


def test_privacy_of_clients_needs_a_secure_sum():
    with pytest.raises(OptionError, match="needs a secure sum"):
        simulate(plan(level="client", epsilon=1.0), data(), secure="none")


def test_a_checkpoint_of_another_plan_or_a_damaged_one_is_refused(tmp_path):
    simulate(plan(rounds=1), data(), checkpoint=tmp_path / "c")
    (tmp_path / "d").write_bytes((tmp_path / "c").read_bytes())
    with pytest.raises(FileError, match="another plan"):
        simulate(plan(rounds=2), data(), checkpoint=tmp_path / "d")
    (tmp_path / "e").write_bytes(b"garbage")
    with pytest.raises(FileError, match="damaged"):
        simulate(plan(rounds=1), data(), checkpoint=tmp_path / "e")


@pytest.mark.parametrize("scale", [2, 5])
@pytest.mark.parametrize("steps", [1, 3, 8])
def test_the_stated_epsilon_of_noise_shares_holds_by_the_definition(scale, steps):
    """The exact distribution of the summed shares and of its shift: P(x) - e^epsilon Q(x), summed where positive."""
    code = FixedPoint(1.0, 3)
    how = plan(level="client", epsilon=1.0, rounds=1, spare=0, delta=1e-3, clip=steps * code.step / 1.01)
    noise = ClientNoise(how, code, scale, 1)
    assert noise.sensitivity == pytest.approx(steps)
    support = np.arange(-40 * scale, 40 * scale + 1)
    share = np.exp(-(support**2) / (2 * scale**2))
    share /= share.sum()
    total = np.convolve(np.convolve(share, share), share)  # the threshold is 3
    here, there = np.pad(total, (0, steps)), np.pad(total, (steps, 0))
    delta = np.maximum(here - np.exp(noise.epsilon) * there, 0).sum()
    assert delta <= how.delta
    assert np.maximum(here - np.exp(noise.epsilon / 3) * there, 0).sum() > how.delta  # and it is not far off


def test_holders_can_train_on_anonymized_parts_and_on_synthetic_tables():
    """They learn the rule behind the data from rows that are k-anonymous in the union, or not real at all."""
    import polars as pl

    import sfumato as sf
    from sfumato.federation import UnionHolder, anonymize_union
    from sfumato.federation.secure.sum import plain_handlers

    make = np.random.default_rng(3)
    schema = sf.Schema([sf.Column(name="age", role="quasi", bounds=(0, 99)), sf.Column(name="old", domain=(0, 1))])
    ages = [make.integers(0, 100, 150) for _ in range(3)]
    tables = [pl.DataFrame({"age": one, "old": (one >= 50).astype(int)}) for one in ages]
    union = {f"p{at}": UnionHolder(table) for at, table in enumerate(tables)}
    parties = [Party(name, {**plain_handlers(one.contribute), **one.handlers}) for name, one in union.items()]
    anonymize_union(InProcess(parties), PlainSum(), schema, "k=5", method=sf.Mondrian(output="median"))
    synthetic = [sf.synthesize(one, epsilon=20.0, schema=schema, insecure_seed=1).table.frame for one in tables]

    def samples(table):
        table = table.drop_nulls()  # a synthetic table may have missing values, as every column may
        return (table["age"].to_numpy()[:, None] / 100 - 0.5).astype(np.float32), table["old"].to_numpy()

    how = plan(inputs=(1,), rounds=6, epochs=3, learning_rate=0.5)
    for given in ([pl.DataFrame(one.part.frame) for one in union.values()], list(map(pl.DataFrame, synthetic))):
        found = simulate(how, list(map(samples, given)), test=samples(pl.concat(tables)), secure="none")
        assert found.rounds[-1].accuracy > 0.9

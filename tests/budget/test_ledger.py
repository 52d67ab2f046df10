"""The ledger: a limit that cannot be exceeded, and everything that happened."""

from __future__ import annotations

import json
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.budget import (
    ApproximateEvent,
    Budget,
    Event,
    Gaussian,
    Laplace,
    PureEvent,
    RandomizedResponse,
    Relation,
    Repeated,
    replace_one,
    spent,
)

PEOPLE = pl.DataFrame({"age": [30, 41, 30, None], "sex": ["f", "m", "f", "m"]})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


class Clock:
    """A clock that can be put forward and back."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    return clock


# --- which ledger ------------------------------------------------------------------------------


def test_equal_content_has_one_ledger_whatever_it_is_in(tmp_path: Path) -> None:
    sf.write(PEOPLE, tmp_path / "a.csv")
    sf.write(PEOPLE.reverse().select("sex", "age"), tmp_path / "b.parquet")
    sf.write(PEOPLE.cast({"age": pl.Float64}), tmp_path / "c.arrow")
    with sf.Ledger.grant(tmp_path / "a.csv", epsilon=1) as ledger:
        ledger.charge(PureEvent(0.25))
    for same in (tmp_path / "b.parquet", tmp_path / "c.arrow", PEOPLE, PEOPLE.to_pandas(), PEOPLE.to_arrow()):
        assert sf.Ledger.of(same).path == ledger.path
        assert sf.Ledger.of(same).spent == Budget(0.25)


def test_a_table_is_not_read_if_no_budget_was_ever_granted(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    table = sf.read(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").unlink()
    assert sf.Ledger.find(table) is None
    sf.Ledger.grant(pl.DataFrame({"b": range(2000)}), epsilon=1, delta=1e-4)
    with pytest.raises(sf.errors.FileError):
        sf.Ledger.find(table)


def test_a_changed_value_or_a_row_more_is_another_data_set() -> None:
    sf.Ledger.grant(PEOPLE, epsilon=1)
    for other in (
        PEOPLE.with_columns(age=pl.Series([30, 41, 31, None])),
        PEOPLE.vstack(PEOPLE[:1]),
        PEOPLE[:3],
        PEOPLE.rename({"age": "years"}),
    ):
        with pytest.raises(sf.errors.BudgetError, match="no budget was granted for this data"):
            sf.Ledger.of(other)


def test_the_same_values_in_other_rows_are_another_data_set() -> None:
    sf.Ledger.grant(pl.DataFrame({"a": [0, 1], "b": [0, 1]}), epsilon=1)
    with pytest.raises(sf.errors.BudgetError, match="no budget"):
        sf.Ledger.of(pl.DataFrame({"a": [0, 1], "b": [1, 0]}))


def test_a_ledger_of_another_data_set_is_refused(tmp_path: Path) -> None:
    sf.Ledger.grant(PEOPLE, epsilon=1, path=tmp_path / "mine.ledger")
    with pytest.raises(sf.errors.FileError, match="another data set"):
        sf.Ledger.of(PEOPLE[:2], tmp_path / "mine.ledger")
    with pytest.raises(sf.errors.FileError, match="another data set"):
        sf.Ledger.grant(PEOPLE[:2], epsilon=9, path=tmp_path / "mine.ledger")
    assert sf.Ledger(tmp_path / "mine.ledger").limit == Budget(1.0)


def test_the_ledger_is_in_the_users_own_folder(home: Path) -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=1)
    assert ledger.path.parent == (home / "ledgers").resolve()
    assert home.stat().st_mode & 0o077 == 0


def test_another_user_or_machine_cannot_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sf.Ledger.grant(PEOPLE, epsilon=1, path=tmp_path / "mine.ledger")
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(sf.errors.FileError, match="by another user or on another machine"):
        sf.Ledger.of(PEOPLE, tmp_path / "mine.ledger")


def test_a_lost_key_does_not_give_all_data_a_second_budget(home: Path) -> None:
    sf.Ledger.grant(PEOPLE, epsilon=1)
    (home / "fingerprint.key").unlink()
    with pytest.raises(sf.errors.BudgetError, match="no budget was granted"):
        sf.Ledger.of(PEOPLE)
    with pytest.raises(sf.errors.FileError, match=r"ledgers in .* were made with another key than .*restore that key"):
        sf.Ledger.grant(PEOPLE, epsilon=1)


# --- granting ----------------------------------------------------------------------------------


def test_the_last_limit_granted_holds_and_all_are_kept() -> None:
    sf.Ledger.grant(PEOPLE, epsilon=1, note="first").charge(PureEvent(0.9))
    ledger = sf.Ledger.grant(PEOPLE, epsilon=0.5, note="less")
    assert (ledger.limit, ledger.spent, ledger.left) == (Budget(0.5), Budget(0.9), 0.0)
    with pytest.raises(sf.errors.BudgetError, match="nothing is left"):
        ledger.charge(PureEvent(0.01))
    assert [one.get("note") for one in ledger.history() if one["kind"] == "grant"] == ["first", "less"]


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), True, "1", None])
def test_an_epsilon_that_is_none_is_refused(epsilon: object) -> None:
    with pytest.raises(sf.errors.OptionError, match="epsilon must be a finite number above 0"):
        sf.Ledger.grant(PEOPLE, epsilon=epsilon)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [-1e-6, 0.25, 0.5, 1, 1e-13, float("nan"), "0"])
def test_delta_must_be_below_one_over_the_rows(delta: object) -> None:
    with pytest.raises(sf.errors.OptionError, match="delta"):
        sf.Ledger.grant(PEOPLE, epsilon=1, delta=delta)  # type: ignore[arg-type]


def test_a_refused_grant_makes_no_ledger(home: Path) -> None:
    with pytest.raises(sf.errors.OptionError):
        sf.Ledger.grant(PEOPLE, epsilon=0)
    assert not list(home.rglob("*.ledger*"))


# --- charging ----------------------------------------------------------------------------------


def test_a_charge_that_exceeds_the_limit_is_refused_and_says_what_is_left() -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=1)
    ledger.charge(PureEvent(0.7), note="a")
    with pytest.raises(
        sf.errors.BudgetError, match=r"epsilon 0.4 would exceed the limit, epsilon 1.*epsilon 0.3 is left"
    ):
        ledger.charge(PureEvent(0.4), note="b")
    assert ledger.spent == Budget(0.7)
    ledger.charge(PureEvent(0.3))
    assert ledger.left == 0.0
    with pytest.raises(sf.errors.BudgetError, match="nothing is left"):
        ledger.charge(PureEvent(1e-9))


def test_ten_instalments_of_a_tenth_are_one() -> None:
    for parts in (3, 7, 10, 49):
        ledger = sf.Ledger.grant(PEOPLE, epsilon=1, path=f"{sf.Ledger.grant(PEOPLE, epsilon=1).path}.{parts}")
        for _ in range(parts):
            ledger.charge(PureEvent(1 / parts))
        with pytest.raises(sf.errors.BudgetError):
            ledger.charge(PureEvent(1e-6))


def test_instalments_cost_what_all_events_cost_together_and_not_the_sum() -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=4, delta=1e-5)
    for number in range(20):
        ledger.charge(Gaussian(8.0) if number % 2 else Laplace(20.0))
    together = spent([Repeated(Gaussian(8.0), 10), Repeated(Laplace(20.0), 10)], 1e-5)
    assert ledger.spent == Budget(together.epsilon, 1e-5)
    alone = 10 * spent(Gaussian(8.0), 1e-5).epsilon + 10 / 20
    assert ledger.spent.epsilon < 0.5 * alone


def test_the_quick_bound_is_the_sum_and_only_given_where_the_exact_cost_takes_time() -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=10.0, delta=1e-6)
    ledger.charge(PureEvent(0.25), times=5)
    assert ledger.account.quick is None, "five events cost their sum"
    ledger.charge(PureEvent(0.25), times=15)
    ledger.reserve(PureEvent(1.0))
    account = ledger.account
    assert account.quick == (5.0, 4.0)
    assert account.spent == ledger.spent
    assert account.spent.epsilon < 4.9
    assert account.left == ledger.left > 4.0
    ledger.charge(PureEvent(0.25), times=16)
    assert ledger.account.quick == (9.0, 0.0)
    ledger.charge(PureEvent(0.25))  # no longer within the sum
    assert ledger.account.quick is None
    assert account.spent.epsilon < 4.9, "an account is of one moment"


def test_more_fits_than_the_sum_of_epsilons_would_allow() -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=1, delta=1e-6)
    ledger.charge(PureEvent(0.01), times=300)  # 3 by adding
    assert ledger.spent.epsilon < 1


def test_epsilon_and_delta_are_compared_together() -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=10, delta=1e-6)
    ledger.charge(ApproximateEvent(0.1, 9e-7))
    with pytest.raises(sf.errors.BudgetError, match="limit, epsilon 10, delta 1e-06"):
        ledger.charge(ApproximateEvent(0.1, 9e-7))
    without = sf.Ledger.grant(PEOPLE, epsilon=10, path=ledger.path.with_name("other.ledger"))
    with pytest.raises(sf.errors.BudgetError, match="no finite epsilon at the delta of the limit, 0"):
        without.charge(Gaussian(100.0))


def test_events_come_back_as_they_were_charged() -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=4, delta=1e-5)
    ledger.charge(Gaussian(8.0), note="mean of ages")
    told = ledger.charge(Laplace(20.0), times=3)
    assert ledger.events == (Gaussian(8.0), Repeated(Laplace(20.0), 3))
    assert told["what"] == "3 times: Laplace noise of scale 20 on a sensitivity of 1"
    assert [one["note"] for one in ledger.to_dict()["events"]] == ["mean of ages", ""]
    json.dumps(ledger.export(), allow_nan=False)


def test_the_relation_of_the_ledger_is_that_of_every_charge(tmp_path: Path) -> None:
    added = sf.Ledger.grant(PEOPLE, epsilon=4)
    with pytest.raises(sf.errors.OptionError, match="has the relation replace-one, but the ledger has add-remove"):
        added.charge(RandomizedResponse(1.0))
    replaced = sf.Ledger.grant(PEOPLE, epsilon=4, relation="replace-one", path=tmp_path / "r.ledger")
    replaced.charge(RandomizedResponse(1.0))
    replaced.charge(Laplace(1.0))  # counts twice: one record less and one more
    assert replaced.spent == Budget(3.0)
    assert replaced.events[1] == replace_one(Laplace(1.0))
    with pytest.raises(sf.errors.OptionError, match="cannot be changed"):
        sf.Ledger.grant(PEOPLE, epsilon=4, relation=Relation.ADD_REMOVE, path=tmp_path / "r.ledger")


@pytest.mark.parametrize("times", [0, -1, 1.0, True, "1"])
def test_what_is_no_charge_is_refused(times: object) -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=4)
    with pytest.raises(sf.errors.OptionError, match="at least 1"):
        ledger.charge(PureEvent(1.0), times=times)  # type: ignore[arg-type]
    with pytest.raises(sf.errors.OptionError, match="only an event can be charged"):
        ledger.charge(0.5)  # type: ignore[arg-type]
    with pytest.raises(sf.errors.OptionError, match="must be a text"):
        ledger.charge(PureEvent(1.0), note=3)  # type: ignore[arg-type]
    assert ledger.spent == Budget(0.0)


_EVENTS = st.one_of(
    st.floats(0.01, 1).map(PureEvent),
    st.floats(1, 50).map(Laplace),
    st.floats(2, 50).map(Gaussian),
    st.tuples(st.floats(0, 1), st.floats(1e-9, 1e-6)).map(lambda cost: ApproximateEvent(*cost)),
)


@given(st.lists(st.tuples(_EVENTS, st.integers(1, 3)), max_size=6))
def test_whatever_is_admitted_is_within_the_limit(wanted: list[tuple[Event, int]]) -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=1, delta=1e-6)
    with ledger:
        before = len(ledger.events)
        ledger = sf.Ledger.grant(PEOPLE, epsilon=ledger.spent.epsilon + 0.5, delta=1e-6)
        for event, times in wanted:
            try:
                ledger.charge(event, times=times)
            except sf.errors.BudgetError:
                continue
            assert spent(ledger.events, 1e-6).epsilon <= ledger.limit.epsilon * (1 + 1e-9)
        if ledger.left:
            ledger.charge(PureEvent(ledger.left), note="what is left can be spent")
        assert len(ledger.events) <= before + len(wanted) + 1
        ledger.close()
    ledger.path.unlink()


# --- reservations ------------------------------------------------------------------------------


def test_what_is_reserved_nobody_else_can_spend(clock: Clock) -> None:
    mine, other = sf.Ledger.grant(PEOPLE, epsilon=1), sf.Ledger.of(PEOPLE)
    with mine.reserve(PureEvent(0.1), times=6, note="training") as reservation:
        with pytest.raises(sf.errors.BudgetError, match=r"epsilon 0.4 is left, some of it reserved"):
            other.charge(PureEvent(0.5))
        other.charge(PureEvent(0.4))
        reservation.charge(2)
        assert mine.spent == Budget(pytest.approx(0.6))
        assert mine.to_dict()["reservations"][0]["times"] == 4
    assert other.left == pytest.approx(0.4)
    assert not mine.to_dict()["reservations"]


def test_a_reservation_that_is_used_up_must_be_admitted_like_any_other() -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=1)
    reservation = ledger.reserve(PureEvent(0.25), times=2)
    reservation.charge(3)
    reservation.charge(1)
    with pytest.raises(sf.errors.BudgetError):
        reservation.charge(1)


def test_a_limit_that_is_lowered_holds_for_reservations_too() -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=1)
    reservation = ledger.reserve(PureEvent(0.25), times=4)
    reservation.charge()
    sf.Ledger.grant(PEOPLE, epsilon=0.5)
    with pytest.raises(sf.errors.BudgetError, match="nothing is left"):
        reservation.charge()
    assert ledger.spent == Budget(0.25)
    reservation.release()
    ledger.charge(PureEvent(0.25))


def test_a_reservation_expires_and_what_it_charged_stays(clock: Clock) -> None:
    ledger, other = sf.Ledger.grant(PEOPLE, epsilon=1), sf.Ledger.of(PEOPLE)
    reservation = ledger.reserve(PureEvent(0.25), times=4, seconds=60)
    reservation.charge()
    clock.now += 59
    with pytest.raises(sf.errors.BudgetError):
        other.charge(PureEvent(0.25))
    clock.now += 1
    other.charge(PureEvent(0.5))
    reservation.charge()  # there is room
    with pytest.raises(sf.errors.BudgetError, match="nothing is left"):
        reservation.charge()
    assert ledger.spent == Budget(1.0)


def test_a_clock_put_back_does_not_bring_a_reservation_to_life_again(clock: Clock) -> None:
    ledger, other = sf.Ledger.grant(PEOPLE, epsilon=1), sf.Ledger.of(PEOPLE)
    reservation = ledger.reserve(PureEvent(1.0), seconds=60)
    clock.now += 61
    other.charge(PureEvent(0.6))
    clock.now -= 3600
    assert not sf.Ledger.of(PEOPLE).to_dict()["reservations"]
    with pytest.raises(sf.errors.BudgetError, match=r"epsilon 0\.4 is left"):
        reservation.charge()
    other.charge(PureEvent(0.4))
    times = [one["time"] for one in ledger.history()]
    assert times == sorted(times)


def test_a_clock_put_back_keeps_a_reservation_at_most_longer(clock: Clock) -> None:
    ledger, other = sf.Ledger.grant(PEOPLE, epsilon=1), sf.Ledger.of(PEOPLE)
    reservation = ledger.reserve(PureEvent(1.0), seconds=60)
    clock.now -= 3600
    with pytest.raises(sf.errors.BudgetError):
        other.charge(PureEvent(0.6))
    reservation.charge()
    assert ledger.spent == Budget(1.0)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "60", True])
def test_a_reservation_holds_for_a_time(seconds: object) -> None:
    with pytest.raises(sf.errors.OptionError, match="the duration of a reservation in seconds must be"):
        sf.Ledger.grant(PEOPLE, epsilon=1).reserve(PureEvent(0.1), seconds=seconds)  # type: ignore[arg-type]


def test_a_charge_for_noise_of_a_given_seed_is_marked(tmp_path: Path) -> None:
    ledger = sf.Ledger.grant(PEOPLE, epsilon=1, path=tmp_path / "a.ledger")
    assert ledger.charge(PureEvent(0.1))["private"] is True
    assert ledger.charge(PureEvent(0.1), private=False)["private"] is False
    with ledger.reserve(PureEvent(0.1), times=2) as reservation:
        assert reservation.charge(private=False)["private"] is False
        assert reservation.charge()["private"] is True
    marks = [one["private"] for one in sf.Ledger(ledger.path).export()["entries"] if one["kind"] == "charge"]
    assert marks == [True, False, False, True]

"""What every method of synthetic tables keeps, whatever it learns: one battery for all names of the registry."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from safetensors.numpy import load_file

import sfumato as sf
from sfumato.budget.noise import Source
from sfumato.errors import InputError
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums
from sfumato.synthesizers import METHODS, Aim, AutoEncoderMixture, Copula, Independent, LabelledTree, Synthesizer
from sfumato.synthesizers.state import State
from sfumato.synthesizers.steps import Steps
from sfumato.synthesizers.tables.base import Rows
from sfumato.synthesizers.tables.columns.description import record_weights
from tests.forgery import change_json, failed
from tests.synthesizers.people import UNDATED as SCHEMA
from tests.synthesizers.people import coded, people

QUICK: dict[str, Synthesizer] = {
    "independent": Independent(),
    "copula": Copula(),
    "tree": LabelledTree(pool=1000),
    "aim": Aim(megabytes=0.1),
    "autoencoder": AutoEncoderMixture(width=2, hidden=4, components=2, rounds=1, steps=5, rate=0.2),
}
"""Each method with parameters that make it quick."""
every = pytest.mark.parametrize("method", QUICK.values(), ids=QUICK)


def test_the_battery_has_every_method_of_the_registry() -> None:
    assert QUICK.keys() == METHODS.keys()
    assert {name: one.name for name, one in QUICK.items()} == {name: name for name in METHODS}


# --- the promise ------------------------------------------------------------------------------


class Recording(NoisySums):
    """Noisy sums that keep what they were asked, or that answer what another has answered."""

    def __init__(self, like: NoisySums, answers: list[Any] | None = None) -> None:
        super().__init__(like.shares, like.multiplier, Source(insecure_seed=7))
        self.asked: list[Any] = []
        self.scores: list[Any] = []
        self._answers = answers

    def __call__(self, name: str, sums: Any, norm: float) -> Floats:
        noisy = super().__call__(name, sums, norm)
        if self._answers is not None:
            noisy = self._answers[len(self.asked)][3]
        self.asked.append((name, np.array(sums, dtype=np.float64), norm, noisy))
        return noisy.copy()

    def choose(self, name: str, scores: Any, sensitivity: float) -> int:
        self.scores.append((np.array(scores), sensitivity))
        return super().choose(name, scores, sensitivity)

    def run(self, name: str, mechanism: Any, times: int = 1) -> Any:
        found = super().run(name, mechanism, times)
        if self._answers is not None:
            found = self._answers[len(self.asked)][3]
        self.asked.append((name, np.zeros(0), 0.0, found))
        return found


def assert_same(one: State, other: State) -> None:
    """Two states are the same to the last bit: settings, names, shapes, types and numbers."""
    assert one.settings == other.settings
    assert list(one.arrays) == list(other.arrays)
    for name, array in one.arrays.items():
        assert (array.shape, array.dtype) == (other.arrays[name].shape, other.arrays[name].dtype), name
        assert array.tobytes() == other.arrays[name].tobytes(), name


@every
def test_one_record_moves_every_sum_by_at_most_its_norm_and_nothing_else(method: Synthesizer) -> None:
    """What is stored follows from the noisy answers alone: with the same answers, a neighbour has the same state."""
    rows = coded(people(120))
    sums = Recording(NoisySums(method.shares(rows.axes, rows.label), 1.0, Source(insecure_seed=1)))
    state = method.learn(rows, sums, np.random.default_rng(1)).to_state()
    for record in (0, 57, 119):
        fewer = Rows(rows.axes, tuple(np.delete(one, record) for one in rows.codes), rows.label)
        less = Recording(sums, sums.asked)
        assert_same(state, method.learn(fewer, less, np.random.default_rng(1)).to_state())
        assert [one[0] for one in less.asked] == [one[0] for one in sums.asked]
        for whole, part in zip(sums.asked, less.asked, strict=True):
            assert whole[2] == part[2], "the norm must not depend on a record"
            assert np.linalg.norm(whole[1] - part[1]) <= whole[2] * (1 + 1e-9)
        for (scores, sensitivity), (others, _) in zip(sums.scores, less.scores, strict=True):
            assert np.abs(scores - others).max() <= sensitivity
    assert {one[0] for one in sums.asked} == set(sums.shares)


@every
def test_one_weighted_record_moves_every_sum_by_at_most_its_weight(method: Synthesizer) -> None:
    frame = people(120)
    wide = sf.Column(name="w", bounds=(0, 50))
    weights = record_weights(pl.Series("w", np.random.default_rng(0).uniform(-5, 80, 120)), wide)
    assert weights.min() == 0
    assert weights.max() == 1
    assert (weights * 2**16 == np.rint(weights * 2**16)).all()  # so that sums are exact
    rows = replace(coded(frame), weights=weights)
    sums = Recording(NoisySums(method.shares(rows.axes, rows.label), 1.0, Source(insecure_seed=1)))
    method.learn(rows, sums, np.random.default_rng(1))
    for record in (0, 57, int(weights.argmin()), int(weights.argmax())):
        fewer = Rows(
            rows.axes, tuple(np.delete(one, record) for one in rows.codes), rows.label, np.delete(weights, record)
        )
        less = Recording(sums, sums.asked)
        method.learn(fewer, less, np.random.default_rng(1))
        for whole, part in zip(sums.asked, less.asked, strict=True):
            assert np.linalg.norm(whole[1] - part[1]) <= whole[2] * weights[record] * (1 + 1e-9)


@every
def test_a_person_moves_every_sum_by_at_most_their_rows_times_its_norm(method: Synthesizer) -> None:
    """The noise is as many times as large (`NoisySums`), and DP-SGD draws rows, so it refuses people with several."""
    rows = coded(people(120))
    sums = Recording(NoisySums(method.shares(rows.axes, rows.label), 1.0, Source(insecure_seed=1)))
    method.learn(rows, sums, np.random.default_rng(1))
    for person in ([3, 50, 119], [7, 8, 9]):
        fewer = Rows(rows.axes, tuple(np.delete(one, person) for one in rows.codes), rows.label)
        less = Recording(sums, sums.asked)
        method.learn(fewer, less, np.random.default_rng(1))
        for whole, part in zip(sums.asked, less.asked, strict=True):
            assert np.linalg.norm(whole[1] - part[1]) <= 3 * whole[2] * (1 + 1e-9)
        for (scores, sensitivity), (others, _) in zip(sums.scores, less.scores, strict=True):
            assert np.abs(scores - others).max() <= 3 * sensitivity
    for name, share in sums.shares.items():
        one, three = (NoisySums(sums.shares, 1.0, Source(), rows_per_person=rows) for rows in (1, 3))
        assert three.multiplier_of(name) == 3 * one.multiplier_of(name)
        assert isinstance(share, Steps) == (name == "training")


@every
def test_without_noise_each_column_keeps_its_shares(method: Synthesizer) -> None:
    rows = coded(people(2000))
    model = method.learn(rows, NoisySums(method.shares(rows.axes, rows.label), 0.0, Source()), np.random.default_rng(0))
    drawn = model.sample(2000, np.random.default_rng(0))
    for at in (0, 2, 4):
        size = rows.axes[at].size
        shares = [np.bincount(one[at], minlength=size) / 2000 for one in (rows.codes, drawn)]
        assert np.abs(shares[0] - shares[1]).sum() / 2 < 0.06


# --- states ------------------------------------------------------------------------------------


@every
def test_a_model_survives_its_state(method: Synthesizer) -> None:
    rows = coded(people(300))
    sums = NoisySums(method.shares(rows.axes, rows.label), 1.0, Source(insecure_seed=1))
    model = method.learn(rows, sums, np.random.default_rng(1))
    state = model.to_state()
    again = method.model.from_state(rows.axes, rows.label, State(json.loads(json.dumps(state.settings)), state.arrays))
    drawn = [one.sample(50, np.random.default_rng(2)) for one in (model, again)]
    assert all((a == b).all() for a, b in zip(*drawn, strict=True))


@every
def test_a_forged_state_is_refused(method: Synthesizer) -> None:
    rows = coded(people(300))
    sums = NoisySums(method.shares(rows.axes, rows.label), 1.0, Source(insecure_seed=1))
    state = method.learn(rows, sums, np.random.default_rng(1)).to_state()
    for name, array in state.arrays.items():
        other = array[:-1] if len(array) else np.ones((1, *array.shape[1:]), array.dtype)
        wrong = [other, array.astype(np.complex128)]
        if array.size:
            wrong += [np.full_like(array, np.nan)] if array.dtype.kind == "f" else [array - 5]
        for forged in (*wrong, None):
            arrays = {**state.arrays, name: forged}
            if forged is None:
                arrays.pop(name)
                if name == "scores":  # labels are then those of the tree
                    continue
            with pytest.raises(InputError):
                method.model.from_state(rows.axes, rows.label, State(state.settings, arrays))
    for name in state.settings:
        for forged in ("many", -1, 1e300, None, [0]):
            with pytest.raises(InputError):
                method.model.from_state(rows.axes, rows.label, State({**state.settings, name: forged}, state.arrays))


# --- releases ---------------------------------------------------------------------------------


def made(method: Synthesizer, frame: Any, **options: Any) -> sf.Release:
    return sf.synthesize(sf.Table(frame, SCHEMA), 2, method=method, rows=30, ledger=False, **options)


@every
def test_a_release_is_saved_loaded_and_verified(method: Synthesizer, tmp_path: Path) -> None:
    release = made(method, people(200).drop("since"))
    sf.save(release, tmp_path / "made")
    assert failed(tmp_path / "made") == []
    loaded = sf.load(tmp_path / "made")
    assert loaded.table.to_polars().equals(release.table.to_polars())
    assert loaded.artifact.method == method
    assert loaded.plan.events == release.events
    assert 1.98 < release.spent.epsilon <= 2
    for rows in (0, 1, 7):
        one, same = (each.sample(rows, seed=3) for each in (release, loaded))
        assert one.shape == (rows, 4)
        assert one.equals(same)
        assert dict(one.schema) == {"age": pl.Int64, "pay": pl.Int64, "sex": pl.String, "ill": pl.String}


@every
def test_noise_that_is_nearly_zero_or_infinite_does_not_verify(method: Synthesizer, tmp_path: Path) -> None:
    sf.save(made(method, people(200).drop("since")), tmp_path / "made")
    for noise in (5e-324, 1e-160, 1e200, 1e300):
        change_json(tmp_path / "made", "generator.json", lambda plain, one=noise: plain.update(noise=one))
        assert failed(tmp_path / "made") != []


@every
def test_the_same_seeds_give_the_same_rows_and_others_do_not(method: Synthesizer) -> None:
    frame = people(200).drop("since")
    one, same, other = (made(method, frame, insecure_seed=seed).table.to_polars() for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)


@every
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "bought"])
def test_with_one_row_per_person_all_is_as_for_rows(method: Synthesizer, declared: bool) -> None:
    frame = people(200).drop("since")
    kinds = [sf.Column(name=one.name, kind=one.kind, role=one.role) for one in SCHEMA.columns]
    schema = SCHEMA if declared else sf.Schema(kinds)
    options: dict[str, Any] = {"method": method, "delta": 1e-4, "rows": 30, "ledger": False, "insecure_seed": 3}
    rows = sf.synthesize(sf.Table(frame, schema), 9, **options)
    whose = frame.with_columns(person=pl.Series(np.random.default_rng(0).permutation(200)))
    own = sf.Schema([*schema.columns, sf.Column(name="person", role="person")])
    persons = sf.synthesize(sf.Table(whose, own), 9, rows_per_person=1, **options)
    assert persons.table.to_polars().equals(rows.table.to_polars())
    assert_same(persons.model.to_state(), rows.model.to_state())
    assert persons.plan.noise == rows.plan.noise
    assert [one.unit for one in persons.events] == ["person"] * len(rows.events)
    without = [
        json.dumps([one.to_dict() for one in each.events]).replace(', "unit": "person"', "") for each in (persons, rows)
    ]
    assert without[0] == without[1]
    assert persons.spent.epsilon == rows.spent.epsilon


@every
def test_people_are_drawn_by_every_method(method: Synthesizer, tmp_path: Path) -> None:
    frame = people(200).drop("since").with_columns(person=pl.Series(np.arange(200) // 3))
    schema = sf.Schema([*SCHEMA.columns, sf.Column(name="person", role="person")])
    table = sf.Table(frame, schema)
    release = sf.synthesize(table, 5, method=method, rows_per_person=3, people=40, ledger=False)
    sf.save(release, tmp_path / "made")
    assert failed(tmp_path / "made") == []
    drawn = release.table.to_polars()
    assert drawn.columns == ["person", "age", "pay", "sex", "ill"]
    assert drawn["person"].n_unique() == 40
    assert drawn.group_by("person").len()["len"].max() <= 3
    assert set(drawn["ill"].drop_nulls()) <= {"no", "yes"}
    assert sf.load(tmp_path / "made").sample(9, seed=1).equals(release.sample(9, seed=1))


@every
def test_neighbours_differ_in_noisy_numbers_and_drawn_rows_only(method: Synthesizer, tmp_path: Path) -> None:
    frame = people(200).drop("since")
    for name, part in (("one", frame), ("other", frame.slice(1))):
        sf.save(made(method, part, insecure_seed=1), tmp_path / name)
    plain = [json.loads((tmp_path / name / "generator.json").read_text()) for name in ("one", "other")]
    settings = [one.pop("settings") for one in plain]
    assert plain[0] == plain[1]
    assert forms(settings[0]) == forms(settings[1])
    for file in ("recipe.toml", "certificate.json"):
        texts = [(tmp_path / name / file).read_text() for name in ("one", "other")]
        if file == "certificate.json":
            texts = [{**json.loads(one), "made": "", "files": {}} for one in texts]  # type: ignore[misc]
        assert texts[0] == texts[1]
    arrays = [load_file(tmp_path / name / "generator.safetensors") for name in ("one", "other")]
    assert arrays[0].keys() == arrays[1].keys()
    for name, array in arrays[0].items():
        assert (array.dtype, array.ndim) == (arrays[1][name].dtype, arrays[1][name].ndim), name


def forms(plain: Any) -> Any:
    """Return the types of plain values, and the lengths of lists: what is left of them without their numbers."""
    if isinstance(plain, dict):
        return {name: forms(value) for name, value in plain.items()}
    return [forms(one) for one in plain] if isinstance(plain, list) else type(plain)


SECRET, NUMBER = "Zaphod-Beeblebrox", 87_317


@every
def test_no_file_holds_a_record_of_the_original(method: Synthesizer, tmp_path: Path) -> None:
    frame = people(300).drop("since").with_columns(town=pl.Series(["Ulm", "Bern", "Genf"] * 100))
    last = pl.DataFrame({"age": [97], "pay": [NUMBER], "sex": ["m"], "ill": ["no"], "town": [SECRET]})
    whole = pl.concat([frame, last.cast(frame.schema)])
    release = made(method, whole, insecure_seed=5)
    assert release.target == "ill"
    sf.save(release, tmp_path / "made")
    assert SECRET not in repr(release) + json.dumps(release.to_dict()) + str(release.artifact)
    for file in (tmp_path / "made").iterdir():
        assert SECRET.encode() not in file.read_bytes(), file.name
        if file.suffix != ".safetensors":
            # Not as a part of a hash, which holds five given digits once in 20,000 times.
            assert not re.search(rf"(?<![\w.]){NUMBER}(?!\w)".encode(), file.read_bytes()), file.name
    for name, array in load_file(tmp_path / "made" / "generator.safetensors").items():
        assert not (array == NUMBER).any(), name
    rows = release.table.to_polars()
    assert not rows.join(whole, on=["age", "pay"], how="semi").filter(pl.col("pay") > 0).height


ODD = {
    "one row": (people(1).drop("since"), SCHEMA),
    "a class that nobody has": (
        people(150).drop("since"),
        sf.Schema([*SCHEMA.columns[:3], sf.Column(name="ill", domain=("no", "yes", "dead"), role="target")]),
    ),
    "a single class": (
        people(150).drop("since").with_columns(ill=pl.lit("no")),
        sf.Schema([*SCHEMA.columns[:3], sf.Column(name="ill", domain=("no",), role="target")]),
    ),
    "nothing but missing values": (
        people(150).drop("since").with_columns(sex=pl.lit(None, dtype=pl.String), age=pl.lit(None, dtype=pl.Int64)),
        SCHEMA,
    ),
}


@every
@pytest.mark.parametrize("name", ODD)
def test_odd_tables_give_rows_of_their_domain(name: str, method: Synthesizer) -> None:
    frame, schema = ODD[name]
    release = sf.synthesize(sf.Table(frame, schema), 2, method=method, rows=20, ledger=False)
    drawn = release.table.to_polars()
    assert drawn.shape == (20, 4)
    assert set(drawn["ill"].drop_nulls()) <= set(schema["ill"].domain or ())


def test_an_error_of_a_purchase_shows_no_record_and_says_what_was_spent() -> None:
    frame = pl.DataFrame({"town": [f"{SECRET} {at}" for at in range(50)], "sex": ["f", "m"] * 25})
    with pytest.raises(InputError, match=r"no class of the target 'town'.*epsilon .* was spent") as caught:
        sf.synthesize(frame, 1, target="town", delta=1e-9, ledger=False)  # each is named with a chance below delta
    assert SECRET not in str(caught.value)


def test_pandas_in_pandas_out() -> None:
    frame = people(200).drop("since").to_pandas()
    release = made(Independent(), frame)
    assert isinstance(release.table.frame, pd.DataFrame)
    assert isinstance(release.sample(3), pd.DataFrame)
    assert list(release.sample(3).columns) == list(frame.columns)


PROGRAM = """
import sys, time
import polars as pl
import sfumato as sf

def wait(share):
    print(share, flush=True)
    if sys.argv[2] == "learning":
        time.sleep(600)

folder = sys.argv[1]
table = sf.Table(pl.read_parquet(folder + "/people.parquet"), sf.Schema.load(folder + "/schema.toml"))
made = sf.synthesize(table, 1, method="independent", rows=200_000, ledger=folder + "/ledger", progress=wait)
sf.save(made, folder + "/out")
"""


@pytest.mark.parametrize("when", ["learning", "saving"])
def test_a_killed_process_leaves_its_charge_and_no_half_made_folder(when: str, tmp_path: Path) -> None:
    """The charge is on disk before a record is counted, and a folder appears when it is complete: kill -9 proves it."""
    frame = people(200).drop("since")
    frame.write_parquet(tmp_path / "people.parquet")
    SCHEMA.save(tmp_path / "schema.toml")
    ledger = sf.Ledger.grant(frame, epsilon=3, delta=1e-3, path=tmp_path / "ledger")
    before = {*tmp_path.iterdir()}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path, when], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "0.1\n"
            if when == "saving":  # until the folder is begun; if it is complete already, it must be whole
                while process.poll() is None and not any("out" in one.name for one in {*tmp_path.iterdir()} - before):
                    time.sleep(0.002)
        finally:
            process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL or (tmp_path / "out").exists()
    assert 0.5 < ledger.spent.epsilon <= 1
    assert ledger.history()[-1]["note"] == "synthesis of a table"
    if (tmp_path / "out").exists():
        assert when == "saving"
        assert failed(tmp_path / "out") == []

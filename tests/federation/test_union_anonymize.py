"""The union of several tables is anonymized as if it had been pooled."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import InputError, OptionError, ProtocolError, SfumatoError
from sfumato.federation import (
    InProcess,
    Party,
    PlainSum,
    UnionHolder,
    anonymize_union,
    assess_union,
    plain_handlers,
)
from sfumato.federation.anonymity.regions import Regions
from sfumato.federation.secure.connect import connect

CITIES = ("Bonn", "Oslo", "Rome", "Ulm")
PLACES = sf.Hierarchy.tree([("Ulm", "DE"), ("Oslo", "NO"), ("Bonn", "DE"), ("Rome", "IT")])
SCHEMA = sf.Schema(
    [
        sf.Column(name="name", role="identifier"),
        sf.Column(name="age", role="quasi", bounds=(0, 9)),
        sf.Column(name="city", role="quasi", domain=CITIES),
        sf.Column(name="grade", role="quasi", kind="ordinal", domain=("low", "mid", "high")),
        sf.Column(name="ill", role="sensitive", domain=("flu", "ulcer", "cold")),
        sf.Column(name="smokes", domain=("no", "yes")),
    ]
)
TYPES = {"name": pl.String, "age": pl.Int64} | dict.fromkeys(("city", "grade", "ill", "smokes"), pl.String)
ROW = st.tuples(
    st.just("x"),
    st.sampled_from([0, 1, 2, 3, 5, 8, None]),
    st.sampled_from(["Oslo", "Bonn", "Rome", None]),
    st.sampled_from(["low", "high", "mid"]),
    st.sampled_from(["flu", "ulcer", "cold"]),
    st.sampled_from(["no", "yes"]),
)
ASKED = ("k=2", "k=2,l=2", "k=3,t=0.5", "k=2,alpha=0.7,entropy_l=1.3")
METHODS = (
    sf.Mondrian(),
    sf.Mondrian(output="tight"),
    sf.Mondrian(output="level"),
    sf.Mondrian(output="median"),
    sf.Guided(labels="smokes", cross_fit=False, look_ahead=0),
    sf.Guided(labels="ill", cross_fit=False, look_ahead=0, criterion="entropy", output="tight"),
    sf.Guided(labels="smokes", cross_fit=False, look_ahead=0, refine=False, output="mean"),
)


def frame(rows) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=TYPES, orient="row")


def holders_of(parts) -> dict[str, UnionHolder]:
    return {f"p{at}": UnionHolder(frame(rows)) for at, rows in enumerate(parts)}


def channel_of(holders) -> InProcess:
    return InProcess(Party(name, {**plain_handlers(one.contribute), **one.handlers}) for name, one in holders.items())


def split(rows, parties, seed):
    owner = np.random.default_rng(seed).integers(0, parties, len(rows))
    return [[row for row, of in zip(rows, owner, strict=True) if of == at] for at in range(parties)]


def some(number, seed=1):
    make = np.random.default_rng(seed)
    ages, places, grades = [0, 1, 2, 3, 5, 8, None], ["Oslo", "Bonn", "Rome"], ["low", "mid", "high"]
    columns = (ages, places, grades, ["flu", "ulcer"], ["no", "yes"])
    return [("x", *(one[make.integers(len(one))] for one in columns)) for _ in range(number)]


def rows_of(table) -> Counter:
    return Counter(pl.DataFrame(table.frame).rows())


def attempted(run):
    try:
        return run()
    except SfumatoError as error:
        return str(error)


def with_places(schema: sf.Schema) -> sf.Schema:
    column = sf.Column(name="city", role="quasi", domain=("Bonn", "Oslo", "Rome", "Ulm"), hierarchy=PLACES)
    return sf.Schema(column if one.name == "city" else one for one in schema.columns)


@pytest.mark.filterwarnings("ignore:the guiding label")
@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(ROW, min_size=1, max_size=40),
    parties=st.integers(2, 5),
    seed=st.integers(0, 999),
    asked=st.sampled_from(ASKED),
    method=st.sampled_from(METHODS),
    tree=st.booleans(),
)
def test_the_union_is_published_as_the_pooled_table(rows, parties, seed, asked, method, tree):
    schema = with_places(SCHEMA) if tree else SCHEMA
    holders = holders_of(split(rows, parties, seed))
    union = attempted(lambda: anonymize_union(channel_of(holders), PlainSum(), schema, asked, method=method))
    pooled = attempted(lambda: sf.anonymize(frame(rows), asked, method=method, schema=schema))
    if isinstance(pooled, str) or isinstance(union, str):
        assert isinstance(union, str)
        assert isinstance(pooled, str)
        assert all(one.part is None for one in holders.values())
        return
    assert rows_of(union.table) == rows_of(pooled.table)
    assert union.assessment.numbers() == pooled.assessment.numbers()
    parts = sum((rows_of(one.part) for one in holders.values()), Counter())
    assert parts == rows_of(union.table)
    here, there = union.loss.to_dict(), pooled.loss.to_dict()
    for name in ("gcp", "discernibility", "average_class", "suppressed", "precision", "entropy"):
        assert here[name] == pytest.approx(there[name], abs=1e-12), name


@pytest.mark.parametrize(("secure", "method"), [("masks", METHODS[0]), ("masks", METHODS[4]), ("ckks", METHODS[0])])
def test_a_secure_sum_changes_nothing_and_verify_confirms_the_release(secure, method, tmp_path):
    rows = some(60)
    holders = holders_of([*split(rows, 3, 2), []])
    handlers, sums = connect(secure, {name: one.contribute for name, one in holders.items()}, threshold=3)
    parties = [Party(name, {**handlers[name], **one.handlers}) for name, one in holders.items()]
    union = anonymize_union(InProcess(parties), sums, SCHEMA, "k=4,l=2", method=method)
    pooled = sf.anonymize(frame(rows), "k=4,l=2", method=method, schema=SCHEMA)
    assert rows_of(union.table) == rows_of(pooled.table)
    assert holders["p3"].part.rows == 0
    assert holders["p0"].kept == ("k=4", "l=2")
    sf.save(union, tmp_path / "release")
    found = sf.verify(tmp_path / "release")
    assert found.ok, [one.claim for one in found.failed]
    certificate = json.loads((tmp_path / "release" / "certificate.json").read_text())
    assert certificate["claims"]["k"] == union.k >= 4
    assert "name" not in certificate["schema"]["columns"]
    again = sf.run(sf.load(tmp_path / "release").recipe, frame(rows))
    assert rows_of(again.table) == rows_of(union.table)


def test_a_forged_row_of_the_release_is_found(tmp_path):
    union = anonymize_union(channel_of(holders_of([some(20), some(9, 3)])), PlainSum(), SCHEMA, "k=4")
    sf.save(union, tmp_path / "release", format="csv")
    path = tmp_path / "release" / "table.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    assert not sf.verify(tmp_path / "release").ok


def test_the_parts_are_kept_only_if_the_union_keeps_what_was_asked():
    holders = holders_of([some(12), some(9, 3)])
    with pytest.raises(InputError, match="no grouping keeps k=40"):
        anonymize_union(channel_of(holders), PlainSum(), SCHEMA, "k=40")
    assert all(one.part is None for one in holders.values())
    with pytest.raises(ProtocolError, match="not recoded"):
        holders["p0"].keep({"guarantees": []})


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (frame([("x", 10, "Oslo", "low", "flu", "no")]), "column 'age' holds 1 value"),
        (frame([("x", 1, "Oslo", "low", "flu", "perhaps")]), "column 'smokes' holds 1 value"),
        (frame([("x", 1, "Oslo", "low", "flu", "no")]).drop("grade"), "lacks the column 'grade'"),
        (frame([("x", 1, "Oslo", "low", "flu", "no")]).drop("smokes"), "lacks the column 'smokes'"),
    ],
)
def test_a_holder_with_other_columns_or_values_ends_the_run_and_is_named(bad, said):
    holders = holders_of([some(20), some(9, 3)]) | {"south": UnionHolder(bad)}
    with pytest.raises(ProtocolError, match="south") as caught:
        anonymize_union(channel_of(holders), PlainSum(), SCHEMA, "k=2")
    assert said in str(caught.value)
    assert "perhaps" not in str(caught.value)
    assert holders["p0"].part is None


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_holder_that_drops_out_ends_the_run_without_any_part(after):
    holders = holders_of([some(30), some(20, 3), some(20, 4)])
    channel, asked = channel_of(holders), 0
    whole = channel.parties["p1"].handlers["sum/plain"]

    def drops(request):
        nonlocal asked
        asked += 1
        if asked > after:
            raise OSError("gone")
        return whole(request)

    channel.parties["p1"].handlers["sum/plain"] = drops
    with pytest.raises(ProtocolError, match="party 'p1' is missing"):
        anonymize_union(channel, PlainSum(), SCHEMA, "k=2")
    assert all(one.part is None for one in holders.values())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 9999), when=st.integers(0, 4), how=st.sampled_from(["noise", "negative", "short", "moved"]))
def test_a_holder_that_lies_ends_the_run_or_changes_a_release_that_keeps_the_guarantee(seed, when, how):
    holders = holders_of([some(30), some(20, 3)])
    channel, asked = channel_of(holders), 0
    honest = channel.parties["p1"].handlers["sum/plain"]

    def lies(request):
        nonlocal asked
        asked, reply, make = asked + 1, honest(request), np.random.default_rng(seed)
        vector = reply["vector"].copy()
        if asked > when:
            if how == "noise":
                vector = make.integers(0, 9, len(vector), dtype=np.uint32)
            elif how == "negative":
                vector[make.integers(len(vector))] -= np.uint32(1)
            elif how == "moved":
                vector = make.permutation(vector)
            else:
                vector = vector[1:]
        return {**reply, "vector": vector}

    channel.parties["p1"].handlers["sum/plain"] = lies
    try:
        release = anonymize_union(channel, PlainSum(), SCHEMA, "k=3,l=2")
    except SfumatoError:
        assert all(one.part is None for one in holders.values())
    else:
        assert release.k >= 3


def test_no_rows_anywhere_are_refused():
    with pytest.raises(InputError, match="no holder has a row"):
        anonymize_union(channel_of(holders_of([[], []])), PlainSum(), SCHEMA, "k=2")


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (sf.Hilbert(), "Hilbert"),
        (sf.Mondrian(strict=False), "strict"),
        (sf.Mondrian(output="medoid"), "medoid"),
        (sf.Guided(labels="smokes"), "cross_fit=False"),
        (sf.Guided(model="tree"), "labels as the name"),
        (sf.Guided(labels="smoks", cross_fit=False, look_ahead=0), "no column 'smoks'"),
        (sf.Guided(labels="city", cross_fit=False, look_ahead=0), "quasi-identifier"),
    ],
)
def test_methods_that_need_rows_are_refused(method, said):
    with pytest.raises(OptionError) as caught:
        anonymize_union(channel_of(holders_of([some(9)])), PlainSum(), SCHEMA, "k=2", method=method)
    assert said in str(caught.value)


def test_a_region_that_is_opened_keeps_the_guarantees():
    holders = holders_of(split(some(80), 3, 5))
    seen: list[np.ndarray] = []

    class Watched(PlainSum):
        def total(self, channel, round_, requests, **options):
            summed = super().total(channel, round_, requests, **options)
            request = next(iter(requests.values()))
            if request["count"] == "regions":
                ages = summed.total.reshape(len(request["opened"]), -1, 4)[:, :11]
                seen.extend(ages.sum(axis=1))
            return summed

    anonymize_union(channel_of(holders), Watched(), SCHEMA, "k=5,l=2")
    assert len(seen) > 4
    assert min(int(one.sum()) for one in seen) >= 5
    assert min(int((one > 0).sum()) for one in seen) >= 2


def test_more_regions_than_fit_into_one_sum_are_counted_in_several(monkeypatch):
    rows = some(60)
    whole = anonymize_union(channel_of(holders_of(split(rows, 2, 1))), PlainSum(), SCHEMA, "k=3,l=2")
    monkeypatch.setattr("sfumato.federation.anonymity.anonymize.MOST_CELLS", 150)
    parts = anonymize_union(channel_of(holders_of(split(rows, 2, 1))), PlainSum(), SCHEMA, "k=3,l=2")
    assert rows_of(whole.table) == rows_of(parts.table)
    monkeypatch.setattr("sfumato.federation.anonymity.anonymize.MOST_CELLS", 20)
    with pytest.raises(InputError, match="at most 20 can be summed"):
        anonymize_union(channel_of(holders_of([rows])), PlainSum(), SCHEMA, "k=3,l=2")


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damaged_regions_are_refused_and_never_loop(data):
    numbers = st.lists(st.integers(-2, 6), min_size=1, max_size=7)
    message = {
        "by": np.array(data.draw(numbers), dtype=np.int32),
        "left": np.array(data.draw(numbers), dtype=np.int32),
        "right": np.zeros(data.draw(st.integers(0, 3)), dtype=np.uint8),
    }
    try:
        regions = Regions.from_message(message, [3, 4])
    except ProtocolError:
        return
    found = regions.route(np.array([[0, 0], [2, 3]]))
    assert set(found.tolist()) <= set(regions.leaves.tolist())


def test_regions_survive_the_wire():
    regions = Regions()
    left, _ = regions.cut(0, 1, np.array([True, False, False, True]))
    regions.cut(left, 0, np.array([False, False, True]))
    again = Regions.from_message(regions.to_message(), [3, 4])
    positions = np.array([[a, b] for a in range(3) for b in range(4)])
    assert np.array_equal(again.route(positions), regions.route(positions))


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=30), parties=st.integers(2, 5), seed=st.integers(0, 999))
def test_a_stepwise_assessment_equals_that_of_all_cells(rows, parties, seed):
    channel = channel_of(holders_of(split(rows, parties, seed)))
    at_once = assess_union(channel, PlainSum(), SCHEMA, require="k=2,t=0.4")
    assert assess_union(channel, PlainSum(), SCHEMA, stepwise=True, require="k=2,t=0.4").to_dict() == at_once.to_dict()


def test_a_union_with_more_combinations_than_cells_is_assessed_stepwise():
    make = np.random.default_rng(0)
    names = ("age", "weight", "income", "zip")
    schema = sf.Schema(sf.Column(name=name, role="quasi", bounds=(0, 999)) for name in names)
    rows = pl.DataFrame({name: make.integers(0, 1000, 50) for name in names})
    rows = pl.concat([rows, rows])
    channel = channel_of({"p0": UnionHolder(rows[:30]), "p1": UnionHolder(rows[30:])})
    with pytest.raises(InputError, match="stepwise"):
        assess_union(channel, PlainSum(), schema)
    assert assess_union(channel, PlainSum(), schema, stepwise=True).k == 2

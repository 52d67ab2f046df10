"""The union of several tables measures the same as the pooled table."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import OptionError, ProtocolError
from sfumato.federation.anonymity.anonymize import anonymize_union
from sfumato.federation.anonymity.assess import assess_union, contribution
from sfumato.federation.channel import InProcess, Party
from sfumato.federation.secure.masks import Roster
from sfumato.federation.secure.sum import MaskedSum, PlainSum, masked_handlers, plain_handlers
from sfumato.measures.assess import measure

SCHEMA = sf.Schema(
    [
        sf.Column(name="age", role="quasi", kind="number", bounds=(0, 3)),
        sf.Column(name="sex", role="quasi", kind="category", domain=("m", "f")),
        sf.Column(name="disease", role="sensitive", kind="category", domain=("flu", "ulcer", "cold")),
        sf.Column(name="stage", role="sensitive", kind="ordinal", domain=("low", "mid", "high")),
    ]
)
TYPES = {"age": pl.Int64, "sex": pl.String, "disease": pl.String, "stage": pl.String}
ROW = st.tuples(
    st.sampled_from([0, 1, 3, None]),
    st.sampled_from(["f", "m", None]),
    st.sampled_from(["flu", "ulcer", "cold", None]),
    st.sampled_from(["low", "mid", "high"]),
)
REQUIRE = "k=2,l=2,t=0.4,alpha=0.7,entropy_l=1.5,recursive_c=3,recursive_l=2,beta=2,enhanced_beta=1,delta=2"


def frame(rows):
    return pl.DataFrame(rows, schema=TYPES, orient="row")


def plain(parts):
    parties = (Party(f"p{at}", plain_handlers(contribution(frame(rows)))) for at, rows in enumerate(parts))
    return assess_union(InProcess(parties), PlainSum(), SCHEMA, require=REQUIRE)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=30), parties=st.integers(2, 5), seed=st.integers(0, 999))
def test_the_union_measures_the_same_as_the_pooled_table(rows, parties, seed):
    owner = np.random.default_rng(seed).integers(0, parties, len(rows))
    parts = [[row for row, of in zip(rows, owner, strict=True) if of == at] for at in range(parties)]
    pooled = measure(sf.Table(frame(rows), SCHEMA), require=REQUIRE)
    assert plain(parts).to_dict() == pooled.to_dict()


def test_masks_change_nothing():
    parts = [[(0, "f", "flu", "low")], [(0, "f", "cold", "mid")], []]
    own = {f"p{at}": Ed25519PrivateKey.generate() for at in range(3)}
    roster = Roster(bytes(32), {name: one.public_key().public_bytes_raw() for name, one in own.items()}, 2)
    parties = (
        Party(name, masked_handlers(roster, name, own[name], contribution(frame(rows))))
        for name, rows in zip(own, parts, strict=True)
    )
    masked = assess_union(InProcess(parties), MaskedSum(roster), SCHEMA, require=REQUIRE)
    assert masked.to_dict() == plain(parts).to_dict()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (frame([(9, "f", "flu", "low")]), "outside its public"),
        (frame([(0, "f", "flu", "low")]).drop("sex"), "lacks the column 'sex'"),
    ],
)
def test_a_union_without_one_party_is_refused_and_names_it(bad, said):
    good = Party("north", plain_handlers(contribution(frame([(0, "f", "flu", "low")]))))
    channel = InProcess([good, Party("south", plain_handlers(contribution(bad)))])
    with pytest.raises(ProtocolError, match="south") as caught:
        assess_union(channel, PlainSum(), SCHEMA)
    assert said in str(caught.value)


# --- people ---------------------------------------------------------------------------------------


PEOPLE = sf.Schema(
    [
        sf.Column(name="patient", role="person"),
        sf.Column(name="age", role="quasi", bounds=(0, 3)),
        sf.Column(name="city", role="quasi", domain=("Bonn", "Oslo")),
    ]
)
VISIT = st.tuples(st.sampled_from([1, 2, 3, None]), st.sampled_from([0, 1, None]), st.sampled_from(["Bonn", "Oslo"]))


def at_holders(parts: list[list[tuple[Any, ...]]]) -> tuple[InProcess, pl.DataFrame]:
    """Return a channel to holders of visits, and their pooled table, in which people of two holders are different."""
    types = {"patient": pl.Int64, "age": pl.Int64, "city": pl.String}
    tables = [pl.DataFrame(rows, schema=types, orient="row") for rows in parts]
    parties = [Party(f"h{at}", plain_handlers(contribution(table))) for at, table in enumerate(tables)]
    return InProcess(parties), pl.concat(
        [one.with_columns(pl.col("patient") + 100 * at) for at, one in enumerate(tables)]
    )


@pytest.mark.parametrize("stepwise", [False, True])
@given(parts=st.lists(st.lists(VISIT, max_size=8), min_size=2, max_size=3).filter(any))
@settings(deadline=None, max_examples=40)
def test_people_of_disjoint_holders_are_counted_as_if_pooled(
    parts: list[list[tuple[Any, ...]]], *, stepwise: bool
) -> None:
    channel, pooled = at_holders(parts)
    union = assess_union(channel, PlainSum(), PEOPLE, stepwise=stepwise, people_are_disjoint=True)
    alone = sf.assess(pooled, schema=PEOPLE)
    assert (union.k, union.classes, union.unit) == (alone.k, alone.classes, "person")
    assert union.risk.prosecutor_max == alone.risk.prosecutor_max
    assert union.risk.marketer == pytest.approx(alone.risk.marketer)
    assert union.risk.uniques >= alone.risk.uniques
    assert union.people.people >= alone.people.people


def test_people_who_have_one_class_are_measured_exactly() -> None:
    rows = [(who, who % 2, "Bonn") for who in (1, 1, 1, 2, 3, 3)]
    channel, pooled = at_holders([rows, rows, []])
    union = assess_union(channel, PlainSum(), PEOPLE, people_are_disjoint=True)
    alone = sf.assess(pooled, schema=PEOPLE)
    assert union.risk == alone.risk
    assert (union.people.people, union.k) == (6, 2)
    assert union.to_dict()["options"]["people_are_disjoint"] == "declared"
    by_row = sf.Schema(one for one in PEOPLE.columns if one.name != "patient")
    assert assess_union(channel, PlainSum(), by_row).k == 2


def test_people_at_several_holders_are_not_assumed_away() -> None:
    channel, _ = at_holders([[(1, 0, "Bonn")], [(2, 0, "Bonn")]])
    with pytest.raises(OptionError, match="people may have rows at several holders"):
        assess_union(channel, PlainSum(), PEOPLE)
    sensitive = sf.Schema([*PEOPLE.columns, sf.Column(name="ill", role="sensitive", domain=("no", "yes"))])
    with pytest.raises(OptionError, match="sensitive values of people are not counted across holders, got 'ill'"):
        assess_union(channel, PlainSum(), sensitive, people_are_disjoint=True)
    with pytest.raises(OptionError, match="anonymizing the union of several tables is about rows"):
        anonymize_union(channel, PlainSum(), PEOPLE, "k=2")


def test_a_holder_that_protects_people_does_not_count_rows() -> None:
    table = sf.Table.of(pl.DataFrame({"patient": [1, 1], "age": [0, 1], "city": ["Bonn"] * 2}), person="patient")
    channel = InProcess([Party("north", plain_handlers(contribution(table)))])
    by_row = sf.Schema(one for one in PEOPLE.columns if one.name != "patient")
    with pytest.raises(ProtocolError, match="protects the people of column 'patient', and rows are to be counted"):
        assess_union(channel, PlainSum(), by_row)
    assert assess_union(channel, PlainSum(), PEOPLE, people_are_disjoint=True).k == 1
    lacking = InProcess([Party("north", plain_handlers(contribution(pl.DataFrame({"age": [0], "city": ["Bonn"]}))))])
    with pytest.raises(sf.errors.SfumatoError, match="lacks the column 'patient'"):
        assess_union(lacking, PlainSum(), PEOPLE, people_are_disjoint=True)

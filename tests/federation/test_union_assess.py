"""The union of several tables measures the same as the pooled table."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import ProtocolError
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

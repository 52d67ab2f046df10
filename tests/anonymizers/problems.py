"""Small random problems for the anonymizers, and the slow way to check what came out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st
from numpy.typing import NDArray

import sfumato as sf
from sfumato.anonymizers.problem import Problem
from sfumato.engines import reduce

TREE = sf.Hierarchy.tree(
    [("d", "x", "u"), ("a", "x", "u"), ("e", "y", "u"), ("b", "z", "v"), ("c", "z", "v"), ("f", "w", "v")]
)
SCHEMA = sf.Schema(
    [
        sf.Column(name="number", role="quasi", kind="number"),
        sf.Column(name="ordinal", role="quasi", kind="ordinal", domain=("low", "mid", "high", "top")),
        sf.Column(name="tree", role="quasi", kind="category", hierarchy=TREE),
        sf.Column(name="plain", role="quasi", kind="category"),
        sf.Column(name="disease", role="sensitive", kind="category"),
        sf.Column(name="salary", role="sensitive", kind="number"),
    ]
)
QUASI = ("number", "ordinal", "tree", "plain")
CELLS = st.tuples(
    st.none() | st.integers(0, 9),
    st.none() | st.sampled_from(["low", "mid", "high", "top"]),
    st.none() | st.sampled_from("abcdef"),
    st.sampled_from(["p", "q", "r", "s"]),
    st.sampled_from(["flu", "ulcer", "cancer"]),
    st.sampled_from([10, 20, 50]),
)
GUARANTEES = st.lists(
    st.one_of(
        st.builds(sf.KAnonymity, st.integers(1, 8)),
        st.builds(sf.measures.AlphaK, st.sampled_from([0.4, 0.6, 0.8, 1]), st.integers(1, 4)),
        st.builds(sf.LDiversity, st.integers(1, 3)),
        st.builds(sf.measures.EntropyL, st.sampled_from([1.0, 1.5, 2.0, 2.5])),
        st.builds(sf.measures.RecursiveCL, st.sampled_from([0.5, 1.0, 2.0, 4.0]), st.none() | st.integers(1, 3)),
        st.builds(sf.TCloseness, st.sampled_from([0.0, 0.1, 0.3, 0.6])),
        st.builds(sf.measures.BetaLikeness, st.sampled_from([0.0, 0.5, 1.0, 3.0])),
        st.builds(sf.measures.EnhancedBeta, st.sampled_from([0.0, 0.5, 1.0, 3.0])),
        st.builds(
            sf.measures.DeltaDisclosure, st.sampled_from([0.3, 0.7, 1.5]), st.sampled_from(["ignore", "infinite"])
        ),
    ),
    min_size=1,
    max_size=3,
)


@dataclass(frozen=True)
class Case:
    """A table, its problem, and the sensitive attributes that count."""

    frame: pl.DataFrame
    quasi: tuple[str, ...]
    sensitive: tuple[str, ...]
    problem: Problem

    @property
    def guarantees(self) -> tuple[sf.Guarantee, ...]:
        return self.problem.guarantees


def case(rows: Sequence[tuple[Any, ...]], quasi: Sequence[str], sensitive: Sequence[str], asked: Any) -> Case:
    frame = pl.DataFrame(rows, schema=list(SCHEMA.names), orient="row", infer_schema_length=None).with_columns(
        pl.col("number").cast(pl.Int64), pl.col("ordinal", "tree").cast(pl.String)
    )
    guarantees = sf.Guarantee.parse(asked) if isinstance(asked, str) else asked
    tuples = reduce(sf.Table(frame, SCHEMA), [*quasi, *sensitive])
    return Case(frame, tuple(quasi), tuple(sensitive), Problem.of(tuples, list(quasi), list(sensitive), guarantees))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows = draw(st.lists(CELLS, min_size=1, max_size=60))
    quasi = draw(st.lists(st.sampled_from(QUASI), min_size=1, max_size=4, unique=True))
    guarantees = draw(GUARANTEES)
    least = int(any(guarantee.needs_sensitive for guarantee in guarantees))
    sensitive = draw(st.lists(st.sampled_from(["disease", "salary"]), min_size=least, max_size=2, unique=True))
    return case(rows, quasi, sensitive, guarantees)


def whole_table_keeps(one: Case) -> bool:
    return keeps(one, np.zeros(len(one.frame), dtype=np.int64))


def keeps(one: Case, group_of_row: NDArray[Any]) -> bool:
    """Whether the rows, with their group as the only quasi-identifier, pass the public check."""
    frame = one.frame.with_columns(pl.Series("group", [f"g{group}" for group in group_of_row]))
    table = sf.Table(
        frame.select("group", *one.sensitive),
        sf.Schema([sf.Column(name="group"), *map(SCHEMA.__getitem__, one.sensitive)]),
    )
    checks = sf.check(table, list(one.guarantees), qi=["group"], sensitive=list(one.sensitive)).checks
    return all(check.held for check in checks)


def tuple_of_row(one: Case) -> NDArray[np.int64]:
    """The tuple that each row of the table has, found by comparing values."""
    domains = one.problem.domains
    known = {
        tuple(domain.values[int(code)] for domain, code in zip(domains, codes, strict=True)): index
        for index, codes in enumerate(one.problem.codes)
    }
    return np.array([known[row] for row in one.frame.select(one.quasi).iter_rows()])


def members(problem: Problem, groups: NDArray[Any]) -> dict[int, NDArray[np.int32]]:
    """The positions of the tuples of each group."""
    found = defaultdict(list)
    for index, group in enumerate(groups.tolist()):
        found[group].append(problem.positions[index])
    return {group: np.array(positions) for group, positions in found.items()}

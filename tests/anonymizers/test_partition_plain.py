"""Small tables are cut without compiling the kernel; the groups are those of the compiled one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from hypothesis import given

import sfumato as sf
from sfumato.anonymizers.mondrian import partition
from sfumato.anonymizers.mondrian.mondrian import mondrian, rplus
from sfumato.anonymizers.problem import Problem
from sfumato.engines import reduce
from sfumato.measures.classes import Ints

from .problems import Case, cases, whole_table_keeps

ASKED = (
    "k=3",
    "k=2,l=2,t=0.6",
    "k=2,entropy_l=1.5,basic_beta=3",
    "k=2,recursive_c=4,recursive_l=2,delta_disclosure=1.5",
)


def both(groups: Callable[[], Ints]) -> tuple[list[int], list[int]]:
    """What the plain and what the compiled kernel makes."""
    plainly = groups().tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "_FEW", 0)
        return plainly, groups().tolist()


@given(one=cases())
def test_the_plain_kernel_makes_the_groups_of_the_compiled_one(one: Case) -> None:
    if not whole_table_keeps(one):
        return
    for groups in (
        lambda: mondrian(one.problem),
        lambda: rplus(one.problem),
        lambda: mondrian(one.problem, strict=False)[1],
    ):
        plainly, compiled = both(groups)
        assert plainly == compiled


@pytest.mark.parametrize("asked", ASKED)
def test_long_lines_and_many_values_make_the_same_groups_too(asked: str) -> None:
    random = np.random.default_rng(7)
    frame = pl.DataFrame(
        {
            "far": random.integers(0, 10**6, 800),
            "near": random.integers(0, 70, 800),
            "name": [f"n{value}" for value in random.integers(0, 500, 800)],
            "letter": random.choice(list("abc"), 800),
            "disease": random.choice(list("uvwxyz"), 800),
        }
    )
    quasi = ["far", "near", "name", "letter"]
    tuples = reduce(sf.Table(frame), [*quasi, "disease"])
    problem = Problem.of(tuples, quasi, ["disease"], sf.Guarantee.parse(asked))
    for groups in (lambda: mondrian(problem), lambda: rplus(problem)):
        plainly, compiled = both(groups)
        assert plainly == compiled
        assert len(set(plainly)) > 1

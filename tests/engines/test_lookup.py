"""A finder finds the tuples that it knows, and no others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sfumato.engines.lookup import Lookup

SIZES = st.lists(st.sampled_from([1, 2, 3, 8, 2**20, 2**31]), min_size=1, max_size=9)


@given(SIZES, st.data())
def test_the_position_of_a_known_tuple_is_found_and_no_other_tuple_is(sizes: list[int], data: st.DataObject) -> None:
    tuples = st.tuples(*(st.sampled_from([0, size // 2, size - 1]) for size in sizes))
    known = data.draw(st.lists(tuples, unique=True, min_size=1, max_size=20))
    asked = data.draw(st.lists(st.sampled_from(known) | tuples, min_size=1, max_size=20))
    finder = Lookup(np.array(known), sizes)
    found = finder.find([np.array(column) for column in zip(*asked, strict=True)])
    assert found.tolist() == [known.index(one) if one in known else -1 for one in asked]


def test_a_code_that_no_column_has_is_never_found() -> None:
    finder = Lookup(np.array([[0, 0], [1, 3]]), [2, 4])
    assert finder.find([np.array([-1, 0, 1, 1, -1]), np.array([0, -1, 3, -1, 3])]).tolist() == [-1, -1, 1, -1, -1]
    wide = Lookup(np.array([[2**31 - 1] * 5]), [2**31] * 5)  # all bits of three keys
    assert wide.find([np.array([2**31 - 1, -1])] * 5).tolist() == [0, -1]

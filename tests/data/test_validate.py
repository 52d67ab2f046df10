"""One check for whole numbers and one for numbers."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sfumato.data.validate import real, whole
from sfumato.errors import OptionError


@pytest.mark.parametrize("value", [1, 7, np.int64(7), np.uint8(7), 10**400])
def test_a_whole_number_comes_back_as_a_plain_int(value: Any) -> None:
    checked = whole("k", value, least=1)
    assert type(checked) is int
    assert checked == value


@pytest.mark.parametrize("value", [True, False, np.True_, 3.0, "3", None, Fraction(3), 1, 11, math.nan, -(10**400)])
def test_anything_else_is_not_a_whole_number_in_the_range(value: Any) -> None:
    with pytest.raises(OptionError, match=r"^k must be a whole number from 2 to 10, got "):
        whole("k", value, least=2, most=10)


def test_the_ends_of_a_range_of_whole_numbers_belong_to_it() -> None:
    assert [whole("k", end, least=2, most=10) for end in (2, 10)] == [2, 10]
    with pytest.raises(OptionError, match=r"^k must be a whole number of at least 2, got 1$"):
        whole("k", 1, least=2)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.int64(1), Fraction(1, 2)])
def test_a_number_comes_back_as_a_plain_float(value: Any) -> None:
    checked = real("epsilon", value, above=0)
    assert type(checked) is float
    assert checked == value


@pytest.mark.parametrize("value", [True, "1", None, Decimal(1), 1j, math.nan, math.inf, -math.inf, 10**400, 0, -1])
def test_anything_else_is_not_a_finite_number_above_zero(value: Any) -> None:
    with pytest.raises(OptionError, match=r"^epsilon must be a finite number above 0, got "):
        real("epsilon", value, above=0)


@pytest.mark.parametrize(
    ("limits", "inside", "outside", "words"),
    [
        ({}, [-1e308, 0], [math.inf], "finite number"),
        ({"least": 0}, [0, 5], [-1], "finite number of at least 0"),
        ({"most": 1}, [1, -5], [1.5], "finite number at most 1"),
        ({"below": 1}, [0.5], [1], "finite number below 1"),
        ({"above": 0, "below": 1}, [0.5], [0, 1], "number between 0 and 1"),
        ({"least": 0, "most": 1}, [0, 1], [-0.1, 1.1], "number from 0 to 1"),
        ({"above": 0, "most": 1}, [1], [0, 1.1], "number above 0 and at most 1"),
        ({"least": 0, "below": 1}, [0], [1], "number of at least 0 and below 1"),
    ],
)
def test_least_and_most_belong_to_the_range_above_and_below_do_not(
    limits: dict[str, float], inside: list[float], outside: list[float], words: str
) -> None:
    assert [real("x", value, **limits) for value in inside] == inside
    for value in outside:
        with pytest.raises(OptionError, match=f"^x must be a {words}, got "):
            real("x", value, **limits)

"""Kernels that count the people of classes, and share their weight among values, in two passes over the rows.

Numba compiles them on first use and caches the result on disk. Entries are given by run: the entries of a class are
those of its runs, in any order. What is known of a person is in one row of an array, because people are met in random
order and every line of memory that is touched takes longer than all else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.compiling import kernel
from sfumato.measures.classes import Ints

__all__ = ["CLASS", "MIXED", "SMALLEST", "WHOLE_ROWS", "WHOLE_VALUE", "count", "share"]

CLASS, ROWS, VALUE, SMALLEST, WHOLE_ROWS, WHOLE_VALUE = range(6)
"""What is known of a person: the last class they were met in, their rows and their value there, the smallest of their
classes, and their rows and their value in the whole table."""
MIXED = -2
"""The value of someone with several; -1 is none so far."""
_SHARED = -3  # that of someone whose whole weight has been given to their only value


@kernel(error_model="numpy", forceinline=True)
def _meet(known: Ints, who: Any, one: int, rows: int, value: int) -> bool:
    """Add rows of a person in a class; return whether these are their first there."""
    if known[who, CLASS] != one:
        known[who, CLASS], known[who, ROWS], known[who, VALUE] = one, rows, value
        return True
    known[who, ROWS] += rows
    if known[who, VALUE] != value:
        known[who, VALUE] = MIXED
    return False


@kernel(error_model="numpy")
def count(
    runs: Ints, begins: Ints, person: Ints, rows: Ints, value: Ints, known: Ints, size: Ints, parts: NDArray[np.bool_]
) -> None:
    """Count the people of each class, and find the smallest class of each person, the first of equals.

    Parameters
    ----------
    runs, begins : the first entry and the end of each run, and the first run of each class
    person, rows, value : of each entry
    known : a row per person, see `CLASS`; all -1 but for their rows, which are 0
    size : set to the number of people in each class
    parts : set to true for the rows that someone with several values has in a class
    """
    for one in range(len(size)):
        people = 0
        for run in range(begins[one], begins[one + 1]):
            for entry in range(np.uint64(runs[run, 0]), np.uint64(runs[run, 1])):
                who = np.uint64(person[entry])
                people += _meet(known, who, one, rows[entry], value[entry])
                known[who, WHOLE_ROWS] += rows[entry]
                if known[who, WHOLE_VALUE] != value[entry]:
                    known[who, WHOLE_VALUE] = value[entry] if known[who, WHOLE_VALUE] == -1 else MIXED
        size[one] = people
        for run in range(begins[one], begins[one + 1]):
            for entry in range(np.uint64(runs[run, 0]), np.uint64(runs[run, 1])):
                who = np.uint64(person[entry])
                if known[who, SMALLEST] < 0 or people < size[known[who, SMALLEST]]:
                    known[who, SMALLEST] = one
                if known[who, VALUE] == MIXED:
                    parts[known[who, ROWS]] = True


@kernel(error_model="numpy")
def share(
    runs: Ints,
    begins: Ints,
    person: Ints,
    rows: Ints,
    value: Ints,
    known: Ints,
    unit: int,
    of_row: Ints,
    weight: Ints,
    cell: Ints,
    sums: Ints,
    total: Ints,
    late: Ints,
) -> tuple[Any, Any, Any]:
    """Split the weight of each person over their values, in each class and in the whole table.

    Parameters
    ----------
    runs, begins, person, rows, value : as in `count`
    known : as `count` left it, but for classes, which are -1
    unit : the weight of a person
    of_row : the weight of a row of someone with several values, by their rows; 0 if they are left out here, because the
        unit is not divisible by their rows; so are people with more rows than that
    weight : room for the weight of each value, all 0
    cell, sums : set to class * values + value, and to the weight, of each value in each class; those of a class are
        ascending unless it has few of many values
    total : set to the weight of each value in the whole table, without people of one value
    late : a row for classes and one for the table, set to the entries of those who are left out

    Returns
    -------
    The numbers of cells and of entries in both rows of `late`.
    """
    found, left, left_whole, values, most = 0, 0, 0, np.int64(len(weight)), len(of_row)
    for one in range(len(begins) - 1):
        held, low, high = found, values, np.int64(-1)
        for run in range(begins[one], begins[one + 1]):
            for entry in range(np.uint64(runs[run, 0]), np.uint64(runs[run, 1])):
                _meet(known, np.uint64(person[entry]), one, rows[entry], value[entry])
        for run in range(begins[one], begins[one + 1]):
            for entry in range(np.uint64(runs[run, 0]), np.uint64(runs[run, 1])):
                who, mine = np.uint64(person[entry]), np.uint64(value[entry])
                if known[who, WHOLE_VALUE] == MIXED:
                    number = known[who, WHOLE_ROWS]
                    part = of_row[number] if number < most else 0
                    total[mine] += rows[entry] * part
                    if part == 0:
                        late[1, left_whole] = entry
                        left_whole += 1
                if known[who, VALUE] == _SHARED:
                    continue
                part = unit
                if known[who, VALUE] == MIXED:
                    number = known[who, ROWS]
                    part = of_row[number] * rows[entry] if number < most else 0
                    if part == 0:
                        late[0, left] = entry
                        left += 1
                        continue
                else:
                    known[who, VALUE] = _SHARED
                if weight[mine] == 0:
                    low, high = min(low, value[entry]), max(high, value[entry])
                    cell[found] = value[entry]
                    found += 1
                weight[mine] += part
        if high - low <= 4 * (found - held) + 64:
            found = held
            for other in range(low, high + 1):
                if weight[other] > 0:
                    cell[found] = other
                    found += 1
        for at in range(held, found):
            other = cell[at]
            cell[at], sums[at] = one * values + other, weight[other]
            weight[other] = 0
    return found, left, left_whole

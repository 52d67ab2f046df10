"""Compiled code of a hash table with open addressing. Import it inside the functions that run it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.compiling import kernel

__all__ = ["fill", "find"]


@kernel()
def fill(keys: NDArray[np.int64], slots: NDArray[np.int64], position: NDArray[np.int32], shift: int, mix: Any) -> None:
    """Insert distinct non-negative keys into an empty table; more than half of it must stay free."""
    for one in range(len(keys)):
        slot = (np.uint64(keys[one]) * np.uint64(mix)) >> np.uint64(shift)
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & np.uint64(len(slots) - 1)
        slots[slot], position[slot] = keys[one], one


@kernel()
def find(
    keys: NDArray[np.int64],
    slots: NDArray[np.int64],
    position: NDArray[np.int32],
    shift: int,
    mix: Any,
    found: NDArray[np.int64],
) -> None:
    """Look up the position of each key, or -1."""
    for one in range(len(keys)):
        slot = (np.uint64(keys[one]) * np.uint64(mix)) >> np.uint64(shift)
        while slots[slot] >= 0 and slots[slot] != keys[one]:
            slot = (slot + np.uint64(1)) & np.uint64(len(slots) - 1)
        found[one] = position[slot] if slots[slot] >= 0 and keys[one] >= 0 else -1

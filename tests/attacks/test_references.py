"""Reference models: the same in one process and in several, and their failures in one sentence."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest

from sfumato.attacks.membership.references import halves, train_references
from sfumato.attacks.predictions import call
from sfumato.errors import InputError


def test_references_are_the_same_in_one_process_and_in_two_and_failures_are_one_sentence() -> None:
    """All in one test, because processes take seconds to start, and are used again until one fails."""
    pl.DataFrame({"age": [1, 2, 2]}).group_by("age").len()  # which starts Polars' threads: a fork would wait for ever

    def train(rows: Any, seed: int, lock: Any = None) -> Any:
        return pl.DataFrame({"p": np.full(4, 0.1 * seed)}).group_by("p").len()["p"].sum() + rows / 10

    def fail(rows: Any, seed: int) -> Any:
        call("the training procedure", float, "a record")

    def die(rows: Any, seed: int) -> Any:
        os._exit(1)

    inside, shares = halves(4, 4, 0), list[float]()
    here = train_references(lambda rows, seed: np.tile(train(rows, seed), 2), inside, seed=0, processes=1)
    there = train_references(
        lambda rows, seed: np.tile(train(rows, seed), 2), inside, seed=0, processes=2, progress=shares.append
    )
    assert np.array_equal(here, there)
    assert shares == [0.25, 0.5, 0.75, 1.0]
    with pytest.raises(InputError, match="the training procedure cannot be sent to other processes"):
        train_references(partial(train, lock=threading.Lock()), inside, seed=0, processes=2)
    with pytest.raises(InputError, match=r"^the training procedure raised a ValueError \(call it with") as error:
        train_references(fail, inside, seed=0, processes=2)
    assert error.value.__cause__ is None
    with pytest.raises(InputError, match="a process that trains reference models was ended"):
        train_references(die, inside, seed=0, processes=2)


def test_small_work_stays_in_one_process() -> None:
    found = train_references(lambda rows, seed: np.full(4, os.getpid()), halves(4, 3, 0), seed=0)
    assert set(found.ravel()) == {os.getpid()}

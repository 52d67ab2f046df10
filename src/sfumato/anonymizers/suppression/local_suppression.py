"""Local suppression: single cells become ``*``, as few as possible, and all others stay as they are."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.anonymizers.base import Anonymizer
from sfumato.anonymizers.problem import Problem
from sfumato.anonymizers.suppression.search import WHOLE, Suppression, local_suppression
from sfumato.data.coding import Domain
from sfumato.data.released_values import MARK
from sfumato.engines.tuples import Tuples, group
from sfumato.errors import InputError, OptionError, did_you_mean
from sfumato.measures.classes import Floats, Ints

__all__ = ["LocalSuppression"]

_UNSEEN = -2


@dataclass(eq=False, repr=False)
class LocalSuppression(Anonymizer):
    """Anonymize by suppressing single cells, as few as possible; see `local_suppression`.

    A cell is released as it is, or as ``*``. In a class all rows have the same values and the ``*`` in the same
    columns: ``*`` counts as a value of its own, so that anyone can measure the release, and nobody
    has to assume what a ``*`` might stand for. (sdcMicro's `localSuppression` lets a suppressed cell match
    every value. It suppresses fewer cells, but its k is not that of rows which look alike.) Rows for which
    no class is found have ``*`` in every quasi-identifier, and are in no class, if you allow that.

    Parameters
    ----------
    guarantees, qi, sensitive
        See `Anonymizer`.
    suppress : float
        The largest share of rows that may be suppressed as a whole. To suppress a few rows whom nobody is like often
        saves cells of others.
    importance : mapping of str to float, optional
        What a cell of each column is worth, 1 by default: cells of important columns are suppressed last.
    most_masks : int
        The most sets of columns to try; see `masks_by_cost`.

    Examples
    --------
    >>> import pandas as pd
    >>> import sfumato as sf
    >>> people = pd.DataFrame({"age": [20, 20, 20, 40, 60], "sex": ["f", "f", "m", "m", "m"]})
    >>> published = sf.LocalSuppression("k=2", qi=["age", "sex"]).fit_transform(people)
    >>> published["age"].tolist(), published["sex"].tolist()
    (['20', '20', '*', '*', '*'], ['f', 'f', 'm', 'm', 'm'])
    """

    suppress: float = 0.0
    importance: Mapping[str, float] | None = None
    most_masks: int = 4096

    name = "suppress"

    def _decide(self, problem: Problem) -> None:
        if not isinstance(self.suppress, numbers.Real) or not 0 <= self.suppress <= 1:
            raise OptionError(f"the share of rows to suppress must be from 0 to 1, got {self.suppress!r}")
        if not isinstance(self.most_masks, numbers.Integral) or self.most_masks < 1:
            raise OptionError(f"the most sets of columns to try must be at least 1, got {self.most_masks!r}")
        rows = problem.counts[0].rows
        most = math.floor(self.suppress * rows + 1e-9)
        worth = _worth(problem, self.importance or {})
        found = local_suppression(problem, worth, most_rows=most, most_masks=int(self.most_masks))
        suppressed = int(problem.records[found.of_tuple == WHOLE].sum())
        if suppressed == rows:  # then all rows look alike, and are one class
            problem.require_reachable()
        if suppressed > most:
            asked = " and ".join(map(str, problem.guarantees))
            share = math.ceil(suppressed / rows * 10_000) / 10_000
            raise InputError(
                f"no suppression of cells that was found keeps {asked} if at most {self.suppress:g} of the rows are "
                "suppressed as a whole",
                hint=f"suppress={share:g} would do",
            )
        self.suppression_: Suppression = found

    def details(self) -> dict[str, Any]:
        """Return how many rows and cells are suppressed, and how many sets of columns were tried and used."""
        found, records = self.suppression_, self.problem_.records
        hidden = found.hidden(found.of_tuple)
        return {
            "suppressed": int(records[found.of_tuple == WHOLE].sum()),
            "cells": int(records @ hidden.sum(axis=1)),
            "cells_share": float(records @ hidden.mean(axis=1) / records.sum()),
            "masks": len(found.used),
            "tried": len(found.masks),
        }

    def _publish(self, tuples: Tuples) -> list[pl.Series]:
        codes = np.column_stack(
            [
                _old_codes(known, new)[tuples.codes[:, column]]
                for column, (known, new) in enumerate(zip(self.problem_.domains, tuples.domains, strict=True))
            ]
        )
        hidden = self.suppression_.hidden(self._masks_of(codes))
        published = []
        for column, domain in enumerate(tuples.domains):
            values = domain.values
            if hidden[:, column].any():
                labels = [None if code == domain.missing else domain.label(code) for code in range(len(domain))]
                values = pl.Series([*labels, MARK], dtype=pl.String)
            cells = np.where(hidden[:, column], len(domain), tuples.codes[:, column])
            published.append(values.gather(cells).alias(domain.name))
        return published

    def _masks_of(self, codes: NDArray[np.int64]) -> Ints:
        """Return the mask of each tuple: the one that was chosen, or for a new one the cheapest that has its class."""
        problem, found = self.problem_, self.suppression_
        sizes = [len(domain) + 1 for domain in problem.domains]
        known = len(problem)
        both = np.concatenate([problem.codes, codes])
        _, of_row = group(both, sizes)
        chosen = np.full(int(of_row.max(initial=0)) + 1, _UNSEEN)
        chosen[of_row[:known]] = found.of_tuple
        masks = chosen[of_row[known:]]
        for mask in found.used:
            unseen, mine = np.flatnonzero(masks == _UNSEEN), np.flatnonzero(found.of_tuple == mask)
            if not len(unseen):
                break
            kept = ~found.masks[mask]
            rows = np.concatenate([problem.codes[mine], codes[unseen]])[:, kept]
            _, of_row = group(rows, [size for size, keep in zip(sizes, kept, strict=True) if keep])
            masks[unseen[np.isin(of_row[len(mine) :], of_row[: len(mine)])]] = mask
        masks[masks == _UNSEEN] = WHOLE
        return masks


def _worth(problem: Problem, importance: Mapping[str, float]) -> Floats:
    """Return what a cell of each column is worth, and refuse what is no importance."""
    names = [domain.name for domain in problem.domains]
    for name, value in importance.items():
        if name not in names:
            raise OptionError(
                f"the importance of '{name}' is given, which is no quasi-identifier", hint=did_you_mean(name, names)
            )
        if not isinstance(value, numbers.Real) or not 0 < value < math.inf:
            raise OptionError(f"the importance of a column must be a number above 0, got {value!r} for '{name}'")
    return np.array([float(importance.get(name, 1.0)) for name in names])


def _old_codes(known: Domain, new: Domain) -> Ints:
    """Return the code that each new value had when the table was learnt; one more than the last if it had none."""
    if known.values.equals(new.values):
        return np.arange(len(new))
    code_of = {known.label(code): code for code in range(len(known)) if code != known.missing}
    codes = [code_of.get(new.label(code), len(known)) for code in range(len(new))]
    if new.missing is not None:
        codes[new.missing] = len(known) if known.missing is None else known.missing
    return np.array(codes, dtype=np.int64)

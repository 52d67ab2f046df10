"""Quantile regression: learn how well the target predicts records like this one if it has not seen them.

Other than with reference models, a single model is trained, of the target's logits instead of the labels: it predicts
quantiles of the logit from the record and its label, for records that are known to be no members. A record whose
logit is far above what is predicted for it is called a member.

- Bertran, Tang, Kearns, Morgenstern, Roth, Wu, *Scalable membership inference attacks via quantile regression*, NeurIPS
  2023. Theirs is a Gaussian whose mean and deviation are boosted trees; ours are the median and the 90 % quantile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.attacks.base import Records, Scores
from sfumato.attacks.membership.attack import ModelAttack, two_halves
from sfumato.attacks.membership.signals import LEAST, logit

__all__ = ["QuantileRegression"]

Floats = NDArray[np.float64]

_LEVELS = (0.5, 0.9)
_SHARE = 0.1  # of the overall spread, which is added to that of each record


class QuantileRegression(ModelAttack):
    """Score a record by its logit's distance from the median that is predicted for non-members like it.

    The regressions are fitted to half of the non-members, and judge the others and half of the members.
    """

    name = "quantile"
    fewest = 40

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Score by the number of spreads above the median."""
        given = (members, nonmembers)
        rows = numbers_of(members.and_(nonmembers))
        rows = np.column_stack([rows, np.concatenate([target.codes(records) for records in given])])
        logits = np.concatenate([logit(target.own_label(records)) for records in given])
        rng = np.random.default_rng(seed)
        half = np.concatenate([two_halves(records, rng) for records in given])
        unseen = np.arange(len(rows)) >= len(members)
        scores = np.empty(len(rows))
        for here in (True, False):
            known = unseen & (half != here)
            low, high = (_quantile(level, rows[known], logits[known], rows[half == here], rng) for level in _LEVELS)
            overall = np.subtract(*np.quantile(logits[known], _LEVELS[::-1]))
            spread = np.maximum(high - low, 0) + _SHARE * overall
            scores[half == here] = (logits[half == here] - low) / np.maximum(spread, LEAST)
        return Scores(scores[: len(members)], scores[len(members) :])


def numbers_of(records: Records) -> Floats:
    """Return the records as numbers: one column per feature, and a text by its position among the texts.

    Examples
    --------
    >>> numbers_of(Records(pl.DataFrame({"age": [30, None], "sex": ["m", "f"]}))).tolist()
    [[30.0, 1.0], [nan, 0.0]]
    """
    if not isinstance(records.rows, pl.DataFrame):
        flat: Floats = np.asarray(records.rows, dtype=np.float64).reshape(len(records), -1)
        return np.where(np.isfinite(flat), flat, np.nan)
    columns = [
        one.cast(pl.Float64) if one.dtype.is_numeric() else one.cast(pl.String).rank("dense").cast(pl.Float64) - 1
        for one in records.rows
    ]
    table = np.column_stack([one.fill_null(np.nan).to_numpy() for one in columns])
    return np.where(np.isfinite(table), table, np.nan)


def _quantile(level: float, known: Floats, logits: Floats, asked: Floats, rng: np.random.Generator) -> Floats:
    from sklearn.ensemble import HistGradientBoostingRegressor

    regressor = HistGradientBoostingRegressor(
        loss="quantile", quantile=level, max_iter=60, early_stopping=False, random_state=int(rng.integers(2**31))
    )
    found: Floats = regressor.fit(known, logits).predict(asked)
    return found

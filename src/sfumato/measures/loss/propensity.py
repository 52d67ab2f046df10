"""The propensity score of a release: how well a model tells released rows from original ones.

M.-J. Woo, J. Reiter, A. Oganian, A. Karr, *Global measures of data utility for microdata masked for disclosure
limitation*, Journal of Privacy and Confidentiality 1(1), 2009. J. Snoke, G. Raab, B. Nowok, C. Dibben, A. Slavkovic,
*General and specific utility measures for synthetic data*, Journal of the Royal Statistical Society A 181(3), 2018.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Plain
from sfumato.data.released_values import MARK
from sfumato.data.table import Table
from sfumato.errors import OptionError
from sfumato.measures.classes import Floats
from sfumato.measures.loss.generalised import Pairing, pair
from sfumato.measures.loss.marginals import Binned, binned

__all__ = ["Propensity", "propensity", "propensity_of"]

_MOST_ROWS = 25_000
_RIDGE = 1e-6  # on the sums over rows: it matters only where a bin has original or released rows alone
_STEPS = 50


@dataclass(frozen=True)
class Propensity(Plain):
    """The propensity score of a release; see `propensity`.

    Attributes
    ----------
    pmse : the mean squared difference between the predicted and the actual share of released rows
    expected : its mean if the release is a sample from the distribution of the original rows
    ratio : pmse / expected; None if every column is constant
    standardized : the difference of the two in standard deviations; None likewise
    parameters : the parameters of the model, without the intercept
    rows : the number of original and of released rows that were compared
    bins : the number of bins of a number
    seed : of the choice of rows
    """

    pmse: float
    expected: float
    ratio: float | None
    standardized: float | None
    parameters: int
    rows: tuple[int, int]
    bins: int
    seed: int


def propensity(
    original: Table | Any,
    released: Table | Any,
    *,
    columns: Sequence[str] = (),
    bins: int = 10,
    rows: int | None = _MOST_ROWS,
    seed: int = 0,
    suppressed: str | None = MARK,
) -> Propensity:
    """Measure how well a model tells released rows from original ones (pMSE).

    A logistic regression on the bins of each column predicts for every row the probability p that it is a released one.
    With N rows in all and a share c of released ones, ``pMSE = sum of (p - c)^2 / N``. If the release is a sample from
    the distribution of the original rows, its mean is ``k (1 - c)^2 c / N`` and its standard deviation
    ``sqrt(2 k) (1 - c)^2 c / N`` for k parameters without the intercept (Snoke et al. 2018). So a ratio of 1 is as
    good as it gets. Other rows of the same population have a ratio of ``1 / (1 - c)``, as they differ from the
    original by two samples' worth of chance. If only a share s of the original rows is compared, one factor ``1 - c``
    is ``1 - s c``.

    Parameters
    ----------
    original, released : Table, frame or path
        They need not have the same number of rows.
    columns : sequence of str
        The quasi-identifiers of the original's schema by default.
    bins : int
        The number of bins of a number, which hold equal shares of the original rows. For a generalised value, one of
        the bins that it covers is drawn.
    rows : int or None
        The most rows of each table, drawn at random; None for all.
    seed : int
    suppressed : str or None
        The mark of suppression.

    Examples
    --------
    >>> import polars as pl
    >>> people = pl.DataFrame({"sex": ["f", "m"] * 50, "city": ["Bonn"] * 60 + ["Rome"] * 40})
    >>> propensity(people, people, columns=["sex", "city"]).pmse < 1e-12
    True
    >>> moved = people.with_columns(city=pl.lit("Rome"))
    >>> propensity(people, moved, columns=["sex", "city"]).ratio > 50
    True
    """
    return propensity_of(pair(original, released, columns, suppressed), bins=bins, rows=rows, seed=seed)


def propensity_of(both: Pairing, *, bins: int = 10, rows: int | None = _MOST_ROWS, seed: int = 0) -> Propensity:
    """Measure the propensity score of a paired original and release; see `propensity`."""
    if bins < 1 or (rows is not None and rows < 1):
        raise OptionError(f"bins and rows must be at least 1, got {bins} and {rows}")
    sparse = importlib.import_module("scipy.sparse")
    generator = np.random.default_rng(seed)
    chosen, features = [], []
    for side in binned(both, bins, quantiles=True):
        every = len(side[0].codes)
        few = every if rows is None else min(every, rows)
        some = np.sort(generator.choice(every, few, replace=False)) if few < every else np.arange(every)
        chosen.append(few)
        features.append([_bins_of_rows(one, some, generator) for one in side])
    total = sum(chosen)
    share = chosen[1] / total
    columns = [np.concatenate([ours, theirs]) for ours, theirs in zip(*features, strict=True)]
    parts = [
        sparse.csr_array((np.ones(total), (np.arange(total), one)), shape=(total, one.max() + 1)) for one in columns
    ]
    x = sparse.hstack([sparse.csr_array(np.ones((total, 1))), *parts], format="csr")
    x = x[:, np.flatnonzero(x.sum(axis=0) > 0)]
    y = np.repeat([0.0, 1.0], chosen)
    predicted = _predict(x, y, share)
    pmse = float(np.mean((predicted - share) ** 2))
    parameters = int((np.linalg.eigvalsh((x.T @ x).toarray()) > 1e-9 * total).sum()) - 1
    seen = chosen[0] / len(both.original)  # of a part of the original, the release is a sample of the rest too
    unit = (1 - share) * (1 - seen * share) * share / total
    expected = parameters * unit
    return Propensity(
        pmse=pmse,
        expected=expected,
        ratio=pmse / expected if parameters else None,
        standardized=(pmse - expected) / (math.sqrt(2 * parameters) * unit) if parameters else None,
        parameters=parameters,
        rows=(chosen[0], chosen[1]),
        bins=bins,
        seed=seed,
    )


def _bins_of_rows(one: Binned, rows: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Return a bin for each of some rows, drawn if a value lies in several."""
    if one.of_row is not None:
        return one.of_row[rows].astype(np.int64)
    codes = one.codes[rows]
    before = np.concatenate([[0.0], np.cumsum(one.shares.data)])
    first, last = one.shares.indptr[codes], one.shares.indptr[codes + 1]
    wanted = before[first] + generator.random(len(codes)) * (before[last] - before[first])
    place = np.clip(np.searchsorted(before, wanted, side="right") - 1, first, last - 1)
    return np.asarray(one.shares.indices[place], dtype=np.int64)


def _predict(x: Any, y: Floats, share: float) -> Floats:
    """Return the probabilities of a logistic regression, fitted by Newton's method with halved steps."""
    sparse, expit = importlib.import_module("scipy.sparse"), importlib.import_module("scipy.special").expit
    weight = np.zeros(x.shape[1])
    weight[0] = np.log(share / (1 - share))

    def loss_of(weight: Floats) -> float:
        margin = x @ weight
        return float((np.logaddexp(0, margin) - y * margin).sum() + _RIDGE / 2 * (weight[1:] ** 2).sum())

    loss = loss_of(weight)
    penalty = np.full(len(weight), _RIDGE)
    penalty[0] = 0.0
    for _ in range(_STEPS):
        p = expit(x @ weight)
        slope = x.T @ (y - p) - penalty * weight
        curvature = (x.T @ (sparse.diags_array(p * (1 - p)) @ x)).toarray() + np.diag(penalty + 1e-12)
        step = np.linalg.solve(curvature, slope)
        size = 1.0
        while (better := loss_of(weight + size * step)) > loss and size > 1e-6:
            size /= 2
        gained = loss - better
        if gained > 0:
            loss, weight = better, weight + size * step
        if gained <= 1e-10 * len(y):
            break
    return np.asarray(expit(x @ weight))

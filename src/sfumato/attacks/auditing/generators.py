"""Audit a generator: run its recipe again with canaries, and look for them in what it draws.

Canaries have values that are drawn evenly from the public domain of each column, so that most of them are unlike any
record. Each is scored by how many more drawn rows share its values in pairs of columns than rows of the released
generator, which has never seen it. One record hardly shows in thousands of noisy counts, so the noise of all sums is
checked directly, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.attacks.auditing.audit import AuditResult, cost_claim, result_of_guesses, rows_of_canary
from sfumato.attacks.auditing.canaries import coins, joined, new_people
from sfumato.attacks.auditing.sums import observe_sums
from sfumato.attacks.cases import rows_of
from sfumato.budget.differential_privacy import DifferentialPrivacy
from sfumato.budget.noise import Source
from sfumato.data.claim import Claim
from sfumato.data.release import Release
from sfumato.data.schema import Schema
from sfumato.errors import InputError
from sfumato.learners.estimators.features import Columns
from sfumato.learners.estimators.noisy_sums import Share
from sfumato.synthesizers.plan import Plan
from sfumato.synthesizers.tables.columns.domain import Domain

__all__ = ["audit_generator", "strange_rows", "to_each_canary"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_ROWS = 20_000  # drawn to look for canaries in
_COARSE = 16  # codes of a column, when rows are compared
_PAIRS = 200
_IN_SUMS, _TIMES = 10_000, 20  # canaries in each noisy sum, and sums of a kind


def audit_generator(
    release: Release,
    promise: DifferentialPrivacy,
    source: Any,
    *,
    canaries: int,
    seed: int,
    confidence: float,
    progress: Callable[[float], None] | None,
) -> AuditResult:
    """Test the differential privacy that a generator claims; see `audit`."""
    domain = release.domain
    if unseen := [name for name in domain.names if name not in release.table.schema.names]:
        raise InputError(
            f"a generator of people, which learns '{unseen[0]}' and does not draw it, cannot be audited by its recipe",
            hint="audit one of the same table that draws rows",
        )
    person, rows = release.recipe.schema.person, rows_of_canary(promise, release.rows_per_person)
    records = rows_of(source, [*domain.names, *([] if person is None else [person])])
    strange = strange_rows(domain, canaries, seed)
    included = coins(len(strange), seed)
    if progress:
        progress(0.0)
    more = strange[np.repeat(np.flatnonzero(included), rows)]
    if person is not None:
        whose = new_people(records[person], int(included.sum()))
        more = more.with_columns(whose.gather(np.repeat(np.arange(len(whose)), rows)).alias(person))
    given = joined(records, more.select(records.columns).cast(records.schema, strict=False))
    known = Schema(one for one in release.recipe.schema.columns if one.name in given.columns)
    made = replace(release.recipe, schema=known).run(given, ledger=False, insecure_seed=seed, seed=None, rows=_ROWS)
    if progress:
        progress(0.9)
    drawn = [made.table.to_polars(), release.draw(_ROWS, np.random.default_rng(seed))]
    scores = [to_each_canary(domain, one, strange) for one in drawn]
    return result_of_guesses(
        scores[0] - scores[1],
        included,
        promise,
        release.events,
        method="its own recipe with strange rows as canaries, scored by the drawn rows that share their values",
        confidence=confidence,
        checks=(*_noise(release.plan), cost_claim(made.events, promise)),
        rows=rows,
        seed=seed,
    )


def strange_rows(domain: Domain, count: int, seed: int) -> pl.DataFrame:
    """Return rows whose values are drawn evenly from the domain of each column."""
    rng = np.random.default_rng([seed, 0xCA])
    return domain.decode([rng.integers(0, max(one.size - 1, 1), count) for one in domain.axes])


def to_each_canary(domain: Domain, drawn: pl.DataFrame, canaries: pl.DataFrame) -> Floats:
    """Return how well drawn rows represent each canary: the mean log count of the rows with its values in two columns.

    Examples
    --------
    >>> from sfumato.learners.estimators.features import Feature
    >>> columns = Columns.of(pl.DataFrame({"sex": ["f", "m"], "ill": ["no", "yes"]}))
    >>> domain = Domain.of([Feature("sex", domain=("f", "m")), Feature("ill", domain=("no", "yes"))], columns)
    >>> drawn = pl.DataFrame({"sex": ["f"] * 9, "ill": ["no"] * 9})
    >>> to_each_canary(domain, drawn, pl.DataFrame({"sex": ["f", "m"], "ill": ["no", "yes"]})).round(2).tolist()
    [2.25, -0.69]
    """
    names = [one.name for one in domain.codings]
    both = [domain.encode(Columns.of(one.select(names))).codes for one in (drawn, canaries)]
    sizes = [min(one.size, _COARSE) for one in domain.axes]
    coarse = [
        [
            np.minimum(code.astype(np.int64) * size // axis.size, size - 1)
            for code, axis, size in zip(one, domain.axes, sizes, strict=True)
        ]
        for one in both
    ]
    pairs = list(combinations(range(len(sizes)), 2)) or [(0, 0)]
    chosen = np.random.default_rng(0).permutation(len(pairs))[:_PAIRS]
    total = np.zeros(len(canaries))
    for a, b in (pairs[at] for at in chosen):
        rows, theirs = (one[a] * sizes[b] + one[b] for one in coarse)
        counts = np.bincount(rows, minlength=sizes[a] * sizes[b])
        total += np.log(counts[theirs] + 0.5)
    return total / len(chosen)


def _noise(plan: Plan) -> tuple[Claim, ...]:
    """Ask for all sums with canaries in each, and check their noise directly."""
    names = [name for name, one in plan.shares.items() if type(one) is Share for _ in range(min(one.times, _TIMES))]
    if not names:
        return ()
    sums = plan.sums(Source())
    return observe_sums(sums, delta=plan.delta, canaries=_IN_SUMS, seed=0, names=names, events=plan.events).checks

"""Make a generator of synthetic rows from a table: describe its columns, pay, learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from sfumato._repr import Discreet
from sfumato.budget.accounting.accountant import Spent, check_delta
from sfumato.budget.events import Composed, Event
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.data.schema import Schema
from sfumato.data.validate import real, whole
from sfumato.errors import ColumnError, InputError, did_you_mean
from sfumato.learners.estimators.features import Columns, Feature, Undeclared, describe
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers.tables.base import Axis, Model, Synthesizer
from sfumato.synthesizers.tables.cells import NARROW
from sfumato.synthesizers.tables.domain import Coding, Domain
from sfumato.synthesizers.tables.plan import Plan, mechanisms, multiplier
from sfumato.synthesizers.tables.tree import LabelledTree

__all__ = ["Generator", "synthesize"]


@dataclass(frozen=True, eq=False, repr=False)
class Generator(Discreet):
    """Draws synthetic rows. It holds noisy numbers and public descriptions only, so drawing costs no privacy."""

    domain: Domain
    model: Model
    plan: Plan
    delta: float
    private: bool
    """Whether the noise cannot be reproduced."""

    @property
    def spent(self) -> Spent:
        """What the generator has cost."""
        return self.plan.spent(self.delta)

    def sample(self, rows: int, *, seed: int | None = None) -> pl.DataFrame:
        """Return new rows; a seed makes the draw reproducible."""
        count = whole("the number of rows", rows, least=0)
        codes = self.model.sample(count, np.random.default_rng(seed))
        return self.domain.decode(codes)


def synthesize(
    table: Any,
    epsilon: float = 1.0,
    *,
    delta: float = 1e-5,
    target: str | None = None,
    method: Synthesizer | None = None,
    schema: Schema | None = None,
    ledger: Ledger | None = None,
    insecure_seed: int | None = None,
) -> Generator:
    """Learn a generator of synthetic rows with differential privacy.

    Parameters
    ----------
    table : Table or frame
    epsilon, delta : float
        The total cost, for adding or removing one row.
    target : str, optional
        A column of categories whose dependence on all others matters most. By default the target of the schema. Rows
        in which it is missing are left out.
    method : Synthesizer, optional
        By default `LabelledTree`.
    schema : Schema, optional
        By default the schema of the table. Undeclared bounds and domains are bought with a tenth of the budget.
    ledger : Ledger, optional
        Charged before the table is read.
    insecure_seed : int, optional
        Makes the noise reproducible: the result is then not private.

    Examples
    --------
    >>> import sfumato as sf
    >>> generator = synthesize(sf.datasets.nursery(), epsilon=1)
    >>> generator.sample(3).shape
    (3, 9)
    >>> print(generator.spent)
    epsilon 1 at delta 1e-05 (add or remove one record)
    """
    real("epsilon", epsilon, above=0)
    columns = Columns.of(table)
    check_delta(delta, columns.rows)
    public = schema if schema is not None else columns.schema
    label = target if target is not None else (public.target if public is not None else None)
    if label is not None and label not in columns.names:
        raise ColumnError(f"there is no column '{label}' to be the target", hint=did_you_mean(label, columns.names))
    described = describe(columns, public)
    at = None if label is None else columns.names.index(label)
    if at is not None and described[at].is_number:
        raise InputError(
            f"the target '{label}' is a number, but a target must be a category",
            hint="declare its domain, or leave out the target: the column is then drawn like all others",
        )
    if at is not None and len(described) == 1:
        raise InputError(f"the table has no column beside the target '{label}'")
    chosen = method or LabelledTree()
    bought = mechanisms(described, epsilon, delta)
    # The shares must not depend on what is bought: an undeclared number may turn out to be wide.
    shares = chosen.shares([_expected(one, values) for one, values in zip(described, columns.values, strict=True)], at)
    noise = multiplier([one.event for one in bought.values()], shares, float(epsilon), float(delta))
    plan = Plan.of(bought, columns.names, shares, noise)
    if ledger is not None:
        ledger.check(_composed(plan.events))
        ledger.charge(_composed(plan.events), note="synthesis of a table", private=insecure_seed is None)
    # Not the source of the sums: with a seed, both would draw the same noise.
    source = Source(insecure_seed=None if insecure_seed is None else insecure_seed ^ 2**128)
    features = [
        one.estimate(values, bought[position], source) if isinstance(one, Undeclared) else one
        for position, (one, values) in enumerate(zip(described, columns.values, strict=True))
    ]
    domain = Domain.of(features, columns, label)
    sums = NoisySums(shares, noise, Source(insecure_seed=insecure_seed))
    model = chosen.learn(domain.encode(columns), sums, np.random.default_rng(insecure_seed))
    return Generator(domain, model, plan, delta, insecure_seed is None)


def _expected(one: Feature | Undeclared, values: pl.Series) -> Axis:
    """Return the axis of a declared column; for others, the widest that may come."""
    if isinstance(one, Undeclared):
        return Axis(one.name, 2 * NARROW + 1 if one.is_number else 2, one.is_number)
    return Coding.of(one, values.dtype).axis


def _composed(events: Sequence[Event]) -> Event:
    return events[0] if len(events) == 1 else Composed(tuple(events))

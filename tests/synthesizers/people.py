"""People for tests of synthetic tables: numbers, a wide column with many zeros, a category, a date, and a label."""

from __future__ import annotations

from datetime import date

import numpy as np
import polars as pl

import sfumato as sf
from sfumato.learners.estimators.features import Columns, Feature
from sfumato.synthesizers.tables.base import Rows
from sfumato.synthesizers.tables.columns.domain import Domain


def people(rows: int = 400, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    ill = rng.random(rows) < 0.3
    return pl.DataFrame(
        {
            "age": rng.integers(20, 60, rows) + 20 * ill,
            "pay": np.where(rng.random(rows) < 0.5, 0, rng.integers(0, 90_000, rows)),
            "sex": np.where(rng.random(rows) < 0.5, "f", "m"),
            "since": [date(2020, 1, 1 + int(day)) for day in rng.integers(0, 28, rows)],
            "ill": np.where(ill, "yes", "no"),
        }
    )


SCHEMA = sf.Schema(
    [
        sf.Column(name="age", bounds=(0, 99)),
        sf.Column(name="pay", bounds=(0, 99_999)),
        sf.Column(name="sex", domain=("f", "m")),
        sf.Column(name="since", kind="date"),
        sf.Column(name="ill", domain=("no", "yes"), role="target"),
    ]
)
UNDATED = sf.Schema(one for one in SCHEMA.columns if one.name != "since")
DECLARED = [
    Feature("age", bounds=(0.0, 99.0)),
    Feature("pay", bounds=(0.0, 99_999.0)),
    Feature("sex", domain=("f", "m")),
    Feature("since", bounds=(18_000.0, 19_000.0)),
    Feature("ill", domain=("no", "yes")),
]


def coded(frame: pl.DataFrame) -> Rows:
    columns = Columns.of(frame)
    return Domain.of(DECLARED, columns, "ill").encode(columns)

"""The nine measures of the tables that were published with pyCANON, beside the k and the l in their names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.reproductions.values import Experiment, Fact, Figure, Row

__all__ = ["EXPERIMENT", "Settings"]

_ROLES: dict[str, tuple[tuple[str, ...], str]] = {  # quasi-identifiers and the sensitive column, as published
    "adult": (("age", "education", "occupation", "relationship", "sex", "native-country"), "salary-class"),
    "stroke": (
        (
            "gender",
            "age",
            "hypertension",
            "heart_disease",
            "ever_married",
            "work_type",
            "Residence_type",
            "smoking_status",
        ),
        "stroke",
    ),
    "students": (("Teacher", "Gender", "Ethnic", "Freeredu", "wesson"), "Score"),
}
_ROWS = {"adult": 32_561, "stroke": 5_110, "students": 217}
_RAW = {"stroke": "healthcare-dataset-stroke-data", "students": "StudentsMath_Score"}
_ANONYMOUS = {"adult": "adult_anonymized_{k}", "stroke": "stroke_k{k}", "students": "StudentsMath_Score_k{k}"}
_DIVERSE = {
    "adult": "adult_k{k}_anonymized_l{l}",
    "stroke": "stroke_k{k}_anonymized_l{l}",
    "students": "StudentsMath_Score_k{k}_anonymized_l{l}",
}
_K = {"adult": (3, 10, 20), "stroke": (2, 5, 10, 15, 19, 20, 22, 25), "students": (2, 5, 7)}
_L = {"adult": (2, 2, 2), "stroke": (2,) * 8, "students": (3, 5, 7)}


@dataclass(frozen=True)
class Settings:
    """Which tables are measured."""

    published: bool = True
    """The tables of pyCANON, in the folder that SFUMATO_DATA names; else Adult as we anonymize it."""
    ks: tuple[int, ...] = ()
    """The k of Adult that we anonymize ourselves."""


def run(settings: Settings) -> Iterator[Row | Figure]:
    """Measure the raw tables, and those that claim a k or an l."""
    yield _raw_adult()
    for k in settings.ks:
        yield _our_adult(k)
    if settings.published:
        yield from _published()


def _raw_adult() -> Row:
    import sfumato as sf

    found = sf.assess(sf.datasets.adult("train"), qi=list(_ROLES["adult"][0]), sensitive=["income"])
    return _raw_row("adult-raw", found)


def _raw_row(key: str, found: Any) -> Row:
    """Return the row of a table before anonymization, in which someone should be alone."""
    note = f"{found.rows:,} rows; {_all_nine(found)}"
    return EXPERIMENT.row(key, float(found.k), "reproduced" if found.k == 1 else "differs", note)


def _our_adult(k: int) -> Row:
    import sfumato as sf

    release = sf.anonymize(
        sf.Table.of(sf.datasets.adult("train").frame.select(*_ROLES["adult"][0], "income")),
        f"k={k}",
        qi=list(_ROLES["adult"][0]),
        sensitive=["income"],
    )
    found = release.assessment
    assert found is not None
    note = f"Mondrian on 32,561 rows, in the place of the published table; {_all_nine(found)}"
    return EXPERIMENT.row(f"adult-k{k}", float(found.k), "reproduced" if found.k >= k else "refuted", note)


def _published() -> Iterator[Row]:
    import polars as pl

    import sfumato as sf

    wanted = [
        *((f"{name}-raw", name, "processed", raw, "") for name, raw in _RAW.items()),
        *((f"{name}-k{k}", name, "processed", _ANONYMOUS[name].format(k=k), "k") for name in _K for k in _K[name]),
        *(
            (f"{name}-k{k}-l", name, "l_diversity", _DIVERSE[name].format(k=k, l=l), "l")
            for name in _K
            for k, l in zip(_K[name], _L[name], strict=True)
        ),
    ]
    for key, name, folder, file, claim in wanted:
        qi, sensitive = _ROLES[name]
        path = Path(os.environ.get("SFUMATO_DATA", "."), "pycanon", folder, f"{file}.parquet")
        if not path.is_file():
            told = f"{file}.csv of pyCANON's repository, as Parquet, at SFUMATO_DATA/pycanon/{folder}/{file}.parquet"
            yield EXPERIMENT.row(key, None, "not judged", f"give {told}")
            continue
        rows = pl.read_parquet(path, columns=[*qi, sensitive]).with_columns(pl.col("^Score$").cast(pl.Float64))
        found = sf.assess(rows, qi=list(qi), sensitive=[sensitive])
        if not claim:
            yield _raw_row(key, found)
            continue
        note = f"{found.rows:,} of {_ROWS[name]:,} rows; {_all_nine(found)}"
        ours, printed = float(getattr(found, claim)), int(str(EXPERIMENT.facts[key].printed).split()[0])
        yield EXPERIMENT.row(key, ours, "reproduced" if ours >= printed else "refuted", note)


def _all_nine(found: Any) -> str:
    """Write all nine measures of an assessment."""
    parts = {
        "k": found.k,
        "alpha": found.alpha,
        "l": found.l,
        "entropy l": found.entropy_l,
        f"recursive c (l = {found.recursive_l})": found.recursive_c,
        "t": found.t,
        "basic beta": found.basic_beta,
        "enhanced beta": found.enhanced_beta,
        "delta": found.delta_disclosure,
    }
    return ", ".join(f"{name} {value:.4g}" for name, value in parts.items())


def _facts() -> dict[str, Fact]:
    found = {f"{name}-raw": Fact(f"{name}, raw: k", "not anonymized") for name in _ROLES}
    for name in _ROLES:
        found |= {f"{name}-k{k}": Fact(f"{name}, anonymized with k = {k}: k", f"{k} or more") for k in _K[name]}
    for name in _ROLES:
        found |= {
            f"{name}-k{k}-l": Fact(f"{name}, k = {k}, made l-diverse: l", f"{l} or more")
            for k, l in zip(_K[name], _L[name], strict=True)
        }
    return found


EXPERIMENT = Experiment(
    name="nine-measures",
    title="Nine measures of published tables",
    source='"Privacy preserving techniques for data science" and pyCANON: Adult, stroke and student tables',
    facts=_facts(),
    full=Settings(),
    quick=Settings(published=False, ks=(3, 10, 20)),
    run=run,
    needs="the tables of pyCANON's repository in the folder SFUMATO_DATA/pycanon",
)

"""The page of a generator: what it promises, what every private access cost, its columns, and how to draw more rows.

The page is part of the release: it shows declared and noisy values and rows that the generator has drawn, and nothing
else. How they compare with real rows is on the page of an evaluation, for the owner of the data alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
from markupsafe import Markup

from sfumato.budget.accounting.accountant import spent
from sfumato.data.release import Release
from sfumato.data.table import Table
from sfumato.measures.loss.generalised import pair
from sfumato.measures.loss.marginals import binned
from sfumato.measures.loss.universe import universe
from sfumato.report.bins import SMALLEST_SHOWN, bins_of
from sfumato.report.charts.pair_map import MOST_COLUMNS, largest_pairs, pair_map
from sfumato.report.charts.plot import bar_rows
from sfumato.report.page import Page, fill
from sfumato.report.summarise import count, number, percent, share, words

__all__ = ["page_of", "page_of_all", "relations"]

_MOST_ROWS = 50_000  # that the charts are drawn from
_MOST_CHARTS = 60
_MOST_CATEGORIES = 200  # of a column in the map of pairs
_SUMS = {
    "cells": "how often each value occurs, by label if there is one",
    "pairs": "how often values of two columns occur together",
    "values": "frequent single values of wide columns",
    "residuals": "where predicted labels are wrong",
    "further rows": "what stays and what changes from one row of a person to another",
}


def page_of(release: Release, *, name: str, **options: Any) -> Page:
    """Return the page of a generator."""
    table = release.table
    if table.rows > _MOST_ROWS:
        table = Table.of(release.draw(_MOST_ROWS, np.random.default_rng(0)))
    names = list(release.names)
    pairs = relations(table, names)
    page = fill(
        "generator.html",
        title=f"{name}: a generator of synthetic rows",
        headline=f"{_drawn(release)} at {_price(release)}",
        facts=_facts(release),
        warnings=[]
        if release.private
        else ["The noise came from a given seed: this is reproducible, and not private."],
        purchases=[_purchase(one) for one in release.plan.purchases],
        bought=bool(release.plan.columns),
        spent=str(release.spent),
        columns=[_column(table, one) for one in names[:_MOST_CHARTS]],
        all_columns=len(names),
        map=pair_map("Strength of each relation", pairs, names) if pairs else None,
        largest=largest_pairs("The strongest relations", pairs) if pairs else None,
        mapped=min(len(names), MOST_COLUMNS),
        more="people" if release.people else "rows",
        described=[_described(release, one) for one in release.domain.codings],
        folder=name,
        made=_made(release),
    )
    return Page(page, None)


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page | None:
    """Return the page that compares generators of one table, by what is public of them."""
    ones = list(releases.values())
    together = spent([event for one in ones for event in one.events], max(one.delta for one in ones))
    page = fill(
        "generators.html",
        title=f"{name}: generators of synthetic rows",
        headline=f"{count(len(ones), 'generator')} of {count(ones[0].columns, 'column')}",
        facts=list(dict.fromkeys(f"{own}: {one.note}" for own, one in releases.items() if one.note)),
        headings=["Generator", "Epsilon", "Spent", "Rows", "Hidden below", "Described"],
        lines=[
            (own, ", ".join(map(str, one.guarantees)) or "nothing is guaranteed", _line(one))
            for own, one in releases.items()
        ],
        spent=str(together),
    )
    return Page(page, None)


def _line(release: Release) -> list[str]:
    """Return the numbers by which generators are compared."""
    described = sum(one.share for one in release.plan.purchases if one.describes)
    return [
        number(float(release.epsilon)),
        number(float(release.spent.epsilon)),
        number(release.rows),
        f"{release.hidden:,.0f} rows",
        percent(described),
    ]


def relations(table: Table, names: list[str]) -> dict[tuple[str, str], float]:
    """Return how far each pair of columns is from independent: the share of rows that would have to move.

    Examples
    --------
    >>> import polars as pl
    >>> twice = Table.of(pl.DataFrame({"a": ["x", "y"] * 5, "b": ["x", "y"] * 5, "c": ["z"] * 10}))
    >>> relations(twice, ["a", "b", "c"])
    {('a', 'b'): 0.5, ('a', 'c'): 0.0, ('b', 'c'): 0.0}
    """
    both = pair(table, table, names, generalised=False)
    columns, _ = binned(both, quantiles=True)
    narrow = [at for at, one in enumerate(columns) if one.size <= _MOST_CATEGORIES]
    found = {}
    for a, b in combinations(narrow, 2):
        joint = columns[a].joint(columns[b], None)
        alone = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        found[names[a], names[b]] = round(float(np.abs(joint - alone).sum() / 2), 9)
    return found


def _drawn(release: Release) -> str:
    rows = count(release.rows, "synthetic row")
    people = release.people
    return rows if people is None else f"{rows} of {'1 person' if people == 1 else f'{people:,} people'}"


def _price(release: Release) -> str:
    return f"epsilon {number(float(release.epsilon))} and delta {number(float(release.delta))}"


def _facts(release: Release) -> list[str]:
    facts = [str(one) for one in release.guarantees] or ["nothing is guaranteed"]
    facts.append("no row is that of a person: all were drawn from noisy counts")
    facts.append("drawing more rows costs nothing: the noise was added before, once")
    if release.people:
        facts.append(f"nobody was counted with more than {count(release.rows_per_person, 'row')}")
    if release.target:
        facts.append(f"made to predict {release.target} well")
    return facts


def _purchase(one: Any) -> tuple[str, str, str, str, float]:
    """Return a private access: its name, its purpose, its noise, its share, and the length of a bar."""
    if one.describes:
        purpose = "found with noise, because the schema does not declare it"
    else:
        purpose = _SUMS.get(one.name, "a sum over the records")
    return one.name, purpose, str(one.event), percent(one.share), 100 * one.share


def _column(table: Table, name: str) -> tuple[str, str, Markup]:
    """Return the name, a description and the chart of a column of drawn rows."""
    codes = table.encode([name])
    of = universe(codes.domains[0])
    rows = np.bincount(of.place[codes.values[:, 0]], minlength=len(of))
    bins = bins_of(of, rows * SMALLEST_SHOWN)  # a drawn row is nobody's: none is too rare to be shown
    parts = np.bincount(bins.of_value, weights=rows, minlength=len(bins)) / table.rows
    said = [count(len(of) - (of.missing is not None), "distinct value")]
    said += [] if of.missing is None else [f"{share(rows[of.missing] / table.rows)} missing"]
    bars = [(label, [(part, share(part), "after")]) for label, part in zip(bins.labels, parts.tolist(), strict=True)]
    return name, ", ".join(said), bar_rows(f"Synthetic distribution of {name}", bars)


def _described(release: Release, coding: Any) -> tuple[str, str]:
    """Say which values a column may take, and how they are known."""
    feature = coding.feature
    how = "bought with noise" if feature.name in release.plan.bought else "declared"
    if feature.domain is not None:
        return feature.name, f"{count(len(feature.domain), 'value')}, {how}"
    ends = coding.decode(np.array([0, coding.axis.size - 2])).to_list()  # the last code is for missing values
    low, high = (f"{one:,}" if isinstance(one, int | float) else str(one) for one in ends)
    return feature.name, f"from {low} to {high}, {how}"


def _made(release: Release) -> list[tuple[str, str]]:
    """Say how the generator was made."""
    known = {
        "source": release.provenance.name or "data without a name",
        "method": release.method,
        "settings": release.parameters.get("parameters"),
        "target": release.target or "none",
        "cost of all purchases": str(release.spent),
        "unit": _unit(release),
        "records": "read and counted" if release.scans else "only counted",
    }
    return [(name, words(value)) for name, value in known.items() if value]


def _unit(release: Release) -> str:
    """Say what epsilon protects."""
    if release.rows_per_person is None:
        return "one row: the bound is weaker for a person with several rows"
    if release.people:
        return "one person: one row and one pair of rows of each were read, and how many rows they have"
    rows = count(release.rows_per_person, "row")
    return f"one person: at most {rows} of each were read, drawn at random in secret"

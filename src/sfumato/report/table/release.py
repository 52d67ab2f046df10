"""Render the page of a released table beside its original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from sfumato.data.certificate import PERSON
from sfumato.data.schema import Role
from sfumato.measures.assessment import SMALLEST_SHOWN, Profile
from sfumato.measures.guarantee import Check
from sfumato.measures.loss.utility import ModelAccuracy
from sfumato.report.charts.plot import bar_pairs, bar_rows, heat_map, legend
from sfumato.report.page import fill
from sfumato.report.summarise import count, number, percent, risks_of, role_of, share, title_of, words
from sfumato.report.table.comparison import CLASS_SIZES, Comparison, Joint, Marginal, size_label

__all__ = ["Pair", "joint_charts", "marginal_chart", "render_release"]

_BEFORE, _AFTER = "original table", "release"


@dataclass(frozen=True)
class _Promise:
    """A guarantee in words and numbers."""

    title: str
    stops: str
    asked: str
    before: str
    after: str
    held: bool
    reason: str


@dataclass(frozen=True)
class Pair:
    """Two columns: a text about them, and the three heat maps."""

    title: str
    text: str
    charts: tuple[tuple[str, Markup], ...]


def render_release(
    comparison: Comparison,
    *,
    title: str = "Before and after",
    method: str,
    guarantees: Sequence[Check],
    warnings: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    folder: str = "FOLDER",
) -> str:
    """Return an HTML page that compares a release with its original table.

    The page shows figures of the original table, which the publisher may not want to publish.

    Parameters
    ----------
    comparison : Comparison
    title : str
    method : str
        The method that made the release.
    guarantees : sequence of Check
        The guarantees, with their measurements on the release.
    warnings : sequence of str
        Shown first.
    details : mapping, optional
        What the method reports, such as the levels that the lattice chose.
    facts : mapping, optional
        What else the certificate says about how the release was made: names and plain values.
    folder : str
        The argument of ``sfumato verify``.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.report.table.comparison import compare
    >>> from sfumato.measures.loss.generalised import pair
    >>> release = sf.anonymize("patients.csv", "k=4", qi=["zip", "age"])
    >>> both = pair("patients.csv", release.aligned, ["zip", "age"])
    >>> before = sf.assess("patients.csv", qi=["zip", "age"])
    >>> comparison = compare(both, before, release.assessment, release.loss)
    >>> page = render_release(comparison, method="mondrian", guarantees=release.assessment.verdict.checks)
    >>> "shares their combination of 2 quasi-identifiers with at least 3 others" in page
    True
    """
    c = comparison
    kept = all(check.held for check in guarantees)
    return fill(
        "release.html",
        title=title,
        headline=_headline(c, guarantees),
        good=kept and c.after.k > 1,
        warnings=warnings,
        facts=_facts(c),
        units="people" if c.after.unit == PERSON else "rows",
        promises=[_promise(c, check) for check in guarantees],
        legend=legend(_BEFORE, _AFTER),
        sizes=_sizes(c),
        risks=[(what, old, new) for (what, old), (_, new) in zip(risks_of(c.before), risks_of(c.after), strict=True)],
        costs=_costs(c),
        lost=share(_lost(c)),
        replaced=c.replaced > 0,
        marked=any(lost.suppressed for lost in c.loss.by_column.values()),
        queries=c.queries and (share(c.queries.median), c.queries.queries),
        columns=[(one.column, f"{share(one.moved)} of the rows shifted", marginal_chart(one)) for one in c.columns],
        others=[_other(one) for one in c.others],
        pairs=[joint_charts(one, c.before.rows) for one in c.pairs],
        all_pairs=c.all_pairs,
        accuracy=[(one, _kept(one)) for one in c.accuracy],
        made=_made(method, facts or {}, details or {}),
        only_k=all(check.guarantee.key == "k" for check in guarantees),
        folder=folder,
    )


def _headline(c: Comparison, guarantees: Sequence[Check]) -> str:
    failed = [str(check.guarantee) for check in guarantees if not check.held]
    start = f"Not met: {', '.join(failed)}. " if failed else ""
    combination = f"their combination of {count(len(c.columns), 'quasi-identifier')}"
    if c.after.k > 1:
        start += (
            f"Every one of {c.after.units:,} people shares {combination} with at least {count(c.after.k - 1, 'other')}"
        )
    else:
        start += f"{c.after.risk.uniques:,} of {c.after.units:,} people are still unique by {combination}"
    if c.replaced:
        return f"{start}; {share(c.replaced)} of the values were replaced by one that stands for their class"
    return f"{start}; the table lost {share(_lost(c))} of its detail"


def _lost(c: Comparison) -> float:
    """Return the share of detail that was lost; for replaced values, which have no width, in bits."""
    return c.loss.entropy if c.replaced else c.loss.gcp


def _facts(c: Comparison) -> list[str]:
    before, after = c.before, c.after
    alone = share(before.risk.uniques / before.units)
    now = number(after.risk.uniques) if after.risk.uniques else "none"
    facts = [
        f"{before.risk.uniques:,} of {before.units:,} people ({alone}) were unique in the original table; "
        f"in the release, {now}",
        f"someone who knows a person's quasi-identifiers picks the right row with a chance of at most "
        f"{percent(after.risk.prosecutor_max)}; before, {percent(before.risk.prosecutor_max)}",
        f"quasi-identifiers: {', '.join(one.column for one in c.columns)}",
    ]
    if after.unit == PERSON:
        facts.append(f"people are counted, not rows: {count(after.rows, 'row')} of {after.units:,} people")
    if c.queries:
        facts.append(
            f"half of {c.queries.queries} random counting queries are off by {share(c.queries.median)} or less"
        )
    if after.suppressed:
        gone = share(after.suppressed / (after.rows + after.suppressed))
        facts.insert(0, f"{count(after.suppressed, 'row')} ({gone}) suppressed: every quasi-identifier is *")
    return facts


def _promise(c: Comparison, check: Check) -> _Promise:
    title, stops = title_of(check.guarantee.key)
    before = c.before.numbers.get(check.guarantee.key)
    return _Promise(
        title=title,
        stops=stops,
        asked=str(check.guarantee),
        before="∞" if before == "inf" else number(before) if not isinstance(before, str) else before,
        after=number(check.measured.value),
        held=check.held,
        reason=check.reason,
    )


def _sizes(c: Comparison) -> Markup:
    bars = [(size_label(i), c.before.rows_by_size[i], c.after.rows_by_size[i]) for i in range(len(CLASS_SIZES))]
    of_people = c.after.unit == PERSON  # who has suppressed rows may also have others
    if not of_people and (c.before.suppressed or c.after.suppressed):
        bars.append(("suppressed", c.before.suppressed, c.after.suppressed))
    rows = [side.units + (0 if of_people else side.suppressed) for side in (c.before, c.after)]
    return bar_pairs(
        f"Share of {'people' if of_people else 'rows'} by the size of their class",
        [
            (label, (old / rows[0], share(old / rows[0])), (new / rows[1], share(new / rows[1])))
            for label, old, new in bars
        ],
    )


@dataclass(frozen=True)
class _Cost:
    """The loss of a column: texts, and the length of a bar."""

    column: str
    lost: str
    width: float
    marked: str
    replaced: str
    moved: str


def _costs(c: Comparison) -> list[_Cost]:
    """Return the loss of each column, the largest first."""
    rows = []
    for one in c.columns:
        by = c.loss.by_column[one.column]
        lost = by.entropy if c.replaced else by.ncp
        marked = share(by.suppressed) if by.suppressed else ""
        rows.append((lost, _Cost(one.column, share(lost), 100 * lost, marked, share(one.replaced), share(one.moved))))
    return [cost for _, cost in sorted(rows, key=lambda row: -row[0])]


def _other(one: Profile) -> tuple[str, str, Markup]:
    """Return the name, a description and the chart of an unchanged column."""
    kinds = [role_of(one.role)] if one.role is not Role.OTHER else []
    kinds.append("not counted" if one.values is None else count(one.values, "distinct value"))
    if one.missing:
        kinds.append(f"{share(one.missing)} missing")
    bars = [(label, [(part, share(part), "after")]) for label, part in zip(one.bins, one.shares, strict=True)]
    return one.column, ", ".join(kinds), bar_rows(f"Distribution of {one.column}", bars)


def marginal_chart(one: Marginal) -> Markup:
    """Draw the distribution of a column before and after."""
    return bar_pairs(
        f"Distribution of {one.column} before and after",
        [
            (label, (before, share(before)), (after, share(after)))
            for label, before, after in zip(one.bins, one.before, one.after, strict=True)
        ],
    )


def joint_charts(one: Joint, rows: int, names: tuple[str, str] = (_BEFORE, _AFTER)) -> Pair:
    """Draw two columns before and after, and the difference; `rows` is the number of original rows."""
    title = f"{one.columns[0]} × {one.columns[1]}"
    # In a large table, a cell with too few rows to be shown is less than 0.1 %: it counts as nothing.
    unseen = 0.0 if rows >= 1000 * SMALLEST_SHOWN else None
    difference = [
        [
            None if (was := unseen if b is None else b) is None else round(a - was, 3)
            for b, a in zip(before, after, strict=True)
        ]
        for before, after in zip(one.before, one.after, strict=True)
    ]
    full = max((share or 0.0 for row in (*one.before, *one.after) for share in row), default=0.0)
    most = max((abs(share or 0.0) for row in difference for share in row), default=0.0)

    def drawn(what: str, cells: Sequence[Sequence[float | None]], **how: Any) -> Markup:
        return heat_map(f"{title}, {what}", *one.bins, cells, axes=one.columns, **how)

    unshown = f" The cells with a dot hold {share(one.unshown)} of the rows." if one.unshown else ""
    return Pair(
        title=title,
        text=f"{share(one.moved)} of the rows are in another cell. Strength of the relation before: "
        f"{share(one.related)} (0% is none).{unshown}",
        charts=(
            (names[0], drawn(names[0], one.before, full=full)),
            (names[1], drawn(names[1], one.after, full=full)),
            ("difference in points", drawn("difference", difference, full=max(most, 0.02), signed=True)),
        ),
    )


def _kept(one: ModelAccuracy) -> str:
    """Say how much a model still learns beyond the most frequent value."""
    learned = one.raw - one.baseline
    if learned <= max(one.raw_spread, 0.001):
        return "it learns next to nothing even from the original"
    return f"{share(max(one.released - one.baseline, 0.0) / learned)} of what it learns is left"


def _made(method: str, facts: Mapping[str, Any], details: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = {"method": method, **facts, **details}
    if "chosen" in lines and isinstance(lines.get("explained"), int | float):
        explained = share(lines.pop("explained"))
        lines["partition"] = f"{words(lines.pop('chosen'))}: predictions explain {explained} of held-out labels"
    return [(name.replace("_", " "), words(value)) for name, value in lines.items()]

"""The page of an evaluation: real rows beside released ones, what they are good for, and what they give away.

The figures come from real rows, without noise, so the page is for the owner of the data. Like every page it shows no
record: nothing that fewer than `SMALLEST_SHOWN` original rows have is shown on its own, and shares are rounded.
"""

from __future__ import annotations

from collections.abc import Mapping

from sfumato.frontier.tables.evaluate import NOT_ASKED, Evaluation
from sfumato.measures.loss.transfer import ModelTransfer
from sfumato.report.attacks.page import gains_of, right_answers
from sfumato.report.charts.pair_map import MOST_COLUMNS, largest_pairs, pair_map
from sfumato.report.charts.plot import legend
from sfumato.report.page import fill
from sfumato.report.summarise import count, number, percent, share
from sfumato.report.table.comparison import apart, joints_of, marginals_of
from sfumato.report.table.release import joint_charts, marginal_chart

__all__ = ["render_evaluation", "render_evaluations"]

_PAIRS = 4  # drawn
_RELEASED = {"synthetic": "synthetic rows", "table": "release"}


def render_evaluation(evaluation: Evaluation, *, title: str = "Real beside released") -> str:
    """Return an evaluation as an HTML page.

    Examples
    --------
    >>> import sfumato as sf
    >>> people = sf.datasets.adult("test").frame.head(300).select("age", "sex", "income")
    >>> page = render_evaluation(sf.evaluate(people, people.sample(300, with_replacement=True, seed=0)))
    >>> "For the owner of the data" in page
    True
    """
    e = evaluation
    names = "real rows", _RELEASED[e.kind]
    pairs = e.distances.by_pair
    ranked = sorted(pairs, key=lambda one: -pairs[one])
    drawn = [ranked[at] for at in apart(ranked, _PAIRS)]
    places = [(e.pairing.names.index(a), e.pairing.names.index(b)) for a, b in drawn]
    moved = sorted(marginals_of(e.pairing), key=lambda one: -e.distances.binned[one.column])
    results = [] if e.attacks is None else sorted(e.attacks.results, key=lambda result: -result.auc)
    return fill(
        "evaluation.html",
        title=title,
        headline=_headline(e),
        facts=_facts(e),
        good=False if e.leaks else None,
        released=names[1],
        figures=_figures(e),
        tested=e.test_distances is not None,
        models=[_model(one) for one in e.models],
        scored=e.models[0] if e.models else None,
        target=e.target,
        legend=legend(*names),
        map=pair_map("Distance of each pair of columns", pairs, e.columns) if pairs else None,
        largest=largest_pairs("The largest distances of pairs", pairs) if pairs else None,
        mapped=min(len(e.columns), MOST_COLUMNS),
        columns=[
            (one.column, f"distance {share(e.distances.binned[one.column])}", marginal_chart(one)) for one in moved
        ],
        all_columns=len(e.columns),
        pairs=[joint_charts(one, e.pairing.rows, names) for one in joints_of(e.pairing, places)],
        all_pairs=len(pairs),
        verdict="" if e.attacks is None else f"{e.attacks.verdict[:1].upper()}{e.attacks.verdict[1:]}.",
        gains=gains_of(results),
        shares=[right_answers(result) for result in results],
        made=_made(e),
    )


def render_evaluations(evaluations: Mapping[str, Evaluation], *, title: str = "Releases beside each other") -> str:
    """Return evaluations of several releases of one table as an HTML page that compares them.

    Examples
    --------
    >>> import sfumato as sf
    >>> people = sf.datasets.adult("test").frame.head(300).select("age", "sex", "income")
    >>> found = sf.evaluate(people, people.sample(300, with_replacement=True, seed=0))
    >>> "Each column, by its distance" in render_evaluations({"one": found, "other": found})
    True
    """
    ones = list(evaluations.values())
    measures = {
        "Columns, mean distance": [share(one.distances.mean_of_columns) for one in ones],
        "Pairs of columns, mean distance": [
            "-" if one.mean_pair_distance is None else share(one.mean_pair_distance) for one in ones
        ],
        "Counting queries, median relative error": [share(one.queries.median) for one in ones],
        "Propensity, relative to chance": [number(one.propensity.ratio) for one in ones],
    }
    columns = [name for name in ones[0].columns if all(name in one.columns for one in ones)]
    nearest = min(evaluations, key=lambda name: evaluations[name].distances.mean_of_columns)
    return fill(
        "evaluations.html",
        title=title,
        headline=f"{count(len(ones), 'release')} beside the real rows: {nearest} comes nearest",
        facts=[],
        names=list(evaluations),
        figures=[(name, *texts) for name, texts in measures.items()],
        columns=[(name, *(share(one.distances.binned[name]) for one in ones)) for name in columns],
    )


def _headline(e: Evaluation) -> str:
    """Say how far the release is from the original, beside how far real rows are."""
    two, alone = e.distances.mean_of_pairs, e.distances.mean_of_columns
    text = f"A column differs from the real one by {share(alone)} of the rows"
    if two is not None:
        text = f"Two columns together differ from the real ones by {share(two)} of the rows, on average"
    floor = None if e.test_distances is None else e.test_distances.mean_of_pairs
    return text if floor is None else f"{text}; other real rows differ by {share(floor)}"


def _facts(e: Evaluation) -> list[str]:
    facts = []
    if e.models:
        best = max(e.models, key=lambda one: one.raw)
        facts.append(
            f"a model ({best.model}) that is trained on the release is right about {share(best.released)} of the test "
            f"rows; trained on the original, about {share(best.raw)}; always guessing the most frequent value, about "
            f"{share(best.baseline)}"
        )
    if e.propensity.ratio is not None:
        facts.append(
            f"a model that tells released rows from real ones finds {number(e.propensity.ratio)} times the difference "
            "that chance gives"
        )
    facts.append(f"half of {e.queries.queries} random counting queries are off by {share(e.queries.median)} or less")
    if e.attacks is not None:
        facts.append(e.attacks.verdict)
    facts += [f"{part} were not measured: {why}" for part, why in e.skipped.items() if why != NOT_ASKED]
    return facts


def _figures(e: Evaluation) -> list[tuple[str, str, str, str]]:
    """Return the figures: a name, what it means, its value, and that of the test rows."""
    d, t, p = e.distances, e.test_distances, e.propensity
    rows = [
        (
            "Columns",
            "mean total variation: the share of rows that would have to move",
            share(d.mean_of_columns),
            "-" if t is None else share(t.mean_of_columns),
        )
    ]
    if d.mean_of_pairs is not None:
        worst = max(d.by_pair, key=lambda one: d.by_pair[one])
        rows += [
            (
                "Pairs of columns",
                "mean total variation of all pairs",
                share(d.mean_of_pairs),
                "-" if t is None or t.mean_of_pairs is None else share(t.mean_of_pairs),
            ),
            (
                "Worst pair",
                " × ".join(worst),
                share(d.by_pair[worst]),
                "-" if t is None else share(max(t.by_pair.values())),
            ),
        ]
    rows += [
        (
            "Propensity",
            f"pMSE, divided by what chance gives: 1 is a perfect sample ({count(p.parameters, 'parameter')})",
            number(p.ratio),
            "-",
        ),
        (
            "Counting queries",
            f"median relative error of {e.queries.queries} random counts",
            share(e.queries.median),
            "-",
        ),
    ]
    return rows


def _model(one: ModelTransfer) -> tuple[str, list[tuple[str, str]]]:
    """Return the scores of a model as texts, each with its spread."""
    scores = [
        (f"{100 * mean:.1f}%", f"± {100 * spread:.1f}")
        for mean, spread in ((one.raw, one.raw_spread), (one.released, one.released_spread))
    ]
    scores += [
        (f"{mean:.3f}", f"± {spread:.3f}")
        for mean, spread in ((one.raw_auc, one.raw_auc_spread), (one.released_auc, one.released_auc_spread))
    ]
    return one.model, scores


def _made(e: Evaluation) -> list[tuple[str, str]]:
    """Say how the figures were measured."""
    rows = {name: made for name, made in e.rows.items() if made is not None}
    known = [(f"{name} rows", f"{many:,}") for name, many in rows.items()]
    known.append(("columns", ", ".join(e.columns)))
    known += [("left out", ", ".join(e.left_out))] if e.left_out else []
    known.append(("bins of a number", f"{e.distances.bins}, with equal shares of the real rows"))
    if e.attacks is not None and e.attacks.target.get("nonmembers") is not None:
        known.append(("control of the attacks", count(e.attacks.target["nonmembers"], "row")))
    known += [(f"no {part}", why) for part, why in e.skipped.items()]
    if e.attacks is not None:
        known += [(f"attack {name}", f"not run: {why}") for name, why in e.attacks.skipped.items()]
    known += [("level of the tests of leakage", percent(0.05))] if e.attacks is not None else []
    return [*known, ("seed", str(e.seed))]

"""The page of a model that several holders have trained: rounds, ROC curves, and the share and cost of each holder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from sfumato.data.certificate import CLIENT, PERSON
from sfumato.data.release import Release
from sfumato.federation.released import AT_SEVERAL
from sfumato.federation.released import Outcome as Federation
from sfumato.learners.training.runs import Run
from sfumato.report.charts.lines import Axis, Line, line_chart
from sfumato.report.charts.plot import bar_list
from sfumato.report.model.figures import roc_of
from sfumato.report.model.outcome import Outcome, write_epsilon
from sfumato.report.page import Page, fill
from sfumato.report.summarise import count, share, words

__all__ = ["page_of", "page_of_all"]

_ROUND = Axis("round", whole=True)
_SHARES = Axis(text=share, tick=lambda value: f"{100 * value:.4g}%")
_SUMS = {
    "masks": "by masks: the coordinator saw sums only",
    "threshold": "by threshold encryption: the coordinator saw sums only, which every holder helped to open",
    "ckks": "encrypted by CKKS: the coordinator and the holder with the key saw sums only",
    "none": "in clear: the coordinator saw every update",
}
_MOST_HOLDERS = 30  # drawn one by one
_SETTINGS = (
    "rounds",
    "threshold",
    "absence",
    "epochs",
    "batch",
    "learning_rate",
    "proximal",
    "momentum",
    "decay",
    "augment",
    "clip",
    "spare",
    "seed",
)


def page_of(release: Release, *, name: str, **options: Any) -> Page:
    """Return the page of one model; that of a loaded release has no ROC curves and no shares of the holders."""
    plan, stated = release.parameters["plan"], release.parameters
    outcome: Federation | None = release.outcome
    return Page(
        fill(
            "federated.html",
            title=name,
            headline=_headline(release, outcome),
            good=True if release.guarantees else None,
            facts=_facts(release),
            charts=_charts(stated["history"], outcome),
            names=["Holder", "Rounds", "Sent", "Received", "Seconds", "Epsilon"],
            holders=_holders(release, outcome),
            bars=_bars(outcome),
            how=[
                ("model", release.method),
                ("trained on", release.provenance.name or "data without a name"),
                ("sums", _SUMS.get(stated["secure"], words(stated["secure"]))),
                *((one.replace("_", " "), words(plan[one])) for one in _SETTINGS if one in plan),
            ],
        ),
        None,
    )


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page | None:
    """Return None: these models are not compared on one page."""
    return None


def _headline(release: Release, outcome: Federation | None) -> str:
    holders = count(len(release.parameters["holders"]), "holder")
    if outcome is None or outcome.scores.accuracy is None:
        return f"{holders} trained one model; its scores are not released."
    text = f"{holders} reached an accuracy of {share(outcome.scores.accuracy)} together"
    if outcome.central is None or outcome.central.accuracy is None:
        return f"{text}."
    return f"{text}; all records in one place reach {share(outcome.central.accuracy)}."


def _facts(release: Release) -> list[str]:
    facts = [f"Guaranteed: {one}." for one in release.guarantees]
    if not facts:
        facts = ["Without an epsilon, the model may reveal records: masks hide the updates, not what the model learnt."]
    elif release.unit == CLIENT:
        facts.append("Epsilon protects all that one holder contributes, and so each of its records.")
    elif release.unit == PERSON:
        bound = count(release.parameters["plan"]["rows_per_person"], "row")
        facts += [
            f"Epsilon protects people with all of their rows; at most {bound} of each were used. A row without a "
            "person counts as a person of its own. The numbers of people of the holders are not protected.",
            f"{AT_SEVERAL[:1].upper()}{AT_SEVERAL[1:]}.",
        ]
    else:
        facts.append(
            "Epsilon protects each record, one by one. The numbers of records of the holders are not protected."
        )
    if release.guarantees:
        spare = release.parameters["plan"]["spare"]
        facts.append(f"The noise covers every round and {count(spare, 'repeated round')} after a crash.")
    return facts


def _charts(rounds: list[dict[str, Any]], outcome: Federation | None) -> list[tuple[str, str, Markup | str]]:
    central = None if outcome is None else outcome.central
    found = list[tuple[str, str, Markup | str]]()
    for name, key, axis in (("Accuracy by round", "accuracy", _SHARES), ("Loss by round", "loss", Axis())):
        lines = [Line("together", [(one["round"], one[key]) for one in rounds])]
        level = None if central is None else getattr(central, key)
        if level is not None and lines[0].known:
            lines.append(Line("in one place", [(1, level), (len(rounds), level)], None, marked=False))
        if lines[0].known:
            found.append((name, "", line_chart(name, lines, _ROUND, axis, labels="below")))
    if len({one["clients"] for one in rounds}) > 1:
        present = [Line("holders", [(one["round"], one["clients"]) for one in rounds])]
        chart = line_chart("Holders in each round", present, _ROUND, Axis(whole=True), labels="none")
        found.append(("Holders in each round", "", chart))
    if outcome is not None:
        named = [("together", outcome.scores), ("in one place", outcome.central)]
        runs = [
            Outcome(Run(math.inf, name, {}, scores, 0.0), name, at)
            for at, (name, scores) in enumerate(named)
            if scores is not None and scores.how != "none"
        ]
        curves = roc_of(runs) if runs else None
        if curves is not None:
            found.append(("ROC curves", curves.caption, curves.chart))
    return found


def _holders(release: Release, outcome: Federation | None) -> list[tuple[str, ...]]:
    epsilons = release.parameters["epsilons"]
    rows = list[tuple[str, ...]]()
    for name in release.parameters["holders"]:
        one = None if outcome is None else outcome.parties.get(name)
        seconds = "-" if one is None or one.seconds is None else f"{one.seconds:.1f}"
        traffic = ("-", "-", "-") if one is None else (str(one.rounds), _size(one.sent), _size(one.received))
        rows.append((name, *traffic, seconds, write_epsilon(epsilons[name]) if name in epsilons else "-"))
    return rows


def _bars(outcome: Federation | None) -> list[tuple[str, str, Markup]]:
    if outcome is None or len(outcome.parties) > _MOST_HOLDERS:
        return []
    bytes_ = [(name, one.sent + one.received, _size(one.sent + one.received)) for name, one in outcome.parties.items()]
    found = [("Bytes of each holder", "sent and received", bar_list("Bytes of each holder", bytes_))]
    times = [(name, one.seconds, f"{one.seconds:.1f} s") for name, one in outcome.parties.items() if one.seconds]
    if times:
        found.append(("Training time of each holder", "", bar_list("Training time of each holder", times)))
    return found


def _size(number: int) -> str:
    return f"{number / 1e6:,.1f} MB" if number >= 1e6 else f"{number / 1e3:,.0f} kB"

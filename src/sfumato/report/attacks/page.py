"""The page of attacks: the verdict in words, what an attacker gains over guessing, and how it was found out.

The page shows figures about all records together, and never one record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from sfumato.attacks.auditing.audit import AuditResult
from sfumato.attacks.base import GUESSING, RATES, AttackResult
from sfumato.attacks.report import AttackReport
from sfumato.attacks.statistics import FALSE_POSITIVES_NEEDED
from sfumato.data.certificate import PERSON
from sfumato.report.charts.lines import Axis, Line, line_chart
from sfumato.report.charts.pictures import data_uri
from sfumato.report.charts.plot import interval_bars
from sfumato.report.page import fill
from sfumato.report.summarise import count, number, percent, words

__all__ = ["gains_of", "render_attacks", "right_answers"]

_POINTS = 61  # of a curve
_LEAST = 1e-5  # the lowest rate on an axis
_FEW = 2  # scores, as of an attack that only decides, make a point and not a curve
_LONGEST = 400  # letters of the details of an attack


def render_attacks(report: AttackReport, *, title: str = "Attacks") -> str:
    """Return a report of attacks as an HTML page.

    Examples
    --------
    >>> import numpy as np
    >>> from sfumato.attacks import AttackReport, Scores, attacks_of, result_of
    >>> inside, outside = np.random.default_rng(0).normal([[1.0], [0.0]], size=(2, 500))
    >>> result = result_of(*attacks_of(["loss"]), [Scores(inside, outside)], seed=0)
    >>> page = render_attacks(AttackReport({"kind": "model"}, (result,)))
    >>> "1 of 1 attack found leakage" in page
    True
    """
    ranked = sorted(report.results, key=lambda result: -result.auc)
    lines = [_line(result) for result in ranked]
    supported = [at for at in range(len(RATES)) if any(line["rates"][at] != "-" for line in lines)]
    by_score = [result for result in ranked if not result.guesses and len(result.roc.thresholds) > _FEW]
    return fill(
        "attacks.html",
        title=title,
        headline=_sentence(report.verdict),
        facts=_facts(report),
        good=False if report.leaks or not (report.audit is None or report.audit.passed) else None,
        gains=gains_of(ranked),
        shares=[right_answers(result) for result in ranked],
        pictures=[
            (result.name, data_uri(result.scores.picture), len(result.scores.picture[0]) / 8)
            for result in ranked
            if result.scores.picture is not None
        ],
        curves=[(result.name, _caption(result), _curve(result)) for result in by_score],
        rates=[percent(RATES[at]) for at in supported],
        precise=any(line["precision"] != "-" for line in lines),
        lines=[{**line, "rates": [line["rates"][at] for at in supported]} for line in lines],
        skipped=list(report.skipped.items()),
        needed=FALSE_POSITIVES_NEEDED,
        audit=[] if report.audit is None else _audit(report.audit),
        how=_how(report),
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _facts(report: AttackReport) -> list[str]:
    """Say in words what the strongest attacks gain, and what was attacked."""
    target, facts = report.target, []
    worst = report.worst
    if worst is not None:
        low, high = worst.interval.to_list()
        facts.append(
            f"Of a member and another record, the strongest attack ({worst.name}) picks the member in "
            f"{percent(worst.auc)} of the cases (95 % interval {percent(low)} to {percent(high)}); guessing is right "
            "in 50 %."
        )
        rates = [(result.rates[RATES[0]], result) for result in report.results if not result.guesses]
        known = [(rate.tpr, rate, result) for rate, result in rates if rate is not None]
        if known:
            tpr, rate, result = max(known, key=lambda one: one[0])
            facts.append(
                f"At {percent(rate.fpr)} false alarms, {result.name} finds {percent(tpr)} of the members; guessing "
                f"finds {percent(rate.fpr)}."
            )
    if target.get("train_accuracy") is not None:
        facts.append(
            f"The model is right about {percent(target['train_accuracy'])} of its training records, and about "
            f"{percent(target['test_accuracy'])} of others."
        )
    facts += [target["how"]] if target.get("how") else []
    facts += [_sentence(note) for note in target.get("notes", ())]
    return facts


def gains_of(ranked: Sequence[AttackResult]) -> Markup | None:
    """Draw by how much each attack beats guessing."""
    bars = []
    for result in ranked:
        low, high = result.interval.to_list()
        bars.append((result.name, result.auc - 0.5, low - 0.5, high - 0.5, f"{result.auc:.3f}"))
    return interval_bars("AUC of each attack, from 0.5, which is guessing", bars) if bars else None


def right_answers(result: AttackResult) -> tuple[str, ...]:
    """Write the name of an attack, its share of right answers, that of guessing, and that about non-members."""
    others = result.decisions.false_positive_rate
    return result.name, percent(result.accuracy), percent(result.baseline.accuracy), percent(others)


def _caption(result: AttackResult) -> str:
    low, high = result.interval.to_list()
    return f"AUC {result.auc:.3f} ({low:.3f} to {high:.3f})"


def _curve(result: AttackResult) -> Markup:
    """Draw the ROC on logarithmic axes, with the bounds that resampling gives, beside guessing."""
    least = max(_LEAST, 10.0 ** np.floor(np.log10(1 / result.roc.nonmembers)))
    rates = np.geomspace(least, 1, _POINTS)
    rates[-1] = 1.0
    low, high = result.roc.band(rates, seed=result.seed)
    found = result.roc.curve(rates)
    points = [(float(x), float(y) if y >= least else None) for x, y in zip(rates, found, strict=True)]
    band = [(float(x), float(a), float(b)) for x, a, b in zip(rates, low, high, strict=True)]
    lines = [
        Line("guessing", [(least, least), (1.0, 1.0)], None, marked=False),
        Line(result.name, points, 1, band=band),
    ]
    axis = Axis("false positive rate", text=percent, tick=_short, log=True)
    return line_chart(f"ROC of {result.name}", lines, axis, Axis(text=percent, tick=_short, log=True), labels="none")


def _short(rate: float) -> str:
    return f"{100 * rate:g}%"


def _line(result: AttackResult) -> dict[str, Any]:
    """Return the figures of a result as texts."""
    plain = result.to_dict()
    low, high = plain["ci"]
    details = words(plain["details"]) if plain["details"] else ""
    notes = [] if result.baseline is GUESSING else [f"without the release: {result.baseline.method}"]
    notes += [details if len(details) <= _LONGEST else details[:_LONGEST] + " ..."] if details else []
    if result.guesses:
        notes.append(f"{plain['n']['members']:,} guesses about members, {plain['n']['nonmembers']:,} about others")
    return {
        "name": result.name,
        "question": result.question,
        "notes": notes,
        "leaks": result.leaks,
        "verdict": result.word,
        "auc": f"{result.auc:.3f}",
        "interval": f"{low:.3f} to {high:.3f}",
        "right": percent(result.accuracy),
        "baseline": percent(result.baseline.accuracy),
        "precision": percent(plain["precision"]),
        "rates": ["-" if rate is None or result.guesses else percent(rate.tpr) for rate in result.rates.values()],
    }


def _audit(audit: AuditResult) -> list[tuple[str, str]]:
    """Say what the audit showed, and what it could have shown."""
    sure = percent(audit.confidence)
    facts = [
        ("claimed", str(audit.claimed)),
        ("shown", f"epsilon is at least {number(audit.epsilon)}, with {sure} confidence; 0 proves nothing"),
        ("could have been shown", f"at most {number(audit.could_have_shown)}, had every guess been right"),
        ("guesses", f"{audit.right:,} of {audit.guesses:,} are right"),
        (
            "canaries",
            f"{audit.canaries:,}{_people(audit)}, each there by a coin, in {count(audit.runs, 'run')}",
        ),
        ("method", audit.method),
    ]
    if audit.gaussian is not None:
        facts.insert(2, ("shown if the noise is Gaussian", f"epsilon is at least {number(audit.gaussian)}"))
    held = {True: "held", False: "NOT HELD", None: "not checkable"}
    return facts + [(check.claim, f"{held[check.held]}: {words(check.measured)}") for check in audit.checks]


def _people(audit: AuditResult) -> str:
    return f" people with {count(audit.rows, 'row')}" if audit.claimed.unit == PERSON else ""


def _how(report: AttackReport) -> list[tuple[str, str]]:
    """Say how the attacks were done."""
    target, results = report.target, report.results
    names = {"name": "target", "kind": "kind", "model": "model", "target": "predicted column", "protect": "protection"}
    known = [(label, words(target[name])) for name, label in names.items() if target.get(name)]
    known += [("method", words(target["method"]))] if target.get("method") else []
    known += [("guarantees", words(target["guarantees"]))] if target.get("guarantees") else []
    known += [
        (label, f"{target[name]:,}")
        for name, label in (("members", "members"), ("nonmembers", "non-members"), ("rows", "released rows"))
        if target.get(name) is not None
    ]
    if target.get("unit") == PERSON:
        known.append(("what is attacked", "people, each with all of their rows: every figure counts people"))
    known.append(("seed", str(report.seed)))
    if results:
        most = max(result.scores.references for result in results)
        tried = {result.name: result.scores.variants for result in results if result.scores.variants > 1}
        agreed = {result.name: result.agreement for result in results if result.agreement is not None}
        known += [("reference models", f"{most:,}")] if most else []
        known += [("settings tried", ", ".join(f"{name} {n:,}" for name, n in tried.items()))] if tried else []
        known += [
            ("the same verdict with two seeds", ", ".join(f"{n} {percent(a)}" for n, a in agreed.items()))
        ] * bool(agreed)
        known.append(
            ("error rate", f"5 % for all {count(len(results), 'attack')} together: what leaks, leaks beyond chance")
        )
    return known

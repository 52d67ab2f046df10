"""Write what privacy cost a model as one offline HTML page: scores, curves, pictures and the accounting in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from sfumato.budget.events import Gaussian, PoissonSampled, Relation
from sfumato.learners.training.runs import Training
from sfumato.report.charts.figures import MOST_CLASSES, charts_of, found_of, layers_of, matrices_of, noise_of, roc_of
from sfumato.report.charts.plot import hatching
from sfumato.report.charts.shapes import shapes_of
from sfumato.report.model.accountings import events_of, leaves_of, other_epsilons, shuffled_epsilon
from sfumato.report.model.outcome import Outcome, Verdict, known, outcomes_of, write, write_epsilon
from sfumato.report.summarise import count, share, words
from sfumato.report.template import fill

__all__ = ["render_training"]

_ACCOUNTANTS = {"pld": "the privacy loss distribution", "rdp": "Renyi privacy"}
_MOST_EVENTS = 4  # that are told one by one


def render_training(training: Training, *, title: str) -> str:
    """Return what came out of training a model at several epsilons as an HTML page.

    The page shows the scores that were released: of private models on private data noisy ones, which are part of their
    epsilon; of public data, and of models without privacy, exact ones.

    Parameters
    ----------
    training : Training
        The only input: nothing is read from data, and of models only the curves of an additive one, which are its
        weights.
    title : str

    Examples
    --------
    >>> from sfumato.learners import Run, Scores
    >>> scores = Scores(rows=100, loss=0.5, baseline=0.6, accuracy=0.75)
    >>> run = Run(math.inf, "epsilon-none", {}, scores, seconds=2.0)
    >>> page = render_training(Training("patients", "logistic", "disease", 400, (run,)), title="Training")
    >>> "Without privacy the model answers 75.0% right." in page
    True
    """
    runs = outcomes_of(training)
    verdict = Verdict(training, runs)
    private = [one for one in runs if one.private]
    rows = [_row(one) for one in runs]
    return fill(
        "training.html",
        title=title,
        headline=verdict.headline(),
        good=verdict.good(),
        facts=verdict.facts(),
        regression=verdict.regression,
        runs=rows,
        clipped=any(row["noise"] != "-" or row["clip"] != "-" for row in rows),
        noisy_scores=verdict.noisy,
        exact_scores=any(one.run.scores.how == "exact" for one in private),
        scored=any(one.scored for one in runs),
        unscored=any(not one.scored for one in runs),
        public=training.is_public,
        timed=training.is_public,
        baseline=verdict.write(verdict.baseline),
        public_rows=training.rows is not None,
        charts=charts_of(verdict, runs),
        hatching=hatching(),
        matrices=matrices_of(runs),
        grouped=any(len(one.run.scores.classes) > MOST_CLASSES for one in runs),
        shapes=shapes_of(training, runs),
        curves=[figure for figure in (roc_of(runs), found_of(runs)) if figure],
        noisy=noise_of(training.pictures),
        layers=layers_of(training.pictures, runs),
        guarantees=[(one.label, _made(one), _promise(one), one.seeded) for one in private],
        relations=list(dict.fromkeys(_relation(one) for one in private)),
        together=_together(training),
        ordinary=len(private) < len(runs),
        accountings=_accountings(private),
        published=_published(training, runs),
        settings=[
            (name.replace("_", " "), words(value))
            for name, value in {
                "data": training.data,
                "model": training.model,
                "target": training.target,
                **({} if training.rows is None else {"rows to train on": training.rows}),
                **training.settings,
            }.items()
        ],
    )


def _row(one: Outcome) -> dict[str, Any]:
    """Return a run as a line of the table."""
    facts, scores = one.run.facts, one.run.scores
    sampling = facts.get("sampling") or {}
    noise = sorted(_noises(one))
    return {
        "label": one.label,
        "spent": f"spent {write(one.spent)}" if one.private else "no bound",
        "delta": f"at delta {write(facts.get('delta'))}" if one.private else "",
        "seeded": one.seeded,
        "margin": _margin(one),
        "accuracy": "-" if scores.accuracy is None or math.isnan(scores.accuracy) else share(scores.accuracy),
        "auc": "-" if scores.auc is None or math.isnan(scores.auc) else f"{scores.auc:.3f}",
        "loss": write(scores.loss),
        "noise": "-" if not noise else write(noise[0]) + (f" to {write(noise[-1])}" if len(noise) > 1 else ""),
        "clip": write(facts.get("clip")) if one.private else "-",
        "sampling": str(sampling.get("kind", "-")).capitalize(),
        "how_often": ", ".join(
            text.format(write(sampling[name]))
            for name, text in (("rate", "rate {}"), ("steps", "{} steps"))
            if name in sampling
        ),
        "seconds": f"{one.run.seconds:,.1f} s" if one.run.seconds < 100 else f"{one.run.seconds:,.0f} s",
    }


def _margin(one: Outcome) -> str:
    scores = one.run.scores
    if scores.how != "noisy":
        return ""
    return f"± {write(scores.margin)}" if scores.accuracy is None else f"± {100 * scores.margin:.1f} points"


# --- the accounting in words ----------------------------------------------------------------------


def _noises(one: Outcome) -> set[float]:
    """Return the noise of the steps, in clips; none where nothing was clipped."""
    told = known(one.run.facts.get("noise_multiplier"))
    if not one.private or known(one.run.facts.get("clip")) is None:
        return set()
    events = (event for event, _ in leaves_of(events_of(one.run.facts)))
    noises = {
        event.event.noise_multiplier
        for event in events
        if isinstance(event, PoissonSampled) and isinstance(event.event, Gaussian)
    }
    return noises if len(noises) > 1 or not told else {told}


def _made(one: Outcome) -> str:
    """Say what was done with the data."""
    facts, events = one.run.facts, events_of(one.run.facts)
    sampling, clip, noise = facts.get("sampling") or {}, known(facts.get("clip")), sorted(_noises(one))
    if not (sampling.get("steps") and clip and noise):
        said = list(map(str, events))
        more = f"; and {len(said) - _MOST_EVENTS} more" if len(said) > _MOST_EVENTS else ""
        told = "; then ".join(said[:_MOST_EVENTS]) or "how noise was added is not told"
        return f"{told[0].upper()}{told[1:]}{more}."
    rate = write(sampling.get("rate"))
    drawn = {
        "poisson": f"into each, every record came by a coin of its own, with a chance of {rate} (Poisson sampling)",
        "full": "each used all records",
    }.get(str(sampling.get("kind")), f"each used a batch (sampling: {sampling.get('kind')})")
    sigma = write(noise[0]) + (f" to {write(noise[-1])}" if len(noise) > 1 else "")
    return (
        f"{count(sampling['steps'], 'step')}: {drawn}; every record's gradient was cut to a length of {write(clip)} "
        f"(the clip); normal noise was added to their sum, of a deviation (sigma) of {sigma} clips."
    )


def _promise(one: Outcome) -> str:
    """Say what that is worth."""
    facts, delta = one.run.facts, known(one.run.facts.get("delta"))
    if one.seeded:
        return (
            "Its noise came from a fixed seed: reproducible, not private. "
            "The epsilon is what the same noise would be worth if it were secret."
        )
    accountant = facts.get("accountant")
    by = f"Counted by {_ACCOUNTANTS.get(accountant, accountant)}" if isinstance(accountant, str) else "Counted"
    factor = math.exp(min(one.spent, 700.0))
    times = f"{factor:.3g}" if factor < 1000 else f"{float(f'{factor:.2g}'):,.0f}" if factor < 1e9 else "any number of"
    other = "with another in its place" if _relation_of(one) is Relation.REPLACE_ONE else "without it"
    return (
        f"{by}: epsilon {write_epsilon(one.spent)} at delta {write(delta or 0.0)}. Whatever comes out is at "
        f"most {times} times as likely with a record as {other}"
        + (f", but for a chance of {delta:g}." if delta else ".")
    )


def _relation_of(one: Outcome) -> Relation:
    return Relation.REPLACE_ONE if one.run.facts.get("relation") == "replace-one" else Relation.ADD_REMOVE


def _relation(one: Outcome) -> str:
    """Say what is compared with what."""
    relation = _relation_of(one)
    other = "lacks any one of them" if relation is Relation.ADD_REMOVE else "has any one of them exchanged for another"
    return (
        f"The neighbouring relation is “{relation.in_words}”: what the rows gave is compared with what a table would "
        f"give that {other}. The bound is weaker for a person with several records."
    )


def _together(training: Training) -> str:
    """Say what publishing all private models costs."""
    told, private = training.together, sum(run.epsilon != math.inf for run in training.runs)
    if not told or private < 2:
        return ""
    epsilon = known(told.get("epsilon"))
    if epsilon is None:
        return f"What {'both' if private == 2 else f'all {private}'} private models cost together has no bound."
    cost = f"epsilon {write_epsilon(epsilon)} at delta {write(told.get('delta'))}"
    return f"{'Both' if private == 2 else f'All {private}'} private models published together cost {cost}."


def _accountings(private: Sequence[Outcome]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the names of the runs, and a line per accounting with an epsilon for each of them."""
    told = []
    for one in private:
        delta = known(one.run.facts.get("delta"))
        if others := other_epsilons(events_of(one.run.facts), delta or 0.0):
            told.append((one, others))
    names = list(dict.fromkeys(name for _, others in told for name in others))
    lines = [("As it was run and counted here", [write_epsilon(one.spent) for one, _ in told])]
    lines += [(name, [write_epsilon(others.get(name)) for _, others in told]) for name in names]
    return [one.label for one, _ in told], lines if names else []


# --- beside a publication ---------------------------------------------------------------------------


def _published(training: Training, runs: Sequence[Outcome]) -> dict[str, Any] | None:
    """Lay what was printed beside ours, epoch by epoch."""
    if not training.published:
        return None
    printed = {int(told["epoch"]): told for told in training.published.get("epochs", ())}
    keys = list(dict.fromkeys(key for told in printed.values() for key in told if key != "epoch"))
    private = next((one for one in runs if one.private and one.run.history), None)
    ordinary = next((one for one in runs if not one.private and one.run.history), None)
    ours: list[tuple[str, dict[int, str]]] = []

    def add(name: str, one: Outcome | None, text: Callable[[dict[str, Any]], str]) -> None:
        column = {int(told["epoch"]): text(told) for told in one.run.history} if one else {}
        if any(text != "-" for text in column.values()):
            ours.append((name, column))

    add("loss, ordinary", ordinary, lambda told: write(told.get("loss")))
    add("loss, private", private, lambda told: write(told.get("loss")))
    if private:
        kind = str((private.run.facts.get("sampling") or {}).get("kind", "as run"))
        events, delta = events_of(private.run.facts), known(private.run.facts.get("delta")) or 0.0
        drawn = "Poisson samples" if kind == "poisson" else kind
        add(f"epsilon, {drawn}", private, lambda told: write_epsilon(known(told.get("epsilon"))))
        add(
            "epsilon, had they been shuffled",
            private,
            lambda told: write_epsilon(shuffled_epsilon(events, delta, int(told.get("step") or 0))),
        )
    epochs = sorted({*printed, *(epoch for _, column in ours for epoch in column)})
    return {
        "title": training.published.get("title", "a publication"),
        "notes": list(training.published.get("notes", ())),
        "printed": keys,
        "ours": [name for name, _ in ours],
        "whose": private.label if private else "",
        "lines": [
            (
                epoch,
                [words(printed.get(epoch, {}).get(key)) for key in keys]
                + [column.get(epoch, "-") for _, column in ours],
            )
            for epoch in epochs
        ],
    }

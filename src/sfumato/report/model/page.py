"""The page of a released model, or of one model at several epsilons: scores, curves, pictures and the accounting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sfumato.budget.events import Gaussian, PoissonSampled, Relation
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.release import Release
from sfumato.learners.training.runs import Training
from sfumato.report.model.accountings import events_of, leaves_of, other_epsilons, shuffled_epsilon
from sfumato.report.model.figures import (
    MOST_CLASSES,
    charts_of,
    confusion_matrices,
    layers_of,
    noise_of,
    recalls_of,
    roc_of,
)
from sfumato.report.model.outcome import Outcome, PrivacyCost, known, outcomes_of, write, write_epsilon
from sfumato.report.model.shapes import shapes_of
from sfumato.report.page import Page, facts_page, fill
from sfumato.report.summarise import count, share, unused_columns, words

__all__ = ["page_of", "page_of_all", "render_training", "unused_notes"]

_ACCOUNTANTS = {"pld": "the privacy loss distribution", "rdp": "Renyi privacy"}
_MOST_EVENTS = 4  # listed one by one
_FACTS = ("sampling", "noise_multiplier", "clip", "accountant", "tested on")
_SCORES = ("accuracy", "auc", "loss", "margin")


def page_of(release: Release, *, name: str, **options: Any) -> Page:
    """Return the page of one model; for a loaded model, whose folder has no curves, its facts and scores."""
    if release.training is not None:
        return Page(render_training(release.training), None)
    facts = {"model": release.method, "trained on": release.provenance.name or "data without a name"}
    facts |= {one: words(release.parameters[one]) for one in _FACTS if release.parameters.get(one) is not None}
    scores = release.certified_loss
    facts |= {f"{one} on held-out records": words(scores[one]) for one in _SCORES if scores.get(one) is not None}
    note = "The folder does not contain the curves of the training; they are in the report of the training itself."
    return facts_page(release, name, facts, note=note)


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page | None:
    """Return the page of one model at several epsilons; None for models of several trainings."""
    return Page(render_training(releases), None) if isinstance(releases, Training) else None


def render_training(training: Training, *, title: str | None = None) -> str:
    """Return an HTML page about one model trained at several epsilons.

    The page shows the released scores: noisy ones, which are part of epsilon, for private models on private data; exact
    ones for public data and for models without privacy.

    Parameters
    ----------
    training : Training
        The only input. No data is read, and from models only the curves of additive ones, which are their weights.
    title : str, optional

    Examples
    --------
    >>> from sfumato.learners import Run, Scores
    >>> scores = Scores(rows=100, loss=0.5, baseline=0.6, accuracy=0.75)
    >>> run = Run(math.inf, "epsilon-none", {}, scores, seconds=2.0)
    >>> page = render_training(Training("patients", "logistic", "disease", 400, (run,)), title="Training")
    >>> "Without privacy the accuracy is 75.0%." in page
    True
    """
    runs = outcomes_of(training)
    verdict = PrivacyCost(training, runs)
    private, of_people = [one for one in runs if one.private], training.unit == PERSON
    rows = [_row(one) for one in runs]
    return fill(
        "training.html",
        title=title or f"{training.model} on {training.data}",
        headline=verdict.headline(),
        good=verdict.good(),
        facts=verdict.facts(),
        regression=verdict.regression,
        runs=rows,
        unused=unused_notes(training),
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
        matrices=confusion_matrices(runs),
        grouped=any(len(one.run.scores.classes) > MOST_CLASSES for one in runs),
        shapes=shapes_of(training, runs),
        curves=[figure for figure in (roc_of(runs), recalls_of(runs)) if figure],
        noisy=noise_of(training.pictures),
        layers=layers_of(training.pictures, runs),
        guarantees=[(one.label, _made(one), _promise(one), one.seeded) for one in private],
        relations=list(dict.fromkeys(_relation(one) for one in private)),
        rows_per_person=training.settings.get("rows_per_person"),
        bought_rows=training.bought_rows,
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
                **(
                    {} if training.rows is None else {f"{'people' if of_people else 'rows'} to train on": training.rows}
                ),
                **training.settings,
            }.items()
        ],
    )


def unused_notes(training: Training) -> list[str]:
    """Say which columns the models could not use; models are named if they differ."""
    found = dict[str, list[str]]()
    for run in training.runs:
        if names := training.unused(run):
            why = "because they hold no values"
            if run.epsilon != math.inf:
                why = "because no value is frequent enough to stand out from the noise"
            columns = len(training.models[run.name].features_.names)
            found.setdefault(unused_columns(names, columns, why), []).append(run.label)
    return [
        note if len(labels) == len(training.runs) else f"{', '.join(labels)}: {note}" for note, labels in found.items()
    ]


def _row(one: Outcome) -> dict[str, Any]:
    """Return a run as a row of the table."""
    facts, scores = one.run.facts, one.run.scores
    sampling = facts.get("sampling") or {}
    noise = sorted(_noises(one))
    margin = f"± {write(scores.margin)}" if scores.accuracy is None else f"± {100 * scores.margin:.1f} points"
    return {
        "label": one.label,
        "spent": f"spent {write(one.spent)}" if one.private else "no bound",
        "delta": f"at delta {write(facts.get('delta'))}" if one.private else "",
        "seeded": one.seeded,
        "margin": "" if scores.how != "noisy" else margin,
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


# --- the accounting in words ----------------------------------------------------------------------


def _noises(one: Outcome) -> set[float]:
    """Return the noise multipliers of the steps; none where nothing was clipped."""
    stated = known(one.run.facts.get("noise_multiplier"))
    if not one.private or known(one.run.facts.get("clip")) is None:
        return set()
    events = (event for event, _ in leaves_of(events_of(one.run.facts)))
    noises = {
        event.event.noise_multiplier
        for event in events
        if isinstance(event, PoissonSampled) and isinstance(event.event, Gaussian)
    }
    return noises if len(noises) > 1 or not stated else {stated}


def _made(one: Outcome) -> str:
    """Describe the noisy steps of a training."""
    facts, events = one.run.facts, events_of(one.run.facts)
    sampling, clip, noise = facts.get("sampling") or {}, known(facts.get("clip")), sorted(_noises(one))
    if not (sampling.get("steps") and clip and noise):
        texts = list(map(str, events))
        more = f"; and {len(texts) - _MOST_EVENTS} more" if len(texts) > _MOST_EVENTS else ""
        text = "; then ".join(texts[:_MOST_EVENTS]) or "how noise was added is not recorded"
        return f"{text[0].upper()}{text[1:]}{more}."
    rate, of_rows = write(sampling.get("rate")), one.unit == UNIT
    record, gradient = ("record", "every record's gradient") if of_rows else ("person", "the gradient of every person")
    drawn = {
        "poisson": f"each drew every {record} independently with probability {rate} (Poisson sampling)",
        "full": f"each used all {'records' if of_rows else 'people'}",
    }.get(str(sampling.get("kind")), f"each used a batch (sampling: {sampling.get('kind')})")
    sigma = write(noise[0]) + (f" to {write(noise[-1])}" if len(noise) > 1 else "")
    return (
        f"{count(sampling['steps'], 'step')}: {drawn}; {gradient} was clipped to a norm of {write(clip)}; "
        f"Gaussian noise with a standard deviation of {sigma} clips was added to the sum."
    )


def _promise(one: Outcome) -> str:
    """State the guarantee of a private model in words."""
    facts, delta = one.run.facts, known(one.run.facts.get("delta"))
    if one.seeded:
        return (
            "Its noise came from a fixed seed: reproducible, not private. "
            "The same noise would give this epsilon if it were secret."
        )
    accountant = facts.get("accountant")
    by = f"Accounted by {_ACCOUNTANTS.get(accountant, accountant)}" if isinstance(accountant, str) else "Accounted"
    factor = math.exp(min(one.spent, 700.0))
    times = f"{factor:.3g}" if factor < 1000 else f"{float(f'{factor:.2g}'):,.0f}" if factor < 1e9 else "any number of"
    replaced = _relation_of(one) is Relation.REPLACE_ONE
    record, without = ("a record", "without it") if one.unit == UNIT else (f"a {one.unit}", "without them")
    other = "with another in its place" if replaced else without
    return (
        f"{by}: epsilon {write_epsilon(one.spent)} at delta {write(delta or 0.0)}. Any result is at most {times} times "
        f"as likely with {record} as {other}" + (f", except with probability {delta:g}." if delta else ".")
    )


def _relation_of(one: Outcome) -> Relation:
    return Relation.REPLACE_ONE if one.run.facts.get("relation") == "replace-one" else Relation.ADD_REMOVE


def _relation(one: Outcome) -> str:
    """State the neighbouring relation in words."""
    relation = _relation_of(one)
    if one.unit == PERSON:
        return (
            f"The neighbouring relation is “{relation.of_one(PERSON)}”: the table is compared with one that lacks all "
            f"rows of any one person. A row without a person counts as a person of its own."
        )
    other = "lacks any one of them" if relation is Relation.ADD_REMOVE else "has any one of them replaced by another"
    return (
        f"The neighbouring relation is “{relation.in_words}”: the table is compared with one that {other}. "
        f"The bound is weaker for a person with several records."
    )


def _together(training: Training) -> str:
    """State the cost of publishing all private models."""
    total, private = training.together, sum(run.epsilon != math.inf for run in training.runs)
    if not total or private < 2:
        return ""
    epsilon = known(total.get("epsilon"))
    if epsilon is None:
        return f"{'Both' if private == 2 else f'All {private}'} private models together have no bound."
    cost = f"epsilon {write_epsilon(epsilon)} at delta {write(total.get('delta'))}"
    return f"{'Both' if private == 2 else f'All {private}'} private models published together cost {cost}."


def _accountings(private: Sequence[Outcome]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the labels of the runs, and a row per accounting: its name and the epsilon of each run."""
    accounted = []
    for one in private:
        delta = known(one.run.facts.get("delta"))
        if others := other_epsilons(events_of(one.run.facts), delta or 0.0):
            accounted.append((one, others))
    names = list(dict.fromkeys(name for _, others in accounted for name in others))
    rows = [("As trained and accounted here", *(write_epsilon(one.spent) for one, _ in accounted))]
    rows += [(name, *(write_epsilon(others.get(name)) for _, others in accounted)) for name in names]
    return [one.label for one, _ in accounted], rows if names else []


# --- published results ------------------------------------------------------------------------------


def _published(training: Training, runs: Sequence[Outcome]) -> dict[str, Any] | None:
    """Compare published results with ours, epoch by epoch."""
    if not training.published:
        return None
    printed = {int(row["epoch"]): row for row in training.published.get("epochs", ())}
    keys = list(dict.fromkeys(key for row in printed.values() for key in row if key != "epoch"))
    private = next((one for one in runs if one.private and one.run.history), None)
    ordinary = next((one for one in runs if not one.private and one.run.history), None)
    ours: list[tuple[str, dict[int, str]]] = []

    def add(name: str, one: Outcome | None, text: Callable[[dict[str, Any]], str]) -> None:
        column = {int(row["epoch"]): text(row) for row in one.run.history} if one else {}
        if any(text != "-" for text in column.values()):
            ours.append((name, column))

    add("loss, ordinary", ordinary, lambda row: write(row.get("loss")))
    add("loss, private", private, lambda row: write(row.get("loss")))
    if private:
        kind = str((private.run.facts.get("sampling") or {}).get("kind", "as run"))
        events, delta = events_of(private.run.facts), known(private.run.facts.get("delta")) or 0.0
        drawn = "Poisson samples" if kind == "poisson" else kind
        add(f"epsilon, {drawn}", private, lambda row: write_epsilon(known(row.get("epsilon"))))
        add(
            "epsilon, if shuffled",
            private,
            lambda row: write_epsilon(shuffled_epsilon(events, delta, int(row.get("step") or 0))),
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

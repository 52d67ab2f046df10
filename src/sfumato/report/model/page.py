"""The page of a released model, or of one model at several epsilons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.data.release import Release
from sfumato.learners.training.runs import Training
from sfumato.report.model.training import render_training
from sfumato.report.page import Page, facts_page
from sfumato.report.summarise import words

__all__ = ["page_of", "page_of_all"]

_FACTS = ("sampling", "noise_multiplier", "clip", "accountant", "tested on")
_SCORES = ("accuracy", "auc", "loss", "margin")


def page_of(release: Release, *, name: str, **options: Any) -> Page:
    """Return the page of one model: how it was trained, what it cost, and how good it is."""
    return _alone(release, name) if release.training is None else Page(_page(release.training), None)


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page | None:
    """Return the page of one model at several epsilons, side by side; None if the models are of several trainings."""
    return Page(_page(releases), None) if isinstance(releases, Training) else None


def _page(training: Training) -> str:
    return render_training(training, title=f"{training.model} on {training.data}")


def _alone(release: Release, name: str) -> Page:
    """Return the page of a model that was read from a folder, which holds neither its curves nor its history."""
    facts = {"model": release.method, "trained on": release.provenance.name or "data without a name"}
    facts |= {one: words(release.parameters[one]) for one in _FACTS if release.parameters.get(one) is not None}
    scores = release.certified_loss
    facts |= {f"{one} on held-out records": words(scores[one]) for one in _SCORES if scores.get(one) is not None}
    note = "The curves of the training are in the report of whoever trained it: its folder does not hold them."
    return facts_page(release, name, facts, note=note)

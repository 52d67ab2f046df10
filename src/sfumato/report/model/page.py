"""The page of a released model, or of one model at several epsilons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.data.release import Release
from sfumato.errors import OptionError
from sfumato.learners.training.runs import Training
from sfumato.report.model.training import render_training
from sfumato.report.page import Page

__all__ = ["page_of", "page_of_all"]


def page_of(release: Release, *, name: str, **options: Any) -> Page:
    """Return the page of one model: how it was trained, what it cost, and how good it is."""
    if release.training is None:
        raise OptionError("how a model was trained is not in its folder", hint="its report.html is there already")
    return Page(_page(release.training), None)


def page_of_all(releases: Mapping[str, Release], pages: Mapping[str, Page], *, name: str) -> Page:
    """Return the page of one model at several epsilons, side by side."""
    if isinstance(releases, Training):
        return Page(_page(releases), None)
    raise OptionError("several models on one page must be those of one training", hint="save each on its own")


def _page(training: Training) -> str:
    return render_training(training, title=f"{training.model} on {training.data}")

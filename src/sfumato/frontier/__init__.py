"""Weigh what releases are good for against what they give away: `evaluate` one of them, `explore` many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.frontier.images.evaluate import evaluate_images as evaluate_images
    from sfumato.frontier.images.evaluation import ImageEvaluation as ImageEvaluation
    from sfumato.frontier.sweep.choose import Recommendation as Recommendation
    from sfumato.frontier.sweep.explore import explore as explore
    from sfumato.frontier.sweep.frontier import Frontier as Frontier
    from sfumato.frontier.tables.evaluate import Evaluation as Evaluation
    from sfumato.frontier.tables.evaluate import evaluate as evaluate

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "images.evaluate": "evaluate_images",
        "images.evaluation": "ImageEvaluation",
        "sweep.explore": "explore",
        "sweep.choose": "Recommendation",
        "sweep.frontier": "Frontier",
        "tables.evaluate": "Evaluation evaluate",
    },
)

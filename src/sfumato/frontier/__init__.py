"""Weigh what a release is good for against what it gives away: `evaluate` does both for one release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.frontier.images.evaluate import evaluate_images as evaluate_images
    from sfumato.frontier.images.evaluation import ImageEvaluation as ImageEvaluation
    from sfumato.frontier.tables.evaluate import Evaluation as Evaluation
    from sfumato.frontier.tables.evaluate import evaluate as evaluate

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "images.evaluate": "evaluate_images",
        "images.evaluation": "ImageEvaluation",
        "tables.evaluate": "Evaluation evaluate",
    },
)

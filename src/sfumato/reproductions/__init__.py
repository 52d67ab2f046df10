"""Published experiments, run again: what was printed, what we measure, and a verdict on each figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.reproductions.catalogue import experiment as experiment
    from sfumato.reproductions.catalogue import experiments as experiments
    from sfumato.reproductions.catalogue import reproduce as reproduce
    from sfumato.reproductions.values import VERDICTS as VERDICTS
    from sfumato.reproductions.values import Experiment as Experiment
    from sfumato.reproductions.values import Fact as Fact
    from sfumato.reproductions.values import Reproduction as Reproduction
    from sfumato.reproductions.values import Row as Row

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "catalogue": "experiment experiments reproduce",
        "values": "Experiment Fact Reproduction Row VERDICTS",
    },
)

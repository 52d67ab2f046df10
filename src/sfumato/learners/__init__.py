"""Private learning: models that cannot tell who they were trained on.

The names below need torch, which is only loaded when one of them is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sfumato._errors import require_extra

if TYPE_CHECKING:
    from sfumato.learners.architectures import Architecture, architecture
    from sfumato.learners.clipping import Clipper, private_step
    from sfumato.learners.descent import Adam, Sgd
    from sfumato.learners.scattering import normalized_scattering
    from sfumato.learners.steps import AdaptiveClip
    from sfumato.learners.trainer import Report, Trainer
    from sfumato.learners.vetting import check, make_private, obstacles

_HOMES = {
    "architectures": "Architecture architecture",
    "vetting": "check make_private obstacles",
    "clipping": "Clipper private_step",
    "descent": "Adam Sgd",
    "scattering": "normalized_scattering",
    "steps": "AdaptiveClip",
    "trainer": "Report Trainer",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Adam",
    "AdaptiveClip",
    "Architecture",
    "Clipper",
    "Report",
    "Sgd",
    "Trainer",
    "architecture",
    "check",
    "make_private",
    "normalized_scattering",
    "obstacles",
    "private_step",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sfumato.learners' has no attribute {name!r}")
    require_extra("torch", "torch", "private training")
    return getattr(importlib.import_module(f"sfumato.learners.{_HOME_OF[name]}"), name)

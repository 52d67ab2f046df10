"""Save, load and verify releases of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.releases.verify import Verification as Verification

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "verify": "Verification",
    },
)

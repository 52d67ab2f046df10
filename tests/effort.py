"""How much a test tries: enough to find a fault for every change, and more of the same with `make thorough`."""

from __future__ import annotations

import os

__all__ = ["THOROUGH", "effort"]

THOROUGH = "SFUMATO_THOROUGH" in os.environ


def effort(usual: int, thorough: int) -> int:
    """Return the number of examples, processes or files to try."""
    return thorough if THOROUGH else usual

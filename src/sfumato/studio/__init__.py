"""The studio: the toolkit in a browser, on this machine only, for people who do not program.

Every page translates to the Python functions; the same command and the same program stand beside each result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.studio.app import create_app as create_app
    from sfumato.studio.server import serve as serve
    from sfumato.studio.workspace import Workspace as Workspace

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "app": "create_app",
        "server": "serve",
        "workspace": "Workspace",
    },
)

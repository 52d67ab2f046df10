"""The server of the studio: on the loopback interface alone, with the address that lets one browser in."""

from __future__ import annotations

import html
import os
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path

from sfumato.data.io.files import write_owned
from sfumato.data.io.fingerprint import home
from sfumato.errors import OptionError, require_extra

__all__ = ["serve"]


def serve(
    data: str | None = None,
    *,
    table: str = "",
    port: int = 0,
    folder: str | Path | None = None,
    browser: bool = True,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run the studio until it is interrupted. Work that runs then goes on, and is found again.

    Parameters
    ----------
    data : str, optional
        A file, the address of a database, or the name of a built-in table to open at once.
    table : str
        The table of the database.
    port : int
        A free one by default.
    folder : path, optional
        The work folder; by default ``studio`` beside the ledgers. Only you can enter it.
    browser : bool
        Whether to open the browser.
    ready : callable, optional
        Called with the address when the studio answers. The address works once.
    """
    for name in ("starlette", "uvicorn", "python_multipart"):
        require_extra(name, "studio", "the studio")
    import uvicorn

    from sfumato.studio.app import create_app, open_source
    from sfumato.studio.workspace import Workspace

    os.umask(0o077)  # whatever is written is for its owner alone
    work = Path(folder) if folder is not None else home() / "studio"
    if data is not None:
        open_source(Workspace(work), data, table=table)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            raise OptionError(f"port {port} cannot be used: {error.strerror}", hint="choose another --port") from error
        app = create_app(work, port=listening.getsockname()[1])
        settings = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
        )
        server = uvicorn.Server(settings)
        listening.listen()
        if ready is not None:
            ready(app.address)
        if browser:
            webbrowser.open(_door(work, app.address).as_uri())
        server.run(sockets=[listening])


def _door(work: Path, address: str) -> Path:
    """Write a page that leads to the address: as an argument of the browser, other users could read the token."""
    door = work.absolute() / "open.html"
    write_owned(
        door,
        f'<!doctype html><title>Sfumato</title><meta http-equiv="refresh" content="0; url={html.escape(address)}">',
    )
    return door

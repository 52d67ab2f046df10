"""Start Flower's server with its control API closed: only the coordinator, who has a secret, can start runs.

Flower 1.41 serves everything at one port, and authenticates nodes only. A run carries code that nodes execute, so its
control API is guarded here: a request needs the secret in a header. What apps and executors ask is for this machine.
A holder can also ask here whether its key is registered, which Flower itself tells nobody.

    python -m sfumato.federation.flower.guard SECRET_FILE KEYS_FILE [options of flower-superlink]
"""

from __future__ import annotations

import hmac
import ipaddress
import sys
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from pathlib import Path
from typing import Any

__all__ = ["HEADER", "KNOWN", "Guard", "main", "with_secret"]

HEADER = "x-sfumato-control"
KNOWN = "/v1/fleet/sfumato-known/"
"""Followed by the digest of a key: 204 if it is registered, 404 if not."""
_FOR_NODES, _FOR_APPS = "/v1/fleet/", "/v1/runtime/"

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


class Guard:
    """Middleware that refuses all but what nodes ask, what this machine's apps ask, and what has the secret."""

    def __init__(self, app: App, secret: str, known: Collection[str] = ()) -> None:
        self.app, self.secret, self.known = app, secret.encode(), frozenset(known)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] == "http" and str(scope["path"]).startswith(KNOWN):
            status = 204 if str(scope["path"]).removeprefix(KNOWN) in self.known else 404
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
        elif scope["type"] == "lifespan" or (scope["type"] == "http" and self.admits(scope)):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            body = b"only the coordinator may use this"
            headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    def admits(self, scope: Scope) -> bool:
        """Return whether a request may pass.

        Examples
        --------
        >>> guard = Guard(None, "secret")
        >>> start = {"path": "/v1/control/start-run", "headers": [], "client": ("127.0.0.1", 5)}
        >>> guard.admits(start), guard.admits({**start, "headers": [(HEADER.encode(), b"secret")]})
        (False, True)
        >>> guard.admits({"path": "/v1/fleet/pull-messages", "headers": [], "client": ("192.0.2.7", 5)})
        True
        """
        path = str(scope["path"])
        if path.startswith(_FOR_NODES):
            return True
        if path.startswith(_FOR_APPS):
            host = (scope.get("client") or ("",))[0]
            try:
                return ipaddress.ip_address(host).is_loopback
            except ValueError:
                return False
        given = [value for name, value in scope["headers"] if name.lower() == HEADER.encode()]
        return len(given) == 1 and hmac.compare_digest(given[0], self.secret)


def with_secret(secret: str) -> None:
    """Send the secret with every control request of this process."""
    import httpx

    send = httpx.Client.send

    def guarded(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        if request.url.host in ("127.0.0.1", "localhost", "::1"):
            request.headers[HEADER] = secret
        return send(client, request, **options)

    httpx.Client.send = guarded  # type: ignore[assignment,method-assign]


def main() -> None:
    """Run ``flower-superlink`` behind the guard."""
    from flwr.superlink import extensions, main
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware

    secret = Path(sys.argv[1]).read_text(encoding="ascii")
    known = Path(sys.argv[2]).read_text(encoding="ascii").split()
    sys.argv = ["flower-superlink", *sys.argv[3:]]
    before = extensions.get_middleware
    extensions.get_middleware = lambda: (Middleware(Guard, secret=secret, known=known), *before())
    first: Any = main._get_middleware()[0].cls
    if first is not Guard:  # another version of Flower
        sys.exit("ERROR: this version of Flower cannot be guarded: install flwr 1.41")
    flower_superlink()


if __name__ == "__main__":
    main()

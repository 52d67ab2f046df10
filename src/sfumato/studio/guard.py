"""The guard in front of every page: who may ask, from where, and what a page may load.

The address that is printed holds a token that works once and is exchanged for a cookie. The cookie is bound to a secret
path, because a browser sends cookies to every port of a machine, and another user may listen on one of them.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from html import escape
from typing import Any
from urllib.parse import parse_qs

from sfumato.report.page import page_script

__all__ = ["REPORT_POLICY", "Guard"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_MOST_FORM = 4 * 2**20  # bytes of a form; only an upload is larger


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


_ANCHORS = " ".join(_hash(f"text-anchor:{place}") for place in ("start", "middle", "end"))  # of the charts
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    f"style-src-attr 'unsafe-hashes' {_ANCHORS}; img-src 'self'; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    f"sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src {_hash(page_script())}; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""The policy of a report: it is shown in a frame of its own, without an origin, and loads nothing."""
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "content-security-policy": _POLICY,
}


class Guard:
    """Let a request through to the studio only if it comes from its own pages in the browser of its owner.

    Parameters
    ----------
    app : the pages, which are mounted at `root`
    port : int
        The port that the studio listens on; a request for another host or port is refused.
    """

    def __init__(self, app: Any, *, port: int, root: str) -> None:
        self.app, self.root = app, root
        self.token: str | None = secrets.token_urlsafe(32)
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.port = port
        self._cookie = secrets.token_urlsafe(32)
        self._name = f"sfumato-{port}"

    @property
    def address(self) -> str:
        """The address to open, with the token; it works once."""
        return f"http://127.0.0.1:{self.port}{self.root}/?token={self.token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self._takes_token(scope, headers):
            await self._welcome(_guarded(send))
        elif refused := self._refusal(scope, headers):
            await _answer(_guarded(send), *refused)
        else:
            await self.app(scope, receive, _guarded(send))

    def _takes_token(self, scope: Scope, headers: dict[str, str]) -> bool:
        """Return whether the request brings the token, which then works no more."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not given or self.token is None or headers.get("host") not in self.hosts or scope["method"] != "GET":
            return False
        if scope["path"] != f"{self.root}/" or not secrets.compare_digest(given.encode(), self.token.encode()):
            return False
        self.token = None
        return True

    async def _welcome(self, send: Send) -> None:
        """Set the cookie. A page that goes on, not a redirect: with that, a strict cookie would not be sent."""
        cookie = f"{self._name}={self._cookie}; Path={self.root}/; HttpOnly; SameSite=Strict"
        text = (
            '<!doctype html><html lang="en"><head><title>Sfumato</title>'
            f'<link rel="icon" href="{self.root}/static/icon.svg">'
            f'<meta http-equiv="refresh" content="0; url={self.root}/"></head>'
            f'<body><a href="{self.root}/">Open the studio</a></body></html>'
        )
        await _answer(send, 200, text, [(b"set-cookie", cookie.encode())], as_html=True)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """Return the status and the reason for which a request is refused; None if it is let through."""
        host = headers.get("host", "")
        if host not in self.hosts:
            return 421, "The studio answers only on its own address."
        given = _cookies(headers.get("cookie", "")).get(self._name, "")
        inside = scope["path"].startswith(f"{self.root}/")
        if not inside or not secrets.compare_digest(given.encode(), self._cookie.encode()):
            return 403, "Open the address that 'sfumato studio' printed when it started. It works once, in one browser."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "The studio does not answer other pages."
        if scope["method"] in ("GET", "HEAD"):
            return None
        if scope["method"] != "POST":
            return 405, "The studio does not know this method."
        if headers.get("origin") != f"http://{host}":
            return 403, "Changes are made from the pages of the studio alone."
        size = headers.get("content-length", "")
        if scope["path"] != f"{self.root}/upload" and not (size.isdigit() and int(size) <= _MOST_FORM):
            return 413, "The form is too large."
        return None


def _cookies(header: str) -> dict[str, str]:
    parts = (part.strip().partition("=") for part in header.split(";"))
    return {name: value for name, _, value in parts}


def _guarded(send: Send) -> Send:
    """Return a function that sends an answer with the headers that every answer has."""

    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message.get("headers", ())}
            missing = ((key.encode(), value.encode()) for key, value in _HEADERS.items() if key.encode() not in own)
            message = {**message, "headers": [*message.get("headers", ()), *missing]}
        await send(message)

    return guarded


async def _answer(
    send: Send, status: int, text: str, more: list[tuple[bytes, bytes]] | None = None, *, as_html: bool = False
) -> None:
    if not as_html:
        text = f'<!doctype html><html lang="en"><head><title>Sfumato</title></head><body>{escape(text)}</body></html>'
    headers = [(b"content-type", b"text/html; charset=utf-8"), *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})

"""A browser without a window: it asks the studio directly, and keeps its cookie."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from sfumato.studio import create_app

PORT = 8765
ORIGIN = f"http://127.0.0.1:{PORT}"


class Browser:
    """Asks the pages of a studio."""

    def __init__(self, folder: Path) -> None:
        self.app = create_app(folder, port=PORT)
        self.root = self.app.root
        self.cookies = httpx.Cookies()

    def enter(self) -> httpx.Response:
        """Exchange the token for the cookie."""
        return self.ask("GET", self.app.address.removeprefix(ORIGIN + self.root))

    def ask(
        self,
        method: str,
        place: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: AsyncIterator[bytes] | bytes | None = None,
        data: Mapping[str, Any] | None = None,
        files: Any = None,
    ) -> httpx.Response:
        """Send a request, and return its answer; redirects are not followed."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, cookies=self.cookies) as client:
                own = {"origin": ORIGIN} if method == "POST" else {}
                sent = {"headers": {**own, **(headers or {})}, "content": content, "data": data, "files": files}
                answer = await client.request(method, self.root + place, **sent)
                self.cookies.update(client.cookies)
                return answer

        return asyncio.run(send())

    def get(self, place: str, **options: Any) -> httpx.Response:
        return self.ask("GET", place, **options)

    def post(self, place: str, **options: Any) -> httpx.Response:
        options.setdefault("data", {"": ""} if "files" not in options and "content" not in options else None)
        return self.ask("POST", place, **options)

    def open(self, path: Path | str, **data: str) -> str:
        """Open a table and wait for its columns; return the address of the project."""
        answer = self.post("/open", data={"path": str(path), **data})
        assert answer.status_code == 303, answer.text
        place = answer.headers["location"].removeprefix(self.root).removesuffix("/columns")
        self.wait(f"{place}/columns")
        return place

    def wait(self, place: str, seconds: float = 120) -> str:
        """Return the page once nothing runs on it any more."""
        end = time.monotonic() + seconds
        while 'id="work"' in (page := self.get(place).text):
            assert time.monotonic() < end, "the work takes too long"
            time.sleep(0.1)
        return page

    def run(self, place: str, **data: Any) -> str:
        """Send a form that starts work, and return the page when it is done."""
        answer = self.post(place, data=data)
        assert answer.status_code == 303, re.sub("<[^>]*>", " ", answer.text)
        return self.wait(answer.headers["location"].removeprefix(self.root))

"""Flower's control API is open to the coordinator alone."""

from __future__ import annotations

import asyncio

import pytest

from sfumato.federation.flower.guard import HEADER, Guard

SECRET = "0123abcd"
HERE, THERE = ("127.0.0.1", 4000), ("192.0.2.7", 4000)


def status_of(path: str, headers=(), client=HERE, kind="http") -> int:
    """Return the status of a request behind the guard; the app itself answers 200."""
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        sent.append(message)

    scope = {"type": kind, "path": path, "headers": list(headers), "client": client}
    asyncio.run(Guard(app, SECRET)(scope, None, send))
    return sent[0]["status"] if sent else 0


def given(secret: str) -> tuple[bytes, bytes]:
    return HEADER.encode(), secret.encode()


@pytest.mark.parametrize("path", ["/v1/control/start-run", "/v1/control/register-node", "/docs", "/openapi.json", "/"])
def test_only_the_secret_opens_what_is_not_for_nodes(path):
    assert status_of(path) == 403
    assert status_of(path, [given("0123abce")]) == 403
    assert status_of(path, [given(SECRET), given("other")]) == 403
    assert status_of(path, [given(SECRET)]) == 200


@pytest.mark.parametrize("path", ["//v1/fleet/", "/v1/fleet", "/v1/../v1/control/start-run", "/v1/control/../fleet/x"])
def test_a_path_that_only_looks_like_one_for_nodes_is_refused(path):
    assert status_of(path, client=THERE) == 403


def test_nodes_reach_what_is_for_them_and_apps_only_from_this_machine():
    assert status_of("/v1/fleet/pull-messages", client=THERE) == 200
    assert status_of("/v1/runtime/claim-task", client=HERE) == 200
    assert status_of("/v1/runtime/claim-task", client=THERE) == 403
    assert status_of("/v1/runtime/claim-task", client=None) == 403


def test_a_websocket_is_not_served():
    assert status_of("/v1/control/start-run", [given(SECRET)], kind="websocket") == 0

"""A holder learns at once, and in one sentence, why the server will not take it."""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sfumato.errors import FileError, OptionError, ProtocolError
from sfumato.federation.flower import keys
from sfumato.federation.flower.guard import Guard
from sfumato.federation.flower.processes import free_port
from sfumato.federation.flower.server import coordinate


@contextmanager
def serving(folder: Path, known=(), clock=timedelta(0), **certificate):
    """Serve the guard over TLS, with the server's clock set otherwise."""
    authority = keys.make_authority(folder / "server", **certificate)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            sent = []

            async def send(message):
                sent.append(message)

            scope = {"type": "http", "path": self.path, "headers": [], "client": ("127.0.0.1", 1)}
            asyncio.run(Guard(None, "secret", known)(scope, None, send))
            self.send_response_only(sent[0]["status"])
            self.send_header("Date", format_datetime(datetime.now(UTC) + clock, usegmt=True))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    class Quiet(HTTPServer):
        def handle_error(self, request, client_address):
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server" / "server.pem", folder / "server" / "server.key")
    with Quiet(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", authority
        finally:
            server.shutdown()
            thread.join()


def test_a_registered_key_is_known_and_another_one_refused_at_once(tmp_path):
    own, other = keys.make_node_key(tmp_path / "north"), keys.make_node_key(tmp_path / "south")
    with serving(tmp_path, [keys.digest_of(own)]) as (address, authority):
        keys.check_known(address, authority, own, "north")
        with pytest.raises(ProtocolError, match="does not accept the key of party 'south'"):
            keys.check_known(address, authority, other, "south")


@pytest.mark.parametrize(("hours", "says"), [(1, "behind"), (-1, "ahead of")])
def test_a_clock_that_is_off_is_said(hours, says, tmp_path):
    own = keys.make_node_key(tmp_path / "north")
    with (
        serving(tmp_path, [keys.digest_of(own)], timedelta(hours=hours)) as (address, authority),
        pytest.raises(ProtocolError, match=rf"seconds {says} that of the server"),
    ):
        keys.check_known(address, authority, own, "north")


def test_an_expired_certificate_is_refused_by_both_sides(tmp_path):
    past = datetime.now(UTC) - timedelta(days=30)
    with serving(tmp_path, days=1, start=past) as (address, authority):
        with pytest.raises(FileError, match="expired on"):
            keys.check_server(address, authority)
        valid = keys.make_authority(tmp_path / "another")
        with pytest.raises(ProtocolError, match=r"was not signed by this authority|has expired"):
            keys.check_server(address, valid)
    own = keys.make_node_key(tmp_path / "north")
    with (
        pytest.raises(FileError, match="expired on"),
        coordinate(tmp_path / "server", {"north": own}, address=f"127.0.0.1:{free_port()}"),
    ):
        pass


def test_a_port_in_use_is_said_before_anything_is_started(tmp_path):
    own = keys.make_node_key(tmp_path / "north")
    with (
        serving(tmp_path) as (address, _),
        pytest.raises(OptionError, match="is in use"),
        coordinate(tmp_path / "server", {"north": own}, address=address),
    ):
        pass

"""Blocks of bytes over a Unix socket: how Flower's short-lived app processes reach the long-lived ones of Sfumato.

A frame is a length (8 bytes) and that many bytes. The standard library is all that this module needs: Flower starts a
process per message, and whatever it imports is paid for every time.
"""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["PIECE", "connect", "join_pieces", "listen", "pieces", "receive", "receive_json", "send", "send_json"]

PIECE = 16 * 2**20
"""Bytes that travel as one piece; longer messages are split."""

_MOST = 2**40


@contextmanager
def listen() -> Iterator[tuple[socket.socket, Path]]:
    """Listen at a socket that only this user can reach: mode 0600, in a folder of mode 0700 that is removed at the end.

    Examples
    --------
    >>> with listen() as (server, path), connect(path) as one:
    ...     other, _ = server.accept()
    ...     with other:
    ...         send(one, b"hello")
    ...         receive(other)
    bytearray(b'hello')
    """
    folder = Path(tempfile.mkdtemp(prefix="sfumato-"))  # mode 0700; short, since a socket's path may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as server:
            path = folder / "socket"
            server.bind(str(path))
            path.chmod(0o600)
            server.listen()
            yield server, path
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def connect(path: Path | str) -> socket.socket:
    """Connect to such a socket."""
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(str(path))
    except OSError:
        client.close()
        raise
    return client


def send(to: socket.socket, data: bytes | bytearray | memoryview) -> None:
    """Send one frame."""
    to.sendall(len(data).to_bytes(8))
    to.sendall(data)


def receive(of: socket.socket) -> bytearray:
    """Receive one frame; an `EOFError` if the other side has gone."""
    size = int.from_bytes(_exactly(of, 8))
    if size > _MOST:
        raise EOFError("frame")
    return _exactly(of, size)


def send_json(to: socket.socket, value: Any) -> None:
    """Send a plain value as one frame."""
    send(to, json.dumps(value).encode())


def receive_json(of: socket.socket) -> Any:
    """Receive a plain value."""
    return json.loads(receive(of))


def pieces(data: bytes | bytearray | memoryview) -> list[bytes]:
    """Split bytes into pieces of at most `PIECE` bytes.

    Examples
    --------
    >>> [len(one) for one in pieces(bytes(2 * PIECE + 3))] == [PIECE, PIECE, 3]
    True
    """
    view = memoryview(data)
    return [bytes(view[at : at + PIECE]) for at in range(0, max(len(view), 1), PIECE)]


def join_pieces(parts: list[bytes]) -> bytes:
    """Put pieces together."""
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _exactly(of: socket.socket, size: int) -> bytearray:
    data = bytearray()  # grows with what arrives, never ahead of it
    while len(data) < size:
        part = of.recv(min(size - len(data), 2**20))
        if not part:
            raise EOFError("the other side closed the connection")
        data += part
    return data

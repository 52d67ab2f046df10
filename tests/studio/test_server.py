"""The real server, from outside: another user of the machine, a large upload, and what it needs to start."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.effort import effort
from tests.studio.conftest import stop_all

linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
ASK = """
import os, sys, urllib.error, urllib.request
"x".encode("idna")  # it imports what another user may not read
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for address in sys.argv[1:3]:
    try:
        print(urllib.request.urlopen(address).status)
    except urllib.error.HTTPError as error:
        print(error.code)
for path in sys.argv[3:]:
    try:
        print(os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1))
    except PermissionError:
        print("denied")
"""


class Server(NamedTuple):
    """A studio that runs, and what it printed."""

    process: subprocess.Popen[bytes]
    address: str
    folder: Path

    def ask(self, method: str, place: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Send a request, and return the status and the cookie of the answer."""
        parts = urllib.parse.urlsplit(self.address)
        with closing(http.client.HTTPConnection(parts.netloc)) as connection:
            connection.request(method, parts.path.rstrip("/") + place, body, headers, encode_chunked=body is not None)
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.headers.get("set-cookie", "").partition(";")[0]

    def enter(self) -> dict[str, str]:
        """Exchange the token for the cookie, and return the headers of a page of the studio."""
        parts = urllib.parse.urlsplit(self.address)
        _, cookie = self.ask("GET", f"/?{parts.query}")
        return {"Cookie": cookie, "Origin": f"http://{parts.netloc}"}

    @property
    def largest(self) -> float:
        """The most memory that the server ever had, in MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


@pytest.fixture
def server() -> Iterator[Server]:
    """A studio whose folder is in one that everybody may enter."""
    with tempfile.TemporaryDirectory() as around:
        Path(around).chmod(0o755)
        yield from started(Path(around) / "work")


def started(folder: Path) -> Iterator[Server]:
    command = [sys.executable, "-m", "sfumato", "studio", "--no-browser", "--json", "--folder", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        yield Server(process, json.loads(process.stdout.readline())["address"], folder)
        stop_all(folder)
        process.terminate()


@linux
def test_the_server_is_small_and_listens_on_the_loopback_interface_alone(server: Server) -> None:
    status, _ = server.ask("GET", "/", **server.enter())
    assert status == 200
    assert server.largest < 150
    port = f"{urllib.parse.urlsplit(server.address).port:04X}"
    listening = [
        line.split()[1]
        for kind in ("tcp", "tcp6")
        for line in Path("/proc/net", kind).read_text(encoding="utf-8").splitlines()[1:]
        if line.split()[1].endswith(f":{port}") and line.split()[3] == "0A"
    ]
    assert listening == [f"0100007F:{port}"]


@linux
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be another user")
def test_another_user_of_the_machine_is_refused(server: Server) -> None:
    server.enter()
    home = server.address.partition("?")[0]
    ran = subprocess.run(
        [sys.executable, "-c", ASK, server.address, home, str(server.folder), str(server.folder / "projects")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.split() == ["403", "403", "denied", "denied"], ran.stderr
    shown = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()  # everybody may read it
    assert server.address.partition("token=")[2].encode() not in shown


@linux
def test_an_upload_of_any_size_leaves_the_memory_of_the_server_flat(server: Server) -> None:
    megabytes = effort(48, 5 * 1024)
    headers = server.enter()
    server.ask("GET", "/", **headers)
    before = server.largest

    def body() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="big.csv"\r\n\r\nage\n'
        for _ in range(megabytes):
            yield b"12345678\n" * (2**20 // 9)
        yield b"\r\n--b--\r\n"

    kind = {"Content-Type": "multipart/form-data; boundary=b", "Transfer-Encoding": "chunked"}
    try:
        status, _ = server.ask("POST", "/upload", body(), **headers, **kind)
        assert status == (400 if megabytes > 4096 else 303)
    except (BrokenPipeError, ConnectionResetError):  # it does not read on after it has refused
        assert megabytes > 4096
    assert server.largest - before < 24
    assert not list((server.folder / "uploads").iterdir())

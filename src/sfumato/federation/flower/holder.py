"""A data holder's process: it keeps the data and the secrets, and answers what its Flower node receives.

It lives as long as the node, so that a party's state outlasts a message: Flower's own client processes do not.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sfumato.errors import FileError, OptionError, ProtocolError, SfumatoError
from sfumato.federation.channel import Party
from sfumato.federation.flower import frames, keys
from sfumato.federation.flower.processes import free_port, last_line, require_flower, start
from sfumato.federation.wire import decode, encode

__all__ = ["answer", "join", "load_factory"]

_RESTART = 90.0  # Flower believes that a lost node is online for about 35 seconds, and refuses its return until then
_READY = "ready"


def load_factory(where: str) -> Any:
    """Import ``"package.module:function"``.

    Examples
    --------
    >>> load_factory("json:dumps")([1])
    '[1]'
    """
    module, _, name = where.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"'{where}' cannot be imported", hint="write MODULE:FUNCTION") from error


def answer(party: Party, data: bytes) -> bytes:
    """Return a party's reply to a request as bytes.

    Examples
    --------
    >>> party = Party("north", {"double": lambda request: {"value": 2 * request["value"]}})
    >>> decode(answer(party, encode({"exchange": "7", "request": {"kind": "double", "value": 4}})))
    {'exchange': '7', 'reply': {'value': 8}}
    """
    try:
        request = decode(data)
        number, asked = request["exchange"], request["request"]
        if not isinstance(number, str) or not isinstance(asked, dict):
            raise ProtocolError(f"party '{party.name}' received a request that it cannot read")
    except (ProtocolError, KeyError):
        return encode({"exchange": "", "reply": {"error": f"party '{party.name}' received a request it cannot read"}})
    try:
        return encode({"exchange": number, "reply": party.answer(asked)})
    except SfumatoError as error:
        return encode({"exchange": number, "reply": {"error": str(error)}})


def join(
    name: str,
    folder: Path,
    factory: str,
    arguments: Mapping[str, Any],
    *,
    server: str,
    authority: Path,
    progress: Callable[[str], object] = lambda _: None,
) -> None:
    """Take part as a data holder until this process ends.

    Parameters
    ----------
    name : the party's name
    folder : private to this party: its node key (see `make_node_key`), its logs, and whatever the party keeps
    factory : ``"package.module:function"``; called with the name, the folder and the arguments, it returns the `Party`
    arguments : keyword arguments of the factory
    server : HOST:PORT of the coordinator
    authority : the coordinator's ca.pem
    progress : receives a line once the server has accepted this party
    """
    require_flower()
    folder = folder.absolute()
    if not (folder / "node.key").exists():
        raise FileError(f"'{folder / 'node.key'}' is missing", hint="make it with the command 'key'")
    keys.check_certificate(authority)
    party = load_factory(factory)(name, folder, **arguments)
    home = Path(tempfile.mkdtemp(prefix="sfumato-node-"))
    try:
        with frames.listen() as (listening, path):
            listening.settimeout(0.5)
            node = _Node(name, folder, home, server, authority.absolute(), path)
            node.connect()
            progress(f"party '{name}' takes part in the federation of {server}; stop it with Ctrl-C")
            while True:
                with contextlib.suppress(TimeoutError):
                    _answer_one(listening, party)
                node.watch()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _answer_one(listening: socket.socket, party: Party) -> None:
    client, _ = listening.accept()
    with client, contextlib.suppress(EOFError, OSError):
        client.settimeout(600.0)
        frames.send(client, answer(party, bytes(frames.receive(client))))


class _Node:
    """The SuperNode of a party and its executor: started, watched, and started again while Flower refuses it."""

    def __init__(self, name: str, folder: Path, home: Path, server: str, authority: Path, path: Path) -> None:
        self.name, self.folder, self.home, self.server, self.authority = name, folder, home, server, authority
        self.path, self.log = path, folder / "supernode.log"
        self.secret, self.begun = home / "secret", time.monotonic()
        self.processes: list[subprocess.Popen[bytes]] = []

    def connect(self) -> None:
        """Check the server's certificate, then start the node; a server that is not up yet is tried for 90 seconds."""
        while True:
            try:
                keys.check_server(self.server, self.authority)
                keys.check_known(self.server, self.authority, keys.make_node_key(self.folder), self.name)
                break
            except OSError as error:
                if time.monotonic() - self.begun > _RESTART:
                    raise ProtocolError(
                        f"the server at {self.server} cannot be reached", hint=error.strerror or str(error)
                    ) from error
                time.sleep(0.5)
        with os.fdopen(os.open(self.secret, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(secrets.token_bytes(32))
        self.begun = time.monotonic()
        self._start()

    def _start(self) -> None:
        for one in self.processes:
            with contextlib.suppress(ProcessLookupError):
                one.kill()
            one.wait()
        local = f"127.0.0.1:{free_port()}"
        guarded = ["--superexec-auth-secret-file", str(self.secret)]
        node = ["flower-supernode", "--superlink", self.server, "--root-certificates", str(self.authority)]
        node += ["--auth-supernode-private-key", str(self.folder / "node.key"), "--isolation", "process"]
        node += ["--host", "127.0.0.1", "--port", local.rpartition(":")[2], "--node-config", f'socket="{self.path}"']
        executor = ["flower-superexec", "--runtime-api-address", local, "--insecure"]
        self.log.unlink(missing_ok=True)
        self.processes = [start([*node, *guarded], self.log, self.home, own_group=False)]
        log = self.folder / "superexec.log"
        log.unlink(missing_ok=True)
        self.processes.append(start([*executor, *guarded], log, self.home, own_group=False))

    def watch(self) -> None:
        """Start the node again if it has ended, for 90 seconds from its last start; then say why it does not stay."""
        if all(one.poll() is None for one in self.processes):
            return
        said = self.log.read_text(errors="replace") if self.log.exists() else ""
        if "already" not in said.lower() and "Received successfully" not in said and _unknown(said):
            raise ProtocolError(
                f"the server does not accept the key of party '{self.name}'",
                hint="give the coordinator this folder's node.pub",
            )
        if time.monotonic() - self.begun > _RESTART and "SuperNode ID" not in said:
            raise ProtocolError(f"the node of party '{self.name}' ended", hint=last_line(self.log))
        if "SuperNode ID" in said:
            self.begun = time.monotonic()
        time.sleep(3.0)
        self._start()


def _unknown(said: str) -> bool:
    return any(
        one in said.lower() for one in ("unauthenticated", "permission_denied", "not registered", "unauthorized")
    )

"""The coordinator's side: a SuperLink with TLS and node authentication, a run on it, and a channel through that run.

What Flower 1.41 does not protect:

- Its control API, by which runs are started and nodes registered, has no users. A run carries code, which the nodes of
  the data holders execute. So the server runs behind a `Guard`: only this process has the secret that opens it. A
  holder still executes what the coordinator sends: take part only with a coordinator whom you trust with that.
- A node signs the time of a request, not its content: TLS protects the content, and the coordinator's machine sees it.
- Flower passes the token of a task to its app on the command line, where other users of the same machine can read it.
  Give data holders and coordinator machines, or containers, of their own.

Flower sends its app, two lines that call this package, to every data holder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path

from sfumato.errors import OptionError, ProtocolError
from sfumato.federation.flower import frames, keys
from sfumato.federation.flower.channel import FlowerChannel
from sfumato.federation.flower.processes import control, last_line, require_flower, start, stop, wait_for

__all__ = ["coordinate"]


@contextlib.contextmanager
def coordinate(
    folder: Path, parties: Mapping[str, Path], *, address: str, listen: str | None = None, seconds: float = 300.0
) -> Iterator[FlowerChannel]:
    """Start the server for these data holders, and yield a channel to them; whatever was started ends with the block.

    Parameters
    ----------
    folder : holds ca.pem, server.pem and server.key (see `make_authority`); logs and Flower's files are put here
    parties : the public key of every data holder, by its name
    address : HOST:PORT by which they reach this server
    listen : the address to listen at; that of ``address`` by default, all for another host's name
    seconds : how long the start may take
    """
    require_flower()
    host, port = keys.split_address(address)
    folder = folder.absolute()
    for name in ("ca.pem", "server.pem"):
        keys.check_certificate(folder / name)
    for one in parties.values():
        keys.public_key_file(one)
    own = listen or ("127.0.0.1" if host in ("localhost", "127.0.0.1") else "0.0.0.0")  # noqa: S104 - others connect
    _refuse_used_port(own, port)
    home = folder / "flower"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700, parents=True)
    with contextlib.ExitStack() as stack:
        local = f"{'127.0.0.1' if own == '0.0.0.0' else own}:{port}"  # noqa: S104
        control_secret = secrets.token_hex(32)
        _write_secret(home / "control", control_secret.encode())
        (home / "known").write_text("\n".join(keys.digest_of(one) for one in parties.values()), encoding="ascii")
        link = _start_server(stack, folder, home, own, port, local, seconds)
        server, path = stack.enter_context(frames.listen())
        nodes = _register(home, folder, local, parties, control_secret, seconds)
        _run(home, path, control_secret, seconds)
        server.settimeout(1.0)
        yield FlowerChannel(stack.enter_context(_accept(server, link, folder / "superlink.log", seconds)), nodes)


def _start_server(
    stack: contextlib.ExitStack, folder: Path, home: Path, own: str, port: int, local: str, seconds: float
) -> subprocess.Popen[bytes]:
    secret, log = home / "secret", folder / "superlink.log"
    _write_secret(secret, secrets.token_bytes(32))
    tls = ["--ssl-ca-certfile", str(folder / "ca.pem"), "--ssl-certfile", str(folder / "server.pem")]
    tls += ["--ssl-keyfile", str(folder / "server.key")]
    guarded = ["--superexec-auth-secret-file", str(secret)]
    place = ["--host", own, "--port", str(port), "--isolation", "process", "--disable-runtime-dependency-installation"]
    log.unlink(missing_ok=True)
    guard = [sys.executable, "-m", "sfumato.federation.flower.guard", str(home / "control"), str(home / "known")]
    link = start([*guard, *tls, *place, *guarded, "--enable-supernode-auth"], log, home)
    stack.callback(stop, link)
    wait_for(link, log, "the server", *keys.split_address(local), seconds)
    executor = ["flower-superexec", "--runtime-api-address", local, "--root-certificates", str(folder / "ca.pem")]
    stack.callback(stop, start([*executor, *guarded], folder / "superexec.log", home))
    return link


def _write_secret(path: Path, secret: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)


def _register(
    home: Path, folder: Path, local: str, parties: Mapping[str, Path], secret: str, seconds: float
) -> dict[str, int]:
    lines = ["[superlink]", 'default = "here"', "[superlink.here]", f'address = "{local}"']
    (home / "config.toml").write_text("\n".join([*lines, f'root-certificates = "{folder / "ca.pem"}"', ""]))
    orders = [["supernode", "register", str(one.absolute()), "here", "--name", name] for name, one in parties.items()]
    reports = control(orders, home, secret, timeout=seconds) if orders else []
    return {name: int(str(one["node-id"])) for name, one in zip(parties, reports, strict=True)}


def _run(home: Path, path: Path, secret: str, seconds: float) -> None:
    app = home / "app"
    (app / "sfumato_relay").mkdir(parents=True)
    source = resources.files("sfumato.federation.flower")
    (app / "pyproject.toml").write_text((source / "app.toml").read_text())
    (app / "sfumato_relay" / "__init__.py").write_text('"""Forwards bytes to Sfumato."""\n')
    for one in ("client_app", "server_app"):
        (app / "sfumato_relay" / f"{one}.py").write_text(
            f"from sfumato.federation.flower.relay import {one}\n\napp = {one}\n"
        )
    control([["run", str(app), "here", "--run-config", f'socket="{path}"']], home, secret, timeout=seconds)


@contextlib.contextmanager
def _accept(server: socket.socket, link: subprocess.Popen[bytes], log: Path, seconds: float) -> Iterator[socket.socket]:
    end = time.monotonic() + seconds
    while True:
        try:
            one, _ = server.accept()
            break
        except TimeoutError:
            if link.poll() is not None:
                raise ProtocolError("the server has ended", hint=last_line(log)) from None
            if time.monotonic() > end:
                said = last_line(log.with_name("superexec.log"))
                raise ProtocolError("Flower did not start the run", hint=said) from None
    one.settimeout(None)
    with one:
        yield one


def _refuse_used_port(host: str, port: int) -> None:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError as error:
            reason = "is in use" if error.errno == 98 else f"cannot be used: {error.strerror}"
            raise OptionError(f"port {port} of {host} {reason}", hint="choose another one") from error

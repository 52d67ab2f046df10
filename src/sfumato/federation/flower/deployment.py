"""A whole deployment on one machine, for trying out: real processes, TLS and node authentication over loopback."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfumato.errors import OptionError, ProtocolError
from sfumato.federation.flower import keys
from sfumato.federation.flower.channel import FlowerChannel
from sfumato.federation.flower.processes import free_port, last_line, start, stop
from sfumato.federation.flower.server import coordinate

__all__ = ["Deployment", "Holder", "deploy", "host_commands"]

_PROGRAM = "python -m sfumato.federation.flower"


@dataclass(frozen=True)
class Holder:
    """How a party's process makes its `Party`: an importable function, and its keyword arguments as JSON values.

    Examples
    --------
    >>> Holder("hospital.party:make", {"table": "patients.csv"}).arguments["table"]
    'patients.csv'
    """

    factory: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Deployment:
    """Parties as processes of this machine; see `deploy`.

    Attributes
    ----------
    channel : the coordinator's connection to the parties
    processes : the process of each party, by name
    """

    def __init__(self, folder: Path, holders: Mapping[str, Holder], address: str, scratch: Path) -> None:
        self.folder, self.holders, self.address, self._scratch = folder, holders, address, scratch
        self.channel: FlowerChannel
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a party's process, also again after it has died. Flower takes up to 40 seconds to let it return."""
        if name in self.processes:
            stop(self.processes[name], seconds=1.0)
        holder, home = self.holders[name], self.folder / name
        options = home / "arguments.json"
        with os.fdopen(os.open(options, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(dict(holder.arguments), file)
        command = [sys.executable, "-m", "sfumato.federation.flower", "join", "--name", name, "--folder", str(home)]
        command += ["--server", self.address, "--ca", str(self.folder / "server" / "ca.pem")]
        command += ["--party", holder.factory, "--arguments", str(options)]
        log = home / "party.log"
        log.unlink(missing_ok=True)
        self.processes[name] = start(command, log, home / "flower", scratch=self._scratch)

    def stop(self) -> None:
        """End the process of every party, and all that it has started."""
        for one in self.processes.values():
            stop(one)

    def wait(self, seconds: float = 180.0) -> None:
        """Wait until every party is online; a party whose process has ended is an error with its last line."""
        end = time.monotonic() + seconds
        while absent := sorted(set(self.channel.names) - set(self.channel.online())):
            for name, process in self.processes.items():
                if process.poll() is not None:
                    said = last_line(self.folder / name / "party.log")
                    raise ProtocolError(f"the process of party '{name}' has ended", hint=said)
            if time.monotonic() > end:
                said = last_line(self.folder / absent[0] / "supernode.log")
                raise ProtocolError(f"party '{absent[0]}' did not come online within {seconds:.0f} seconds", hint=said)
            time.sleep(0.2)


@contextlib.contextmanager
def deploy(
    parties: Mapping[str, Holder],
    folder: Path,
    *,
    port: int | None = None,
    seconds: float = 180.0,
    progress: Callable[[str], object] = lambda _: None,
) -> Iterator[Deployment]:
    """Start a server and a process per party on this machine, over loopback with TLS and node authentication.

    Everything that was started ends with the block, and also if this process is killed. Starting again in the same
    folder keeps the parties' keys and folders; all else is new.

    Parameters
    ----------
    parties : how to make each party, by name
    folder : its logs, keys and a folder per party go here
    port : the server's port; a free one by default
    seconds : how long the start may take
    progress : receives a line on each step

    Examples
    --------
    >>> holders = {"north": Holder("hospital.party:make"), "south": Holder("hospital.party:make")}
    >>> with deploy(holders, Path("run")) as deployment:  # doctest: +SKIP
    ...     replies = deployment.channel.ask_all({"kind": "count"}, timeout=120)
    """
    for name in parties:
        if not name.replace("-", "").replace("_", "").isalnum() or name == "server" or len(name) > 40:
            raise OptionError(f"a party's name must be letters, digits, - and _, and not 'server', got '{name[:60]}'")
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    public = {}
    for name in parties:
        (folder / name).mkdir(exist_ok=True, mode=0o700)
        public[name] = keys.make_node_key(folder / name)
    keys.make_authority(folder / "server", days=7)
    progress("starting the server")
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sfumato-", ignore_cleanup_errors=True)))
        deployment = Deployment(folder, parties, f"127.0.0.1:{port or free_port()}", scratch)
        deployment.channel = stack.enter_context(
            coordinate(folder / "server", public, address=deployment.address, seconds=seconds)
        )
        stack.callback(deployment.stop)
        for name in parties:
            deployment.start(name)
        progress(f"waiting for {len(parties)} parties")
        deployment.wait(seconds)
        progress("all parties are online")
        yield deployment


def host_commands(names: Iterable[str], *, address: str, party: str, main: str = "MODULE:FUNCTION") -> str:
    """Return the commands for real hosts, in the order in which they are run, each under the machine that runs it.

    Examples
    --------
    >>> print(host_commands(["north"], address="fed.example.org:9092", party="hospital.party:make"))
    # 1. coordinator: make the certificates, and give server/ca.pem to every data holder
    python -m sfumato.federation.flower authority --folder server --address fed.example.org:9092
    # 2. north: make its key, and give north/node.pub to the coordinator as north.pub
    python -m sfumato.federation.flower key --folder north
    # 3. coordinator: register the keys, start the server and run
    python -m sfumato.federation.flower coordinate --folder server --address fed.example.org:9092 --main MODULE:FUNCTION --key north=north.pub
    # 4. north: take part (north.json has the arguments of the party)
    python -m sfumato.federation.flower join --name north --folder north --server fed.example.org:9092 --ca ca.pem --party hospital.party:make --arguments north.json
    """  # noqa: E501
    keys.split_address(address)
    all_names, where = list(names), shlex.quote(address)
    lines = [
        "# 1. coordinator: make the certificates, and give server/ca.pem to every data holder",
        f"{_PROGRAM} authority --folder server --address {where}",
    ]
    for name in all_names:
        lines += [f"# 2. {name}: make its key, and give {name}/node.pub to the coordinator as {name}.pub"]
        lines += [f"{_PROGRAM} key --folder {shlex.quote(name)}"]
    given = " ".join(f"--key {shlex.quote(f'{name}={name}.pub')}" for name in all_names)
    lines += ["# 3. coordinator: register the keys, start the server and run"]
    lines += [f"{_PROGRAM} coordinate --folder server --address {where} --main {shlex.quote(main)} {given}"]
    for name in all_names:
        one = shlex.quote(name)
        lines += [f"# 4. {name}: take part ({name}.json has the arguments of the party)"]
        lines += [
            f"{_PROGRAM} join --name {one} --folder {one} --server {where} --ca ca.pem "
            f"--party {shlex.quote(party)} --arguments {one}.json"
        ]
    return "\n".join(lines)

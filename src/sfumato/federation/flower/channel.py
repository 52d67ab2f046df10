"""A channel to data holders over Flower: requests out by its grid, replies back, in pieces where they are long."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Mapping
from typing import Any

from sfumato.errors import ProtocolError
from sfumato.federation.channel import Channel, Replies
from sfumato.federation.flower import frames
from sfumato.federation.wire import Message, decode, encode

__all__ = ["FlowerChannel"]

_EXCHANGE = "exchange"
_LEAST = 300.0  # seconds, unless set: Flower starts a process for a request, in six seconds if the machine is idle
_LOOK = 5.0  # how often to look whether the parties that have not answered are still online
_GONE = 60.0  # how long a party must be offline: a node on a busy machine is late with its heartbeats
_GRACE = 60.0  # how much longer than anybody waits Flower keeps a request


class FlowerChannel(Channel):
    """The coordinator's connection to data holders through a run of Flower (see `coordinate` and `deploy`).

    Every request has a fresh number that its reply must repeat. A reply to a request that nobody waits for any more, or
    a second one, is never mixed up with another.

    Parameters
    ----------
    link : the connection to the server app of the run
    nodes : Flower's number of each party's node, by the party's name

    Attributes
    ----------
    sent, received : bytes that each party has sent and received
    timeout : seconds that every request waits for its replies, if it is set
    """

    def __init__(self, link: socket.socket, nodes: Mapping[str, int]) -> None:
        self._link, self._nodes = link, {name: str(node) for name, node in nodes.items()}
        self.sent = dict.fromkeys(self._nodes, 0)
        self.received = dict.fromkeys(self._nodes, 0)
        self.timeout: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The parties that are registered."""
        return tuple(self._nodes)

    def online(self) -> tuple[str, ...]:
        """Return the parties whose nodes Flower believes to be online; it notices a lost one after half a minute."""
        there = set(self._order({"do": "nodes"}))
        return tuple(name for name, node in self._nodes.items() if node in there)

    def wait(self, seconds: float = 120.0) -> None:
        """Wait until all parties are online, or raise an error that names those that are not."""
        end = time.monotonic() + seconds
        while absent := sorted(set(self.names) - set(self.online())):
            if time.monotonic() > end:
                raise ProtocolError(
                    f"party '{absent[0]}' did not come online within {seconds:.0f} seconds",
                    hint=f"{len(absent)} of {len(self.names)} are missing; look at the output of its 'join' command",
                )
            time.sleep(0.2)

    def ask(self, requests: Mapping[str, Message], *, timeout: float = 60.0) -> Replies:
        """Send each party its own request, and wait until all have answered or the time in seconds is over.

        Unless ``timeout`` of this channel is set, no request waits for less than five minutes. None waits for a party
        that has been offline for one.
        """
        timeout = max(timeout, _LEAST) if self.timeout is None else self.timeout
        end = time.monotonic() + timeout
        waiting: dict[str, tuple[str, str]] = {}
        for name, request in requests.items():
            number = secrets.token_hex(16)
            data = encode({_EXCHANGE: number, "request": request})
            asked = self._order({"do": "push", "node": self._nodes[name], "seconds": timeout + _GRACE}, data)
            if asked is None and name not in self.online():
                continue
            if asked is None:
                raise ProtocolError(f"Flower did not take the request to party '{name}'", hint="its log has the reason")
            waiting[asked] = (name, number)
            self.received[name] += len(data)
        answers: dict[str, Message] = {}
        seen = dict.fromkeys(requests, time.monotonic())
        while waiting and (left := end - time.monotonic()) > 0:
            found = self._pull(list(waiting), min(left, _LOOK))
            for identity, node, fault, answer in found:
                if identity not in waiting:
                    continue
                name, number = waiting.pop(identity)
                self.sent[name] += len(answer)
                answers[name] = self._open(name, number, node, fault, answer)
            if waiting and not found:
                now = time.monotonic()
                seen.update(dict.fromkeys(self.online(), now))
                waiting = {identity: one for identity, one in waiting.items() if now - seen[one[0]] < _GONE}
        return Replies.sorted(answers)

    def _open(self, name: str, number: str, node: str, fault: str | None, data: bytearray) -> Message:
        if fault is not None:
            return {"error": f"party '{name}' could not be asked: {' '.join(fault.split())[:200]}"}
        try:
            reply = decode(bytes(data))
        except ProtocolError as error:
            return {"error": f"party '{name}' sent a reply that cannot be read: {error}"}
        if node != self._nodes[name] or reply.get(_EXCHANGE) != number or not isinstance(reply.get("reply"), dict):
            return {"error": f"party '{name}' sent a reply to another request"}
        answer: Message = reply["reply"]
        return answer

    def _order(self, order: Message, data: bytes | None = None) -> Any:
        try:
            frames.send_json(self._link, order)
            if data is not None:
                frames.send(self._link, data)
            return frames.receive_json(self._link)
        except (EOFError, OSError) as error:
            raise ProtocolError("the run of Flower has ended", hint="its log has the reason") from error

    def _pull(self, identities: list[str], seconds: float) -> list[tuple[str, str, str | None, bytearray]]:
        found = []
        for _ in range(self._order({"do": "pull", "ids": identities, "seconds": seconds})):
            try:
                identity, node, fault = frames.receive_json(self._link)
                found.append((identity, node, fault, frames.receive(self._link)))
            except (EOFError, OSError) as error:
                raise ProtocolError("the run of Flower has ended", hint="its log has the reason") from error
        return found

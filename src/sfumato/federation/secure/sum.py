"""One interface for sums over parties: in clear, or by masks, so that the coordinator learns the sum alone.

A sum has two halves. The coordinator's is a `SecureSum`: it asks every party for its vector and returns the total. The
party's is a set of handlers around one function, ``contribute``, that makes the vector: words of 32 or 64 bits, which
are added modulo their size (see `FixedPoint`), and a message that the coordinator may see, such as a number of bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from sfumato.errors import ProtocolError
from sfumato.federation.channel import Channel, Handler, Replies
from sfumato.federation.secure.masks import MaskingParty, MaskingServer, Roster
from sfumato.federation.wire import Message

__all__ = [
    "Contribute",
    "MaskedSum",
    "PlainSum",
    "Rounds",
    "SecureSum",
    "Summed",
    "contributed",
    "masked_handlers",
    "plain_handlers",
    "too_few",
]

Words = NDArray[np.unsignedinteger[Any]]
_P = TypeVar("_P")
Contribute = Callable[[Message], tuple[Words, Message]]
"""Makes a party's vector for a request, and what else the coordinator may see."""


@dataclass(frozen=True)
class Summed:
    """A sum over parties.

    Attributes
    ----------
    total : the sum of the vectors, modulo their word size
    present : whose vectors it holds
    seen : what else each of them let the coordinator see
    refused : why other parties refused; a party in neither was silent
    """

    total: Words
    present: tuple[str, ...]
    seen: dict[str, Message]
    refused: dict[str, str]


class SecureSum(ABC):
    """The coordinator's half of a sum over parties."""

    @abstractmethod
    def total(
        self, channel: Channel, round_: int, requests: Mapping[str, Message], *, bits: int = 32, timeout: float = 600.0
    ) -> Summed:
        """Ask each party for the vector that its request describes, and add up those that arrive.

        Parameters
        ----------
        channel
            The parties.
        round_
            A number that no other sum of this run has.
        requests
            What ``contribute`` gets, by party; other parties are not asked.
        bits
            The word size.
        timeout
            Seconds to wait for the vectors.
        """


class PlainSum(SecureSum):
    """A sum in clear: the coordinator sees every vector. For comparison, or where it may.

    Parameters
    ----------
    least
        How many vectors must arrive.

    Examples
    --------
    >>> from sfumato.federation.channel import InProcess, Party
    >>> def holder(name, value):
    ...     return Party(name, plain_handlers(lambda request: (np.array([value], np.uint32), {})))
    >>> channel = InProcess([holder("north", 3), holder("south", 4)])
    >>> PlainSum().total(channel, 1, {"north": {}, "south": {}}).total.tolist()
    [7]
    """

    def __init__(self, least: int = 1) -> None:
        self.least = least

    def total(
        self, channel: Channel, round_: int, requests: Mapping[str, Message], *, bits: int = 32, timeout: float = 600.0
    ) -> Summed:
        """Add up the vectors that arrive."""
        asked = {name: {"kind": "sum/plain", "round": round_, "request": one} for name, one in requests.items()}
        replies = channel.ask(asked, timeout=timeout)
        vectors = {name: one["vector"] for name, one in replies.arrived.items()}
        kind = np.dtype(f"<u{bits // 8}")
        for name, one in vectors.items():
            if not isinstance(one, np.ndarray) or one.dtype != kind or one.ndim != 1:
                raise ProtocolError(f"party '{name}' did not send a vector of words of {bits} bits")
        if len({one.size for one in vectors.values()}) > 1:
            raise ProtocolError("the vectors of the parties have different lengths")
        if len(vectors) < self.least or not vectors:
            raise too_few(replies, len(vectors), len(requests), max(self.least, 1))
        total = np.sum(list(vectors.values()), axis=0, dtype=kind)
        seen = {name: one["seen"] for name, one in replies.arrived.items()}
        return Summed(total, tuple(sorted(vectors)), seen, replies.refused)


class MaskedSum(SecureSum):
    """A sum by pairwise masks (see `sfumato.federation.secure.masks`): the coordinator sees the sum alone.

    Examples
    --------
    >>> from sfumato.federation.channel import InProcess, Party
    >>> own = {name: Ed25519PrivateKey.generate() for name in ("east", "north", "south")}
    >>> roster = Roster(bytes(32), {name: one.public_key().public_bytes_raw() for name, one in own.items()}, 2)
    >>> def holder(name, value):
    ...     return Party(name, masked_handlers(roster, name, own[name], lambda _: (np.array([value], np.uint32), {})))
    >>> channel = InProcess([holder("east", 2), holder("north", 3), holder("south", 4)])
    >>> MaskedSum(roster).total(channel, 1, dict.fromkeys(own, {})).total.tolist()
    [9]
    """

    def __init__(self, roster: Roster) -> None:
        self.roster = roster

    def total(
        self, channel: Channel, round_: int, requests: Mapping[str, Message], *, bits: int = 32, timeout: float = 600.0
    ) -> Summed:
        """Run the five steps of the protocol; parties may drop out after any of them."""
        server = MaskingServer(self.roster, round_)
        refused: dict[str, str] = {}

        def ask(step: str, each: Mapping[str, Message], seconds: float = 60.0) -> dict[str, Message]:
            asked = {name: {"kind": f"sum/{step}", "round": round_, **one} for name, one in each.items()}
            replies = channel.ask(asked, timeout=seconds)
            refused.update(replies.refused)
            if len(replies.arrived) < self.roster.threshold:
                raise too_few(replies, len(replies.arrived), len(self.roster.keys), self.roster.threshold)
            return replies.arrived

        keys = server.keys(ask("keys", {key: {} for key in requests}))
        mail = server.mail({name: one["shares"] for name, one in ask("share", _each(keys, {"keys": keys})).items()})
        sent = ask(
            "vector",
            {name: {"mail": one, "request": requests[name], "bits": bits} for name, one in mail.items()},
            timeout,
        )
        there = server.arrived({name: one["vector"] for name, one in sent.items()}, bits)
        signed = ask("agree", _each(there, {"there": list(there)}))
        agreed = server.agreed({name: one["signature"] for name, one in signed.items()})
        opened = ask("open", _each(agreed, {"signatures": agreed}))
        total = server.total({name: one["shares"] for name, one in opened.items()})
        return Summed(total, there, {name: sent[name]["seen"] for name in there}, refused)


def plain_handlers(contribute: Contribute) -> dict[str, Handler]:
    """Return a party's half of a `PlainSum`."""

    def vector(request: Message) -> Message:
        words, seen = contribute(request["request"])
        return {"vector": words, "seen": seen}

    return {"sum/plain": vector}


class Rounds(Generic[_P]):
    """The half of a party in the round that it takes part in: each round once, and never an older one."""

    def __init__(self, name: str, make: Callable[[int], _P]) -> None:
        self.name, self._make = name, make
        self._newest = -1
        self._now: _P | None = None

    def begin(self, request: Message) -> _P:
        """Begin a round."""
        round_ = request["round"]
        if type(round_) is not int or round_ <= self._newest:
            raise ProtocolError(f"party '{self.name}' has taken part in round {round_} already")
        self._newest, self._now = round_, self._make(round_)
        return self._now

    def party(self, request: Message) -> _P:
        """Return the half of the round that a request belongs to."""
        if self._now is None or request["round"] != self._newest:
            raise ProtocolError(f"party '{self.name}' has not begun round {request['round']}")
        return self._now


def contributed(name: str, contribute: Contribute, request: Message) -> tuple[Words, Message]:
    """Return a party's vector, checked to be of the words that are asked for."""
    words, seen = contribute(request["request"])
    if words.dtype != np.dtype(f"<u{request['bits'] // 8}"):
        raise ProtocolError(f"party '{name}' adds words of {8 * words.dtype.itemsize} bits")
    return words, seen


def masked_handlers(
    roster: Roster, name: str, identity: Ed25519PrivateKey, contribute: Contribute
) -> dict[str, Handler]:
    """Return a party's half of a `MaskedSum`; it takes part in a round once, and never in an older one."""
    rounds = Rounds(name, lambda round_: MaskingParty(roster, round_, name, identity))
    party = rounds.party

    def vector(request: Message) -> Message:
        words, seen = contributed(name, contribute, request)
        return {"vector": party(request).mask(request["mail"], words), "seen": seen}

    return {
        "sum/keys": lambda request: rounds.begin(request).advertise(),
        "sum/share": lambda request: {"shares": party(request).share(request["keys"])},
        "sum/vector": vector,
        "sum/agree": lambda request: {"signature": party(request).agree(request["there"])},
        "sum/open": lambda request: {"shares": party(request).open(request["signatures"])},
    }


def _each(names: Any, request: Message) -> dict[str, Message]:
    return dict.fromkeys(names, request)


def too_few(replies: Replies, count: int, parties: int, needed: int) -> ProtocolError:
    """Build the error that too few parties answered, with the first reason."""
    first = next(iter(replies.refused.items()), None)
    return ProtocolError(
        f"only {count} of {parties} parties answered, but {needed} are needed",
        hint="start the others, then begin a new round" if first is None else f"{first[0]}: {first[1]}",
    )

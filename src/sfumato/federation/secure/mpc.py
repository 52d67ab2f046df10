"""Any function of the vectors of several parties by multi-party computation (MPyC): only its result is opened.

Each party splits its numbers into shares for all (Shamir 1979); sums are computed on the shares alone, products and
comparisons by messages between the parties (Ben-Or, Goldwasser and Wigderson 1988; Toft 2007).

    1. key    each party: a fresh key, signed for one run, one round, one list of parties and one function
    2. begin  each party: shares of its vector, sealed for each of the others
    3. mail   each party: what the function needs, in turns, until the result is open

Messages between two parties are sealed (X25519, AES-256-GCM) and numbered, and go through the coordinator, which sees
their lengths alone. MPyC runs in a process of its own for each party and never unpickles.

What is promised: a coordinator and fewer than half of the parties learn the result alone, as long as all parties keep
to the protocol. Half of them that pool what they have learn everything. A party that deviates may spoil the result or
learn more: use sums by masks or threshold encryption where parties are not trusted that far. All must take part.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from sfumato.errors import MissingExtra, OptionError, ProtocolError
from sfumato.federation.channel import Channel, Handler
from sfumato.federation.secure.masks import Roster
from sfumato.federation.secure.process import Process
from sfumato.federation.secure.sum import Contribute, Rounds, SecureSum, Summed, contributed
from sfumato.federation.wire import Message

__all__ = ["FEWEST_PARTIES", "MOST_NUMBERS", "SUM", "MpcSum", "mpc_handlers"]

SUM: Mapping[str, Any] = {"name": "sum"}
"""The function that opens the sum."""
FEWEST_PARTIES = 3
MOST_NUMBERS = 1 << 17
"""Of each party."""
_WORKER = Path(__file__).with_name("mpc_worker.py")
_KEY = 32

Words = NDArray[np.unsignedinteger[Any]]


class MpcSum(SecureSum):
    """The coordinator's half of a multi-party computation; see `sfumato.federation.secure.mpc` for whom it trusts.

    Parameters
    ----------
    roster
        The parties, at least 3; all must take part.
    function
        What is opened of their vectors, by default the sum.
    """

    def __init__(self, roster: Roster, function: Mapping[str, Any] = SUM) -> None:
        self.roster, self.function = roster, function
        check_parties(len(roster.keys))

    def total(
        self, channel: Channel, round_: int, requests: Mapping[str, Message], *, bits: int = 32, timeout: float = 600.0
    ) -> Summed:
        """Pass on sealed messages until all parties have the same result."""
        names, bound = self.roster.names, _Bound(self.roster, round_, self.function)

        def ask(step: str, each: Mapping[str, Message]) -> dict[str, Message]:
            asked = {name: {"kind": f"mpc/{step}", "round": round_, **one} for name, one in each.items()}
            replies = channel.ask(asked, timeout=timeout)
            return replies.require(each, "take part, and nothing opens without it")

        keys = ask("key", {key: {} for key in names})
        for name in names:
            bound.key(name, keys[name])
        replies = ask("begin", {name: {"keys": keys, "request": requests[name], "bits": bits} for name in names})
        seen = {name: one.pop("seen", {}) for name, one in replies.items()}
        opened: dict[str, Words] = {}
        while True:
            mail: dict[str, dict[str, Any]] = {}
            for name, reply in replies.items():
                if "opened" in reply:
                    opened[name] = bound.opened(name, reply, bits)
                for other, sealed in dict(reply.get("mail", {})).items():
                    mail.setdefault(other, {})[name] = sealed
            if len(opened) == len(names):
                break
            waiting = {name: {"mail": one} for name, one in mail.items() if name in names and name not in opened}
            if not waiting:
                raise ProtocolError("the computation has come to a stop: the messages of a party are missing")
            replies = ask("mail", waiting)
        first = opened[names[0]]
        if not all(np.array_equal(first, one) for one in opened.values()):
            raise ProtocolError("the parties have opened different results", hint="one of them is not to be trusted")
        return Summed(first, names, seen, {})


def mpc_handlers(
    roster: Roster,
    name: str,
    identity: Ed25519PrivateKey,
    contribute: Contribute,
    function: Mapping[str, Any] = SUM,
) -> dict[str, Handler]:
    """Return a party's half of an `MpcSum`; it takes part in a round once, and never in an older one."""
    check_parties(len(roster.keys))
    require_mpyc()
    rounds = Rounds(name, lambda round_: _Party(roster, round_, name, identity, function))
    party = rounds.party

    def begin(request: Message) -> Message:
        party(request).agree(request["keys"])
        words, seen = contributed(name, contribute, request)
        return {**party(request).begin(words), "seen": seen}

    return {
        "mpc/key": lambda request: rounds.begin(request).key(),
        "mpc/begin": begin,
        "mpc/mail": lambda request: party(request).mail(request["mail"]),
    }


def require_mpyc() -> None:
    """Raise a `MissingExtra` unless MPyC is installed."""
    if importlib.util.find_spec("mpyc") is None:
        raise MissingExtra("multi-party computation needs MPyC", hint="pip install 'sfumato[federation]'")


def check_parties(parties: int) -> None:
    """Raise an error if no majority of so many parties could be honest while one is not."""
    if parties < FEWEST_PARTIES:
        raise OptionError(
            f"multi-party computation needs at least {FEWEST_PARTIES} parties, most of them honest, got {parties}",
            hint="use threshold encryption or masks",
        )


@dataclass
class _Party:
    """A party in one round. It holds secrets, so its repr shows the name alone."""

    roster: Roster
    round_: int
    name: str
    identity: Ed25519PrivateKey = field(repr=False)
    function: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        if self.roster.keys.get(self.name) != self.identity.public_key().public_bytes_raw():
            raise OptionError(f"the key of party '{self.name}' is not the one in the roster")
        self._bound = _Bound(self.roster, self.round_, self.function)
        self._secret: X25519PrivateKey | None = X25519PrivateKey.generate()
        self._public = self._secret.public_key().public_bytes_raw()
        self._links: dict[str, _Link] = {}
        self._process: Process | None = None

    def __repr__(self) -> str:
        return f"MpcParty({self.name!r}, round {self.round_})"

    def key(self) -> Message:
        """Return a fresh key."""
        return {
            "key": self._public,
            "signature": self.identity.sign(self._bound.context(b"key", self.name, self._public)),
        }

    def agree(self, keys: Mapping[str, Message]) -> None:
        """Take the keys of all parties, once."""
        if self._secret is None:
            raise ProtocolError(f"party '{self.name}' has begun this round already")
        found = {one: self._bound.key(one, keys.get(one)) for one in self.roster.names}
        if len(keys) > len(found) or found[self.name] != self._public:
            raise ProtocolError(f"the key of party '{self.name}' was replaced")
        secret, self._secret = self._secret, None
        every = hashlib.sha256(b"".join(found[one] for one in self.roster.names)).digest()
        for other, public in found.items():
            if other != self.name:
                try:
                    shared = secret.exchange(X25519PublicKey.from_public_bytes(public))
                except ValueError as error:
                    raise ProtocolError(f"the key of party '{other}' is damaged") from error
                ways = [(self.name, other), (other, self.name)]
                keys_ = [_derived(shared, self._bound.context(b"link", f"{one}>{to}", every)) for one, to in ways]
                self._links[other] = _Link(*keys_)

    def begin(self, words: Words) -> Message:
        """Share the vector, and return sealed messages for the others."""
        if len(words) > MOST_NUMBERS:
            raise OptionError(f"multi-party computation takes at most {MOST_NUMBERS:,} numbers, got {len(words):,}")
        self._process = Process(sys.executable, _WORKER, "MPyC")
        weakref.finalize(self, self._process.close)
        numbers = words.view("<i8") if words.dtype.itemsize == 8 else words.astype("<i8")
        names = self.roster.names
        header = {"op": "begin", "own": names.index(self.name), "parties": len(names), "function": dict(self.function)}
        return self._sent(header, [numbers.tobytes()])

    def mail(self, mail: Mapping[str, bytes]) -> Message:
        """Take messages of others; return those for them, and the result when it is there."""
        if self._process is None:
            raise ProtocolError(f"party '{self.name}' has not begun this round, or is done with it")
        parts = []
        for other, sealed in mail.items():
            if other not in self._links:
                raise ProtocolError("a message comes from a party that does not take part")
            parts.append(self._links[other].opened(sealed, other))
        return self._sent({"op": "mail", "peers": [self.roster.names.index(one) for one in mail]}, parts)

    def _sent(self, header: dict[str, Any], parts: list[bytes]) -> Message:
        assert self._process is not None
        reply, found = self._process.exchange(header, parts)
        if "error" in reply:
            self._end()
            raise ProtocolError(f"the computation of party '{self.name}' failed with {reply['error']}")
        to = [self.roster.names[peer] for peer in reply["peers"]]
        message: Message = {"mail": {one: self._links[one].sealed(data) for one, data in zip(to, found, strict=False)}}
        if reply["done"]:
            self._end()
            signed = self.identity.sign(self._bound.context(b"opened", self.name, hashlib.sha256(found[-1]).digest()))
            message |= {"opened": found[-1], "signature": signed}
        return message

    def _end(self) -> None:
        assert self._process is not None
        self._process.close()
        self._process = None


class _Link:
    """Sealed, numbered messages to and from one other party."""

    def __init__(self, to: bytes, back: bytes) -> None:
        self._to, self._back, self._sent, self._received = AESGCM(to), AESGCM(back), 0, 0

    def sealed(self, data: bytes) -> bytes:
        self._sent += 1
        return self._to.encrypt(self._sent.to_bytes(12), data, None)

    def opened(self, data: Any, name: str) -> bytes:
        try:
            found = self._back.decrypt((self._received + 1).to_bytes(12), data, None)
        except (InvalidTag, TypeError, ValueError) as error:
            raise ProtocolError(f"a message of party '{name}' is damaged, or not the next one") from error
        self._received += 1
        return found


@dataclass(frozen=True)
class _Bound:
    """What signatures are bound to: the run, the round, and the function."""

    roster: Roster
    round_: int
    function: Mapping[str, Any]

    def context(self, kind: bytes, name: str, data: bytes) -> bytes:
        """Return what a party signs."""
        agreed = hashlib.sha256(json.dumps(dict(self.function), sort_keys=True).encode()).digest()
        return self.roster.context(self.round_, b"mpc", kind, agreed, name.encode(), data)

    def key(self, name: str, message: Any) -> bytes:
        """Return the key of a party."""
        key, signature = (dict(message or {}).get(one) for one in ("key", "signature"))
        if not isinstance(key, bytes) or len(key) != _KEY or not isinstance(signature, bytes):
            raise ProtocolError(f"the key of party '{name}' is missing or damaged")
        self.roster.check(name, signature, self.context(b"key", name, key))
        return key

    def opened(self, name: str, message: Message, bits: int) -> Words:
        """Return the result that a party has opened, modulo the word size."""
        data, signature = message["opened"], message.get("signature")
        if not isinstance(data, bytes) or len(data) % 8 or not isinstance(signature, bytes):
            raise ProtocolError(f"the result of party '{name}' is damaged")
        self.roster.check(name, signature, self.context(b"opened", name, hashlib.sha256(data).digest()))
        return np.frombuffer(data, "<u8").astype(f"<u{bits // 8}")


def _derived(shared: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), _KEY, None, info).derive(shared)

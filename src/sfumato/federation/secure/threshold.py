"""A sum of vectors by threshold encryption (BFV by OpenFHE): exact, and opened with the share of every party only.

All parties make one public key together, encrypt their vectors with it, and add up the ciphertexts. Nobody has the
secret key: each party has a share of it, and from each the sum needs a partial decryption, which is flooded with noise
so that it says nothing about the share (Asharov et al. 2012).

    1. commit   each party: a hash of its share of the public key, so that none can choose its own to fit the others
    2. key      each party: its share of the public key
    3. vector   each party: its vector, encrypted
    4. open     each party: it adds up all ciphertexts itself, and decrypts the sum partially

The random polynomial that all shares of the key have in common follows from the name of the run and the round, so
nobody chooses it. Every message is signed for one run, one round and one list of parties, keys are fresh in every
round, and a party opens once. A share that is missing or wrong would silently give garbage: shares are counted, their
signatures are checked, and every ciphertext has places whose sum is known.

What is promised: against a server and all parties but one that keep to the protocol but collude, a vector stays hidden
but for the sum. A server that replaces or leaves out messages is found out. If one party is silent after its
commitment, no sum opens. A party can still spoil the sum, and one that colludes with the server can choose its share
after the sum is known to it: bounds and noise are for that.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from sfumato.errors import OptionError, ProtocolError
from sfumato.federation.secure.lanes import LANE, check_size, from_lanes, to_lanes
from sfumato.federation.secure.masks import Roster, signed_parts
from sfumato.federation.secure.openfhe import openfhe
from sfumato.federation.secure.polynomials import RING, Layout

__all__ = ["ThresholdParty", "ThresholdServer"]

Words = NDArray[np.unsignedinteger[Any]]
Message = dict[str, Any]

_MODULUS = 2199023288321  # prime, 1 modulo twice the ring's dimension, above 255 * 2^32
_CHECKS = 2  # numbers in a ciphertext that are known
_ROOM = RING - _CHECKS
_HASH = 32


@dataclass(frozen=True)
class _Form:
    """What keys, ciphertexts and shares of a number of parties look like."""

    key: Layout
    ciphertext: Layout
    lead: Layout
    main: Layout
    example: bytes = field(repr=False)


@lru_cache(maxsize=16)
def _form(parties: int) -> _Form:
    check_size("threshold encryption", parties, 0)
    key, ciphertext, lead, main = _ask("template", parties)
    return _Form(Layout.of(key, 2), Layout.of(ciphertext, 2), Layout.of(lead, 1), Layout.of(main, 1), key)


def _ask(op: str, parties: int, given: Sequence[bytes] = (), **more: bool) -> list[bytes]:
    return openfhe().ask(op, given, parties=parties, modulus=_MODULUS, **more)


def _known(place: int) -> NDArray[np.int64]:
    """Return the known numbers of a party, others for each place in the list."""
    return np.array([place, place * place * 65537], np.int64)


@dataclass
class ThresholdParty:
    """A party in one round. Every step is taken once, in order; it holds secrets, so its repr shows the name alone."""

    roster: Roster
    round_: int
    name: str
    identity: Ed25519PrivateKey = field(repr=False)

    def __post_init__(self) -> None:
        if self.roster.keys.get(self.name) != self.identity.public_key().public_bytes_raw():
            raise OptionError(f"the key of party '{self.name}' is not the one in the roster")
        self._done = 0
        self._secret = self._public = self._reference = self._sent = b""
        self._bound = _Bound(self.roster, self.round_)
        self._commitments: Mapping[str, Message] = {}

    def __repr__(self) -> str:
        return f"ThresholdParty({self.name!r}, round {self.round_})"

    def commit(self) -> Message:
        """Make this party's keys, and return a signed hash of the public one."""
        self._step(1)
        form = _form(self._parties)
        seed = hashlib.sha256(self._bound.context(b"reference", "", [], 0)).digest()
        self._reference = form.key.replaced(form.example, 1, seed)
        self._secret, self._public = _ask("share", self._parties, [self._reference])
        return self._signed(b"commit", [hashlib.sha256(self._public).digest()])

    def key(self, commitments: Mapping[str, Message]) -> Message:
        """Return the share of the public key, now that all parties are bound to theirs."""
        self._step(2)
        bound = self._bound.joined(commitments)
        if self.name not in bound.names:
            raise ProtocolError(f"the list of keys leaves out party '{self.name}'")
        self._bound, self._commitments = bound, commitments
        return self._signed(b"key", [self._public])

    def encrypt(self, keys: Mapping[str, Message], words: Words) -> Message:
        """Return the vector, encrypted with the key of all parties."""
        self._step(3)
        public = self._bound.keys(self._commitments, keys)
        layout = _form(self._parties).key
        for name, one in zip(self._bound.names, public, strict=True):
            if not layout.same(one, self._reference, 1):
                raise ProtocolError(f"the key of party '{name}' is of another run or round")
        if public[self._bound.names.index(self.name)] != self._public:
            raise ProtocolError(f"the key of party '{self.name}' was replaced")
        lanes = to_lanes(words)
        check_size("threshold encryption", len(self._bound.names), len(lanes))
        count = max(-(-len(lanes) // _ROOM), 1)
        slots = np.zeros((count, RING), np.int64)
        slots[:, :_ROOM] = np.pad(lanes, (0, count * _ROOM - len(lanes))).reshape(count, _ROOM)
        slots[:, _ROOM:] = _known(self._bound.names.index(self.name) + 1)
        parts = _ask("encrypt", self._parties, [layout.joined(public), slots.tobytes()])
        sent = self._signed(b"vector", parts, len(lanes))
        self._sent = sent["signature"]
        return sent

    def open(self, vectors: Mapping[str, Message]) -> Message:
        """Add up all vectors, and return this party's share of the sum; once, and only with its own vector in it."""
        self._step(4)
        found, size = self._bound.vectors(vectors)
        if not hmac.compare_digest(vectors[self.name]["signature"], self._sent):
            raise ProtocolError(f"the vector of party '{self.name}' was replaced")
        layout = _form(self._parties).ciphertext
        sums = [layout.add(parts) for parts in zip(*found.values(), strict=True)]
        shares = _ask("open", self._parties, [self._secret, *sums], lead=self.name == self._bound.names[0])
        self._secret = b""
        return self._signed(_opening(vectors), shares, size)

    @property
    def _parties(self) -> int:
        return len(self.roster.keys)

    def _signed(self, kind: bytes, parts: list[bytes], size: int = 0) -> Message:
        signed = self.identity.sign(self._bound.context(kind, self.name, parts, size))
        return {"parts": parts, "size": size, "signature": signed}

    def _step(self, number: int) -> None:
        if self._done != number - 1:
            raise ProtocolError(f"party '{self.name}' takes every step of a round once, and in order")
        self._done = number


class ThresholdServer:
    """The server in one round: it passes messages on, and learns the sum."""

    def __init__(self, roster: Roster, round_: int) -> None:
        self.roster = roster
        self._bound = _Bound(roster, round_)
        self._commitments: Mapping[str, Message] = {}
        self._vectors: Mapping[str, Message] = {}
        self._size = 0

    def commitments(self, found: Mapping[str, Message]) -> Mapping[str, Message]:
        """Return the commitments of all that take part from now on."""
        self._bound, self._commitments = self._bound.joined(found), found
        return found

    def keys(self, found: Mapping[str, Message]) -> Mapping[str, Message]:
        """Return the keys for everyone."""
        self._bound.keys(self._commitments, found)
        return found

    def vectors(self, found: Mapping[str, Message]) -> Mapping[str, Message]:
        """Return the encrypted vectors for everyone."""
        _, self._size = self._bound.vectors(found)
        self._vectors = found
        return found

    def total(self, opened: Mapping[str, Message], bits: int = 32) -> Words:
        """Return the sum, given the shares of all parties."""
        form, names = _form(len(self.roster.keys)), self._bound.names
        layouts = dict.fromkeys(names, form.main) | {names[0]: form.lead}
        shares, size = self._bound.read(opened, _opening(self._vectors), "opened the sum", layouts)
        sums = [form.main.add(parts) for parts in zip(*shares.values(), strict=True)]
        (found,) = _ask("fuse", len(self.roster.keys), sums)
        slots = np.frombuffer(found, np.int64).reshape(-1, RING) % _MODULUS
        known = np.sum([_known(at + 1) for at in range(len(names))], axis=0)
        lanes = slots[:, :_ROOM].reshape(-1)
        if size != self._size or len(lanes) < size or (slots[:, _ROOM:] != known).any():
            raise ProtocolError("the sum did not open: a share is missing or wrong", hint="begin a new round")
        if lanes[size:].any() or (lanes >= len(names) * 2**LANE).any():
            raise ProtocolError("the sum is damaged: a party encrypted something else than its words")
        return from_lanes(lanes[:size], bits)


@dataclass(frozen=True)
class _Bound:
    """What signatures of a round are bound to: the run, the round, and who takes part, once that is known."""

    roster: Roster
    round_: int
    names: tuple[str, ...] = ()
    committed: bytes = b""

    def joined(self, commitments: Mapping[str, Message]) -> _Bound:
        """Check commitments and the number of parties; what follows is bound to them."""
        self.roster.enough(commitments, "sent a commitment")
        names = tuple(sorted(commitments))
        for name in names:
            if [len(one) for one in self.checked(name, b"commit", commitments[name])] != [_HASH]:
                raise ProtocolError(f"the commitment of party '{name}' is damaged")
        every = b"".join(commitments[name]["parts"][0] for name in names)
        return _Bound(self.roster, self.round_, names, hashlib.sha256(every).digest())

    def context(self, kind: bytes, name: str, parts: Sequence[bytes], size: int) -> bytes:
        """Return what a party signs."""
        hashes = [hashlib.sha256(one).digest() for one in parts]
        listed = [one.encode() for one in self.names]
        more = [len(listed).to_bytes(4), *listed, self.committed, size.to_bytes(8), *hashes]
        return self.roster.context(self.round_, b"threshold", kind, name.encode(), *more)

    def checked(self, name: str, kind: bytes, message: Any) -> list[bytes]:
        """Return the parts of a signed message."""
        parts, size, signature = signed_parts(name, message)
        self.roster.check(name, signature, self.context(kind, name, parts, size))
        return parts

    def read(
        self, found: Mapping[str, Message], kind: bytes, what: str, layouts: Mapping[str, Layout]
    ) -> tuple[dict[str, list[bytes]], int]:
        """Return the parts of the messages of all parties, as many of each, and the size that all state."""
        for name in self.names:
            if name not in found:
                raise ProtocolError(
                    f"party '{name}' has not {what}, and nothing opens without it", hint="begin a new round"
                )
        if len(found) > len(self.names):
            raise ProtocolError("a message comes from a party that does not take part")
        read = {name: self.checked(name, kind, found[name]) for name in self.names}
        for name, parts in read.items():
            for one in parts:
                layouts[name].check(one, f"a message of party '{name}'")
        if len({(len(read[name]), found[name]["size"]) for name in self.names}) > 1:
            raise ProtocolError("the vectors of the parties have different lengths")
        return read, found[self.names[0]]["size"]

    def keys(self, commitments: Mapping[str, Message], found: Mapping[str, Message]) -> list[bytes]:
        """Return the shares of the public key, each checked against its commitment."""
        layout = _form(len(self.roster.keys)).key
        read, _ = self.read(found, b"key", "sent its key", dict.fromkeys(self.names, layout))
        for name, parts in read.items():
            if len(parts) != 1 or hashlib.sha256(parts[0]).digest() != commitments[name]["parts"][0]:
                raise ProtocolError(f"the key of party '{name}' is not the one that it committed itself to")
        return [parts[0] for parts in read.values()]

    def vectors(self, found: Mapping[str, Message]) -> tuple[dict[str, list[bytes]], int]:
        """Return the ciphertexts of all parties, and how many numbers they hold."""
        layout = _form(len(self.roster.keys)).ciphertext
        return self.read(found, b"vector", "sent a vector", dict.fromkeys(self.names, layout))


def _opening(vectors: Mapping[str, Message]) -> bytes:
    """Return the kind of the shares of a sum, which names the vectors in it."""
    return b"open" + hashlib.sha256(b"".join(vectors[name]["signature"] for name in sorted(vectors))).digest()

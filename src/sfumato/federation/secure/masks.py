"""A sum of vectors of several parties by pairwise masks (Bonawitz et al. 2017): the server sees the sum alone.

Each pair of parties agrees on a random mask, which one adds and the other subtracts, so all masks cancel out in the
sum. Each party also adds a mask of its own. Of both it gives shares to the others: if a party drops out, a threshold of
the others restores its pairwise masks; of every party that stays, they open its own mask. Nobody opens both of one
party, so what a party sent stays hidden even if it comes too late.

    1. advertise   each party: fresh public keys, signed with the key by which the others know it
    2. share       each party: shares of its two secrets for every other, encrypted
    3. mask        each party: its vector with all masks
    4. agree       each party: its signature under the list of those whose vectors arrived
    5. open        each party: shares of the own masks of those in the list, and of the keys of the others

What is promised: against a server and up to ``threshold - 1`` parties that keep to the protocol but collude, the
vectors of all others stay hidden but for their sum. A server that lies to parties (different lists, replaced keys,
messages of an earlier round) is found out as long as fewer than ``2 threshold - parties`` parties help it: keys are
signed, everything is bound to one run and one round, and no party opens a list that a threshold has not signed. A
party can still spoil the sum by sending a wrong vector: bounds, clipping and noise are for that.

Keys are X25519 (RFC 7748), signatures Ed25519 (RFC 8032), derived keys HKDF-SHA256 (RFC 5869), masks AES-256-CTR,
encrypted shares AES-256-GCM. Every secret has 256 bits from the operating system and is used in one round only.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from sfumato.errors import OptionError, ProtocolError
from sfumato.federation.secure.shamir import SHARE_BYTES, combine, share

__all__ = ["MaskingParty", "MaskingServer", "Roster", "default_threshold", "signed_parts"]

Message = dict[str, Any]
"""Whole numbers, bytes and texts, by name, or a list of texts."""
Words = NDArray[np.unsignedinteger[Any]]

_PROTOCOL = b"sfumato masks 1"
_KEY, _SIGNATURE, _TAG = 32, 64, 16


def default_threshold(parties: int) -> int:
    """Return the smallest number above two thirds of the parties.

    Examples
    --------
    >>> [default_threshold(parties) for parties in (2, 3, 10)]
    [2, 3, 7]
    """
    return 2 * parties // 3 + 1


@dataclass(frozen=True)
class Roster:
    """What all parties agree on beforehand: who they are, and how many of them must stay to the end.

    Attributes
    ----------
    run : 32 random bytes that name the run
    keys : the public key of each party (Ed25519), by name
    threshold : how many parties must stay; more than half of all

    Examples
    --------
    >>> own = Ed25519PrivateKey.generate()
    >>> roster = Roster(secrets.token_bytes(32), {"a": own.public_key().public_bytes_raw(), "b": bytes(32)}, 2)
    >>> roster.names
    ('a', 'b')
    """

    run: bytes
    keys: Mapping[str, bytes]
    threshold: int

    def __post_init__(self) -> None:
        if len(self.run) != _KEY:
            raise OptionError(f"the name of a run must be {_KEY} random bytes")
        if len(self.keys) < 2:
            raise OptionError(f"a secure sum needs at least 2 parties, got {len(self.keys)}")
        if not len(self.keys) // 2 < self.threshold <= len(self.keys):
            raise OptionError(
                f"the threshold of {len(self.keys)} parties must be more than half of them and at most all, "
                f"got {self.threshold}"
            )
        if any(len(one) != _KEY for one in self.keys.values()) or len({*self.keys.values()}) < len(self.keys):
            raise OptionError(f"each party needs a public key of its own, of {_KEY} bytes")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All parties, in the order of their shares."""
        return tuple(sorted(self.keys))

    def place(self, name: str) -> int:
        """Return the place of a party's shares, from 1."""
        return self.names.index(name) + 1

    def context(self, round_: int, *more: bytes) -> bytes:
        """Return bytes that name a use in a round of this run, and no other."""
        return _joined(_PROTOCOL, self.run, self._parties, self.threshold.to_bytes(4), round_.to_bytes(8), *more)

    @cached_property
    def _parties(self) -> bytes:
        """A name of all parties and their keys."""
        return hashlib.sha256(
            _joined(*(part for one in self.names for part in (one.encode(), self.keys[one])))
        ).digest()

    def check(self, name: str, signature: bytes, signed: bytes) -> None:
        """Raise an error unless a party has signed this."""
        if name not in self.keys:
            raise ProtocolError(f"'{name[:60]}' is not a party of this run")
        try:
            Ed25519PublicKey.from_public_bytes(self.keys[name]).verify(signature, signed)
        except (InvalidSignature, ValueError) as error:
            raise ProtocolError(
                f"the signature of party '{name}' does not hold",
                hint="its key is not the one in the roster, or the message is of another run or round",
            ) from error

    def enough(self, names: Iterable[str], what: str) -> None:
        """Raise an error if fewer parties than the threshold are left."""
        count = len({*names})
        if count < self.threshold:
            raise ProtocolError(
                f"only {count} of {len(self.keys)} parties {what}, but {self.threshold} are needed",
                hint="nothing was opened: begin a new round when enough parties are there",
            )


def signed_parts(name: str, message: Any) -> tuple[list[bytes], int, bytes]:
    """Return the parts, the size and the signature of a message of a party, which may be anything; unchecked as yet."""
    parts, size, signature = (dict(message).get(one) for one in ("parts", "size", "signature"))
    good = isinstance(parts, list) and bool(parts) and all(isinstance(one, bytes) for one in parts)
    if not good or type(size) is not int or not 0 <= size < 2**40 or not isinstance(signature, bytes):
        raise ProtocolError(f"a message of party '{name[:60]}' is damaged")
    assert isinstance(parts, list)
    return parts, size, signature


@dataclass
class MaskingParty:
    """A party in one round. Every step is taken once, in order; it holds secrets, so it has no repr.

    Examples
    --------
    Three parties and a server add up:

    >>> own = {name: Ed25519PrivateKey.generate() for name in "abc"}
    >>> roster = Roster(bytes(32), {name: one.public_key().public_bytes_raw() for name, one in own.items()}, 2)
    >>> parties = {name: MaskingParty(roster, 1, name, one) for name, one in own.items()}
    >>> server = MaskingServer(roster, 1)
    >>> keys = server.keys({name: one.advertise() for name, one in parties.items()})
    >>> mail = server.mail({name: one.share(keys) for name, one in parties.items()})
    >>> vectors = {"a": [1, 2], "b": [3, 4], "c": [5, 2**32 - 1]}
    >>> sent = {name: one.mask(mail[name], np.array(vectors[name], np.uint32)) for name, one in parties.items()}
    >>> del sent["b"]  # drops out
    >>> there = server.arrived(sent)
    >>> agreed = server.agreed({name: parties[name].agree(there) for name in "ac"})
    >>> server.total({name: parties[name].open(agreed) for name in "ac"}).tolist()
    [6, 1]
    """

    roster: Roster
    round_: int
    name: str
    identity: Ed25519PrivateKey = field(repr=False)

    def __post_init__(self) -> None:
        if self.roster.keys.get(self.name) != self.identity.public_key().public_bytes_raw():
            raise OptionError(f"the key of party '{self.name}' is not the one in the roster")
        self._cipher, self._pair = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        self._own = secrets.token_bytes(_KEY)
        self._done = 0
        self._keys: dict[str, Message] = {}
        self._shares: dict[str, tuple[bytes, bytes]] = {}
        self._there: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the name alone."""
        return f"MaskingParty({self.name!r}, round {self.round_})"

    def advertise(self) -> Message:
        """Return fresh public keys and a commitment to the own mask, signed."""
        self._step(1)
        keys = {
            "cipher": self._cipher.public_key().public_bytes_raw(),
            "pair": self._pair.public_key().public_bytes_raw(),
            "own": _commitment(self.roster, self.round_, self.name, self._own),
        }
        return {**keys, "signature": self.identity.sign(_advertised(self.roster, self.round_, self.name, keys))}

    def share(self, keys: Mapping[str, Message]) -> Message:
        """Return encrypted shares of both secrets for every party in the list of keys, by name."""
        self._step(2)
        _check_keys(self.roster, self.round_, keys)
        mine = keys.get(self.name)
        if mine is None or mine["cipher"] != self._cipher.public_key().public_bytes_raw():
            raise ProtocolError(f"the list of keys does not hold those of party '{self.name}'")
        self._keys = {name: dict(one) for name, one in keys.items()}
        count = len(self.roster.names)
        own, pair = (share(one, self.roster.threshold, count) for one in (self._own, self._pair.private_bytes_raw()))
        sealed = {}
        for name in sorted(keys):
            at = self.roster.place(name) - 1
            if name == self.name:
                self._shares[name] = own[at], pair[at]
            else:
                key, context = self._mail_key(self.name, name)
                sealed[name] = AESGCM(key).encrypt(bytes(12), own[at] + pair[at], context)  # the key is used once
        return sealed

    def mask(self, mail: Mapping[str, bytes], vector: Words) -> bytes:
        """Return the vector with all masks, given the shares that the others sent to this party.

        The vector is of unsigned whole numbers, which are added modulo their size.
        """
        self._step(3)
        if self.name in mail or not mail.keys() <= self._keys.keys():
            raise ProtocolError(f"shares for party '{self.name}' come from a party without keys")
        self.roster.enough([*mail, self.name], "sent shares")
        for name, sealed in mail.items():
            key, context = self._mail_key(name, self.name)
            try:
                opened = AESGCM(key).decrypt(bytes(12), sealed, context)
            except (InvalidTag, ValueError) as error:
                raise ProtocolError(f"the shares from party '{name}' are damaged, or of another round") from error
            if len(opened) != 2 * SHARE_BYTES:
                raise ProtocolError(f"the shares from party '{name}' are damaged")
            self._shares[name] = opened[:SHARE_BYTES], opened[SHARE_BYTES:]
        total = vector.astype(vector.dtype.newbyteorder("<"))
        total += _mask(self.roster, self.round_, "own", (self.name,), self._own, total)
        for name in sorted(mail):
            pair = _pair_mask(self.roster, self.round_, self._pair, self._keys[name]["pair"], self.name, name, total)
            _add(total, pair, self.name < name)
        return bytes(total.tobytes())

    def agree(self, there: Iterable[str]) -> bytes:
        """Return a signature under the list of those whose vectors arrived."""
        self._step(4)
        self._there = tuple(sorted(there))
        if len({*self._there}) < len(self._there) or not {*self._there} <= self._shares.keys():
            raise ProtocolError("the list of those who stayed names a party that did not share, or one twice")
        self.roster.enough(self._there, "sent a vector")
        return self.identity.sign(_listed(self.roster, self.round_, self._there))

    def open(self, signatures: Mapping[str, bytes]) -> Message:
        """Return a share of each party: of its own mask if its vector arrived, else of its key.

        ``signatures`` are those of a threshold of parties under the list that this party has signed.
        """
        self._step(5)
        self.roster.enough(signatures, "agreed on who stayed")
        for name, signature in signatures.items():
            if name not in self._there:
                raise ProtocolError(f"party '{name[:60]}' signs, but its vector did not arrive")
            self.roster.check(name, signature, _listed(self.roster, self.round_, self._there))
        return {name: own if name in self._there else pair for name, (own, pair) in self._shares.items()}

    def _step(self, number: int) -> None:
        if self._done != number - 1:
            raise ProtocolError(f"party '{self.name}' takes every step of a round once, and in order")
        self._done = number

    def _mail_key(self, sender: str, receiver: str) -> tuple[bytes, bytes]:
        """Return the key of the mail from one party to another, and what it is bound to."""
        other = receiver if sender == self.name else sender
        context = self.roster.context(self.round_, b"shares", sender.encode(), receiver.encode())
        return _derived(_exchange(self._cipher, self._keys[other]["cipher"]), context), context


class MaskingServer:
    """The server in one round: it passes messages on, and learns the sum."""

    def __init__(self, roster: Roster, round_: int) -> None:
        self.roster, self.round_ = roster, round_
        self._keys: dict[str, Message] = {}
        self._shared: tuple[str, ...] = ()
        self._vectors: dict[str, bytes] = {}
        self._type: np.dtype[Any] | None = None

    def keys(self, advertised: Mapping[str, Message]) -> dict[str, Message]:
        """Return the list of keys for everyone."""
        _check_keys(self.roster, self.round_, advertised)
        self._keys = dict(advertised)
        return self._keys

    def mail(self, shared: Mapping[str, Mapping[str, bytes]]) -> dict[str, dict[str, bytes]]:
        """Return the mail of each party that sent shares: what the others encrypted for it, by sender."""
        self.roster.enough(shared, "sent shares")
        for name, sealed in shared.items():
            others = self._keys.keys() - {name}
            if name not in self._keys or sealed.keys() != others:
                raise ProtocolError(f"party '{name[:60]}' must send shares for every other party")
            if any(len(one) != 2 * SHARE_BYTES + _TAG for one in sealed.values()):
                raise ProtocolError(f"the shares from party '{name}' have a wrong size")
        self._shared = tuple(sorted(shared))
        return {
            receiver: {sender: shared[sender][receiver] for sender in self._shared if sender != receiver}
            for receiver in self._shared
        }

    def arrived(self, vectors: Mapping[str, bytes], bits: int = 32) -> tuple[str, ...]:
        """Return the names of those whose vectors arrived, for all of them to sign."""
        if not vectors.keys() <= {*self._shared}:
            raise ProtocolError("a vector comes from a party that did not share")
        self.roster.enough(vectors, "sent a vector")
        sizes = {name: len(one) for name, one in vectors.items()}
        usual = max({*sizes.values()}, key=[*sizes.values()].count)
        if wrong := [name for name, size in sizes.items() if size != usual]:
            raise ProtocolError(f"the vector of party '{wrong[0]}' has another length than those of the others")
        self._type = np.dtype(f"<u{bits // 8}")
        if usual % self._type.itemsize:
            raise ProtocolError(f"the vectors are not of numbers of {bits} bits")
        self._vectors = dict(vectors)
        return tuple(sorted(vectors))

    def agreed(self, signatures: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the signatures of a threshold of parties, for everyone."""
        self.roster.enough(signatures, "agreed on who stayed")
        return dict(signatures)

    def total(self, opened: Mapping[str, Mapping[str, bytes]]) -> Words:
        """Return the sum of the vectors that arrived, given the shares of a threshold of parties."""
        self.roster.enough(opened, "opened their shares")
        assert self._type is not None
        vectors = {name: np.frombuffer(one, self._type) for name, one in self._vectors.items()}
        total = np.sum(list(vectors.values()), axis=0, dtype=self._type)
        for name in self._shared:
            shares = {self.roster.place(one): part[name] for one, part in opened.items() if name in part}
            secret = self._restored(name, shares)
            if name in vectors:
                total -= _mask(self.roster, self.round_, "own", (name,), secret, total)
            else:
                gone = X25519PrivateKey.from_private_bytes(secret)
                for other in vectors:
                    there = self._keys[other]["pair"]
                    pair = _pair_mask(self.roster, self.round_, gone, there, name, other, total)
                    # The other one has added this mask if its name comes first, and subtracted it otherwise.
                    _add(total, pair, other > name)
        return np.asarray(total)

    def _restored(self, name: str, shares: Mapping[int, bytes]) -> bytes:
        """Return a secret of a party: its own mask's, or its key; checked against what it advertised."""
        if len(shares) < self.roster.threshold:
            raise ProtocolError(f"too few shares of party '{name}' were opened")
        some = dict(sorted(shares.items())[: self.roster.threshold])
        secret = combine(some)
        if name in self._vectors:
            known, found = self._keys[name]["own"], _commitment(self.roster, self.round_, name, secret)
        else:
            known = self._keys[name]["pair"]
            found = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        if not hmac.compare_digest(known, found):
            raise ProtocolError(f"a party opened a wrong share of party '{name}'")
        return secret


def _check_keys(roster: Roster, round_: int, keys: Mapping[str, Message]) -> None:
    """Raise an error unless enough parties advertised keys, each signed for this round, and no key twice."""
    roster.enough(keys, "sent keys")
    for name, one in keys.items():
        if one.keys() != {"cipher", "pair", "own", "signature"} or not all(isinstance(v, bytes) for v in one.values()):
            raise ProtocolError(f"the keys of party '{name[:60]}' are damaged")
        roster.check(name, one["signature"], _advertised(roster, round_, name, one))
    every = [one[kind] for one in keys.values() for kind in ("cipher", "pair", "own")]
    if len({*every}) < len(every):
        raise ProtocolError("two parties have the same key")


def _advertised(roster: Roster, round_: int, name: str, keys: Message) -> bytes:
    return roster.context(round_, b"advertise", name.encode(), keys["cipher"], keys["pair"], keys["own"])


def _listed(roster: Roster, round_: int, names: Iterable[str]) -> bytes:
    return roster.context(round_, b"stayed", *(one.encode() for one in names))


def _commitment(roster: Roster, round_: int, name: str, secret: bytes) -> bytes:
    return hashlib.sha256(roster.context(round_, b"commitment", name.encode(), secret)).digest()


def _pair_mask(
    roster: Roster, round_: int, own: X25519PrivateKey, other: bytes, name: str, with_: str, like: Words
) -> Words:
    """Return the mask that two parties share."""
    return _mask(roster, round_, "pair", tuple(sorted((name, with_))), _exchange(own, other), like)


def _mask(roster: Roster, round_: int, kind: str, names: tuple[str, ...], secret: bytes, like: Words) -> Words:
    """Return random words, as many as another vector has, from a secret bound to a round and its parties."""
    key = _derived(secret, roster.context(round_, kind.encode(), *(one.encode() for one in names)))
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(like.nbytes)), like.dtype)


def _add(total: Words, mask: Words, positive: bool) -> None:
    """Add a mask to a vector, or subtract it."""
    (np.add if positive else np.subtract)(total, mask, out=total)


def _exchange(own: X25519PrivateKey, other: bytes) -> bytes:
    """Return the secret that two keys share; a key of low order would make it known."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:
        raise ProtocolError("a party sent a key that is not one") from error


def _derived(secret: bytes, context: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=context).derive(secret)


def _joined(*parts: bytes) -> bytes:
    """Return parts as bytes from which they can be told apart again."""
    return b"".join(len(one).to_bytes(8) + one for one in parts)

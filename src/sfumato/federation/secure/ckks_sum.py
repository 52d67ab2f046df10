"""`SecureSum` by CKKS (through TenSEAL) with one key holder: parties encrypt, the coordinator adds, the holder opens.

    1. key      the key holder: a fresh public key, signed
    2. vector   each party: its vector, encrypted with it, signed
    3. open     the key holder: the sum, decrypted

CKKS is approximate. Numbers here are whole and their sums are below 2^40, the error of a sum is below 2^-10 by far,
and the key holder rounds: so the sum is exact, and its error, which could reveal the key (Li and Micciancio 2021), is
never sent. A number that is further than ``LARGEST_ERROR`` from a whole one is refused.

What is promised: the coordinator sees the sum alone, as long as it does not collude with the key holder, and both keep
to the protocol. A coordinator that sends a single vector as the sum would learn it: use threshold encryption where it
is not trusted that far. The key holder learns the sum too. Parties may be absent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from sfumato.errors import OptionError, ProtocolError
from sfumato.federation.channel import Channel, Handler
from sfumato.federation.secure.forms import form_of, from_bytes
from sfumato.federation.secure.lanes import LANE, check_size, from_lanes, to_lanes
from sfumato.federation.secure.masks import Roster, signed_parts
from sfumato.federation.secure.seal import CkksParameters, seal, to_bytes
from sfumato.federation.secure.sum import Contribute, Rounds, SecureSum, Summed, contributed, too_few
from sfumato.federation.wire import Message

__all__ = ["LARGEST_ERROR", "CkksSum", "ckks_handlers"]

LARGEST_ERROR = 0.125
"""How far from a whole number a decrypted one may be."""
_PARAMETERS = CkksParameters(degree=8192, depth=1, scale_bits=40)
_SCALE = 2.0**40
_ROOM = _PARAMETERS.slots - 1  # the last number is known


class CkksSum(SecureSum):
    """A sum by CKKS with one key holder; see `sfumato.federation.secure.ckks_sum` for whom it trusts.

    Parameters
    ----------
    roster
        The parties, and how many of them must take part.
    keyholder
        The party that has the secret key, by default the first one; it need not contribute.

    Examples
    --------
    >>> from sfumato.federation.channel import InProcess, Party
    >>> own = {name: Ed25519PrivateKey.generate() for name in ("east", "north", "south")}
    >>> roster = Roster(bytes(32), {name: one.public_key().public_bytes_raw() for name, one in own.items()}, 2)
    >>> def holder(name, value):
    ...     return Party(name, ckks_handlers(roster, name, own[name], lambda _: (np.array([value], np.uint32), {})))
    >>> channel = InProcess([holder("east", 2), holder("north", 3), holder("south", 4)])
    >>> CkksSum(roster).total(channel, 1, dict.fromkeys(own, {})).total.tolist()
    [9]
    """

    def __init__(self, roster: Roster, *, keyholder: str | None = None) -> None:
        self.roster, self.keyholder = roster, keyholder_of(roster, keyholder)

    def total(
        self, channel: Channel, round_: int, requests: Mapping[str, Message], *, bits: int = 32, timeout: float = 600.0
    ) -> Summed:
        """Ask for the key, the vectors and the sum."""
        roster, holder = self.roster, self.keyholder
        key = self._of_holder(channel, "key", {"round": round_}, timeout)
        asked = {
            name: {"kind": "ckks/vector", "round": round_, "key": key, "request": one, "bits": bits}
            for name, one in requests.items()
        }
        replies = channel.ask(asked, timeout=timeout)
        if len(replies.arrived) < roster.threshold:
            raise too_few(replies, len(replies.arrived), len(roster.keys), roster.threshold)
        names = tuple(sorted(replies.arrived))
        vectors = {name: _read(roster, round_, b"vector", name, replies.arrived[name], key) for name in names}
        sizes = {(one["size"], len(vectors[name])) for name, one in replies.arrived.items()}
        if len(sizes) > 1:
            raise ProtocolError("the vectors of the parties have different lengths")
        ((size, count),) = sizes
        evaluator = seal().Evaluator(_PARAMETERS.context)
        sums = []
        for at in range(count):
            total = _ciphertext(vectors[names[0]][at])
            for name in names[1:]:
                evaluator.add_inplace(total, _ciphertext(vectors[name][at]))
            sums.append(to_bytes(total))
        request = {"round": round_, "sums": sums, "size": size, "parties": list(names)}
        opened = self._of_holder(channel, "open", request, timeout)
        roster.check(holder, opened["signature"], _context(roster, round_, b"open", holder, [opened["lanes"]], size))
        lanes = np.frombuffer(opened["lanes"], "<i8")
        if len(lanes) != size or (size and (lanes.min() < 0 or lanes.max() >= len(names) * 2**LANE)):
            raise ProtocolError(f"the sum that party '{holder}' opened is out of range")
        seen = {name: one.get("seen", {}) for name, one in replies.arrived.items()}
        return Summed(from_lanes(lanes, bits), names, seen, replies.refused)

    def _of_holder(self, channel: Channel, step: str, request: Message, timeout: float) -> Message:
        replies = channel.ask({self.keyholder: {"kind": f"ckks/{step}", **request}}, timeout=timeout)
        found = replies.require([self.keyholder], f"take the step '{step}'")[self.keyholder]
        wanted = {"lanes", "signature"} if step == "open" else {"parts", "size", "signature"}
        if not wanted <= found.keys() or not isinstance(found["signature"], bytes):
            raise ProtocolError(f"a message of party '{self.keyholder}' is damaged")
        if step == "open" and (not isinstance(found["lanes"], bytes) or len(found["lanes"]) % 8):
            raise ProtocolError(f"a message of party '{self.keyholder}' is damaged")
        return found


def ckks_handlers(
    roster: Roster, name: str, identity: Ed25519PrivateKey, contribute: Contribute, *, keyholder: str | None = None
) -> dict[str, Handler]:
    """Return a party's half of a `CkksSum`, and that of the key holder if it is this party."""
    holder = keyholder_of(roster, keyholder)
    if roster.keys.get(name) != identity.public_key().public_bytes_raw():
        raise OptionError(f"the key of party '{name}' is not the one in the roster")

    def signed(round_: int, kind: bytes, parts: list[bytes], size: int, key: bytes = b"") -> Message:
        signature = identity.sign(_context(roster, round_, kind, name, parts, size, key))
        return {"parts": parts, "size": size, "signature": signature}

    sent = Rounds(name, lambda round_: round_)

    def vector(request: Message) -> Message:
        round_ = sent.begin(request)
        (data,) = _read(roster, round_, b"key", holder, request["key"])
        words, seen = contributed(name, contribute, request)
        lanes = to_lanes(words)
        check_size("CKKS", len(roster.keys), len(lanes))
        parts, size = _encrypted(data, lanes, roster.place(name))
        return {**signed(round_, b"vector", parts, size, _mark(request["key"])), "seen": seen}

    if name != holder:
        return {"ckks/vector": vector}
    held = Rounds(name, _KeyHolder)

    def key(request: Message) -> Message:
        return signed(request["round"], b"key", [held.begin(request).public], 0)

    def open_(request: Message) -> Message:
        names = request["parties"]
        if len({*names}) < len(names) or not {*names} <= roster.keys.keys():
            raise ProtocolError("the list of parties whose sum is to be opened is damaged")
        roster.enough(names, "are in the sum to open")
        known = sum(map(roster.place, names))
        lanes = held.party(request).open(request["sums"], request["size"], known)
        signature = identity.sign(_context(roster, request["round"], b"open", name, [lanes], request["size"]))
        return {"lanes": lanes, "signature": signature}

    return {"ckks/vector": vector, "ckks/key": key, "ckks/open": open_}


class _KeyHolder:
    """The secret key of one round: it opens one sum, and is forgotten."""

    def __init__(self, round_: int) -> None:
        keys = seal().KeyGenerator(_PARAMETERS.context)
        public = seal().PublicKey()
        keys.create_public_key(public)
        self.public = to_bytes(public)
        self._decryptor: Any = seal().Decryptor(_PARAMETERS.context, keys.secret_key())

    def open(self, sums: Sequence[bytes], size: int, known: int) -> bytes:
        """Return the numbers that the sums hold."""
        decryptor, self._decryptor = self._decryptor, None
        if decryptor is None:
            raise ProtocolError("the sum of this round has been opened already")
        if type(size) is not int or not 0 <= size <= len(sums) * _ROOM:
            raise ProtocolError("the sum is damaged")
        library, found = seal(), []
        encoder = library.CKKSEncoder(_PARAMETERS.context)
        for one in sums:
            plain = library.Plaintext()
            decryptor.decrypt(_ciphertext(one), plain)
            found.append(np.asarray(encoder.decode_double(plain)))
        numbers = np.array(found)
        whole = np.rint(numbers)
        if not (np.abs(numbers - whole) <= LARGEST_ERROR).all() or (whole[:, _ROOM:] != known).any():
            raise ProtocolError("the sum did not open: it is damaged, or encrypted with another key")
        return bytes(whole[:, :_ROOM].reshape(-1)[:size].astype("<i8").tobytes())


def keyholder_of(roster: Roster, name: str | None) -> str:
    """Return the party that has the key."""
    found = roster.names[0] if name is None else name
    if found not in roster.keys:
        raise OptionError(f"the key holder '{found}' is not a party of this run")
    check_size("CKKS", len(roster.keys), 0)
    return found


def _encrypted(public: bytes, lanes: NDArray[np.int64], place: int) -> tuple[list[bytes], int]:
    library = seal()
    key = from_bytes(form_of(_PARAMETERS, "public"), _PARAMETERS, public)
    encryptor, encoder = library.Encryptor(_PARAMETERS.context, key), library.CKKSEncoder(_PARAMETERS.context)
    count = max(-(-len(lanes) // _ROOM), 1)
    rows = np.full((count, _PARAMETERS.slots), float(place))
    rows[:, :_ROOM] = np.pad(lanes, (0, count * _ROOM - len(lanes))).reshape(count, _ROOM)
    parts = []
    for row in rows:
        plain, sealed = library.Plaintext(), library.Ciphertext()
        encoder.encode(row.tolist(), _SCALE, plain)
        encryptor.encrypt(plain, sealed)
        parts.append(to_bytes(sealed))
    return parts, len(lanes)


def _ciphertext(data: Any) -> Any:
    return from_bytes(form_of(_PARAMETERS, "vector"), _PARAMETERS, data)


def _read(
    roster: Roster, round_: int, kind: bytes, name: str, message: Any, key: Mapping[str, Any] | None = None
) -> list[bytes]:
    """Return the parts of a signed message."""
    parts, size, signature = signed_parts(name, message)
    mark = b"" if key is None else _mark(key)
    roster.check(name, signature, _context(roster, round_, kind, name, parts, size, mark))
    return parts


def _mark(key: Mapping[str, Any]) -> bytes:
    """Return a name of the key, to which vectors are bound."""
    return hashlib.sha256(bytes(key["signature"])).digest()


def _context(
    roster: Roster, round_: int, kind: bytes, name: str, parts: Sequence[bytes], size: int, key: bytes = b""
) -> bytes:
    hashes = [hashlib.sha256(one).digest() for one in parts]
    return roster.context(round_, b"ckks", kind, name.encode(), key, size.to_bytes(8), *hashes)

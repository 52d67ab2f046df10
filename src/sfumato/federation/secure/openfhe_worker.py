"""Threshold encryption in a process of its own, run by any interpreter that imports OpenFHE (Python 3.10 does).

This file needs nothing but OpenFHE and the standard library; `sfumato.federation.secure.serve` runs it. It keeps no
state between requests but the parameters, so one process serves any number of parties.
"""

from __future__ import annotations

import array
import importlib
from typing import Any

_RING = 16384
_TAG = "sfumato"


class Encryption:
    """BFV with a key that is shared by all parties (n of n), and noise flooding of 120 bits in every share."""

    def __init__(self, library: Any, parties: int, modulus: int) -> None:
        self.library = library
        given = library.CCParamsBFVRNS()
        given.SetPlaintextModulus(modulus)
        given.SetMultiplicativeDepth(0)
        given.SetEvalAddCount(parties)
        given.SetThresholdNumOfParties(parties)
        given.SetMultipartyMode(library.MultipartyMode.NOISE_FLOODING_MULTIPARTY)
        given.SetSecurityLevel(library.SecurityLevel.HEStd_128_classic)
        self.context = library.GenCryptoContext(given)
        for feature in ("PKE", "KEYSWITCH", "LEVELEDSHE", "ADVANCEDSHE", "MULTIPARTY"):
            self.context.Enable(getattr(library.PKESchemeFeature, feature))
        if self.context.GetRingDimension() != _RING:
            raise ValueError("ring")

    def template(self) -> list[bytes]:
        """Return a public key, a ciphertext and shares of its opening, for their form alone."""
        _, first = self.share(self._bytes(self.context.KeyGen().publicKey))
        secret, public = self.share(first)  # again, because the form depends on where the reference comes from
        sent = self.encrypt(public, bytes(8 * _RING))
        return [public, *sent, *self.open(secret, True, sent), *self.open(secret, False, sent)]

    def share(self, reference: bytes) -> list[bytes]:
        """Return a fresh secret key and its share of the common public key, with the polynomial of the reference."""
        pair = self.context.MultipartyKeyGen(self._public(reference), False, True)
        pair.publicKey.SetKeyTag(_TAG)
        pair.secretKey.SetKeyTag(_TAG)
        return [self._bytes(pair.secretKey), self._bytes(pair.publicKey)]

    def encrypt(self, joint: bytes, values: bytes) -> list[bytes]:
        """Return whole numbers, encrypted."""
        key, numbers = self._public(joint), array.array("q", values).tolist()
        found = []
        for at in range(0, len(numbers), _RING):
            plain = self.context.MakePackedPlaintext(numbers[at : at + _RING])
            found.append(self._bytes(self.context.Encrypt(key, plain)))
        return found

    def open(self, secret: bytes, lead: bool, sums: list[bytes]) -> list[bytes]:
        """Return one party's shares of encrypted sums."""
        key = self.library.DeserializePrivateKeyString(secret, self.library.BINARY)
        open_ = self.context.MultipartyDecryptLead if lead else self.context.MultipartyDecryptMain
        return [self._bytes(open_([self._ciphertext(one)], key)[0]) for one in sums]

    def fuse(self, opened: list[bytes]) -> list[bytes]:
        """Return the numbers of sums, of each of which the shares of all parties are added up."""
        numbers = array.array("q")
        for one in opened:
            plain = self.context.MultipartyDecryptFusion([self._ciphertext(one)])
            plain.SetLength(_RING)
            numbers.extend(plain.GetPackedValue())
        return [numbers.tobytes()]

    def _bytes(self, thing: Any) -> bytes:
        found: bytes = self.library.Serialize(thing, self.library.BINARY)
        return found

    def _public(self, data: bytes) -> Any:
        return self.library.DeserializePublicKeyString(data, self.library.BINARY)

    def _ciphertext(self, data: bytes) -> Any:
        return self.library.DeserializeCiphertextString(data, self.library.BINARY)


class Answer:
    """Answers the requests of `sfumato.federation.secure.openfhe`."""

    def __init__(self) -> None:
        self.library = importlib.import_module("openfhe")
        self.known: dict[tuple[int, int], Encryption] = {}

    def __call__(self, header: Any, parts: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        """Return the parts of the reply."""
        return {}, self._answer(header, parts)

    def _answer(self, header: Any, parts: list[bytes]) -> list[bytes]:
        op = header["op"]
        if op == "hello":
            return []
        key = (int(header["parties"]), int(header["modulus"]))
        if key not in self.known:
            self.known[key] = Encryption(self.library, *key)
        engine = self.known[key]
        if op == "template":
            return engine.template()
        if op == "share":
            return engine.share(parts[0])
        if op == "encrypt":
            return engine.encrypt(parts[0], parts[1])
        if op == "open":
            return engine.open(parts[0], bool(header["lead"]), parts[1:])
        if op == "fuse":
            return engine.fuse(parts)
        raise ValueError("op")

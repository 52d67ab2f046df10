"""A sum by threshold encryption in plain OpenFHE, for comparison: run by the interpreter that imports it.

Reads a number of parties and of values per line, and prints the CPU seconds, the bytes that a party sends, and whether
the sum is right. No signatures, no checks of messages, and only the coordinator adds up the ciphertexts.
"""

from __future__ import annotations

import importlib
import random
import sys
import time
from typing import Any

MODULUS, RING = 2199023288321, 16384


def run(library: Any, parties: int, size: int) -> tuple[float, int, bool]:
    given = library.CCParamsBFVRNS()
    given.SetPlaintextModulus(MODULUS)
    given.SetMultiplicativeDepth(0)
    given.SetEvalAddCount(parties)
    given.SetThresholdNumOfParties(parties)
    given.SetMultipartyMode(library.MultipartyMode.NOISE_FLOODING_MULTIPARTY)
    context = library.GenCryptoContext(given)
    for feature in ("PKE", "KEYSWITCH", "LEVELEDSHE", "ADVANCEDSHE", "MULTIPARTY"):
        context.Enable(getattr(library.PKESchemeFeature, feature))
    vectors = [[random.getrandbits(32) for _ in range(size)] for _ in range(parties)]
    write = lambda one: library.Serialize(one, library.BINARY)  # noqa: E731
    began = time.process_time()
    pairs = [context.KeyGen()]
    for _ in range(parties - 1):
        key = library.DeserializePublicKeyString(write(pairs[-1].publicKey), library.BINARY)
        pairs.append(context.MultipartyKeyGen(key))
    joint, sent = write(pairs[-1].publicKey), 0
    ciphertexts = []
    for vector in vectors:
        key = library.DeserializePublicKeyString(joint, library.BINARY)
        parts = [
            write(context.Encrypt(key, context.MakePackedPlaintext(vector[at : at + RING])))
            for at in range(0, size, RING)
        ]
        sent += sum(map(len, parts))
        ciphertexts.append(parts)
    found: list[int] = []
    for parts in zip(*ciphertexts, strict=True):
        read = [library.DeserializeCiphertextString(one, library.BINARY) for one in parts]
        total = read[0]
        for one in read[1:]:
            total = context.EvalAdd(total, one)
        data, shares = write(total), []
        for at, pair in enumerate(pairs):
            open_ = context.MultipartyDecryptMain if at else context.MultipartyDecryptLead
            read_sum = library.DeserializeCiphertextString(data, library.BINARY)
            shares.append(write(open_([read_sum], pair.secretKey)[0]))
            sent += len(shares[-1])
        fused = context.MultipartyDecryptFusion(
            [library.DeserializeCiphertextString(one, library.BINARY) for one in shares]
        )
        fused.SetLength(RING)
        found += fused.GetPackedValue()
    seconds = time.process_time() - began
    right = [one % MODULUS for one in found[:size]] == [sum(one) for one in zip(*vectors, strict=True)]
    return seconds, (sent + parties * len(joint)) // parties, right


def main() -> None:
    library = importlib.import_module("openfhe")
    for line in sys.stdin:
        parties, size = map(int, line.split())
        print(*run(library, parties, size), flush=True)


if __name__ == "__main__":
    main()

"""Which records train a model and which test it: a coin for each record, thrown with a secret key.

The coin depends on what the record holds and on the key, never on its position or on other records. So two tables that
differ by one record are divided alike but for that record, whatever the key. Of several equal records, each has a coin
of its own: the first, the second and so on, which of them is which makes no difference.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.budget.ledger.fingerprint import canonical_text, texts_of
from sfumato.data.table import Table

__all__ = ["coins_of", "happened", "key_of", "new_key", "records_of"]

KEY_BYTES = 32
Coins = NDArray[np.uint64]
Records = NDArray[np.uint8]


def new_key() -> bytes:
    """Return a secret from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


def key_of(seed: int) -> bytes:
    """Return the key of a seed: for public data, and for trainings that are not private.

    Examples
    --------
    >>> key_of(1) == key_of(1), key_of(1) == key_of(2)
    (True, False)
    """
    return hashlib.blake2b(b"sfumato division %d" % seed, digest_size=KEY_BYTES).digest()


def records_of(frame: pl.DataFrame) -> Records:
    """Return a row of bytes for each record of a table: equal for records that read the same.

    A value is what it reads as, whatever the type of its column: in a text file one record can change the type, and
    so the form, of all values of a column.

    Examples
    --------
    >>> numbers, texts = pl.DataFrame({"age": [30, 7]}), pl.DataFrame({"age": ["30.0", "unknown"]})
    >>> bool((records_of(numbers)[0] == records_of(texts)[0]).all())
    True
    """
    names = sorted(frame.columns)
    codes = Table(frame).encode(names)
    parts = [np.zeros((len(frame), 0), dtype=np.uint8)]
    for at, domain in enumerate(codes.domains):
        texts = texts_of(domain)
        if domain.values.dtype != pl.Float64:  # which are in their shortest form already
            texts = [None if text is None else canonical_text(text) for text in texts]
        digests = [hashlib.blake2b(repr((domain.name, text)).encode(), digest_size=8).digest() for text in texts]
        table = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, 8)
        parts.append(table[codes.values[:, at]])
    return np.concatenate(parts, axis=1)


def coins_of(records: Any, key: bytes) -> Coins:
    """Return two independent coins for each record: whether it tests, and whether it is taken at all.

    Parameters
    ----------
    records : array
        A record in each row.
    key : bytes

    Examples
    --------
    >>> records = records_of(pl.DataFrame({"sex": ["f", "m", "f"]}))
    >>> coins = coins_of(records, key_of(1))
    >>> coins.shape, len(np.unique(coins))
    ((3, 2), 6)
    """
    rows = np.ascontiguousarray(records).reshape(len(records), -1)
    if not len(rows):
        return np.zeros((0, 2), dtype=np.uint64)
    whole = rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize)))[:, 0]
    _, which, sizes = np.unique(whole, return_inverse=True, return_counts=True)
    order = np.argsort(which, kind="stable")
    copy = np.empty(len(rows), dtype=np.int64)  # how many equal ones are before
    copy[order] = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    digests = [
        hashlib.blake2b(number.to_bytes(8, "little") + one.tobytes(), key=key, digest_size=16).digest()
        for number, one in zip(copy.tolist(), whole, strict=True)
    ]
    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2)


def happened(coins: Coins, chance: float) -> NDArray[np.bool_]:
    """Return for which coins something of this chance happened.

    Examples
    --------
    >>> happened(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 0.5).tolist()
    [True, False, False]
    """
    return np.ones(len(coins), dtype=bool) if chance >= 1 else coins < np.uint64(int(chance * 2.0**64))

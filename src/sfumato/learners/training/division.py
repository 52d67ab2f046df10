"""Random assignment of records to training and test: one coin per record, from a secret key.

The coin depends on the values of the record and on the key, never on its position or on other records. So two tables
that differ by one record assign all other records alike, whatever the key. Equal records are numbered, and each copy
has its own coin; which copy gets which number makes no difference.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.coding import canonical_text, texts_of
from sfumato.data.table import Table

__all__ = ["coins_below", "coins_of", "key_of", "new_key", "records_of"]

KEY_BYTES = 32
Coins = NDArray[np.uint64]
Records = NDArray[np.uint8]


def new_key() -> bytes:
    """Return a random key from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


def key_of(seed: int) -> bytes:
    """Return the key of a seed, for public data and for training without privacy.

    Examples
    --------
    >>> key_of(1) == key_of(1), key_of(1) == key_of(2)
    (True, False)
    """
    return hashlib.blake2b(b"sfumato division %d" % seed, digest_size=KEY_BYTES).digest()


def records_of(frame: pl.DataFrame) -> Records:
    """Return a row of bytes for each record of a table; records with the same normalised values have equal rows.

    Values are compared by their normalised text, not by type: in a text file, one record can change the type, and with
    it the form, of all values of a column.

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
        if domain.values.dtype != pl.Float64:  # floats are already in their shortest form
            texts = [None if text is None else canonical_text(text) for text in texts]
        digests = [hashlib.blake2b(repr((domain.name, text)).encode(), digest_size=8).digest() for text in texts]
        table = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, 8)
        parts.append(table[codes.values[:, at]])
    return np.concatenate(parts, axis=1)


def coins_of(records: Any, key: bytes) -> Coins:
    """Return two independent coins for each record: one for the test part, one for subsampling.

    Parameters
    ----------
    records : array
        A row per record.
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
    copy = np.empty(len(rows), dtype=np.int64)  # the number of equal records before
    copy[order] = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    digests = [
        hashlib.blake2b(number.to_bytes(8, "little") + one.tobytes(), key=key, digest_size=16).digest()
        for number, one in zip(copy.tolist(), whole, strict=True)
    ]
    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2)


def coins_below(coins: Coins, chance: float) -> NDArray[np.bool_]:
    """Return which coins select their record, with this probability.

    Examples
    --------
    >>> coins_below(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 0.5).tolist()
    [True, False, False]
    """
    return np.ones(len(coins), dtype=bool) if chance >= 1 else coins < np.uint64(int(chance * 2.0**64))

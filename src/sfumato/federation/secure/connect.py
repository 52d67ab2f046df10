"""One name for each kind of secure sum, and both halves of it: the coordinator's and a party's."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.errors import OptionError
from sfumato.federation.channel import Handler
from sfumato.federation.secure.ckks_sum import CkksSum, ckks_handlers
from sfumato.federation.secure.lanes import check_size
from sfumato.federation.secure.masks import Roster
from sfumato.federation.secure.mpc import MOST_NUMBERS, SUM, MpcSum, check_parties, mpc_handlers, require_mpyc
from sfumato.federation.secure.openfhe import openfhe
from sfumato.federation.secure.seal import seal
from sfumato.federation.secure.sum import Contribute, MaskedSum, PlainSum, SecureSum, masked_handlers, plain_handlers
from sfumato.federation.secure.threshold_sum import ThresholdSum, threshold_handlers

__all__ = ["SECURE", "SECURE_TRAINING", "check_sum", "connect", "handlers_of", "require_library", "sum_of"]

SECURE_TRAINING = ("none", "masks", "threshold", "ckks")
"""Sums in clear; by masks; by threshold encryption; by CKKS with one key holder."""
SECURE = (*SECURE_TRAINING, "mpc")
"""The same, and by multi-party computation, which is too slow for the updates of a model."""


_ENCRYPTED = {"threshold": "threshold encryption", "ckks": "CKKS"}


def check_sum(secure: str, *, parties: int, words: int, bits: int = 32) -> None:
    """Raise an error, before anything is sent, if a sum of so many words is unknown or too large.

    Examples
    --------
    >>> check_sum("masks", parties=3, words=11_172_810)
    """
    if secure not in SECURE:
        raise OptionError(f"secure must be one of {', '.join(SECURE)}, got {secure!r}")
    if secure in _ENCRYPTED:
        check_size(_ENCRYPTED[secure], parties, words, bits)
    if secure == "mpc":
        check_parties(parties)
        if words > MOST_NUMBERS:
            raise OptionError(
                f"multi-party computation takes at most {MOST_NUMBERS:,} numbers of each party, got {words:,}",
                hint="use masks or threshold encryption",
            )


def require_library(secure: str) -> None:
    """Refuse a sum whose library is missing here, before anything is started.

    Examples
    --------
    >>> require_library("masks")
    """
    if secure == "threshold":
        openfhe()
    elif secure == "ckks":
        seal()
    elif secure == "mpc":
        require_mpyc()


def sum_of(secure: str, roster: Roster, function: Mapping[str, Any] = SUM) -> SecureSum:
    """Return the coordinator's half.

    Parameters
    ----------
    secure
        "none", "masks", "threshold", "ckks" or "mpc".
    roster
        The parties.
    function
        What is opened of the vectors, for "mpc" alone.

    Examples
    --------
    >>> keys = {"a": bytes(32), "b": bytes([1] * 32)}
    >>> type(sum_of("masks", Roster(bytes(32), keys, 2))).__name__
    'MaskedSum'
    """
    require_library(secure)
    if secure == "none":
        return PlainSum(roster.threshold)
    if secure == "masks":
        return MaskedSum(roster)
    if secure == "threshold":
        return ThresholdSum(roster)
    if secure == "ckks":
        return CkksSum(roster)
    if secure == "mpc":
        return MpcSum(roster, function)
    raise OptionError(f"secure must be one of {', '.join(SECURE)}, got {secure!r}")


def handlers_of(
    secure: str,
    roster: Roster,
    name: str,
    identity: Ed25519PrivateKey,
    contribute: Contribute,
    function: Mapping[str, Any] = SUM,
) -> dict[str, Handler]:
    """Return a party's half, around the function that makes its vector."""
    require_library(secure)
    if secure == "none":
        return plain_handlers(contribute)
    if secure == "masks":
        return masked_handlers(roster, name, identity, contribute)
    if secure == "threshold":
        return threshold_handlers(roster, name, identity, contribute)
    if secure == "ckks":
        return ckks_handlers(roster, name, identity, contribute)
    if secure == "mpc":
        return mpc_handlers(roster, name, identity, contribute, function)
    raise OptionError(f"secure must be one of {', '.join(SECURE)}, got {secure!r}")


def connect(
    secure: str, contribute: Mapping[str, Contribute], *, threshold: int, function: Mapping[str, Any] = SUM
) -> tuple[dict[str, dict[str, Handler]], SecureSum]:
    """Return the handlers of each party, and the sum, for parties in one process; keys and the run are fresh.

    Parameters
    ----------
    secure
        "none", "masks", "threshold", "ckks" or "mpc".
    contribute
        What makes the vector of each party, by name.
    threshold
        How many parties must take part.
    function
        What is opened of the vectors, for "mpc" alone.

    Examples
    --------
    >>> import numpy as np
    >>> from sfumato.federation.channel import InProcess, Party
    >>> values = {"east": 2, "north": 3, "south": 4}
    >>> parts = {name: lambda _, one=one: (np.array([one], np.uint32), {}) for name, one in values.items()}
    >>> handlers, sums = connect("masks", parts, threshold=2)
    >>> channel = InProcess([Party(name, one) for name, one in handlers.items()])
    >>> sums.total(channel, 1, dict.fromkeys(values, {})).total.tolist()
    [9]
    """
    if secure == "none":  # also for a single party, and without any threshold
        return {name: plain_handlers(one) for name, one in contribute.items()}, PlainSum(threshold)
    keys = {name: Ed25519PrivateKey.generate() for name in contribute}
    public = {name: one.public_key().public_bytes_raw() for name, one in keys.items()}
    roster = Roster(secrets.token_bytes(32), public, threshold)
    handlers = {name: handlers_of(secure, roster, name, keys[name], one, function) for name, one in contribute.items()}
    return handlers, sum_of(secure, roster, function)

"""Verify a model that was released: its epsilon is derived again from the events that its certificate records.

What was done to the private data cannot be seen in the weights: that the events are those that were run is the word
of who made the release. That they cost what is claimed, and that the files are those that were released, is checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._errors import FileError, SfumatoError
from sfumato.budget.accounting import spent
from sfumato.budget.events import Event, Relation
from sfumato.budget.promise import DifferentialPrivacy
from sfumato.data.certificate import Certificate, is_own, read_plain
from sfumato.measures.claim import Claim

__all__ = ["verify_model"]

_MODEL = "model.json"
_COST = ("events", "private", "noise_multiplier", "clip", "sampling")
_NUMBERS = ("epsilon", "delta", "relation")
_DAMAGED = (
    TypeError,
    KeyError,
    AttributeError,
    ValueError,
    ArithmeticError,
    RecursionError,
)  # by numbers that are none


def verify_model(folder: Path, certificate: Certificate) -> Iterator[Claim]:
    """Check the claims of a model."""
    yield _weights(folder / certificate.data)
    try:
        events = _events(certificate.parameters.get("events"))
        promises = [DifferentialPrivacy.from_dict(one) for one in certificate.guarantees]
    except (SfumatoError, *_DAMAGED) as error:
        yield Claim("its events can be accounted for", False, _told(error))
        return
    if not promises:
        yield Claim("something is guaranteed", False, "it was trained without privacy")
    for promise in promises:
        try:
            found = spent(events, promise.delta, relation=promise.relation).epsilon if events else math.inf
        except (SfumatoError, *_DAMAGED) as error:
            yield Claim(str(promise), False, _told(error))
            continue
        yield Claim(str(promise), found <= promise.epsilon, _inf(found))
        yield from _numbers(certificate, promise, found)
    if promises:
        secret = certificate.parameters.get("private") is True
        yield Claim("its noise cannot be made again", secret, "so it says" if secret else "it came from a given seed")
    yield from _as_in_model(folder, certificate)


def _weights(path: Path) -> Claim:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    claim = "its weights can be read, and are numbers"
    if not is_own(path):
        return Claim(claim, False, "it is missing, or no file of this folder")
    try:
        arrays = load(path.read_bytes())
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return Claim(claim, False, "it is damaged")
    finite = all(bool(np.isfinite(one).all()) for one in arrays.values())
    count = sum(one.size for one in arrays.values())
    return Claim(claim, finite, f"{count:,} numbers" if finite else "some are infinite or no numbers")


def _events(plain: Any) -> tuple[Event, ...]:
    if not isinstance(plain, list):
        raise FileError("the certificate has no list of events")
    return tuple(Event.from_dict(one) for one in plain)


def _numbers(certificate: Certificate, promise: DifferentialPrivacy, found: float) -> Iterator[Claim]:
    """Compare what the certificate says in numbers."""
    claimed, rows = certificate.claims, certificate.source.get("rows")
    epsilon = claimed.get("epsilon")
    yield Claim(f"what was spent is epsilon {_short(epsilon)}", _near(epsilon, found), _inf(found))
    for name, value in (("delta", promise.delta), ("relation", Relation(promise.relation).value)):
        if claimed.get(name) != value:
            yield Claim(f"{name} is {_short(claimed.get(name))}", False, value)
    for name in claimed.keys() - {*_NUMBERS}:
        yield Claim(f"{_short(name)} is {_short(claimed[name])}", False, "of a model, that cannot be measured")
    if rows is None:
        return  # their number is private, and was not published
    if type(rows) is not int or rows < 1 or promise.delta >= 1 / rows:
        yield Claim("delta is below one over the number of records", False, f"of {_short(rows)} records")


def _as_in_model(folder: Path, certificate: Certificate) -> Iterator[Claim]:
    """Compare with the file beside the weights: who lowers a promise in one may forget the other."""
    claim = f"{_MODEL} says the same"
    path = folder / _MODEL
    if _MODEL not in certificate.files or not is_own(path):
        yield Claim(claim, False, "it is missing, or the certificate does not bind it")
        return
    try:
        plain = read_plain(path)
        cost, seed = plain["cost"], plain["parameters"]["insecure_seed"]
        told = certificate.parameters | (certificate.claims if certificate.guarantees else {})
        others = [name for name in _COST if cost.get(name) != told.get(name)]
        if certificate.guarantees:
            others += [name for name in _NUMBERS if cost[name] != told.get(name)]
            others += ["seed of the noise"] if told.get("private") is True and seed is not None else []
    except (FileError, *_DAMAGED):
        yield Claim(claim, False, "it is damaged")
        return
    yield Claim(claim, not others, f"it records other {', '.join(others)}" if others else "the same events")


def _near(claimed: Any, found: float) -> bool:
    if isinstance(claimed, bool) or not isinstance(claimed, int | float):
        return False
    try:
        return math.isclose(claimed, found, rel_tol=1e-6)
    except OverflowError:  # a whole number of more than 308 digits
        return False


def _inf(value: float) -> Any:
    return "inf" if value == math.inf else value


def _short(value: Any) -> str:
    return str(value)[:40]


def _told(error: BaseException) -> str:
    """Return why something cannot be accounted for, of which a stranger chose the length."""
    return str(error).partition("\n")[0][:200] if isinstance(error, SfumatoError) else "it is damaged"

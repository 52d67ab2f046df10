"""Verify a model that was released: its epsilon is derived again from the events that its certificate records.

What was done to the private data cannot be seen in the weights: that the events are those that were run is the word
of who made the release. That they cost what is claimed, and that the files are those that were released, is checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._errors import FileError, SfumatoError
from sfumato.budget.accounting import spent
from sfumato.budget.events import Event, Relation
from sfumato.budget.promise import DifferentialPrivacy
from sfumato.data.certificate import Certificate, is_own
from sfumato.measures.claim import Claim

__all__ = ["verify_model"]

_MODEL = "model.json"


def verify_model(folder: Path, certificate: Certificate) -> Iterator[Claim]:
    """Check the claims of a model."""
    yield _weights(folder / certificate.data)
    try:
        events = _events(certificate.parameters.get("events"))
        promises = [DifferentialPrivacy.from_dict(one) for one in certificate.guarantees]
    except (SfumatoError, TypeError, KeyError, AttributeError) as error:
        yield Claim("its events can be accounted for", False, str(error).partition("\n")[0][:200])
        return
    if not promises:
        yield Claim("something is guaranteed", False, "it was trained without privacy")
    for promise in promises:
        try:
            found = spent(events, promise.delta, relation=promise.relation).epsilon if events else math.inf
        except SfumatoError as error:
            yield Claim(str(promise), False, str(error).partition("\n")[0])
            continue
        yield Claim(str(promise), found <= promise.epsilon, "inf" if found == math.inf else found)
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
    claimed = certificate.claims
    epsilon = claimed.get("epsilon")
    same = isinstance(epsilon, int | float) and math.isclose(epsilon, found, rel_tol=1e-6)
    yield Claim(f"what was spent is epsilon {epsilon}", same, "inf" if found == math.inf else found)
    for name, value in (("delta", promise.delta), ("relation", Relation(promise.relation).value)):
        if claimed.get(name) != value:
            yield Claim(f"{name} is {claimed.get(name)}", False, value)


def _as_in_model(folder: Path, certificate: Certificate) -> Iterator[Claim]:
    """Compare with the file beside the weights: who lowers a promise in one may forget the other."""
    claim = f"{_MODEL} says the same"
    path = folder / _MODEL
    if _MODEL not in certificate.files or not is_own(path):
        yield Claim(claim, False, "it is missing, or the certificate does not bind it")
        return
    try:
        cost = json.loads(path.read_text(encoding="utf-8"))["cost"]
        same = cost["events"] == certificate.parameters.get("events")
        same = same and (not certificate.guarantees or cost["delta"] == certificate.claims.get("delta"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        yield Claim(claim, False, "it is damaged")
        return
    yield Claim(claim, same, "the same events" if same else "it records other events")

"""Parties for processes of their own: `make` is what `Holder` names, and the identities follow from the names."""

from __future__ import annotations

import hashlib
import time

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.federation.channel import Party
from sfumato.federation.secure.masks import Roster
from sfumato.federation.secure.sum import masked_handlers, plain_handlers

NAMES = ("east", "north", "south")


def identity(name):
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def roster():
    return Roster(bytes(32), {name: identity(name).public_key().public_bytes_raw() for name in NAMES}, threshold=2)


def noise(seed, size):
    return np.random.default_rng(seed).bytes(size)


def make(name, folder, *, factor):
    def contribute(request):
        return np.arange(5, dtype=np.uint32) * (factor + request["by"]), {"rows": factor}

    def mirror(request):
        return {"arrived": hashlib.sha256(request["data"]).hexdigest(), "data": noise(factor, request["size"])}

    def sleep(request):
        time.sleep(request["seconds"])
        return {"slept": request["seconds"]}

    masked = masked_handlers(roster(), name, identity(name), contribute)
    return Party(name, {**masked, **plain_handlers(contribute), "mirror": mirror, "sleep": sleep})

"""Forge a release as an attacker would: change its files, and let the certificate bind what they have become."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sfumato as sf
from sfumato.data.certificate import FileFacts

Change = Callable[[dict[str, Any]], object]


def change_json(folder: Path, name: str, change: Change) -> None:
    """Change a JSON file of a release."""
    path = folder / name
    plain = json.loads(path.read_text())
    change(plain)
    path.write_text(json.dumps(plain))
    if name != "certificate.json":
        bind(folder, name)


def change_text(folder: Path, name: str, old: str, new: str) -> None:
    """Replace a text, once, in a file of a release."""
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    bind(folder, name)


def bind(folder: Path, *names: str) -> None:
    """Write the hashes of files, as they are now, into the certificate."""
    facts = {name: FileFacts.of(folder / name).to_dict() for name in names}
    change_json(folder, "certificate.json", lambda plain: plain["files"].update(facts))


def failed(folder: Path) -> list[str]:
    """Return the claims that do not hold."""
    return [claim.claim for claim in sf.verify(folder).failed]


def unchecked(folder: Path) -> list[str]:
    """Return the fields that are listed as not checkable."""
    return [name for claim in sf.verify(folder).unchecked for name in claim.claim.split(", ")]

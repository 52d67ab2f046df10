"""The files of a generator: plain values as JSON, and noisy arrays as safetensors."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sfumato.data.certificate import MOST_BYTES, is_regular_file, read_plain
from sfumato.data.claim import quote
from sfumato.errors import FileError, InputError

__all__ = ["ARRAYS", "FACTS", "read_facts", "write_stored"]

FACTS, ARRAYS = "generator.json", "generator.safetensors"


def write_stored(folder: Path, plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, hint: str = "") -> None:
    """Write the plain values and the arrays of a generator."""
    from safetensors.numpy import save

    text = json.dumps(plain, indent=2, allow_nan=False) + "\n"
    if len(text.encode()) > MOST_BYTES:
        raise InputError(f"the description of the generator would be larger than {MOST_BYTES:,} bytes", hint=hint)
    (folder / FACTS).write_text(text, encoding="utf-8")
    (folder / ARRAYS).write_bytes(save(dict(arrays)))


def read_facts(path: Path, keys: set[str], *, format: int, optional: Collection[str] = ()) -> dict[str, Any]:
    """Return the plain values of a generator, which must have these keys and this format, and may have others."""
    if not is_regular_file(path):
        raise FileError(f"'{path.parent}' does not hold a generator: there is no {FACTS}")
    plain = read_plain(path)
    if not isinstance(plain, dict) or "format" not in plain:
        raise FileError(f"'{path}' is not a generator of Sfumato")
    if plain["format"] != format:
        made = str(plain.get("sfumato"))[:20]
        raise FileError(
            f"'{path}' has format {quote(plain['format'])}, but this version of Sfumato reads format {format}",
            hint=f"it was written by Sfumato {made}",
        )
    if others := plain.keys() - {*optional} ^ keys:
        raise FileError(f"'{path}': {quote(', '.join(sorted(others)))} is missing or unknown")
    return plain

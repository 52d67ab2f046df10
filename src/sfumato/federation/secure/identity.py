"""The signing key of a party, in a file that only its owner can read, and the public key for the others."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.errors import FileError
from sfumato.federation.folder import check_name

__all__ = ["load_identity", "load_public", "new_identity"]

_SECRET = re.compile(r"sfumato party key 1: keep it secret\nname ([A-Za-z0-9_-]{1,60})\nsecret ([0-9a-f]{64})\s*")
_PUBLIC = re.compile(r"sfumato party 1\nname ([A-Za-z0-9_-]{1,60})\npublic ([0-9a-f]{64})\s*")
_MOST = 1000


def new_identity(name: str, folder: str | Path = ".") -> tuple[Path, Path]:
    """Write ``NAME.key``, which only you can read, and ``NAME.pub`` for the others; return both paths.

    Examples
    --------
    >>> secret, public = new_identity("north")
    >>> load_identity(secret)[0], load_public(public)[0]
    ('north', 'north')
    """
    check_name(name)
    secret, public = Path(folder, f"{name}.key"), Path(folder, f"{name}.pub")
    key = Ed25519PrivateKey.generate()
    text = f"sfumato party key 1: keep it secret\nname {name}\nsecret {key.private_bytes_raw().hex()}\n"
    try:
        secret.parent.mkdir(parents=True, exist_ok=True)
        number = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise FileError(f"'{secret}' exists, and a key is never overwritten", hint="choose another name") from None
    except OSError as error:
        raise FileError(f"'{secret}' cannot be written: {error.strerror}") from error
    with os.fdopen(number, "w") as file:
        file.write(text)
    public.write_text(f"sfumato party 1\nname {name}\npublic {key.public_key().public_bytes_raw().hex()}\n")
    return secret, public


def load_identity(path: str | Path) -> tuple[str, Ed25519PrivateKey]:
    """Return the name and the key of a party."""
    found = _SECRET.fullmatch(_text(path))
    if found is None:
        raise FileError(f"'{path}' is not the key of a party", hint="sfumato secure keys NAME makes one")
    return found[1], Ed25519PrivateKey.from_private_bytes(bytes.fromhex(found[2]))


def load_public(path: str | Path) -> tuple[str, bytes]:
    """Return the name and the public key of a party."""
    found = _PUBLIC.fullmatch(_text(path))
    if found is None:
        raise FileError(f"'{path}' is not the public key of a party", hint="give the .pub file, not the .key file")
    return found[1], bytes.fromhex(found[2])


def _text(path: str | Path) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"'{path}' cannot be read as a key") from error

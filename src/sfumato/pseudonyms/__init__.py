"""Pseudonymization: consistent tokens for identifiers across tables, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.pseudonyms.keys import Key as Key
    from sfumato.pseudonyms.tokens import EncryptedTokens as EncryptedTokens
    from sfumato.pseudonyms.tokens import KeyedTokens as KeyedTokens
    from sfumato.pseudonyms.tokens import RandomTokens as RandomTokens

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "keys": "Key",
        "tokens": "EncryptedTokens KeyedTokens RandomTokens",
    },
)

"""Temporary."""

from sfumato.synthesizers.tables.base import State, Stored, split

__all__ = ["State", "Stored", "split"]

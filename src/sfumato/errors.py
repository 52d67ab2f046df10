"""Every exception that Sfumato raises deliberately, and helpers for messages.

::

    SfumatoError
    ├── InputError            an argument, option or file is unusable; also a ValueError
    │   ├── FileError         a file is missing, damaged or in an unknown format
    │   ├── SchemaError       a schema contradicts itself or the table
    │   ├── ColumnError       a column is unknown, repeated or of the wrong kind
    │   ├── OptionError       an option or a guarantee is outside its range
    │   └── ModelError        a model cannot be trained privately as it is
    ├── BudgetError           a charge would exceed the granted budget
    ├── ProtocolError         a party of a joint computation broke the protocol, or too few take part
    └── MissingExtra          an optional dependency is not installed

A message is one sentence that names the object, the rule and the offending value; a hint
says what to do about it. A message never contains a record of the table.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable
from enum import StrEnum
from types import ModuleType
from typing import Any, TypeVar

__all__ = [
    "BudgetError",
    "ColumnError",
    "FileError",
    "InputError",
    "MissingExtra",
    "ModelError",
    "OptionError",
    "ProtocolError",
    "SchemaError",
    "SfumatoError",
]

_E = TypeVar("_E", bound=StrEnum)
_VALUE_LIKE = re.compile(r"[\W_]*\d.*|.*\d{5}.*|.*@.*|.{65,}", re.DOTALL)


class SfumatoError(Exception):
    """Base class of every error that Sfumato raises deliberately.

    Examples
    --------
    >>> import sfumato as sf
    >>> str(sf.SfumatoError("the table has no rows", hint="check the file"))
    'the table has no rows (check the file)'
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message} ({hint})" if hint else message)


class InputError(SfumatoError, ValueError):
    """An argument, option or file is unusable."""


class FileError(InputError):
    """A file is missing, damaged or in an unknown format."""


class SchemaError(InputError):
    """A schema contradicts itself or the table."""


class ColumnError(InputError):
    """A column is unknown, repeated or of the wrong kind."""


class OptionError(InputError):
    """An option or a guarantee is outside its range."""


class ModelError(InputError):
    """A model cannot be trained privately as it is."""


class BudgetError(SfumatoError):
    """A charge would exceed the granted budget; nothing was charged, and nothing may be released."""


class ProtocolError(SfumatoError):
    """A party of a joint computation did not keep to the protocol, or too few take part."""


class MissingExtra(SfumatoError):
    """An optional dependency is not installed."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint with the known words closest to an unknown one.

    Examples
    --------
    >>> did_you_mean("gendre", ["age", "gender", "zip"])
    "did you mean 'gender'?"
    >>> did_you_mean("xyzzy", ["age", "sex"])
    'known: age, sex'
    """
    names = list(known)
    if any(map(looks_like_data, names)):  # never show a record that was read as the header
        return "does the table have a header line?"
    lowered = {name.lower(): name for name in reversed(names)}
    close = difflib.get_close_matches(word.lower(), lowered, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(f"'{lowered[match]}'" for match in close) + "?"
    shown = ", ".join(names[:12])
    return f"known: {shown}" + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def looks_like_data(name: str) -> bool:
    """Return whether a column name looks like a cell of a record: a number, a date, an address or a long text.

    Messages quote neither such a name nor the other names of its table: the file may have no header line.

    Examples
    --------
    >>> [looks_like_data(name) for name in ("age", "icd10", "02139", "-3.5", "1987-05-12", "ada@example.org")]
    [False, False, True, True, True, True]
    """
    return bool(_VALUE_LIKE.fullmatch(name))


def one_of(kind: type[_E], value: Any, name: str) -> _E:
    """Return the member of an enumeration with this value, or raise an `OptionError` that lists the values."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(member.value for member in kind)
        raise OptionError(f"{name} must be one of {known}, got {value!r}") from None


def require_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency, or raise a `MissingExtra` that says how to install it.

    Examples
    --------
    >>> require_extra("json", "torch", "reading JSON").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{purpose} needs {module.partition('.')[0]}, which is not installed",
            hint=f"pip install 'sfumato[{extra}]'",
        ) from error

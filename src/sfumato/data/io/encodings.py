"""Detect the encoding of a text file: by its byte order mark, else UTF-8, else Windows-1252 if that is plausible.

Any other file is refused with a hint, because a wrong encoding silently changes the text.
"""

from __future__ import annotations

import codecs
import io
from pathlib import Path
from typing import BinaryIO

import numpy as np

from sfumato.errors import FileError, OptionError

__all__ = ["WINDOWS", "bom_encoding", "check_encoding", "encoding_of", "find_encoding", "is_utf8"]

WINDOWS = "cp1252"
_PART = 2**24
_MARKS = {  # UTF-32 first, because its mark begins like that of UTF-16
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Bytes from 0x80 that occur within words in Windows-1252: letters, the apostrophe, the soft hyphen.
_LETTERS = np.zeros(256, dtype=bool)
_LETTERS[0xC0:] = True
_LETTERS[[0x8A, 0x8C, 0x8E, 0x9A, 0x9C, 0x9E, 0x9F, 0xAA, 0xBA, 0x92, 0xAD, 0xB7]] = True
_LETTERS[[0xD7, 0xF7]] = False
_WORD = _LETTERS.copy()
_WORD[ord("A") : ord("Z") + 1] = _WORD[ord("a") : ord("z") + 1] = True
_UNDEFINED = np.zeros(256, dtype=bool)
_UNDEFINED[[0x81, 0x8D, 0x8F, 0x90, 0x9D]] = True
_ODD = 0.1  # the share of bytes from 0x80 that may be implausible


def check_encoding(encoding: str) -> str:
    """Return the name of a text encoding; refuse an unknown one.

    Examples
    --------
    >>> check_encoding("latin-1")
    'latin-1'
    """
    try:
        if codecs.lookup(encoding)._is_text_encoding:
            return encoding
    except (LookupError, ValueError):
        pass
    raise OptionError(f"the encoding '{encoding}' is unknown", hint="for example utf-8, utf-16 or cp1252")


def is_utf8(encoding: str) -> bool:
    """Return whether an encoding name, such as utf_8 or UTF8, means UTF-8."""
    return encoding.lower().replace("_", "-").replace("utf8", "utf-8") in ("utf-8", "utf-8-sig")


def bom_encoding(beginning: bytes) -> str | None:
    """Return the encoding of the byte order mark, or None if there is no mark.

    Examples
    --------
    >>> bom_encoding("age".encode("utf-16")), bom_encoding(b"age")
    ('utf-16', None)
    """
    return next((encoding for mark, encoding in _MARKS.items() if beginning.startswith(mark)), None)


def find_encoding(path: Path, shown: Path | None = None, *, content: bool = True) -> str:
    """Return the encoding of a text file.

    Parameters
    ----------
    path : Path
    shown : Path, optional
        The name of the file in messages.
    content : bool
        Whether to examine the whole file. If not, the encoding is that of the byte order mark or UTF-8, and no record
        influences how another one is read.

    Examples
    --------
    >>> find_encoding(Path("patients.csv"))
    'utf-8'
    """
    with path.open("rb") as file:
        return _detect(file, shown or path, content)


def encoding_of(content: bytes) -> str | None:
    """Return the encoding that would be detected for some bytes, or None if they would be refused.

    Examples
    --------
    >>> encoding_of("Köln".encode("cp1252")), encoding_of(b"ascii")
    ('cp1252', 'utf-8')
    """
    try:
        return _detect(io.BytesIO(content), Path(), True)
    except FileError:
        return None


def _detect(file: BinaryIO, shown: Path, content: bool) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    beginning = file.read(4096)
    marked = bom_encoding(beginning)
    if marked or not content:
        return marked or "utf-8"
    if wide := _without_mark(beginning):
        return wide
    file.seek(0)
    try:
        while part := file.read(_PART):
            if not part.isascii() or decoder.getstate()[0]:
                decoder.decode(part)
        decoder.decode(b"", final=True)
        return "utf-8"
    except UnicodeDecodeError:  # the exception holds the text
        pass
    file.seek(0)
    while part := file.read(_PART):
        _check_windows(part, shown)
    return WINDOWS


def _without_mark(beginning: bytes) -> str | None:
    """Detect UTF-16 without a mark: every second byte of ASCII letters is zero."""
    zeros = np.frombuffer(beginning[: len(beginning) // 2 * 2], dtype=np.uint8).reshape(-1, 2) == 0
    if not len(zeros):
        return None
    first, second = zeros.mean(axis=0)
    if second > 0.7 and first < 0.1:
        return "utf-16-le"
    return "utf-16-be" if first > 0.7 and second < 0.1 else None


def _check_windows(part: bytes, shown: Path) -> None:
    """Refuse text that is implausible as Windows-1252, such as one with symbols within words."""
    letters = np.frombuffer(part, dtype=np.uint8)
    high = letters >= 0x80
    if not high.any():
        return
    before, after = np.roll(letters, 1), np.roll(letters, -1)
    signs = high & ~_LETTERS[letters] & _WORD[before] & _WORD[after]  # symbols within a word
    runs = high & (before >= 0x80) & (after >= 0x80)  # three in a row: another alphabet
    if _UNDEFINED[letters].any() or (letters == 0).any() or max(signs.sum(), runs.sum()) > _ODD * high.sum():
        raise FileError(
            f"the encoding of '{shown}' cannot be detected: it is not UTF-8 and does not look like Windows-1252",
            hint="name it with --encoding, for example cp850, mac_roman, cp1250 or cp1251",
        )

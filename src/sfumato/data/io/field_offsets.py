"""Byte offsets of the fields of a text file, used to replace some fields and leave every other byte unchanged.

Quotes, spaces, line ends, blank lines, the byte order mark and the encoding are preserved.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.data.io.encodings import is_utf8
from sfumato.data.io.text import TextFile
from sfumato.errors import FileError

__all__ = ["Fields", "encode_like"]

_MARKS = {
    codecs.BOM_UTF16_BE: "utf-16-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF32_LE: "utf-32-le",
}
_BEGINNING = 2**16
_QUOTE, _LINE, _RETURN = ord('"'), ord("\n"), ord("\r")


@dataclass(frozen=True, eq=False)
class Fields:
    """The fields of a text file; row ``i`` has those of record ``i``, and the header is record 0.

    Examples
    --------
    >>> from pathlib import Path
    >>> from sfumato.data.io.source import File
    >>> _ = Path("t.csv").write_bytes(b'id;n\\r\\n"7";1,50\\r\\n\\r\\n8;2\\r\\n')
    >>> fields = Fields.of(File(Path("t.csv")).text)
    >>> fields.replace({"id": lambda text: f"<{text}>"})
    b'id;n\\r\\n"<7>";1,50\\r\\n\\r\\n<8>;2\\r\\n'
    """

    content: bytes
    names: tuple[str, ...]
    separator: str
    start: NDArray[np.int64]
    end: NDArray[np.int64]

    @classmethod
    def at_the_top(cls, text: TextFile) -> Fields | None:
        """Find the fields of the first lines; return None if quotes make them irregular."""
        with text.path.open("rb") as file:
            content = file.read(_BEGINNING)
        content = content[: content.rfind(b"\n") + 1]
        start, end = _spans(content, ord(text.separator), len(text.names)) if content else (None, None)
        return None if start is None or end is None else cls(content, text.names, text.separator, start, end)

    @classmethod
    def of(cls, text: TextFile) -> Fields:
        """Find the fields of a file that was read without an error."""
        content = text.path.read_bytes()
        start, end = _spans(content, ord(text.separator), len(text.names))
        if start is None or end is None:
            raise FileError(
                f"'{text.shown}' has quotes that do not enclose whole fields",
                hint='put the field in quotes, and write its own quotes twice: "5"" pipe"',
            )
        return cls(content, text.names, text.separator, start, end)

    def replace(self, new: Mapping[str, Callable[[str], str]]) -> bytes:
        """Return the file with each field of some columns replaced by the result of that column's function."""
        content, at = self.content, 0
        parts: list[bytes] = []
        columns = sorted((self.names.index(name), name) for name in new)
        known: dict[str, dict[bytes, bytes]] = {name: {} for name in new}
        spans = [
            (known[name], new[name], self.start[1:, place].tolist(), self.end[1:, place].tolist())
            for place, name in columns
        ]
        for row in range(len(self.start) - 1):
            for became, make, start, end in spans:
                field = content[start[row] : end[row]]
                put = became.get(field)
                if put is None:
                    put = became[field] = _field(field, make, self.separator)
                if put != field:
                    parts += (content[at : start[row]], put)
                    at = end[row]
        parts.append(content[at:])
        return b"".join(parts)

    def are_quoted(self, rows: slice) -> NDArray[np.bool_]:
        """Return a mask of the fields that are in quotes."""
        start, end = self.start[rows], self.end[rows]
        letters = np.frombuffer(self.content, dtype=np.uint8)
        quoted: NDArray[np.bool_] = (end > start) & (letters[np.minimum(start, len(letters) - 1)] == _QUOTE)
        return quoted


def encode_like(content: bytes, text: TextFile) -> bytes:
    """Return UTF-8 content in the encoding of a file, with the same byte order mark."""
    if is_utf8(text.encoding):
        return content
    try:
        plain = content.decode()
        for mark, encoding in _MARKS.items():
            if text.encoding == encoding.rpartition("-")[0] and text.beginning.startswith(mark):
                return mark + plain.encode(encoding)
        return plain.encode(text.encoding)
    except UnicodeError:
        raise FileError(
            f"the output has characters that the encoding of '{text.shown}', {text.encoding}, lacks",
            hint="write .parquet, or save the file as UTF-8 first",
        ) from None


def _spans(
    content: bytes, separator: int, width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | tuple[None, None]:
    """Return where the fields begin and end; None if the records differ in their number of fields."""
    letters = np.frombuffer(content, dtype=np.uint8)
    is_end = (letters == separator) | (letters == _LINE)
    if b'"' in content:
        is_end &= (np.cumsum(letters == _QUOTE, dtype=np.uint8) & 1) == 0  # its parity survives an overflow
    end = np.flatnonzero(is_end)
    if not content.endswith(b"\n"):
        end = np.append(end, len(content))
    start = np.append(0, end[:-1] + 1)
    if content.startswith(codecs.BOM_UTF8):
        start[0] = len(codecs.BOM_UTF8)
    last = np.append(letters[end[:-1]] == _LINE, True)
    before = letters[np.maximum(end - 1, 0)]
    trimmed = end - (last & (end > start) & (before == _RETURN))
    if width > 1:  # a blank line is not a record
        kept = ~(last & np.append(True, last[:-1]) & (start == trimmed))
        start, trimmed, last = start[kept], trimmed[kept], last[kept]
    if len(start) % width or not last[width - 1 :: width].all() or last.sum() * width != len(start):
        return None, None
    return start.reshape(-1, width), trimmed.reshape(-1, width)


def _field(field: bytes, make: Callable[[str], str], separator: str) -> bytes:
    """Return the new field, in quotes if the old one was or the new text needs them."""
    quoted = field.startswith(b'"')
    text = field[1:-1].replace(b'""', b'"').decode() if quoted else field.decode()
    new = make(text)
    if new == text:
        return field
    plain = new.encode()
    if quoted or any(sign in new for sign in (separator, '"', "\r", "\n")):
        return b'"' + plain.replace(b'"', b'""') + b'"'
    return plain

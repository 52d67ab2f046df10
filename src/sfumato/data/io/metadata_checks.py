"""Check the metadata of Parquet, Arrow and Excel files before anything is read or allocated.

Polars and Arrow trust the metadata: a claimed length of 2^40 in a file of a few kilobytes aborts the process in the
allocator, deeply nested types overflow the stack, and counting 10^12 claimed rows takes hours. None of this raises an
exception, so the claims are checked here, from the metadata alone: for Parquet the beginning of the footer, for Arrow
the footer and the header of each batch. Excel readers allocate every cell between the first and the outermost one.
"""

from __future__ import annotations

import os
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from sfumato.errors import FileError

__all__ = ["check_memory", "check_workbook", "claimed_rows", "memory"]

_MOST_ROWS = 2**14
"""The most rows per byte of a file. A constant column in row groups of a million rows reaches a few thousand."""
_MOST_BYTES = 2**16
"""The most bytes that a compressed byte may expand to: a zstd block of up to 2^17 bytes can take 4."""
_DEEPEST = 100
_SCANNED = 2**25
"""The largest sheet, in bytes, whose cells are scanned; a larger one would take too long."""
_CELL, _TEXT = 64, 4  # bytes of memory per cell of a sheet, and per byte of its XML
_PLACE = re.compile(rb"""\br=["']([A-Za-z]{0,3})(\d{1,7})["']""")
_BEYOND_ZZ = re.compile(rb"""r=["'][A-Za-z]{3}""")
_BEYOND_Z = re.compile(rb"""r=["'][A-Za-z]{2}""")
_BEYOND_99999 = re.compile(rb"""r=["'][A-Za-z]{0,3}\d{6}""")
_PARQUET, _ARROW = b"PAR1", b"ARROW1"
_DICTIONARY, _RECORDS = 2, 3  # message types in an Arrow file


def claimed_rows(path: Path, format: str) -> int:
    """Return the number of rows that a Parquet or an Arrow file claims; refuse impossible claims.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.write(sf.read("patients.csv"), "patients.parquet")
    >>> claimed_rows(Path("patients.parquet"), "parquet")
    8
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        try:
            rows = (_parquet if format == "parquet" else _arrow)(file, size)
        except (struct.error, IndexError, ValueError, OverflowError):
            raise FileError(f"'{path}' cannot be read as {format}: it is damaged or of another format") from None
    if rows > _MOST_ROWS * size:
        raise FileError(
            f"'{path}' claims {rows:,} rows in {size:,} bytes, more than {_MOST_ROWS:,} per byte",
            hint="it is damaged or meant to exhaust this machine; if not, write it with smaller row groups",
        )
    return rows


def check_memory(path: Path, needed: float) -> None:
    """Refuse a file that needs more memory than this machine has."""
    most = memory()
    if needed > most:
        raise FileError(
            f"'{path}' would take {needed / 2**30:,.0f} GiB of memory, and this machine has {most / 2**30:,.0f} GiB",
            hint="it is damaged or too large to be read at once",
        )


def check_workbook(path: Path) -> None:
    """Refuse an Excel file that would exceed the memory, by its compression or by a cell far out."""
    if not zipfile.is_zipfile(path):  # an old format, or not a workbook: the reader decides
        return
    try:
        with zipfile.ZipFile(path) as book:
            parts = book.infolist()
            check_memory(path, _TEXT * sum(part.file_size for part in parts))
            for part in parts:
                if part.filename.startswith("xl/worksheets/") and part.file_size <= _SCANNED:
                    check_memory(path, _CELL * _area(book.read(part)))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error):
        raise FileError(f"'{path}' cannot be read as excel: it is damaged or of another format") from None


def _area(sheet: bytes) -> int:
    """Return the number of cells between the first one and the outermost row and column; 0 if it is small."""
    if not _BEYOND_ZZ.search(sheet) and not (_BEYOND_99999.search(sheet) and _BEYOND_Z.search(sheet)):
        return 0  # at most 702 columns and 99,999 rows, or 26 columns
    letters, rows = zip(*_PLACE.findall(sheet), strict=True)
    widest = max(set(letters), key=lambda column: (len(column), column.upper())).upper()
    columns = 0
    for letter in widest:
        columns = 26 * columns + letter - ord("A") + 1
    return max(columns, 1) * max(map(int, set(rows)))


def memory() -> float:
    """Return the memory of this machine in bytes; infinity if the system does not report it."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # Windows
        return float("inf")


def _footer(file: BinaryIO, size: int, magic: bytes) -> bytes:
    """Return the footer, which is followed by its length and the magic bytes."""
    tail = 4 + len(magic)
    file.seek(max(0, size - tail))
    length, name = struct.unpack(f"<I{len(magic)}s", file.read(tail))
    if name != magic or length + tail > size:
        raise ValueError
    file.seek(size - tail - length)
    return file.read(length)


# Parquet: the footer is a Thrift structure in the compact protocol.


class _Thrift:
    """Read the fields of Thrift structures one after the other."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError

    def integer(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def field(self, before: int) -> tuple[int, int]:
        """Return the number and the type of the next field; type 0 ends a structure."""
        byte = self.content[self.at]
        self.at += 1
        if byte == 0:
            return before, 0
        delta, kind = byte >> 4, byte & 0x0F
        return (before + delta if delta else self.integer()), kind

    def elements(self) -> tuple[int, int]:
        """Return the count and the type of the elements of a list."""
        byte = self.content[self.at]
        self.at += 1
        count = byte >> 4
        return (self.varint() if count == 15 else count), byte & 0x0F

    def skip(self, kind: int, depth: int = 0) -> None:
        if depth > 20:
            raise ValueError
        if kind in (1, 2):  # true and false, which have no value bytes
            return
        if kind == 3:
            self.at += 1
        elif kind in (4, 5, 6):
            self.varint()
        elif kind == 7:
            self.at += 8
        elif kind == 8:
            length = self.varint()  # read first: it advances the position
            self.at += length
        elif kind in (9, 10):
            count, element = self.elements()
            for _ in range(count):
                self.skip(3 if element in (1, 2) else element, depth + 1)
        elif kind == 12:
            number, inner = self.field(0)
            while inner:
                self.skip(inner, depth + 1)
                number, inner = self.field(number)
        else:
            raise ValueError


def _parquet(file: BinaryIO, size: int) -> int:
    metadata = _Thrift(_footer(file, size, _PARQUET))
    number, kind = metadata.field(0)
    while kind:
        if number == 2:  # the schema, which precedes the number of rows
            _check_tree(metadata)
        elif number == 3:
            return metadata.integer()
        else:
            metadata.skip(kind)
        number, kind = metadata.field(number)
    raise ValueError


def _check_tree(metadata: _Thrift) -> None:
    """Refuse a schema (a tree in preorder) that is too deep."""
    left: list[int] = []  # the number of children still to come on each level
    for _ in range(metadata.elements()[0]):
        children = 0
        number, kind = metadata.field(0)
        while kind:
            if number == 5:
                children = metadata.integer()
            else:
                metadata.skip(kind)
            number, kind = metadata.field(number)
        while left and left[-1] == 0:
            left.pop()
        if left:
            left[-1] -= 1
        if children > 0:
            left.append(children)
        if len(left) > _DEEPEST:
            raise ValueError


# Arrow: the metadata are FlatBuffers; a table begins with the offset of its vtable, which locates its fields.


def _member(content: bytes, table: int, number: int) -> int:
    """Return the position of a field of a table, or 0 if it is absent."""
    places = table - int(struct.unpack_from("<i", content, table)[0])
    if places < 0 or 4 + 2 * number >= struct.unpack_from("<H", content, places)[0]:
        return 0
    offset = int(struct.unpack_from("<H", content, places + 4 + 2 * number)[0])
    return table + offset if offset else 0


def _target(content: bytes, table: int, number: int) -> int:
    """Return the position of the table or vector that a field points to, or 0."""
    at = _member(content, table, number)
    return at + int(struct.unpack_from("<I", content, at)[0]) if at else 0


def _structures(content: bytes, table: int, number: int, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return a vector of structures, each of ``width`` 8-byte integers."""
    at = _target(content, table, number)
    count = int(struct.unpack_from("<I", content, at)[0]) if at else 0
    if at + 4 + count * width * 8 > len(content):
        raise ValueError
    return np.frombuffer(content, dtype="<i8", count=count * width, offset=at + 4).reshape(count, width)


def _arrow(file: BinaryIO, size: int) -> int:
    footer = _footer(file, size, _ARROW)
    root = int(struct.unpack_from("<I", footer)[0])
    schema = _target(footer, root, 1)
    if not schema:
        raise ValueError
    _check_fields(footer, schema, 1, _DEEPEST)
    for block in _structures(footer, root, 2, 3):
        _batch(file, size, block, _DICTIONARY)
    return sum(_batch(file, size, block, _RECORDS) for block in _structures(footer, root, 3, 3))


def _check_fields(content: bytes, table: int, number: int, deepest: int) -> None:
    """Refuse fields that are nested too deeply."""
    at = _target(content, table, number)
    count = int(struct.unpack_from("<I", content, at)[0]) if at else 0
    if count and (not deepest or at + 4 + 4 * count > len(content)):
        raise ValueError
    for child in range(at + 4, at + 4 + 4 * count, 4):
        _check_fields(content, child + int(struct.unpack_from("<I", content, child)[0]), 5, deepest - 1)


def _batch(file: BinaryIO, size: int, block: np.ndarray[tuple[int], np.dtype[np.int64]], kind: int) -> int:
    """Return the number of rows of a batch; refuse buffers outside the file or of impossible length."""
    offset, length, body = int(block[0]), int(block[1]) & 0xFFFFFFFF, int(block[2])
    if offset < 0 or body < 0 or offset + length + body > size:
        raise ValueError
    file.seek(offset)
    content = file.read(length)
    start = 8 if content[:4] == b"\xff\xff\xff\xff" else 4
    message = start + int(struct.unpack_from("<I", content, start)[0])
    records = _target(content, message, 2)
    if content[_member(content, message, 1)] != kind or not records:
        raise ValueError
    if kind == _DICTIONARY:
        records = _target(content, records, 1)
    at = _member(content, records, 0)
    rows = int(struct.unpack_from("<q", content, at)[0]) if at else 0
    buffers = _structures(content, records, 2, 2)
    begin, long = buffers[:, 0], buffers[:, 1]
    if rows < 0 or (buffers < 0).any() or (begin > body).any() or (long > body - begin).any():
        raise ValueError
    if _member(content, records, 3):  # compressed: each buffer begins with its expanded length
        total = 0
        for place, stored in buffers[long > 0].tolist():
            file.seek(offset + length + place)
            (claimed,) = struct.unpack("<q", file.read(8))
            if claimed < -1 or claimed > _MOST_BYTES * stored:
                raise ValueError
            total += max(claimed, stored)
        check_memory(Path(file.name), total)
    return rows

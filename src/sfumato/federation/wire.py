"""Messages as bytes: plain values as JSON, arrays and bytes behind it. Reading runs no code and never grows the input.

    magic (8) | length of the header (8) | header: JSON | the arrays and bytes, one after another

The header holds the message, in which ``{"$": i}`` stands for the i-th block, and the type and shape of every block.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sfumato.errors import ProtocolError

__all__ = ["Message", "decode", "encode"]

Message = dict[str, Any]
"""None, booleans, numbers, texts, bytes, arrays, and lists and dictionaries (by text) of these."""

_MAGIC = b"sfumato1"
_PLACE = "$"
_TYPES = {np.dtype(name).str for name in ("?", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f4", "<f8")}
_MOST_HEADER = 2**24


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as bytes.

    Examples
    --------
    >>> sent = encode({"round": 3, "weights": np.array([0.5, 2.0]), "key": b"secret"})
    >>> received = decode(sent)
    >>> received["round"], received["weights"].tolist(), received["key"]
    (3, [0.5, 2.0], b'secret')
    """
    blocks: list[bytes] = []
    facts: list[list[Any]] = []

    def put(value: Any) -> Any:
        if isinstance(value, bytes):
            blocks.append(value)
            facts.append(["bytes", [len(value)]])
            return {_PLACE: len(blocks) - 1}
        if isinstance(value, np.ndarray):
            little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
            if little.dtype.str not in _TYPES:
                raise ProtocolError(f"an array of type {value.dtype} cannot be sent")
            blocks.append(little.tobytes())
            facts.append([little.dtype.str, list(value.shape)])
            return {_PLACE: len(blocks) - 1}
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Mapping):
            if _PLACE in value or not all(isinstance(name, str) for name in value):
                raise ProtocolError(f"names in a message must be texts other than '{_PLACE}'")
            return {name: put(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [put(one) for one in value]
        return value

    try:
        header = json.dumps({"message": put(message), "blocks": facts}, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ProtocolError("a message may hold finite numbers, texts, bytes and arrays only") from error
    return b"".join([_MAGIC, len(header).to_bytes(8), header, *blocks])


def decode(data: bytes) -> Message:
    """Read a message from bytes; a `ProtocolError` if they are damaged. Arrays are views and cannot be written to."""
    try:
        return _decode(memoryview(data))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, OverflowError) as error:
        raise ProtocolError("a message is damaged, or is of another version of Sfumato") from error


def _decode(data: memoryview) -> Message:
    start = len(_MAGIC) + 8
    size = int.from_bytes(data[len(_MAGIC) : start])
    if data[: len(_MAGIC)] != _MAGIC or size > min(_MOST_HEADER, len(data) - start):
        raise ValueError("header")
    header = json.loads(bytes(data[start : start + size]))
    blocks, at = [], start + size
    for kind, shape in header["blocks"]:
        if not isinstance(shape, list) or not all(type(one) is int and one >= 0 for one in shape):
            raise ValueError("shape")
        if kind != "bytes" and kind not in _TYPES:
            raise ValueError("type")
        length = math.prod(shape) * (1 if kind == "bytes" else np.dtype(kind).itemsize)
        if length > len(data) - at:
            raise ValueError("length")
        part = data[at : at + length]
        blocks.append(bytes(part) if kind == "bytes" else np.frombuffer(part, kind).reshape(shape))
        at += length
    if at != len(data):
        raise ValueError("length")

    def get(value: Any) -> Any:
        if isinstance(value, dict):
            if _PLACE not in value:
                return {name: get(one) for name, one in value.items()}
            place = value[_PLACE]
            if len(value) > 1 or type(place) is not int or place < 0:
                raise ValueError("place")
            return blocks[place]
        return [get(one) for one in value] if isinstance(value, list) else value

    message = get(header["message"])
    if not isinstance(message, dict):
        raise ValueError("message")
    return message

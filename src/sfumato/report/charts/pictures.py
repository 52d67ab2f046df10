"""Images inside a page: PNG files without a library, and sheets of many small images."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["data_uri", "png", "smaller", "tiled"]

Bytes = NDArray[np.uint8]

_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # the colour type of a PNG: grey, grey with alpha, colours, colours with alpha


def png(image: Bytes) -> bytes:
    """Return an image of bytes as a PNG file (ISO/IEC 15948).

    Its shape is (height, width) if it is grey; otherwise a last axis has 1 value (grey), 2 (grey, alpha), 3 (red,
    green, blue) or 4 (these and alpha).

    Examples
    --------
    >>> png(np.zeros((2, 3), dtype=np.uint8))[1:4]
    b'PNG'
    """
    pixels = np.asarray(image, dtype=np.uint8)
    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    height, width, channels = pixels.shape
    # Every line begins with the number of its filter: 0 for none.
    lines = np.pad(pixels.reshape(height, width * channels), ((0, 0), (1, 0)))
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)  # 8 bits, not interlaced
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def data_uri(image: Bytes) -> str:
    """Return an image as a data URI, so the page needs no other file.

    Examples
    --------
    >>> data_uri(np.zeros((2, 3), dtype=np.uint8))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    return "data:image/png;base64," + base64.b64encode(png(image)).decode()


def tiled(images: Sequence[Bytes] | Bytes, columns: int, *, gap: int = 1) -> Bytes:
    """Arrange images of one size on a sheet with this many columns; the page shows through between them.

    Examples
    --------
    >>> tiled([np.zeros((2, 2), dtype=np.uint8)] * 3, columns=2).shape
    (5, 5, 2)
    """
    tiles = [one[:, :, None] if one.ndim == 2 else one for one in images]
    height, width, channels = tiles[0].shape
    rows = -(-len(tiles) // columns)
    sheet = np.zeros((rows * (height + gap) - gap, columns * (width + gap) - gap, channels + 1), dtype=np.uint8)
    for position, tile in enumerate(tiles):
        top, left = (height + gap) * (position // columns), (width + gap) * (position % columns)
        sheet[top : top + height, left : left + width, :channels] = tile
        sheet[top : top + height, left : left + width, channels] = 255  # opaque
    return sheet


def smaller(images: Bytes, times: int) -> Bytes:
    """Return images of shape (count, height, width, channels) with this many times fewer pixels a side.

    Each pixel is the mean of a square; what is left of a square at the right and the lower edge is cut off.

    Examples
    --------
    >>> smaller(np.array([0, 4, 2, 6], dtype=np.uint8).reshape(1, 2, 2, 1), 2).tolist()
    [[[[3]]]]
    """
    if times == 1:
        return images
    count, height, width, channels = images.shape
    high, wide = height // times, width // times
    squares = images[:, : high * times, : wide * times].reshape(count, high, times, wide, times, channels)
    means: Bytes = np.rint(squares.mean(axis=(2, 4))).astype(np.uint8)
    return means

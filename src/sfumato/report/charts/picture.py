"""Grey images inside a page: a small PNG as the address of an image, so that nothing is asked for from elsewhere."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["address", "png", "tiled"]


def png(image: NDArray[np.uint8]) -> bytes:
    """Return a grey image, a byte per pixel, as a PNG file (ISO/IEC 15948).

    Examples
    --------
    >>> png(np.zeros((2, 3), dtype=np.uint8))[1:4]
    b'PNG'
    """
    height, width = image.shape
    # Every line begins with the number of its filter: 0, the bytes as they are.
    lines = np.pad(np.asarray(image, dtype=np.uint8), ((0, 0), (1, 0)))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits, grey, not interlaced
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def address(image: NDArray[np.uint8]) -> str:
    """Return a grey image as an address that holds it.

    Examples
    --------
    >>> address(np.zeros((2, 3), dtype=np.uint8))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    return "data:image/png;base64," + base64.b64encode(png(image)).decode()


def tiled(images: Sequence[NDArray[np.uint8]], columns: int, *, gap: int = 1) -> NDArray[np.uint8]:
    """Lay images of one size side by side on white, in rows of so many columns.

    Examples
    --------
    >>> tiled([np.zeros((2, 2), dtype=np.uint8)] * 3, columns=2).shape
    (5, 5)
    """
    height, width = images[0].shape
    rows = -(-len(images) // columns)
    sheet = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap), 255, dtype=np.uint8)
    for position, image in enumerate(images):
        top, left = (height + gap) * (position // columns), (width + gap) * (position % columns)
        sheet[top : top + height, left : left + width] = image
    return sheet

"""Images inside a page hold the pixels that were given, and nothing else."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest

from sfumato.report.charts.pictures import png, smaller, tiled

CHANNELS = {0: 1, 4: 2, 2: 3, 6: 4}


def pixels(file: bytes) -> np.ndarray[Any, Any]:
    """Read a PNG of bytes without filters, as its standard says."""
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    place, chunks = 8, {}
    while place < len(file):
        (length,), kind = struct.unpack(">I", file[place : place + 4]), file[place + 4 : place + 8]
        data = file[place + 8 : place + 8 + length]
        assert struct.unpack(">I", file[place + 8 + length : place + 12 + length]) == (zlib.crc32(kind + data),)
        chunks[kind] = data
        place += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, rest) == (8, [0, 0, 0])
    channels = CHANNELS[colour]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(height, width * channels + 1)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape((height, width, channels) if channels > 1 else (height, width))


@pytest.mark.parametrize("shape", [(7, 5), (7, 5, 1), (7, 5, 2), (7, 5, 3), (7, 5, 4)])
def test_a_png_holds_the_pixels(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(pixels(png(image)), image.squeeze())
    assert np.array_equal(pixels(png(image[:, ::2])), image[:, ::2].squeeze())  # not in one piece


def test_the_page_shows_through_between_tiles() -> None:
    dark = np.zeros((2, 3), dtype=np.uint8)
    sheet = tiled([dark] * 3, columns=2)
    assert sheet.shape == (5, 7, 2)
    assert (sheet[:, :, 1] == 255).sum() == 3 * 6
    assert sheet[3:, 4:, 1].max() == 0
    colour = tiled(np.full((2, 2, 3, 3), 7, dtype=np.uint8), columns=2, gap=2)
    assert colour.shape == (2, 8, 4)
    assert np.array_equal(colour[:, :3, :3], np.full((2, 3, 3), 7))
    assert not colour[:, 3:5].any()


def test_smaller_images_have_the_means_of_squares() -> None:
    image = np.arange(2 * 5 * 4 * 1, dtype=np.uint8).reshape(2, 5, 4, 1)
    half = smaller(image, 2)
    assert half.shape == (2, 2, 2, 1)
    assert half[0, 0, 0, 0] == round((0 + 1 + 4 + 5) / 4)
    assert smaller(image, 1) is image

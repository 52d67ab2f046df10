"""Read labelled images: ``.npz`` files of numpy, and folders of IDX files as MNIST is distributed.

Nothing in a file is run: arrays of pickled objects are refused. What a file costs is known from its header before its
values are read, so a small file cannot fill the memory.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.images import Images, check_classes
from sfumato.data.io.files import why
from sfumato.data.table import Table
from sfumato.errors import FileError, InputError

__all__ = ["MOST_BYTES", "are_images", "image_table", "read_images", "read_npz"]

MOST_BYTES = 2**33
"""The most bytes that all arrays of a file may take in memory."""

_NAMES = (("images", "labels"), ("train_images", "train_labels"), ("x_train", "y_train"))
_TEST_NAMES = (("test_images", "test_labels"), ("x_test", "y_test"))
_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_IDX_PARTS = ("train", "t10k", "test")
_MOST_AXES = 4


def are_images(data: Any) -> bool:
    """Return whether data is a set of images: an object, an ``.npz`` file, or a folder of IDX files.

    Examples
    --------
    >>> are_images("scans.npz"), are_images("patients.csv")
    (True, False)
    """
    if isinstance(data, Images):
        return True
    if not isinstance(data, str | Path):
        return False
    path = Path(data)
    try:
        return path.suffix.lower() == ".npz" or (path.is_dir() and bool(_idx_files(path)))
    except OSError:
        return False


def read_images(path: str | Path, classes: int | None = None) -> Images:
    """Read labelled images from an ``.npz`` file or a folder of IDX files.

    Parameters
    ----------
    path : path
        An ``.npz`` file with the arrays ``images`` and ``labels`` (or ``train_images`` and ``train_labels``, or
        ``x_train`` and ``y_train``), or a folder with ``train-images-idx3-ubyte`` and ``train-labels-idx1-ubyte``,
        compressed (``.gz``) or not. Test images are read too, if there are any.
    classes : int, optional
        The number of classes. It is public, and never counted from the labels.

    Examples
    --------
    >>> np.savez("scans.npz", images=np.zeros((4, 16, 16), np.uint8), labels=[0, 1, 1, 0])
    >>> read_images("scans.npz", classes=2)
    Images(train=4, test=0, size=16x16, classes=2)
    """
    place = Path(path)
    if classes is not None:
        check_classes(classes)
    if not place.exists():
        raise FileError(f"there is no file '{path}'")
    found = _of_folder(place) if place.is_dir() else _of_npz(place)
    images, labels, *tests = found
    try:
        return Images.of(images, labels, *tests, classes=classes, origin=None if place.is_dir() else place)
    except InputError as error:
        raise type(error)(f"'{place.name}' cannot be used: {error.message}", hint=error.hint) from None


def image_table(images: Images) -> Table:
    """Return a table with a row per image to learn from: the hash of its pixels, and its label.

    By this table a ledger knows the images again, in whatever file and order they are.

    Examples
    --------
    >>> image_table(Images.of(np.zeros((3, 8, 8)), [0, 1, 1])).rows
    3
    """
    shape = "x".join(map(str, images.train_images.shape[1:]))
    hashes = [f"{shape} {hashlib.sha256(one.tobytes()).hexdigest()}" for one in images.train_images]
    frame = pl.DataFrame({"image": hashes, "label": images.train_labels.astype(np.int64)})
    return Table(frame, origin=images.origin)


# --- npz ------------------------------------------------------------------------------------------


def _of_npz(path: Path) -> list[NDArray[Any] | None]:
    arrays = read_npz(path, [name for pair in (*_NAMES, *_TEST_NAMES) for name in pair])
    pair = next((pair for pair in _NAMES if pair[0] in arrays), None)
    if pair is None:
        raise FileError(f"'{path.name}' has no array of images", hint="it needs the arrays 'images' and 'labels'")
    if pair[1] not in arrays:
        raise FileError(f"'{path.name}' has no array '{pair[1]}'", hint="every image needs one label")
    found: list[NDArray[Any] | None] = [arrays[name] for name in pair]
    tests = next((names for names in _TEST_NAMES if names[0] in arrays), None)
    if tests is not None:
        found += [arrays[tests[0]], arrays.get(tests[1])]
    return found


def read_npz(path: Path, names: Sequence[str], most: int = MOST_BYTES) -> dict[str, NDArray[Any]]:
    """Return those arrays of an ``.npz`` file that have one of these names.

    The file may be a stranger's: a `FileError` if it is damaged, holds pickled objects, or would take more memory.

    Examples
    --------
    >>> np.savez("made.npz", images=np.zeros((2, 3, 3), np.uint8), notes=np.ones(2))
    >>> {name: one.shape for name, one in read_npz(Path("made.npz"), ["images", "labels"]).items()}
    {'images': (2, 3, 3)}
    """
    left, arrays = most, {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = {one.filename: one for one in archive.infolist()}
            for name in names:
                if (member := members.get(f"{name}.npy")) is not None:
                    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
                        raise FileError(f"'{path.name}' is encrypted, or compressed in an unusual way")
                    if member.file_size > left:
                        raise FileError(f"'{path.name}' would take more than {most:,} bytes of memory")
                    left -= member.file_size
                    with archive.open(member) as file:
                        arrays[name] = _array(file, member.file_size, path.name, name)
    except OSError as error:
        raise FileError(f"'{path}' cannot be read: {why(error)}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error) as error:
        raise FileError(f"'{path.name}' is damaged, or is not an .npz file") from error
    return arrays


def _array(file: IO[bytes], size: int, source: str, name: str) -> NDArray[Any]:
    """Read an array of numbers whose file has a known size."""
    damaged = FileError(f"'{source}' is damaged: its array '{name}' does not have the size that it states")
    try:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, by_columns, dtype = read(file)
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise FileError(f"'{source}' is damaged: its array '{name}' cannot be read") from error
    if dtype.hasobject or dtype.kind not in "biuf":
        what = "pickled objects" if dtype.hasobject else "values that are not numbers"
        hint = "store one array of numbers; images of different sizes must be brought to one size first"
        if name in (labels for _, labels in (*_NAMES, *_TEST_NAMES)):
            hint = "store one whole number for each image, and number the classes from 0"
        raise FileError(f"'{source}' holds {what} in '{name}', which are never loaded", hint=hint)
    if len(shape) > _MOST_AXES or any(one < 0 for one in shape):
        raise damaged
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > size:
        raise damaged
    if (content := _exactly(file, wanted)) is None:
        raise damaged
    flat = np.frombuffer(content, dtype=dtype)
    return flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)


# --- IDX ------------------------------------------------------------------------------------------


def _idx_files(folder: Path) -> dict[tuple[str, str], Path]:
    """Return the IDX files of a folder by their part (train or test) and what they hold (images or labels)."""
    found: dict[tuple[str, str], Path] = {}
    for one in sorted(path.name for path in folder.iterdir()):
        part = next((part for part in _IDX_PARTS if one.startswith(part)), None)
        what = next((what for what in ("images", "labels") if what in one), None)
        if part and what and "idx" in one:
            found.setdefault(("train" if part == "train" else "test", what), folder / one)
    return found


def _of_folder(folder: Path) -> list[NDArray[Any] | None]:
    try:
        files = _idx_files(folder)
    except OSError as error:
        raise FileError(f"'{folder}' cannot be read: {why(error)}") from error
    for what in ("images", "labels"):
        if ("train", what) not in files:
            hint = f"it needs the file train-{what}-idx{'3' if what == 'images' else '1'}-ubyte, or that with .gz"
            raise FileError(f"'{folder.name}' has no IDX file of {what}", hint=hint)
    found: list[NDArray[Any] | None] = [_read_idx(files["train", what]) for what in ("images", "labels")]
    if ("test", "images") in files:
        found += [_part(files, "images"), _part(files, "labels")]
    return found


def _part(files: Mapping[tuple[str, str], Path], what: str) -> NDArray[Any] | None:
    path = files.get(("test", what))
    return None if path is None else _read_idx(path)


def _read_idx(path: Path) -> NDArray[Any]:
    """Read an IDX file: two zeros, the type, the number of axes, their lengths, then the values."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            start = file.read(4)
            axes = start[3] if len(start) == 4 else 0
            if start[:2] != b"\0\0" or start[2] not in _IDX_TYPES or not 1 <= axes <= _MOST_AXES:
                raise FileError(f"'{path.name}' is not an IDX file")
            lengths = file.read(4 * axes)
            shape = struct.unpack(f">{axes}I", lengths)
            dtype = np.dtype(_IDX_TYPES[start[2]])
            size = math.prod(shape) * dtype.itemsize
            if size > MOST_BYTES:
                raise FileError(f"'{path.name}' would take more than {MOST_BYTES:,} bytes of memory")
            content = _exactly(file, size)
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise FileError(f"'{path.name}' is damaged: it is not compressed as its name says") from error
        raise FileError(f"'{path}' cannot be read: {why(error)}") from error
    except (EOFError, zlib.error, struct.error) as error:
        raise FileError(f"'{path.name}' is damaged: it ends too early") from error
    if content is None:
        expected = " x ".join(map(str, shape))
        raise FileError(f"'{path.name}' is damaged: it does not hold the {expected} values that it states")
    return np.frombuffer(content, dtype=dtype).reshape(shape)


def _exactly(file: Any, size: int) -> bytearray | None:
    """Return so many bytes, in parts: a header may state more than there are. None if there are more or fewer."""
    content = bytearray()  # an array of it can be written to
    while len(content) < size and (part := file.read(min(size - len(content), 2**24))):
        content += part
    return None if len(content) < size or file.read(1) else content

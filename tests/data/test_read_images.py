"""Images are read from numpy and IDX files, and what cannot be used is refused in one sentence."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data.images import Images
from sfumato.data.io.images import are_images, image_table, read_images, read_npz
from sfumato.errors import FileError, InputError, OptionError

PIXELS = np.arange(4 * 8 * 8, dtype=np.uint8).reshape(4, 8, 8)
LABELS = np.array([0, 1, 1, 0])


def npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "scans.npz", **arrays)
    return folder / "scans.npz"


def idx(path: Path, array: np.ndarray[Any, Any], kind: int = 8, more: bytes = b"") -> None:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape)
    content = header + array.tobytes() + more
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


# --- what is read -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [("images", "labels"), ("train_images", "train_labels"), ("x_train", "y_train")], ids=lambda one: one[0]
)
def test_an_npz_file_is_read_under_the_usual_names(names: tuple[str, str], tmp_path: Path) -> None:
    found = read_images(npz(tmp_path, **dict(zip(names, (PIXELS, LABELS), strict=True))), classes=2)
    assert np.array_equal(found.train_images, PIXELS)
    assert found.train_images.flags.writeable
    assert found.train_labels.tolist() == [0, 1, 1, 0]
    assert found.classes == 2
    assert repr(found) == "Images(train=4, test=0, size=8x8, classes=2)"


def test_test_images_and_labels_in_a_column_are_read(tmp_path: Path) -> None:
    path = npz(tmp_path, images=PIXELS, labels=LABELS[:, None], test_images=PIXELS[:2], test_labels=LABELS[:2])
    found = read_images(path)
    assert (len(found.test_images), found.test_labels.tolist(), found.classes) == (2, [0, 1], None)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_folder_of_idx_files_is_read(ending: str, tmp_path: Path) -> None:
    idx(tmp_path / f"train-images-idx3-ubyte{ending}", PIXELS)
    idx(tmp_path / f"train-labels-idx1-ubyte{ending}", LABELS.astype(np.uint8))
    idx(tmp_path / f"t10k-images-idx3-ubyte{ending}", PIXELS[:1])
    idx(tmp_path / f"t10k-labels-idx1-ubyte{ending}", LABELS[:1].astype(">i4"), kind=12)
    assert are_images(tmp_path)
    found = read_images(tmp_path, classes=2)
    assert found.train_images.flags.writeable
    assert np.array_equal(found.train_images, PIXELS)
    assert np.array_equal(found.test_images, PIXELS[:1])
    assert found.test_labels.tolist() == [0]


def test_colour_images_and_other_sizes_are_read() -> None:
    colour = np.zeros((2, 20, 30, 3), np.uint8)
    assert Images.of(colour, [0, 1]).train_images.shape == (2, 20, 30, 3)
    assert Images.of(colour[..., :1], [0, 1]).train_images.shape == (2, 20, 30)


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_floats_from_0_to_1_become_the_nearest_bytes(values: list[float]) -> None:
    found = Images.of(np.array(values).reshape(1, 2, 2), [0]).train_images.ravel()
    assert (np.abs(found / 255 - values) <= 0.5 / 255 + 1e-12).all()


def test_a_ledger_knows_images_again_in_another_order_and_file(tmp_path: Path) -> None:
    order = [2, 0, 3, 1]
    one, other = Images.of(PIXELS, LABELS), Images.of(PIXELS[order], LABELS[order])
    ledger = sf.Ledger.grant(one, epsilon=1, path=tmp_path / "ledger")
    assert sf.Ledger.of(other, tmp_path / "ledger").path == ledger.path
    assert sf.Ledger.of(npz(tmp_path, images=PIXELS, labels=LABELS), tmp_path / "ledger").path == ledger.path
    assert image_table(one).rows == 4
    with pytest.raises(InputError, match="belongs to another data set"):
        sf.Ledger.of(Images.of(PIXELS, 1 - LABELS), tmp_path / "ledger")


# --- what is refused ------------------------------------------------------------------------------

FLOATS = PIXELS / 255
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "labels missing": ({"images": PIXELS}, "'scans.npz' has no array 'labels'"),
    "images missing": ({"labels": LABELS}, "'scans.npz' has no array of images"),
    "more labels than images": ({"images": PIXELS[:3], "labels": LABELS}, "there are 3 images, but 4 labels"),
    "fewer labels than images": ({"images": PIXELS, "labels": LABELS[:3]}, "there are 4 images, but 3 labels"),
    "floats above 1": ({"images": FLOATS * 255, "labels": LABELS}, "the images are floats outside 0..1"),
    "floats below 0": ({"images": FLOATS - 0.1, "labels": LABELS}, "the images are floats outside 0..1"),
    "floats that are not numbers": (
        {"images": FLOATS * np.nan, "labels": LABELS},
        "the images have pixels that are not numbers",
    ),
    "whole numbers above 255": ({"images": PIXELS.astype(int) + 9, "labels": LABELS}, "numbers outside 0..255"),
    "test images of another size": (
        {"images": PIXELS, "labels": LABELS, "test_images": PIXELS[:, :7], "test_labels": LABELS},
        "different sizes: 8 x 8 for learning, 7 x 8 for testing",
    ),
    "test labels missing": ({"images": PIXELS, "labels": LABELS, "test_images": PIXELS}, "the test labels are missing"),
    "a label above the classes": ({"images": PIXELS, "labels": LABELS + 1}, "a label is outside 0 to 1"),
    "a label below 0": ({"images": PIXELS, "labels": LABELS - 1}, "a label is outside 0 to 1"),
    "labels that are not whole": ({"images": PIXELS, "labels": LABELS / 2}, "must be one whole number per image"),
    "several labels": ({"images": PIXELS, "labels": np.zeros((4, 3), int)}, "must be one whole number per image"),
    "texts as labels": ({"images": PIXELS, "labels": LABELS.astype(str)}, "number the classes from 0"),
    "channels first": ({"images": np.zeros((4, 3, 8, 8)), "labels": LABELS}, "must have 1 or 3 channels"),
    "one image without a count": ({"images": PIXELS[0], "labels": LABELS}, "must have the shape count x height"),
    "no images": ({"images": PIXELS[:0], "labels": LABELS[:0]}, "there are no images"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arrays_are_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    arrays, message = BAD[name]
    with pytest.raises(InputError) as caught:
        read_images(npz(tmp_path, **arrays), classes=2)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_images_of_different_sizes_are_refused() -> None:
    with pytest.raises(InputError, match=r"the images have different sizes \(bring all images to one size\)"):
        Images.of([np.zeros((8, 8)), np.zeros((9, 8))], [0, 1])


@pytest.mark.parametrize("classes", [1, 0, -3, 2.0, "ten", True, 10**6])
def test_a_number_of_classes_below_2_is_refused(classes: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="classes"):
        read_images(npz(tmp_path, images=PIXELS, labels=LABELS), classes=classes)


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


def test_pickled_objects_are_refused_and_never_run(tmp_path: Path) -> None:
    held = np.empty(4, dtype=object)
    held[:] = [Trap(str(tmp_path / "sprung"))] * 4
    path = npz(tmp_path, images=held, labels=LABELS)
    with pytest.raises(FileError, match=r"'scans\.npz' holds pickled objects in 'images', which are never loaded"):
        read_images(path)
    assert not (tmp_path / "sprung").exists()
    pickle.loads(pickle.dumps(Trap(str(tmp_path / "sprung"))))  # the trap works
    assert (tmp_path / "sprung").exists()


def _npy(array: np.ndarray[Any, Any], shape: str | None = None) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    content = file.getvalue()
    return content if shape is None else content.replace(str(array.shape).encode(), shape.encode(), 1)


def _zipped(path: Path, compression: int = zipfile.ZIP_DEFLATED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def test_a_small_file_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    bomb = _zipped(tmp_path / "scans.npz", images=bytes(10**6), labels=_npy(LABELS))
    assert bomb.stat().st_size < 3000
    with pytest.raises(FileError, match="would take more than 500,000 bytes"):
        read_npz(bomb, ["images", "labels"], most=500_000)
    with pytest.raises(FileError, match="its array 'images' cannot be read"):
        read_npz(bomb, ["images", "labels"])


@pytest.mark.parametrize("shape", ["(9999999999, 8, 8)", "(5, 8, 8)", "(3, 8, 8)", "(-4, 8, 8)", "(1,)*9999"])
def test_a_header_that_does_not_fit_its_values_is_refused(shape: str, tmp_path: Path) -> None:
    path = _zipped(tmp_path / "scans.npz", images=_npy(PIXELS, shape), labels=_npy(LABELS))
    with pytest.raises(FileError, match=r"'scans\.npz' is damaged: its array 'images'"):
        read_images(path)


@pytest.mark.parametrize("content", [b"", b"PK\3\4 nothing", b"\x93NUMPY", bytes(500)])
def test_what_is_not_an_npz_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "scans.npz").write_bytes(content)
    with pytest.raises(FileError, match=r"'scans\.npz' is damaged, or is not an \.npz file"):
        read_images(tmp_path / "scans.npz")


def test_damaged_bytes_and_unusual_compression_are_refused(tmp_path: Path) -> None:
    path = _zipped(tmp_path / "scans.npz", zipfile.ZIP_STORED, images=_npy(PIXELS), labels=_npy(LABELS))
    content = bytearray(path.read_bytes())
    content[250] ^= 1  # of a pixel: its checksum fails
    path.write_bytes(content)
    with pytest.raises(FileError, match="is damaged"):
        read_images(path)
    with pytest.raises(FileError, match="compressed in an unusual way"):
        read_images(_zipped(path, zipfile.ZIP_LZMA, images=_npy(PIXELS), labels=_npy(LABELS)))


def test_idx_files_that_lie_about_their_size_are_refused(tmp_path: Path) -> None:
    labels = tmp_path / "train-labels-idx1-ubyte"
    idx(labels, LABELS.astype(np.uint8))
    images = tmp_path / "train-images-idx3-ubyte.gz"
    idx(images, PIXELS, more=b"x")
    with pytest.raises(FileError, match="does not hold the 4 x 8 x 8 values that it states"):
        read_images(tmp_path)
    images.write_bytes(gzip.compress(struct.pack(">BBBB3I", 0, 0, 8, 3, 2**31, 2**31, 2**31)))
    with pytest.raises(FileError, match="would take more than"):
        read_images(tmp_path)
    images.write_bytes(gzip.compress(struct.pack(">BBBB3I", 0, 0, 8, 3, 60_000, 28, 28)))
    with pytest.raises(FileError, match="does not hold the 60000 x 28 x 28 values"):
        read_images(tmp_path)
    images.write_bytes(b"not compressed")
    with pytest.raises(FileError, match="is not compressed as its name says"):
        read_images(tmp_path)
    images.write_bytes(gzip.compress(b"\0\0\x10\3"))
    with pytest.raises(FileError, match="is not an IDX file"):
        read_images(tmp_path)
    images.unlink()
    with pytest.raises(FileError, match="has no IDX file of images"):
        read_images(tmp_path)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(FileError, match=r"there is no file 'nowhere\.npz'"):
        read_images("nowhere.npz")

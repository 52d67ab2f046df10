"""The embedded data sets are what was published, and the loaders find, check and fetch the others."""

from __future__ import annotations

import doctest
import gzip
import hashlib
import importlib.resources
import io
import os
import re
import shutil
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pytest

import sfumato as sf
from sfumato.data import datasets

DATA = os.environ.get("SFUMATO_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="SFUMATO_DATA does not name the folder of the full data sets")

# counts of the full sets, from their publishers' descriptions
TRAIN_DIGITS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST_DIGITS = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
NURSERY_CLASSES = {"not_recom": 4320, "priority": 4266, "spec_prior": 4044, "very_recom": 328, "recommend": 2}
MNIST_SHAPES = {
    "train-images-idx3-ubyte": (60_000, 28, 28),
    "train-labels-idx1-ubyte": (60_000,),
    "t10k-images-idx3-ubyte": (10_000, 28, 28),
    "t10k-labels-idx1-ubyte": (10_000,),
}
LABELS_HEADER = struct.pack(">4BI", 0, 0, 8, 1, 10_000)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test away from the real home, the real data and any proxy; return its cache folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("SFUMATO_DATA", raising=False)
    return tmp_path / "cache" / "sfumato"


@pytest.fixture
def full_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the loaders see the full data sets."""
    monkeypatch.setenv("SFUMATO_DATA", DATA)
    return Path(DATA)


def count(column: pl.Series) -> dict[str, int]:
    return dict(Counter(column.to_list()))


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class TestEmbedded:
    def test_every_file_is_the_one_its_readme_lists(self) -> None:
        folder = importlib.resources.files("sfumato.data") / "embedded"
        listed = dict(re.findall(r"^\| (\S+) \| \d+ \| (\w{64}) \|$", (folder / "README.md").read_text(), re.M))
        found = {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in folder.iterdir()
            if file.name != "README.md"
        }
        assert found == listed
        assert len(listed) == 6
        # byte for byte the file that the project's data folder describes
        assert listed["adult.parquet"] == "8132265a9fc9c6cef680bda170c09d445eb5a226022bd9a3352e63b3207d964a"

    def test_adult_has_all_rows_and_says_their_split(self) -> None:
        table = sf.datasets.adult()
        assert table.frame.shape == (48_842, 16)
        assert count(table.frame["split"]) == {"train": 32_561, "test": 16_281}

    @pytest.mark.parametrize(
        ("split", "rows", "low", "high", "unknown_cells", "known_rows"),
        [("train", 32_561, 24_720, 7_841, 4_262, 30_162), ("test", 16_281, 12_435, 3_846, 2_203, 15_060)],
    )
    def test_adult_split_has_the_published_counts(
        self, split: Literal["train", "test"], rows: int, low: int, high: int, unknown_cells: int, known_rows: int
    ) -> None:
        frame = sf.datasets.adult(split).frame
        assert frame.shape == (rows, 15)
        assert "split" not in frame.columns
        assert count(frame["income"]) == {"<=50K": low, ">50K": high}
        unknown = frame.select((pl.col(pl.Categorical).cast(pl.String) == "?").cast(pl.Int64)).sum_horizontal()
        assert unknown.sum() == unknown_cells
        assert (unknown == 0).sum() == known_rows

    def test_adult_schema_has_the_roles_of_the_pycanon_paper(self) -> None:
        schema = sf.datasets.adult().schema
        numbers = [column.name for column in schema.columns if column.kind is sf.Kind.NUMBER]
        assert numbers == ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
        assert {column.kind for column in schema.columns} == {sf.Kind.NUMBER, sf.Kind.CATEGORY}
        assert schema.quasi == ("age", "education", "occupation", "relationship", "sex", "native-country")
        assert schema.sensitive == ("income",)
        assert schema.identifiers == ()
        assert schema.target is None

    def test_adult_refuses_an_unknown_split(self) -> None:
        with pytest.raises(sf.errors.OptionError, match="must be 'train', 'test' or None, got 'valid'"):
            sf.datasets.adult("valid")  # type: ignore[arg-type]

    def test_nursery_has_every_combination_once_and_the_published_class_counts(self) -> None:
        table = sf.datasets.nursery()
        assert table.frame.shape == (12_960, 9)
        assert table.frame.drop("class").n_unique() == 12_960
        assert count(table.frame["class"]) == NURSERY_CLASSES
        assert table.frame.row(0) == (
            *("usual", "proper", "complete", "1", "convenient", "convenient", "nonprob", "recommended"),
            "recommend",
        )
        assert table.schema.target == "class"

    def test_nursery_values_are_those_of_their_public_domains(self) -> None:
        table = sf.datasets.nursery()
        for column in table.schema.columns:
            assert column.domain is not None
            assert set(column.domain) == set(table.frame[column.name].to_list())

    @needs_data
    def test_nursery_equals_the_published_table(self) -> None:
        published = pl.read_parquet(Path(DATA, "nursery", "nursery.parquet"))
        frame = sf.datasets.nursery().frame
        assert frame.schema == published.schema
        assert frame.equals(published)

    def test_mnist_subset_has_all_digits(self) -> None:
        digits = sf.datasets.mnist()
        assert digits.train_images.shape == (10_000, 28, 28)
        assert digits.test_images.shape == (2_000, 28, 28)
        arrays = [one for one in vars(digits).values() if isinstance(one, np.ndarray)]
        assert {array.dtype for array in arrays} == {np.dtype(np.uint8)}
        assert np.bincount(digits.train_labels).tolist() == [1001, 1127, 991, 1032, 980, 863, 1014, 1070, 944, 978]
        assert np.bincount(digits.test_labels).tolist() == [175, 234, 219, 207, 217, 179, 178, 205, 192, 194]
        assert repr(digits) == "Images(train=10,000, test=2,000, size=28x28, classes=10)"

    def test_changing_loaded_images_does_not_change_the_next_load(self) -> None:
        sf.datasets.mnist().train_images[:] = 0
        assert sf.datasets.mnist().train_images.any()

    def test_mnist_refuses_a_path_that_it_would_not_read(self, tmp_path: Path) -> None:
        with pytest.raises(sf.errors.OptionError, match="add full=True"):
            sf.datasets.mnist(path=tmp_path)


@needs_data
@pytest.mark.usefixtures("full_data")
class TestFullSets:
    def test_mnist_has_the_published_label_counts(self) -> None:
        digits = sf.datasets.mnist(full=True)
        assert digits.train_images.shape == (60_000, 28, 28)
        assert digits.test_images.shape == (10_000, 28, 28)
        assert np.bincount(digits.train_labels).tolist() == TRAIN_DIGITS
        assert np.bincount(digits.test_labels).tolist() == TEST_DIGITS

    def test_embedded_mnist_is_the_beginning_of_the_full_set(self) -> None:
        full, part = sf.datasets.mnist(full=True), sf.datasets.mnist()
        assert np.array_equal(part.train_images, full.train_images[:10_000])
        assert np.array_equal(part.train_labels, full.train_labels[:10_000])
        assert np.array_equal(part.test_images, full.test_images[:2_000])
        assert np.array_equal(part.test_labels, full.test_labels[:2_000])

    def test_mnist_is_the_same_in_every_layout(self, full_data: Path, tmp_path: Path) -> None:
        zipped, unzipped = tmp_path / "zipped" / "MNIST" / "raw", tmp_path / "unzipped" / "MNIST" / "raw"
        shutil.copytree(full_data / "mnist", zipped)
        unzipped.mkdir(parents=True)
        for file in zipped.glob("*.gz"):
            (unzipped / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        expected = sf.datasets.mnist(full=True)
        for path in (full_data, full_data / "mnist", tmp_path / "zipped", str(tmp_path / "unzipped")):
            found = sf.datasets.mnist(full=True, path=path)
            assert np.array_equal(found.train_images, expected.train_images)
            assert np.array_equal(found.train_labels, expected.train_labels)
            assert np.array_equal(found.test_images, expected.test_images)
            assert np.array_equal(found.test_labels, expected.test_labels)

    def test_pneumonia_has_the_published_label_counts(self) -> None:
        xrays = sf.datasets.pneumonia()
        assert xrays.train_images.shape == (4_708, 28, 28)
        assert xrays.validation_images.shape == (524, 28, 28)
        assert xrays.test_images.shape == (624, 28, 28)
        assert np.bincount(xrays.train_labels).tolist() == [1214, 3494]
        assert np.bincount(xrays.validation_labels).tolist() == [135, 389]
        assert np.bincount(xrays.test_labels).tolist() == [234, 390]
        assert repr(xrays) == "Images(train=4,708, validation=524, test=624, size=28x28, classes=2)"

    def test_census_has_the_published_label_counts(self) -> None:
        table = sf.datasets.census()
        labels = table.frame.group_by("split", "income").len().rows()
        assert sorted(labels) == [
            ("test", "- 50000.", 93_576),
            ("test", "50000+.", 6_186),
            ("train", "- 50000.", 187_141),
            ("train", "50000+.", 12_382),
        ]
        assert table.frame.width == 43
        assert table.schema.target == "income"
        assert table.schema["weeks worked in year"].kind is sf.Kind.NUMBER
        assert table.schema["detailed industry recode"].kind is sf.Kind.CATEGORY

    def test_lending_has_the_published_outcomes(self) -> None:
        table = sf.datasets.lending()
        assert table.frame.shape == (119_987, 19)
        assert count(table.frame["outcome"]) == {"paid off": 97_316, "default": 22_671}
        assert table.schema.target == "outcome"
        assert table.schema["annual_inc"].kind is sf.Kind.NUMBER
        assert table.schema["pub_rec_zero"].kind is sf.Kind.CATEGORY

    def test_a_loader_takes_the_file_or_its_folder(self, full_data: Path) -> None:
        folder = full_data / "lending-club"
        for path in (folder, folder / "full_train_set.parquet", full_data):
            assert sf.datasets.lending(path).rows == 119_987

    def test_examples_that_need_a_full_set_hold(self) -> None:
        runner = doctest.DocTestRunner(verbose=False)
        for name in datasets.__all__:
            # they are skipped where nobody has provided the data, but here somebody has
            text = (getattr(datasets, name).__doc__ or "").replace("  # doctest: +SKIP", "")
            runner.run(doctest.DocTestParser().get_doctest(text, {}, name, None, None))
        assert runner.tries >= 15
        assert runner.failures == 0


@pytest.fixture
def xrays(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Publish a tiny set of X-rays in the place of PneumoniaMNIST, at no address; return its file."""
    arrays: dict[str, Any] = {}
    for length, split in enumerate(("train", "val", "test"), start=2):
        arrays[f"{split}_images"] = np.full((length, 28, 28), length, dtype=np.uint8)
        arrays[f"{split}_labels"] = np.arange(length, dtype=np.uint8).reshape(-1, 1) % 2
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    publish(monkeypatch, buffer.getvalue(), "")
    return buffer.getvalue()


def publish(monkeypatch: pytest.MonkeyPatch, content: bytes, address: str) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    monkeypatch.setattr(datasets, "_PNEUMONIA", replace(datasets._PNEUMONIA, sha256=sha256, address=address))


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


class TestFinding:
    def test_splits_and_labels_are_those_of_the_file(self, xrays: bytes, tmp_path: Path) -> None:
        found = sf.datasets.pneumonia(put(tmp_path / "x.npz", xrays))
        assert repr(found) == "Images(train=2, validation=3, test=4, size=28x28, classes=2)"
        assert found.train_labels.tolist() == [0, 1]
        assert found.validation_labels.tolist() == [0, 1, 0]
        assert found.test_labels.tolist() == [0, 1, 0, 1]
        assert set(found.test_images.flat) == {4}

    def test_a_set_is_found_in_the_provided_data(
        self, xrays: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(tmp_path / "data" / "pneumoniamnist" / "pneumoniamnist.npz", xrays)
        monkeypatch.setenv("SFUMATO_DATA", str(tmp_path / "data"))
        assert len(sf.datasets.pneumonia().train_labels) == 2

    def test_a_set_is_found_in_the_cache_when_the_provided_data_lack_it(
        self, xrays: bytes, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(cache / "pneumoniamnist" / "pneumoniamnist.npz", xrays)
        monkeypatch.setenv("SFUMATO_DATA", str(tmp_path / "data"))
        assert len(sf.datasets.pneumonia().train_labels) == 2

    def test_the_cache_is_in_the_home_unless_said_otherwise(
        self, xrays: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("XDG_CACHE_HOME")
        put(tmp_path / "home" / ".cache" / "sfumato" / "pneumoniamnist" / "pneumoniamnist.npz", xrays)
        assert len(sf.datasets.pneumonia().train_labels) == 2

    def test_a_given_path_is_the_only_place_looked_at(self, xrays: bytes, cache: Path, tmp_path: Path) -> None:
        put(cache / "pneumoniamnist" / "pneumoniamnist.npz", xrays)
        for path in (tmp_path / "typo", tmp_path):
            with pytest.raises(sf.errors.FileError, match=re.escape(f"there is no pneumoniamnist.npz at '{path}'")):
                sf.datasets.pneumonia(path)

    @pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda _: b"", lambda _: b"<html>"])
    def test_a_damaged_file_is_refused_wherever_it_is(
        self,
        damage: Callable[[bytes], bytes],
        xrays: bytes,
        cache: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        given = put(tmp_path / "x.npz", damage(xrays))
        with pytest.raises(sf.errors.FileError, match=r"x\.npz' is damaged: its SHA-256 is not that of the published"):
            sf.datasets.pneumonia(given)
        put(cache / "pneumoniamnist" / "pneumoniamnist.npz", damage(xrays))
        with pytest.raises(sf.errors.FileError, match="is damaged"):
            sf.datasets.pneumonia()
        put(tmp_path / "data" / "pneumoniamnist" / "pneumoniamnist.npz", damage(xrays))
        monkeypatch.setenv("SFUMATO_DATA", str(tmp_path / "data"))
        with pytest.raises(sf.errors.FileError, match=r"data/pneumoniamnist/pneumoniamnist\.npz' is damaged"):
            sf.datasets.pneumonia()

    def test_an_npz_with_pickled_objects_is_not_unpickled(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, train_images=np.array([{}], dtype=object))
        publish(monkeypatch, buffer.getvalue(), "")
        with pytest.raises(ValueError, match="allow_pickle=False"):
            sf.datasets.pneumonia(put(tmp_path / "x.npz", buffer.getvalue()))

    @pytest.mark.parametrize(
        ("load", "file"),
        [
            (datasets.census, "census-income-kdd/census_income.parquet"),
            (datasets.lending, "lending-club/full_train_set.parquet"),
        ],
    )
    def test_an_absent_set_without_address_says_where_it_was_looked_for_and_how_to_give_it(
        self, load: Callable[[], sf.Table], file: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SFUMATO_DATA", str(tmp_path / "data"))
        folder, name = file.split("/")
        with pytest.raises(sf.errors.FileError) as raised:
            load()
        assert raised.value.message == (
            f"{name} is not in '{tmp_path / 'data' / folder}' or '{cache / folder}', "
            "and has no public address to download it from"
        )
        assert raised.value.hint == f"give its path, or set SFUMATO_DATA to a folder with {file}"

    def test_another_parquet_file_is_not_taken_for_the_census(self, tmp_path: Path) -> None:
        pl.DataFrame({"income": ["low"]}).write_parquet(tmp_path / "census_income.parquet")
        with pytest.raises(sf.errors.FileError, match="is damaged"):
            sf.datasets.census(tmp_path)

    def test_an_unreadable_file_is_a_file_error(
        self, xrays: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(path: Path) -> bytes:  # permissions do not stop an administrator, so a chmod would not do
            raise PermissionError(13, "Permission denied")

        given = put(tmp_path / "x.npz", xrays)
        monkeypatch.setattr(Path, "read_bytes", refuse)
        with pytest.raises(sf.errors.FileError, match=r"x\.npz' cannot be read: Permission denied"):
            sf.datasets.pneumonia(given)

    def test_mnist_refuses_one_file_in_the_place_of_four(self, tmp_path: Path) -> None:
        with pytest.raises(sf.errors.FileError, match="MNIST has four files"):
            sf.datasets.mnist(full=True, path=put(tmp_path / "train-images-idx3-ubyte.gz", b""))

    def test_unzipped_mnist_is_read_from_the_layout_of_torchvision(self, tmp_path: Path) -> None:
        unzipped_mnist(tmp_path)
        digits = sf.datasets.mnist(full=True, path=tmp_path)
        assert repr(digits) == "Images(train=60,000, test=10,000, size=28x28, classes=10)"

    @pytest.mark.parametrize(
        ("name", "header", "length"),
        [
            pytest.param("t10k-labels-idx1-ubyte", LABELS_HEADER, 9_999, id="cut off"),
            pytest.param("t10k-labels-idx1-ubyte", LABELS_HEADER, 10_001, id="too long"),
            pytest.param("t10k-labels-idx1-ubyte", struct.pack(">4BI", 0, 0, 8, 1, 9_999), 9_999, id="another count"),
            pytest.param("t10k-labels-idx1-ubyte", struct.pack(">4BI", 0, 0, 9, 1, 10_000), 10_000, id="signed bytes"),
            pytest.param("t10k-labels-idx1-ubyte", b"", 0, id="empty"),
            pytest.param("t10k-labels-idx1-ubyte", gzip.compress(LABELS_HEADER + bytes(10_000)), 0, id="still zipped"),
            pytest.param("train-labels-idx1-ubyte", LABELS_HEADER, 10_000, id="test labels for training"),
        ],
    )
    def test_a_damaged_unzipped_mnist_file_is_refused(
        self, name: str, header: bytes, length: int, tmp_path: Path
    ) -> None:
        unzipped_mnist(tmp_path)
        put(tmp_path / "MNIST" / "raw" / name, header + bytes(length))
        with pytest.raises(sf.errors.FileError, match=f"raw/{name}' is damaged: it is not an IDX file of"):
            sf.datasets.mnist(full=True, path=tmp_path)


def unzipped_mnist(root: Path) -> None:
    """Lay out black images and zero labels of the full size as torchvision does."""
    for name, shape in MNIST_SHAPES.items():
        header = bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape)
        path = put(root / "MNIST" / "raw" / name, header)
        os.truncate(path, len(header) + int(np.prod(shape)))  # sparse: takes no room on the disk


@dataclass
class Server:
    """A web server on this machine: what it answers to each path, and what it was asked."""

    address: str = ""
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            if self.path == "/silent":
                state.closing.wait(10)
                return
            status, headers, body = state.answers.get(self.path, (404, {}, b"no such file"))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.address = f"http://127.0.0.1:{http.server_port}"
        yield state
        state.closing.set()
        http.shutdown()
        thread.join()


class TestDownloading:
    def test_a_set_is_downloaded_once_and_then_found_in_the_cache(
        self,
        xrays: bytes,
        server: Server,
        cache: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        server.answers["/x.npz?download=1"] = (200, {}, xrays)
        publish(monkeypatch, xrays, f"{server.address}/x.npz?download=1")
        for _ in range(2):
            assert len(sf.datasets.pneumonia().test_labels) == 4
        assert server.asked == ["/x.npz?download=1"]
        assert files_under(cache) == ["pneumoniamnist/pneumoniamnist.npz"]
        assert (cache / "pneumoniamnist" / "pneumoniamnist.npz").read_bytes() == xrays
        assert capfd.readouterr() == ("", "")

    def test_mnist_is_downloaded_zipped_and_read_unzipped(
        self, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        published = []
        for file in datasets._MNIST:
            shape = MNIST_SHAPES[file.name.removesuffix(".gz")]
            header = bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape)
            content = gzip.compress(header + b"\x01" * int(np.prod(shape)), compresslevel=1, mtime=0)
            server.answers[f"/{file.name}"] = (200, {}, content)
            sha256 = hashlib.sha256(content).hexdigest()
            published.append(replace(file, sha256=sha256, address=f"{server.address}/{file.name}"))
        monkeypatch.setattr(datasets, "_MNIST", tuple(published))
        digits = sf.datasets.mnist(full=True)
        assert digits.train_images.all()
        assert repr(digits) == "Images(train=60,000, test=10,000, size=28x28, classes=10)"
        assert files_under(cache) == sorted(f"mnist/{file.name}" for file in published)

    def test_a_download_that_fails_is_one_sentence_and_leaves_nothing(
        self, xrays: bytes, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.answers = {
            "/damaged": (200, {}, xrays[:-1] + b"?"),
            "/cut-off": (200, {"Content-Length": str(len(xrays))}, xrays[:-9]),
            "/portal": (200, {}, b"<html>please log in</html>"),
            "/broken": (503, {}, b""),
            "/moved-to-http": (302, {"Location": "http://example.org/x.npz"}, b""),
            "/moved-to-ftp": (302, {"Location": "ftp://example.org/x.npz"}, b""),
            "/moved-to-file": (302, {"Location": "file:///etc/hostname"}, b""),
        }
        monkeypatch.setattr(datasets, "_TIME_OUT", 0.3)
        for path, reason in {
            "/damaged": "is damaged: its SHA-256 is not that of the published pneumoniamnist.npz",
            "/cut-off": "",  # as a wrong checksum or as an incomplete answer, by the version of Python
            "/portal": "is damaged",
            "/absent": "the server returned 404 Not Found",
            "/broken": "the server returned 503 Service Unavailable",
            "/moved-to-http": "the address is not https",
            "/moved-to-ftp": "the address is not https",
            "/moved-to-file": "the server returned 302",
            "/silent": "timed out",
        }.items():
            publish(monkeypatch, xrays, f"{server.address}{path}")
            with pytest.raises(sf.errors.FileError) as raised:
                sf.datasets.pneumonia()
            assert f"{server.address}{path}" in raised.value.message
            assert reason in raised.value.message
            assert files_under(cache.parent) == []

    def test_no_network_is_a_file_error_that_says_how_to_go_on(
        self, xrays: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        publish(monkeypatch, xrays, f"http://127.0.0.1:{port}/x.npz")
        with pytest.raises(
            sf.errors.FileError, match=r"cannot be downloaded from http://127\.0\.0\.1.*refused"
        ) as raised:
            sf.datasets.pneumonia()
        assert raised.value.hint == (
            "give its path, or set SFUMATO_DATA to a folder with pneumoniamnist/pneumoniamnist.npz"
        )
        assert not cache.exists()

    def test_a_cache_that_cannot_be_written_is_a_file_error(
        self, xrays: bytes, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.answers["/x.npz"] = (200, {}, xrays)
        publish(monkeypatch, xrays, f"{server.address}/x.npz")
        put(cache, b"a file where the folder should be")
        with pytest.raises(sf.errors.FileError, match="cannot be downloaded"):
            sf.datasets.pneumonia()

    def test_every_published_address_is_https(self) -> None:
        for file in (*datasets._MNIST, datasets._PNEUMONIA):
            assert file.address.startswith("https://")
        for file in (datasets._CENSUS, datasets._LENDING):
            assert file.address == ""

    def test_a_plain_http_address_elsewhere_is_refused(
        self, xrays: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(monkeypatch, xrays, "http://example.org/x.npz")
        with pytest.raises(sf.errors.FileError, match="the address is not https"):
            sf.datasets.pneumonia()
        assert not cache.exists()

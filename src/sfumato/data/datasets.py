"""Well-known data sets: three come with Sfumato, the others are downloaded or read from a given path.

- Adult: Becker and Kohavi, UCI, doi 10.24432/C5XW20, CC BY 4.0. Embedded.
- Nursery: Rajkovic, UCI, doi 10.24432/C5P88W, CC BY 4.0. Embedded.
- MNIST: LeCun and Cortes, CC BY-SA 3.0. The first 10,000 + 2,000 images are embedded; all are
  downloaded from PyTorch's public mirror.
- PneumoniaMNIST: MedMNIST v2, of the X-rays of Kermany et al. (2018), CC BY 4.0. Downloaded from
  Zenodo, record 10519652.
- Census-Income (KDD): UCI, doi 10.24432/C5N30T, CC BY 4.0. Not downloaded.
- Lending Club loans: ``full_train_set`` of Bruce, Bruce and Gedeck, *Practical Statistics for
  Data Scientists*. Not downloaded.

A data set that is not embedded is read from the ``path`` given to its loader. Without a path, the loader looks in the
folder that the environment variable ``SFUMATO_DATA`` names, then in the user's cache folder, and then downloads the
data set into the latter if its address is known. The SHA-256 of a published file is checked each time it is read.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import importlib.resources
import io
import itertools
import math
import os
import struct
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.data.images import Images
from sfumato.data.io.files import atomic_path, why
from sfumato.data.schema import Column, Kind, Schema
from sfumato.data.table import Table
from sfumato.errors import FileError, OptionError

__all__ = [
    "BUILT_IN",
    "SPLIT",
    "TABLES",
    "TARGETS",
    "Images",
    "adult",
    "census",
    "lending",
    "mnist",
    "nursery",
    "pneumonia",
    "without_split",
]

SPLIT = "split"
"""The column of Adult that says which rows are for training; it says nothing about the people."""


@dataclass(frozen=True)
class _File:
    """A published file: its local folder and name, its SHA-256 and, if known, its address."""

    folder: str
    name: str
    sha256: str
    address: str = ""

    @property
    def hint(self) -> str:
        """How the user can provide the file."""
        return f"give its path, or set SFUMATO_DATA to a folder with {self.folder}/{self.name}"


_MNIST = tuple(
    _File("mnist", name, sha256, f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}")
    for name, sha256 in (
        ("train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    )
)
_PNEUMONIA = _File(
    "pneumoniamnist",
    "pneumoniamnist.npz",
    "e1792d3f03751cb101e99f19a63b3c1941436c988665f47853417b05be250cd8",
    "https://zenodo.org/records/10519652/files/pneumoniamnist.npz?download=1",
)
_CENSUS = _File(
    "census-income-kdd", "census_income.parquet", "2a5421dac8f35a476dae22a86c15272fcb1f5d7e5fea493928decf4a5a559da5"
)
_LENDING = _File(
    "lending-club", "full_train_set.parquet", "7eef4ac47fd2ea872a731f6ff1cd66f10054da47588763daed6a17d193b34185"
)
_TIME_OUT = 30.0  # seconds without a response
_LONGEST = 16 << 20  # bytes: more than any file above, and a bound on what a server can send

# The domains in UCI's description of Adult (adult.names), with ? for unknown values. Ages are above 16 and top-coded at
# 90, hours have two digits, and capital gains are top-coded.
_ADULT_DOMAINS = {
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked ?",
    "education": "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters "
    "1st-4th 10th Doctorate 5th-6th Preschool",
    "marital-status": "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
    "Married-AF-spouse",
    "occupation": "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
    "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces ?",
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "native-country": "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India "
    "Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland "
    "France Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
    "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands ?",
    "income": "<=50K >50K",
}
_ADULT_BOUNDS = {"age": (17, 90), "education-num": (1, 16), "capital-gain": (0, 99_999), "hours-per-week": (1, 99)}

# The rows of Nursery are all combinations of these values, in this order, so only the class is stored.
_NURSERY = {
    "parents": ("usual", "pretentious", "great_pret"),
    "has_nurs": ("proper", "less_proper", "improper", "critical", "very_crit"),
    "form": ("complete", "completed", "incomplete", "foster"),
    "children": ("1", "2", "3", "more"),
    "housing": ("convenient", "less_conv", "critical"),
    "finance": ("convenient", "inconv"),
    "social": ("nonprob", "slightly_prob", "problematic"),
    "health": ("recommended", "priority", "not_recom"),
}
_NURSERY_CLASSES = ("not_recom", "recommend", "very_recom", "priority", "spec_prior")


def adult(split: Literal["train", "test"] | None = None) -> Table:
    """Return the Adult table of the 1994 US census: 48,842 people and whether they earn over 50,000 dollars.

    The quasi-identifiers are the six of the pyCANON paper (Sáinz-Pardo Díaz and López García,
    *Scientific Data* 2022); the sensitive attribute is the income. ``education-num``, which duplicates
    ``education``, has the role ``kept``. Unknown values stay ``?``. The domains and bounds of UCI's
    description are declared as public.

    Parameters
    ----------
    split : "train" or "test", optional
        Only the 32,561 rows for training or the 16,281 for testing. By default all rows, and
        the column ``split`` tells them apart.

    Examples
    --------
    >>> import sfumato as sf
    >>> table = sf.datasets.adult()
    >>> table.rows, table.schema.quasi
    (48842, ('age', 'education', 'occupation', 'relationship', 'sex', 'native-country'))
    >>> sf.datasets.adult("test").rows
    16281
    """
    if split not in (None, "train", "test"):
        raise OptionError(f"the split of Adult must be 'train', 'test' or None, got {split!r}")
    frame = pl.read_parquet(io.BytesIO(_embedded("adult.parquet")))
    if split is not None:
        frame = frame.filter(pl.col(SPLIT) == split).drop(SPLIT)
    quasi = ("age", "education", "occupation", "relationship", "sex", "native-country")
    public = [Column(name=name, domain=tuple(values.split())) for name, values in _ADULT_DOMAINS.items()]
    public += [Column(name=name, bounds=bounds) for name, bounds in _ADULT_BOUNDS.items()]
    return Table.of(frame, schema=Schema(public), qi=quasi, sensitive=["income"], keep=["education-num"])


def without_split(table: Table) -> Table:
    """Return a built-in table without the column that says which rows are for training.

    Examples
    --------
    >>> import sfumato as sf
    >>> table = sf.datasets.adult()
    >>> len(table.schema.names), len(sf.datasets.without_split(table).schema.names)
    (16, 15)
    """
    kept = [one for one in table.schema.columns if one.name != SPLIT]
    return Table(table.to_polars().select(one.name for one in kept), Schema(kept))


def nursery() -> Table:
    """Return the Nursery table: 12,960 applications to nursery schools and their ranks.

    The rows are all combinations of eight attributes, so every attribute has a public domain.

    Examples
    --------
    >>> import sfumato as sf
    >>> table = sf.datasets.nursery()
    >>> table.rows, table.schema.target
    (12960, 'class')
    >>> table.schema["finance"].domain
    ('convenient', 'inconv')
    """
    attributes = zip(*itertools.product(*_NURSERY.values()), strict=True)
    classes = [_NURSERY_CLASSES[int(code)] for code in _embedded("nursery-class.txt.gz").decode()]
    domains = {**_NURSERY, "class": _NURSERY_CLASSES}
    frame = pl.DataFrame(
        dict(zip(domains, (*attributes, classes), strict=True)), schema=dict.fromkeys(domains, pl.Categorical)
    )
    schema = Schema(Column(name=name, domain=domain) for name, domain in domains.items())
    return Table.of(frame, schema=schema, target="class")


def mnist(full: bool = False, path: str | Path | None = None) -> Images:
    """Return the MNIST images of handwritten digits.

    Parameters
    ----------
    full : bool
        All 60,000 images for training and 10,000 for testing. By default the first 10,000
        and 2,000, which come with Sfumato.
    path : str or Path, optional
        The folder of the four full files, compressed or not, or a folder that contains ``mnist/`` or
        torchvision's ``MNIST/raw/``.

    Examples
    --------
    >>> import sfumato as sf
    >>> digits = sf.datasets.mnist()
    >>> digits.train_images.shape, digits.test_images.shape
    ((10000, 28, 28), (2000, 28, 28))
    >>> digits.train_labels[:5].tolist()
    [5, 0, 4, 1, 9]
    """
    if path is not None and not full:
        raise OptionError("a path applies only to the full MNIST", hint="add full=True, or omit the path")
    if path is not None and os.path.isfile(path):  # noqa: PTH113 (Path.is_file raises for an inaccessible folder)
        raise FileError(f"MNIST has four files, but '{path}' is one file", hint="give their folder")
    train, test = (60_000, 10_000) if full else (10_000, 2_000)
    shapes = ((train, 28, 28), (train,), (test, 28, 28), (test,))
    contents = (_find(file, path) if full else (file.name, _embedded(f"mnist-{file.name}")) for file in _MNIST)
    pixels, labels, others, names = (_idx(*content, shape) for content, shape in zip(contents, shapes, strict=True))
    return Images(pixels, labels, others, names, classes=10)


def pneumonia(path: str | Path | None = None) -> Images:
    """Return PneumoniaMNIST: chest X-rays of children, 0 for normal and 1 for pneumonia.

    There are 4,708 images for training, 524 for validation and 624 for testing.

    Parameters
    ----------
    path : str or Path, optional
        The file ``pneumoniamnist.npz`` or its folder.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.datasets.pneumonia()  # doctest: +SKIP
    Images(train=4,708, validation=524, test=624, size=28x28, classes=2)
    """
    _, content = _find(_PNEUMONIA, path)
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        train, validation, test = (
            (arrays[f"{split}_images"], arrays[f"{split}_labels"].reshape(-1)) for split in ("train", "val", "test")
        )
    return Images(*train, *test, *validation, classes=2)


def census(path: str | Path | None = None) -> Table:
    """Return the Census-Income (KDD) table: 299,285 people of the 1994 and 1995 US population surveys.

    The target is whether the income is over 50,000 dollars. The column ``split`` separates
    199,523 rows for training from 99,762 for testing. Unknown values stay ``?``.

    Parameters
    ----------
    path : str or Path, optional
        The file ``census_income.parquet`` or its folder. Use `read` for any other copy of the table.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.datasets.census().rows  # doctest: +SKIP
    299285
    """
    # The numbers in these columns are codes: UCI's description calls them nominal.
    nominal = (
        "detailed industry recode",
        "detailed occupation recode",
        "own business or self employed",
        "veterans benefits",
        "year",
    )
    return _table(_CENSUS, path, nominal=nominal, target="income")


def lending(path: str | Path | None = None) -> Table:
    """Return 119,987 finished Lending Club loans; the target is whether the loan was paid off.

    The column ``status`` duplicates the target; exclude it from any model.

    Parameters
    ----------
    path : str or Path, optional
        The file ``full_train_set.parquet`` or its folder. Use `read` for any other copy of the table.

    Examples
    --------
    >>> import sfumato as sf
    >>> table = sf.datasets.lending()  # doctest: +SKIP
    >>> table.rows, table.schema.target  # doctest: +SKIP
    (119987, 'outcome')
    """
    return _table(_LENDING, path, nominal=("delinq_2yrs_zero", "pub_rec_zero"), target="outcome")


def _table(file: _File, path: str | Path | None, *, nominal: tuple[str, ...], target: str) -> Table:
    _, content = _find(file, path)
    schema = Schema(Column(name=name, kind=Kind.CATEGORY) for name in nominal)
    return Table.of(pl.read_parquet(io.BytesIO(content)), schema=schema, target=target)


def _embedded(name: str) -> bytes:
    content = (importlib.resources.files("sfumato.data") / "embedded" / name).read_bytes()
    return gzip.decompress(content) if name.endswith(".gz") else content


def _idx(source: str, content: bytes, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Parse an IDX file: two zeros, 8 for bytes, the number of axes, their lengths, then the values."""
    header = bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape)
    if not content.startswith(header) or len(content) != len(header) + math.prod(shape):
        expected = " x ".join(map(str, shape))
        raise FileError(f"'{source}' is damaged: it is not an IDX file of {expected} bytes", hint="download it again")
    return np.frombuffer(content, dtype=np.uint8, offset=len(header)).reshape(shape).copy()


def _find(file: _File, path: str | Path | None) -> tuple[str, bytes]:
    """Find or download a file; return its location and its checked, decompressed content."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "sfumato", file.folder)
    if path is not None:
        folders = [Path(path), Path(path, file.folder), Path(path, "MNIST", "raw")]
    else:
        provided = os.environ.get("SFUMATO_DATA")
        folders = [Path(provided, file.folder), cache] if provided else [cache]
    unzipped = file.name.removesuffix(".gz")
    places = [place for folder in folders for place in (folder, folder / file.name, folder / unzipped)]
    for place in filter(os.path.isfile, places):
        try:
            content = place.read_bytes()
        except OSError as error:
            raise FileError(f"'{place}' cannot be read: {why(error)}") from error
        if place.name == unzipped and unzipped != file.name:
            # torchvision decompresses MNIST, and the published checksums are of the compressed files:
            # `_idx` checks the header, the shape and the size instead.
            return str(place), content
        return str(place), _checked(file, content, str(place))
    if path is not None:
        raise FileError(f"there is no {file.name} at '{path}'", hint="give the file or its folder")
    if file.address:
        return file.address, _download(file, cache / file.name)
    looked = " or ".join(f"'{folder}'" for folder in folders)
    raise FileError(f"{file.name} is not in {looked}, and has no public address to download it from", hint=file.hint)


def _checked(file: _File, content: bytes, source: str) -> bytes:
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise FileError(
            f"'{source}' is damaged: its SHA-256 is not that of the published {file.name}", hint="download it again"
        )
    return gzip.decompress(content) if file.name.endswith(".gz") else content


class _OnlyHttps(urllib.request.BaseHandler):
    """Refuse plain http and ftp, even after a redirect, except to this machine."""

    def http_request(self, request: urllib.request.Request) -> urllib.request.Request:
        if request.host.partition(":")[0] not in ("127.0.0.1", "localhost"):
            raise urllib.error.URLError("the address is not https")
        return request

    ftp_request = http_request


def _download(file: _File, place: Path) -> bytes:
    """Download a file, check it, and only then write it atomically."""
    opener = urllib.request.build_opener(_OnlyHttps)
    opener.addheaders = [("User-Agent", "sfumato")]
    try:
        with opener.open(file.address, timeout=_TIME_OUT) as answer:
            zipped = answer.read(_LONGEST)
        content = _checked(file, zipped, file.address)
        place.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is also the response, and holds the connection
            reason = f"the server returned {error.code} {reason}"
        raise FileError(f"{file.name} cannot be downloaded from {file.address}: {reason}", hint=file.hint) from error
    with atomic_path(place) as temporary:
        temporary.write_bytes(zipped)
    return content


TABLES = {"adult": adult, "nursery": nursery}
"""The tables that come with Sfumato, by name."""
TARGETS = {"adult": "income"}
"""What models predict, where the schema gives the target another role."""
BUILT_IN = (*TABLES, "mnist")
"""All data sets that come with Sfumato; commands accept these names instead of a file."""

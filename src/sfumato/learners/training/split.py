"""Split a data set into records for training and records for testing.

Each record of a table is assigned by its own coin. The coin depends on the values of the record and on a secret key,
never on its position or on other records. So two tables that differ by one record assign all other records alike,
whatever the key. Equal records are numbered, and each copy has its own coin; which copy gets which number makes no
difference.

If a table has a person column, people are assigned instead: the coin of a person is made of those of all their records,
so it depends on nobody else, and no person is in both parts. A record without a person keeps a coin of its own.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.budget.ledger.fingerprint import content_fingerprint
from sfumato.budget.people import codes_of_people, units_of
from sfumato.data import datasets
from sfumato.data.coding import canonical_text, person_texts, texts_of
from sfumato.data.schema import Kind, Schema
from sfumato.data.table import Table, read
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean
from sfumato.learners.estimators.features import as_numbers, as_read, classes_of
from sfumato.learners.options import Split

__all__ = [
    "Material",
    "coins_below",
    "coins_of",
    "coins_of_people",
    "key_of",
    "material_of",
    "new_key",
    "of_others",
    "records_of",
    "with_people",
]

KEY_BYTES = 32
Coins = NDArray[np.uint64]
Records = NDArray[np.uint8]


@dataclass(frozen=True, eq=False, repr=False)
class Material(Discreet):
    """Records for training and for testing.

    Examples
    --------
    >>> digits = material_of("mnist", split=Split(samples=500, test_samples=100))
    >>> digits.train.shape, digits.target, digits.are_images
    ((500, 28, 28), 'label', True)
    >>> people = material_of("adult", target="income")
    >>> people.train.rows, people.test.rows
    (32561, 16281)
    """

    name: str
    target: str
    train: Any
    train_target: Any
    test: Any
    test_target: Any
    whole: Table | None = None
    """The whole table, which the ledger belongs to. None for images."""
    split: str = ""
    """How the test records were chosen, in words."""
    is_public: bool = False
    """Whether all records are from a built-in public data set."""
    key: bytes = field(default=b"", repr=False)
    """The secret key that determines the test records."""

    @property
    def are_images(self) -> bool:
        """Whether the records are images."""
        return self.whole is None

    @property
    def person(self) -> str | None:
        """The column that says which rows are of the same person, if people are protected."""
        return None if self.whole is None else self.whole.schema.person

    @property
    def rows(self) -> int:
        """The number of training records."""
        return len(self.train_target)

    @property
    def schema(self) -> Schema:
        """The declared schema, without inferred kinds."""
        if self.whole is None:
            return Schema([])
        columns = self.whole.schema.columns
        return Schema(replace(one, kind=Kind.AUTO, inferred=False) if one.inferred else one for one in columns)

    @property
    def public_rows(self) -> int | None:
        """The number of training records of a built-in data set, which is public."""
        return self.rows if self.name in ("mnist", *datasets.TABLES) else None

    def with_target_type(self, *, regression: bool) -> Material:
        """Return the records with the target as numbers or classes if its type is only inferred from its cells."""
        if self.whole is None or not self.whole.has_inferred_types:
            return self
        is_number = regression or self.schema[self.target].kind in (Kind.NUMBER, Kind.DATE)
        train, test = map(as_numbers if is_number else as_read, (self.train_target, self.test_target))
        return replace(self, train_target=train, test_target=test)

    def declared_target(self, *, regression: bool) -> dict[str, Any]:
        """Return the declared bounds or classes of the target as parameters of an estimator."""
        if self.whole is None:
            return {} if regression or self.name != "mnist" else {"classes": tuple(range(10))}
        column = self.schema[self.target]
        name, public = ("target_bounds", column.bounds) if regression else ("classes", classes_of(column))
        return {} if public is None else {name: public}


def material_of(
    data: Any,
    *,
    target: str | None = None,
    person: str | None = None,
    split: Split | None = None,
    key: bytes | None = None,
) -> Material:
    """Load the records and split them into training and test records.

    Each record, or each person, is held out by its own coin (see `division`): adding one to a table does not move any
    other, and the size of each part is random.

    Parameters
    ----------
    data : str, path, Table, frame or Images
        "mnist" is the built-in 10,000 training and 2,000 test images; a table needs a target.
    target : str, optional
        The column to predict; by default the target of the schema, and income for "adult".
    person : str, optional
        The column that says which rows are of the same person; by default that of the schema.
    split : Split, optional
    key : bytes, optional
        The secret key of the split of other data; by default a new one.
    """
    split = split or Split()
    named = isinstance(data, str) and not Path(data).exists()
    if isinstance(data, datasets.Images) or (named and data == "mnist"):
        if target is not None or split.test is not None:
            raise OptionError("a target and test rows are for tables: images have their labels")
        if person is not None:
            raise OptionError("a person column is for tables: every image counts as a person of its own")
        return _images(data, split, key or new_key())
    if split.full or split.root is not None:
        raise OptionError("'full' and a data root are for mnist")
    built_in = named and data in datasets.TABLES
    if built_in:
        table, name, target = datasets.TABLES[data](), data, target or datasets.TARGETS.get(data)
        if person is not None:
            raise OptionError(f"every row of '{data}' is a person of its own", hint="leave the person column out")
    else:
        table = Table.of(data if not isinstance(data, str | Path) else read(data, inferred=False)).as_declared()
        table = Table.of(table, person=person)
        name = table.origin.name if table.origin else "table"
    public = built_in and split.test is None
    return _table(name, table, target, split, public, key_of(split.seed) if public else key or new_key())


def _images(data: Any, split: Split, key: bytes) -> Material:
    public = isinstance(data, str)
    images = datasets.mnist(full=split.full or split.root is not None, path=split.root) if public else data
    parts = []
    for samples, pixels, labels in (
        (split.samples, images.train_images, images.train_labels),
        (split.test_samples, images.test_images, images.test_labels),
    ):
        count = _number("samples", samples, len(labels), public)
        kept: Any = slice(count)
        if isinstance(count, float):
            records = np.concatenate(
                [one.reshape(len(labels), -1).view(np.uint8) for one in map(np.ascontiguousarray, (pixels, labels))],
                axis=1,
            )
            kept = coins_below(coins_of(records, key)[:, 1], count)
        parts.append((pixels[kept], labels[kept].astype(np.int64)))
    (train, train_labels), (test, test_labels) = parts
    return Material(
        "mnist" if public else "images",
        "label",
        train,
        train_labels,
        test,
        test_labels,
        split="the test images that belong to the data set",
        is_public=public,
        key=key if not public else b"",
    )


def _table(name: str, table: Table, target: str | None, split: Split, public: bool, key: bytes) -> Material:
    chosen = target or table.schema.target
    if chosen is None:
        raise OptionError("a table needs a column to predict", hint="--target NAME, or target=")
    if chosen not in table.schema.names:
        raise ColumnError(f"there is no column '{chosen}' to predict", hint=did_you_mean(chosen, table.schema.names))
    if chosen == table.schema.person:
        raise ColumnError(f"'{chosen}' says which rows are of the same person, so it cannot be predicted")
    frame, person = table.to_polars(), table.schema.person
    official = public and name == "adult" and datasets.SPLIT in frame.columns
    left_out = [*table.schema.identifiers, *([datasets.SPLIT] if official else [])]
    kept = [column for column in table.schema.names if column == person or column not in left_out]
    if split.test is not None:
        parts, how = [frame, _given(table, split.test, kept)], "the rows given for testing"
        if person is not None:
            parts = [with_people(one, table) for one in parts]
            parts[1] = of_others(parts[1], parts[0], person)
            how = f"{how}, without those of people who are in the table"
        coins = [_coins(part, person, key) for part in parts]
    else:
        frame = with_people(frame, table)
        all_coins = _coins(frame, person, key)
        tests = coins_below(all_coins[:, 0], split.holdout)
        how = f"{split.holdout:.0%} of the {'rows' if person is None else 'people'}, each by a coin of its own"
        if official:
            tests, how = (frame[datasets.SPLIT] == "test").to_numpy(), "the official test rows"
        parts, coins = [frame.filter(~tests), frame.filter(tests)], [all_coins[~tests], all_coins[tests]]
    if not len(parts[0]):
        raise InputError("the table has too few rows to hold some out", hint="hold out fewer, or give test rows")
    schema = Schema(table.schema[column] for column in kept if column != chosen)
    tables = list[tuple[Table, pl.Series]]()
    generator = np.random.default_rng(split.seed if public else None)
    for part, own, samples in zip(parts, coins, (split.samples, split.test_samples), strict=True):
        usable = part[chosen].is_not_null().to_numpy() | (not tables)  # a row without a target cannot test
        part, own = part.filter(usable), own[usable]
        count = _number("samples", samples, len(part), public)
        if isinstance(count, float):
            part = part.filter(coins_below(own[:, 1], count))
        elif count < len(part):
            part = part[np.sort(generator.permutation(len(part))[:count])]
        tables.append((Table(part.select(schema.names), schema), part[chosen]))
    (train, train_target), (other_rows, test_target) = tables
    if split.test is not None and not len(test_target):
        raise InputError(f"no test row has a value in '{chosen}'")
    return Material(name, chosen, train, train_target, other_rows, test_target, table, how, is_public=public, key=key)


def with_people(frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    """Return rows of a table, or like it, with a person column that no cell gives another type."""
    person = table.schema.person
    if person is None or not table.has_inferred_types:
        return frame
    return frame.with_columns(person_texts(frame[person]).alias(person))


def _coins(frame: pl.DataFrame, person: str | None, key: bytes) -> Coins:
    """Return the coins of rows: those of their people if there is a person column."""
    coins = coins_of(records_of(frame), key)
    return coins if person is None else coins_of_people(coins, units_of(codes_of_people(frame[person])))


def of_others(test: pl.DataFrame, frame: pl.DataFrame, person: str) -> pl.DataFrame:
    """Return the test rows of people who are not in the table, and those of nobody.

    So everyone is in one part at most. An error instead would reveal that someone is in both.
    """
    given, own = test[person], frame[person]
    if given.dtype != own.dtype:
        raise ColumnError(
            f"the person column '{person}' of the test rows is of type {given.dtype}, and that of the table of "
            f"type {own.dtype}",
            hint="give both the same type",
        )
    return test.filter(~given.is_in(own.drop_nulls().unique().implode()).fill_null(value=False))


def _given(table: Table, test: Any, kept: list[str]) -> pl.DataFrame:
    """Return the rows given for testing, or raise an error if they do not fit the table or are the table itself."""
    other = Table.of(test if not isinstance(test, str | Path) else read(test, inferred=False)).as_declared()
    missing = [column for column in table.schema.names if column not in other.schema.names]
    if missing:
        raise ColumnError(f"the test rows have no column '{missing[0]}'")
    frame, given = table.to_polars(), other.to_polars()
    for column in kept:
        if table.has_inferred_types or not frame[column].dtype.is_numeric():
            continue
        if not given[column].dtype.is_numeric() and given[column].count():
            raise ColumnError(f"the test rows hold no numbers in column '{column}'")
    same = Table(given.select(frame.columns))
    if len(given) == len(frame) and content_fingerprint(same) == content_fingerprint(Table(frame)):
        raise InputError(
            "the test rows are the table itself, so every record would be in both parts",
            hint="leave them out to hold out a part of the table",
        )
    return given


def _number(name: str, count: Any, there: int, public: bool) -> int | float:
    """Return the number of records to use, or the fraction of them."""
    if count is None:
        return there
    if isinstance(count, float) and 0 < count < 1:
        return count
    if not public:
        raise OptionError(
            f"the {name} must be a share of the records between 0 and 1, got {count!r}",
            hint="the number of records is private",
        )
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise OptionError(f"the number of {name} must be a whole number of at least 1, or a share, got {count!r}")
    if count > there:
        raise OptionError(f"the number of {name} must be at most {there:,}, got {count:,}")
    return count


def new_key() -> bytes:
    """Return a random key from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


def key_of(seed: int) -> bytes:
    """Return the key of a seed, for public data and for training without privacy.

    Examples
    --------
    >>> key_of(1) == key_of(1), key_of(1) == key_of(2)
    (True, False)
    """
    return hashlib.blake2b(b"sfumato division %d" % seed, digest_size=KEY_BYTES).digest()


def records_of(frame: pl.DataFrame) -> Records:
    """Return a row of bytes for each record of a table; records with the same normalised values have equal rows.

    Values are compared by their normalised text, not by type: in a text file, one record can change the type, and with
    it the form, of all values of a column.

    Examples
    --------
    >>> numbers, texts = pl.DataFrame({"age": [30, 7]}), pl.DataFrame({"age": ["30.0", "unknown"]})
    >>> bool((records_of(numbers)[0] == records_of(texts)[0]).all())
    True
    """
    names = sorted(frame.columns)
    codes = Table(frame).encode(names)
    parts = [np.zeros((len(frame), 0), dtype=np.uint8)]
    for at, domain in enumerate(codes.domains):
        texts = texts_of(domain)
        if domain.values.dtype != pl.Float64:  # floats are already in their shortest form
            texts = [None if text is None else canonical_text(text) for text in texts]
        digests = [hashlib.blake2b(repr((domain.name, text)).encode(), digest_size=8).digest() for text in texts]
        table = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, 8)
        parts.append(table[codes.values[:, at]])
    return np.concatenate(parts, axis=1)


def coins_of(records: Any, key: bytes) -> Coins:
    """Return two independent coins for each row of an array: one for the test part, one for subsampling.

    Examples
    --------
    >>> records = records_of(pl.DataFrame({"sex": ["f", "m", "f"]}))
    >>> coins = coins_of(records, key_of(1))
    >>> coins.shape, len(np.unique(coins))
    ((3, 2), 6)
    """
    if not len(records):
        return np.zeros((0, 2), dtype=np.uint64)
    rows = np.ascontiguousarray(records).reshape(len(records), -1)
    whole = rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize)))[:, 0]
    _, which, sizes = np.unique(whole, return_inverse=True, return_counts=True)
    order = np.argsort(which, kind="stable")
    copy = np.empty(len(rows), dtype=np.int64)  # the number of equal records before
    copy[order] = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    digests = [
        hashlib.blake2b(number.to_bytes(8, "little") + one.tobytes(), key=key, digest_size=16).digest()
        for number, one in zip(copy.tolist(), whole, strict=True)
    ]
    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2)


def coins_of_people(coins: Coins, units: NDArray[np.int64]) -> Coins:
    """Return the coins of the person of each row, given those of the rows and the number of each row's person.

    They are the exclusive or of the coins of all their rows, so they are as random as these, and no matter in which
    order the rows are. Someone with one row has the coins of that row.

    Examples
    --------
    >>> coins = coins_of(np.arange(3), key_of(1))
    >>> of_people = coins_of_people(coins, np.array([0, 1, 0]))
    >>> bool((of_people[0] == of_people[2]).all()), bool((of_people[1] == coins[1]).all())
    (True, True)
    """
    if not len(units):
        return coins
    order = np.argsort(units, kind="stable")
    starts = np.flatnonzero(np.diff(units[order], prepend=-1))
    return np.bitwise_xor.reduceat(coins[order], starts, axis=0)[units]


def coins_below(coins: Coins, chance: float) -> NDArray[np.bool_]:
    """Return which coins select their record, with this probability.

    Examples
    --------
    >>> coins_below(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 0.5).tolist()
    [True, False, False]
    """
    return np.ones(len(coins), dtype=bool) if chance >= 1 else coins < np.uint64(int(chance * 2.0**64))

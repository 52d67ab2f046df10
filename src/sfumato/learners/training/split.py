"""What a model is trained on, and what it is tested on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sfumato._repr import Discreet
from sfumato.budget.ledger.fingerprint import content_fingerprint
from sfumato.data import datasets
from sfumato.data.schema import Kind, Schema
from sfumato.data.table import Table, read
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean
from sfumato.learners.estimators.features import as_numbers, as_read, classes_of
from sfumato.learners.training.division import coins_of, happened, key_of, new_key, records_of

__all__ = ["Material", "material_of"]

_TARGETS = {"adult": "income"}  # where the schema has another role for it


@dataclass(frozen=True, eq=False, repr=False)
class Material(Discreet):
    """Records for training and for testing.

    Examples
    --------
    >>> digits = material_of("mnist", samples=500, test_samples=100)
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
    """The table that both are of: that of the ledger. None for images."""
    split: str = ""
    """How the records for testing were chosen, in words."""
    is_public: bool = False
    """Whether it is one of the public data sets that are built in, and nothing else."""
    key: bytes = field(default=b"", repr=False)
    """The secret that decides which records test."""

    @property
    def are_images(self) -> bool:
        """Whether the records are images."""
        return self.whole is None

    @property
    def rows(self) -> int:
        """How many records there are to train on."""
        return len(self.train_target)

    @property
    def schema(self) -> Schema:
        """What is declared of the columns."""
        if self.whole is None:
            return Schema([])
        columns = self.whole.schema.columns
        return Schema(replace(one, kind=Kind.AUTO, inferred=False) if one.inferred else one for one in columns)

    @property
    def public_rows(self) -> int | None:
        """How many records there are to train on, if everybody knows: of a data set that is built in."""
        return self.rows if self.name in ("mnist", *datasets.TABLES) else None

    def predicting(self, *, regression: bool) -> Material:
        """Return it with the target as a number or a class, where only its cells tell: one must not decide on it."""
        if self.whole is None or not self.whole.has_inferred_types:
            return self
        is_number = regression or self.schema[self.target].kind in (Kind.NUMBER, Kind.DATE)
        train, test = map(as_numbers if is_number else as_read, (self.train_target, self.test_target))
        return replace(self, train_target=train, test_target=test)

    def declared_target(self, *, regression: bool) -> dict[str, Any]:
        """Return what is public of the target, as parameters of an estimator: its bounds or its classes."""
        if self.whole is None:
            return {} if regression or self.name != "mnist" else {"classes": tuple(range(10))}
        column = self.schema[self.target]
        name, public = ("target_bounds", column.bounds) if regression else ("classes", classes_of(column))
        return {} if public is None else {name: public}


def material_of(
    data: Any,
    *,
    target: str | None = None,
    test: Any = None,
    holdout: float = 0.2,
    full: bool = False,
    root: str | Path | None = None,
    samples: float | None = None,
    test_samples: float | None = None,
    seed: int = 0,
    key: bytes | None = None,
) -> Material:
    """Find the records that are named, and divide them.

    A record that is held out is so by a coin of its own (see `division`): adding a record to a table leaves every other
    one in its part, and the number of records in each part is not known beforehand.

    Parameters
    ----------
    data : str, path, Table, frame or Images
        "mnist" is the 10,000 and 2,000 images that are built in; a table needs a target.
    target : str, optional
        The column of a table that is predicted; by default the target of its schema, and income for "adult".
    test : path, Table or frame, optional
        Other rows to test on. By default the official ones of a table that is built in, else a part of the rows.
        A row that is in both tables counts as two records.
    holdout : float
        The chance of a row to be held out then.
    full : bool
        All 60,000 and 10,000 images of MNIST.
    root : path, optional
        The folder where the full data set is.
    samples, test_samples : number, optional
        Take only a share of the records, from 0 to 1, each by a coin of its own. Of a data set that is built in, also
        so many: the first of images, random ones of a table. Other data has no such number, because it would make room
        for one record by leaving out another.
    seed : int
        Of the division of a public data set that is built in; that of other data has no seed.
    key : bytes, optional
        The secret of the division of other data; a new one by default.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise OptionError(f"the seed must be a whole number from 0 to below 2^63, got {seed!r}")
    named = isinstance(data, str) and not Path(data).exists()
    if isinstance(data, datasets.Images) or (named and data == "mnist"):
        if target is not None or test is not None:
            raise OptionError("a target and test rows are for tables: images have their labels")
        return _images(data, full, root, (samples, test_samples), key or new_key())
    if full or root is not None:
        raise OptionError("'full' and a data root are for mnist")
    built_in = named and data in datasets.TABLES
    if built_in:
        table, name, target = datasets.TABLES[data](), data, target or _TARGETS.get(data)
    else:
        table = Table.of(data if not isinstance(data, str | Path) else read(data, inferred=False)).as_declared()
        name = table.origin.name if table.origin else "table"
    if isinstance(holdout, bool) or not isinstance(holdout, int | float) or not 0 < holdout < 1:
        raise OptionError(f"the share of rows held out must be a number between 0 and 1, got {holdout!r}")
    public = built_in and test is None
    secret = key_of(seed) if public else key or new_key()
    return _table(name, table, target, test, holdout, (samples, test_samples), seed if public else None, secret)


def _images(data: Any, full: bool, root: Any, samples: tuple[Any, Any], key: bytes) -> Material:
    public = isinstance(data, str)
    images = datasets.mnist(full=full or root is not None, path=root) if public else data
    parts = []
    for name, pixels, labels in (
        ("train", images.train_images, images.train_labels),
        ("test", images.test_images, images.test_labels),
    ):
        count = _number("samples", samples[name == "test"], len(labels), public)
        kept: Any = slice(count)
        if isinstance(count, float):
            records = np.concatenate(
                [one.reshape(len(labels), -1).view(np.uint8) for one in map(np.ascontiguousarray, (pixels, labels))],
                axis=1,
            )
            kept = happened(coins_of(records, key)[:, 1], count)
        parts.append((pixels[kept], labels[kept].astype(np.int64)))
    (train, train_labels), (test, test_labels) = parts
    split = "the test images that belong to the data set"
    return Material(
        "mnist" if public else "images",
        "label",
        train,
        train_labels,
        test,
        test_labels,
        split=split,
        is_public=public,
        key=key if not public else b"",
    )


def _table(
    name: str,
    table: Table,
    target: str | None,
    test: Any,
    holdout: float,
    samples: tuple[Any, Any],
    seed: int | None,
    key: bytes,
) -> Material:
    """Divide a table; one with a seed is public."""
    chosen = target or table.schema.target
    if chosen is None:
        raise OptionError("a table needs the column that is predicted", hint="--target NAME, or target=")
    if chosen not in table.schema.names:
        raise ColumnError(f"there is no column '{chosen}' to predict", hint=did_you_mean(chosen, table.schema.names))
    frame = table.to_polars()
    official = seed is not None and name == "adult" and "split" in frame.columns
    left_out = [*table.schema.identifiers, *(["split"] if official else [])]
    kept = [column for column in table.schema.names if column not in left_out]
    if test is not None:
        parts = [frame, _given(table, test, kept)]
        coins, split = [coins_of(records_of(part), key) for part in parts], "the rows given for testing"
    else:
        all_coins = coins_of(records_of(frame), key)
        tests = happened(all_coins[:, 0], holdout)
        split = f"{holdout:.0%} of the rows, each by a coin of its own"
        if official:
            tests, split = (frame["split"] == "test").to_numpy(), "the official test rows"
        parts, coins = [frame.filter(~tests), frame.filter(tests)], [all_coins[~tests], all_coins[tests]]
    if not len(parts[0]):
        raise InputError("the table has too few rows to hold some out", hint="give a smaller share, or test rows")
    schema = Schema(table.schema[column] for column in kept if column != chosen)
    held = []
    generator = np.random.default_rng(seed)
    for at, (part, own) in enumerate(zip(parts, coins, strict=True)):
        usable = part[chosen].is_not_null().to_numpy() | (at == 0)  # a row without an answer tests nothing
        part, own = part.filter(usable), own[usable]
        count = _number("samples", samples[at], len(part), seed is not None)
        if isinstance(count, float):
            part = part.filter(happened(own[:, 1], count))
        elif count < len(part):
            part = part[np.sort(generator.permutation(len(part))[:count])]
        held.append((Table(part.select(schema.names), schema), part[chosen]))
    (train, train_target), (other_rows, test_target) = held
    if test is not None and not len(test_target):
        raise InputError(f"no test row has a value in '{chosen}'")
    return Material(
        name,
        chosen,
        train,
        train_target,
        other_rows,
        test_target,
        table,
        split,
        is_public=seed is not None,
        key=key,
    )


def _given(table: Table, test: Any, kept: list[str]) -> pl.DataFrame:
    """Return the rows that are given for testing, if they are like the table, and are not it."""
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
            "the test rows are the table itself, so that every record would be in both parts",
            hint="leave them out: a part of the table is held out",
        )
    return given


def _number(name: str, count: Any, there: int, public: bool) -> int | float:
    """Return how many records to take, or which share of them."""
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

"""What a model is trained on, and what it is tested on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._errors import ColumnError, InputError, OptionError, did_you_mean
from sfumato.data import datasets
from sfumato.data.schema import Kind, Schema
from sfumato.data.table import Table, read
from sfumato.learners.features import as_numbers, as_read, classes_of

__all__ = ["Material", "material_of"]

_TABLES = {"adult": datasets.adult, "nursery": datasets.nursery}


@dataclass(frozen=True, eq=False)
class Material:
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

    @property
    def are_images(self) -> bool:
        """Whether the records are images of a public data set."""
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
        return self.rows if self.name in ("mnist", *_TABLES) else None

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
    samples: int | None = None,
    test_samples: int | None = None,
    seed: int = 0,
) -> Material:
    """Find the records that are named, and divide them.

    Parameters
    ----------
    data : str, path, Table, frame or Images
        "mnist" is the 10,000 and 2,000 images that are built in; a table needs a target.
    target : str, optional
        The column of a table that is predicted; by default the target of its schema.
    test : path, Table or frame, optional
        Other rows to test on. By default the official ones of a table that is built in, else a part of the rows.
    holdout : float
        The share of the rows that is held out then.
    full : bool
        All 60,000 and 10,000 images of MNIST.
    root : path, optional
        The folder where the full data set is.
    samples, test_samples : int, optional
        Take only so many, the first of images, random ones of a table.
    seed : int
        Of the division.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise OptionError(f"the seed must be a whole number from 0 to below 2^63, got {seed!r}")
    if isinstance(data, datasets.Images) or (isinstance(data, str) and data == "mnist" and not Path(data).exists()):
        if target is not None or test is not None:
            raise OptionError("a target and test rows are for tables: images have their labels")
        return _images(data, full, root, samples, test_samples)
    if full or root is not None:
        raise OptionError("'full' and a data root are for mnist")
    if isinstance(data, str) and data in _TABLES and not Path(data).exists():
        table, name = _TABLES[data](), data
    else:
        table = Table.of(data if not isinstance(data, str | Path) else read(data))
        name = table.origin.name if table.origin else "table"
    if not 0 < holdout < 1:
        raise OptionError(f"the share of rows held out must be a number between 0 and 1, got {holdout!r}")
    return _table(name, table, target, test, holdout, samples, test_samples, seed)


def _images(data: Any, full: bool, root: Any, samples: int | None, test_samples: int | None) -> Material:
    images = data if isinstance(data, datasets.Images) else datasets.mnist(full=full or root is not None, path=root)
    train, test = (
        slice(_at_most("samples", count, len(labels)))
        for count, labels in ((samples, images.train_labels), (test_samples, images.test_labels))
    )
    return Material(
        "mnist" if isinstance(data, str) else "images",
        "label",
        images.train_images[train],
        images.train_labels[train].astype(np.int64),
        images.test_images[test],
        images.test_labels[test].astype(np.int64),
        split="the test images that belong to the data set",
    )


def _table(
    name: str,
    table: Table,
    target: str | None,
    test: Any,
    holdout: float,
    samples: int | None,
    test_samples: int | None,
    seed: int,
) -> Material:
    chosen = target or table.schema.target
    if chosen is None:
        raise OptionError("a table needs the column that is predicted", hint="--target NAME, or target=")
    if chosen not in table.schema.names:
        raise ColumnError(f"there is no column '{chosen}' to predict", hint=did_you_mean(chosen, table.schema.names))
    generator = np.random.default_rng(seed)
    frame = table.fetched()
    official = test is None and name == "adult" and "split" in frame.columns
    left_out = [*table.schema.identifiers, *(["split"] if official else [])]
    kept = [column for column in table.schema.names if column not in left_out]
    if test is not None:
        other = Table.of(test if not isinstance(test, str | Path) else read(test))
        missing = [column for column in table.schema.names if column not in other.schema.names]
        if missing:
            raise ColumnError(f"the test rows have no column '{missing[0]}'")
        given = other.fetched()
        for column in kept:
            if table.has_inferred_types or not frame[column].dtype.is_numeric():
                continue
            if not given[column].dtype.is_numeric() and given[column].count():
                raise ColumnError(f"the test rows hold no numbers in column '{column}'")
        parts, split = (frame, given), "the rows given for testing"
    elif official:
        first, second = (frame.filter(frame["split"] == one) for one in ("train", "test"))
        parts, split = (first, second), "the official test rows"
    else:
        order = generator.permutation(len(frame))
        cut = max(1, round(len(frame) * holdout))
        if cut >= len(frame):
            raise InputError(f"the table has too few rows to hold some out, got {len(frame):,}")
        parts = frame[np.sort(order[cut:])], frame[np.sort(order[:cut])]
        split = f"{holdout:.0%} of the rows, at random"
    schema = Schema(table.schema[column] for column in kept if column != chosen)
    parts = parts[0], parts[1].filter(parts[1][chosen].is_not_null())  # a row without an answer tests nothing
    if not len(parts[1]):
        raise InputError(f"no test row has a value in '{chosen}'")
    held = []
    for part, count in zip(parts, (samples, test_samples), strict=True):
        most = _at_most("samples", count, len(part))
        rows = part if most == len(part) else part[np.sort(generator.permutation(len(part))[:most])]
        held.append((Table(rows.select(schema.names), schema), rows[chosen]))
    (train, train_target), (other_rows, test_target) = held
    return Material(name, chosen, train, train_target, other_rows, test_target, table, split)


def _at_most(name: str, count: int | None, there: int) -> int:
    if count is None:
        return there
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise OptionError(f"the number of {name} must be a whole number of at least 1, got {count!r}")
    if count > there:
        raise OptionError(f"the number of {name} must be at most {there:,}, got {count:,}")
    return count

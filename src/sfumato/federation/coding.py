"""How records become samples: from public descriptions alone, so that all holders code alike without talking."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.budget.people import codes_of_people
from sfumato.data.coding import person_texts
from sfumato.data.schema import Column, Schema
from sfumato.data.table import Table
from sfumato.errors import ColumnError, InputError, SchemaError
from sfumato.learners.estimators.features import (
    Columns,
    Feature,
    Features,
    Undeclared,
    classes_of,
    describe,
    texts_in,
)
from sfumato.learners.networks.architectures import ImageInputs

__all__ = ["KNOTS", "SCALE", "Coding"]

KNOTS = 20
"""The knots of the spline that codes a number of a table, as in `PrivateClassifier`."""

SCALE = (0.5, 0.25)
"""The mean and deviation by which images are normalised unless others are known: bytes become numbers from -2 to 2."""


@dataclass(frozen=True)
class Coding:
    """The public description of the records: columns with domains or bounds and classes, or the shape of images.

    Attributes
    ----------
    classes : the classes, in the order of the outputs of the network
    inputs : the shape of a sample
    target : the column of a table that is predicted; "label" for images
    features : the columns of a table; None for images
    scale : the mean and deviation by which all holders normalise images; None for tables

    Examples
    --------
    >>> import sfumato as sf
    >>> coding = Coding.of_table(sf.datasets.nursery(), "class")
    >>> inputs, targets = coding.samples(sf.datasets.nursery())
    >>> coding.inputs, len(coding.classes), inputs.shape == (12960, 27)
    ((27,), 5, True)
    >>> Coding.from_dict(coding.to_dict()).digest == coding.digest
    True
    """

    classes: tuple[Any, ...]
    inputs: tuple[int, ...]
    target: str = "label"
    features: Features | None = None
    scale: tuple[float, float] | None = None

    @classmethod
    def of_table(cls, table: Table, target: str | Column, *, public: bool = False) -> Coding:
        """Take the description of all columns from the schema; a column that it leaves open is refused.

        Of ``public`` records, such as a built-in table, it is read from the values. The target is a column of the table
        or, if it is not in the table, its description.
        """
        rows = table.as_declared()
        wanted = rows.schema[target] if isinstance(target, str) else target
        classes = classes_of(wanted)
        if classes is None:
            raise SchemaError(
                f"the classes of '{wanted.name}' are not declared, and all holders must code them alike",
                hint=f"declare them in the schema or with --domain {wanted.name}=A,B",
            )
        known = classes if all(type(one) is int for one in classes) else texts_in(classes)
        if len(texts_in(known)) < 2:
            raise SchemaError(f"the target '{wanted.name}' needs at least two classes, but one is declared")
        kept = [one for one in rows.schema.names if one != wanted.name and one not in rows.schema.identifiers]
        columns = Columns.of(_selected(rows, kept))
        features = list[Feature]()
        for one, values in zip(describe(columns, rows.schema), columns.values, strict=True):
            if not isinstance(one, Undeclared):
                features.append(one)
            elif public:
                features.append(one.read(values))
            else:
                what = "bounds" if one.is_number else "values"
                how = f"--bounds {one.name}=LOW,HIGH" if one.is_number else f"--domain {one.name}=A,B"
                raise SchemaError(
                    f"the {what} of column '{one.name}' are not declared, and all holders must code it alike",
                    hint=f"declare them in the schema or with {how}, or leave the column out with --identifiers",
                )
        found = Features(tuple(features))
        return cls(tuple(known), (found.width(KNOTS),), wanted.name, found)

    @classmethod
    def of_images(cls, images: NDArray[Any], classes: int, scale: tuple[float, float] = SCALE) -> Coding:
        """Describe images by their shape, the number of classes, and a public mean and deviation."""
        return cls(tuple(range(classes)), ImageInputs.of_array(images).shape, scale=scale)

    @property
    def knots(self) -> int | None:
        """The knots of numbers; None for images."""
        return None if self.features is None else KNOTS

    @property
    def schema(self) -> Schema:
        """The description as a schema."""
        columns = [] if self.features is None else list(self.features.features)
        described = [Column(name=one.name, bounds=one.bounds, domain=one.domain) for one in columns]
        if not described:
            return Schema([])
        return Schema([*described, Column(name=self.target, domain=self.classes)]).with_roles(target=self.target)

    @property
    def digest(self) -> str:
        """A digest of the description; holders with another one are refused."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def samples(self, records: Any, labels: Any = None) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the samples and their classes; records without a known class are left out.

        Parameters
        ----------
        records : a table, with or without the target, or an array of images
        labels : the targets, unless they are a column of the table
        """
        if self.features is None:
            given = ImageInputs.of_array(records)
            if given.shape != self.inputs:
                raise InputError(f"the images have the shape {_by(given.shape)}, and the plan {_by(self.inputs)}")
            inputs = given.tensor(self.scale).numpy().astype(np.float32)
            targets = np.asarray(labels, dtype=np.int64)
            known = (targets >= 0) & (targets < len(self.classes))
        else:
            table = Table.of(records).as_declared()
            missing = [one for one in self.features.names if one not in table.schema.names]
            missing += [] if labels is not None or self.target in table.schema.names else [self.target]
            if missing:
                raise ColumnError(f"the table has no column '{missing[0]}', which all holders must have")
            with warnings.catch_warnings():  # a private record must not decide what is printed
                warnings.simplefilter("ignore", UserWarning)
                columns = self.features.align(_selected(table, list(self.features.names)), "the federation")
                inputs = self.features.matrix(columns, KNOTS).astype(np.float32)
            targets = self._targets(table, labels)
            known = targets < len(self.classes)
        if len(inputs) != len(targets):
            raise InputError(f"there are {len(inputs):,} records and {len(targets):,} labels")
        return inputs[known], targets[known]

    def people(self, records: Any, person: str, labels: Any = None) -> NDArray[np.int64]:
        """Return whose each of the `samples` of a table is: a number for each person, -1 for a row of nobody."""
        table = Table.of(records).as_declared()
        if person not in table.schema.names:
            raise ColumnError(f"the table has no person column '{person}', which all holders must have")
        column = table.to_polars()[person]
        codes = codes_of_people(person_texts(column) if table.has_inferred_types else column)
        return codes[self._targets(table, labels) < len(self.classes)]

    def _targets(self, table: Table, labels: Any) -> NDArray[np.int64]:
        """Return the class of each record of a table; an unknown one is beyond the classes."""
        given = pl.Series(self.target, table.to_polars()[self.target] if labels is None else labels)
        return Feature(self.target, domain=texts_in(self.classes)).codes(given)

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain values."""
        plain = {"classes": list(self.classes), "inputs": list(self.inputs), "target": self.target}
        if self.features is None:
            return {**plain, "features": None, "scale": list(self.scale or SCALE)}
        return {**plain, "features": self.features.to_dict()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the description of a `to_dict`."""
        try:
            features = None if plain["features"] is None else Features.from_dict(plain["features"])
            scale = None if features is not None else (float(plain["scale"][0]), float(plain["scale"][1]))
            inputs = tuple(map(int, plain["inputs"]))
            return cls(tuple(plain["classes"]), inputs, str(plain["target"]), features, scale)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError("the description of the records lacks a key or is damaged") from error


def _selected(table: Table, names: list[str]) -> Table:
    return Table(table.to_polars().select(names), Schema(table.schema[one] for one in names))


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))

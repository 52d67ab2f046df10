"""Procedures: make a model, or a released table, again from other records, as the release itself was made.

The strongest attacks compare a release with others that have not seen a record. A procedure makes these: it is a
picklable callable of records and a seed. Whatever it makes is only compared with, and never released.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import polars as pl

from sfumato._repr import Discreet
from sfumato.attacks.base import Records
from sfumato.attacks.predictions import is_missing
from sfumato.data.datasets import Images
from sfumato.data.recipe import Recipe
from sfumato.data.schema import Schema
from sfumato.data.table import Table
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean

__all__ = ["FitEstimator", "RunRecipe", "features_of", "people_of", "records_of"]

_SEEDS = ("random_state", "seed", "insecure_seed")
_NEVER = ("ledger", "checkpoint")  # a reference model is not released, and is not a training to resume
_MODELS = ("train", "federate")
_TABLES = ("anonymize", "mask", "perturb", "synthesize")
_OF_THE_SPLIT = ("data", "test", "holdout", "samples", "test_samples", "full", "root", "scores", "seed", "published")


def records_of(table: Table, target: str) -> Records:
    """Return the records of a table: their features, without identifiers, their labels, and whose they are.

    Examples
    --------
    >>> people = Table(pl.DataFrame({"age": [30, 40], "ill": ["no", "yes"]}))
    >>> records = records_of(people, "ill")
    >>> records.frame.columns, records.labels.tolist()
    (['age'], ['no', 'yes'])
    """
    features = features_of(table, target)
    labels = np.asarray(table.column(target).to_list())
    missing = is_missing(labels).sum()
    if missing:
        raise InputError(
            f"the target '{target}' is missing in {missing:,} of {len(labels):,} rows",
            hint="leave these rows out before the attack",
        )
    if len(np.unique(labels)) < 2:
        raise InputError(f"the target '{target}' has a single class, so that there is nothing to predict")
    return Records(table.to_polars().select(features), labels, people_of(table))


def people_of(table: Table) -> pl.Series | None:
    """Return the person column of a table, if it has one.

    Examples
    --------
    >>> people_of(Table.of(pl.DataFrame({"patient": [7, 7], "age": [30, 31]}), person="patient")).to_list()
    [7, 7]
    """
    return None if table.schema.person is None else table.column(table.schema.person)


def features_of(table: Table, target: str) -> list[str]:
    """Return the columns that a model predicts from: all but the target and the identifiers."""
    if target not in table.schema.names:
        raise ColumnError(f"there is no column '{target}' to predict", hint=did_you_mean(target, table.schema.names))
    names = [name for name in table.schema.names if name != target and name not in table.schema.identifiers]
    if not names:
        raise InputError(f"the table has no column to predict '{target}' from")
    return names


class FitEstimator(Discreet):
    """Fit a fresh copy of an estimator, or of a pipeline, with a seed of its own.

    Every parameter that is named ``random_state``, ``seed`` or ``insecure_seed``, also of the steps of a pipeline, gets
    a number that follows from the seed: references differ, and can be made again. No ledger is charged, because nothing
    is released: a private estimator is copied without its ledger.

    Parameters
    ----------
    estimator : estimator
        With scikit-learn's ``get_params``, ``fit`` and ``predict_proba``; fitted or not.
    columns : sequence of str, optional
        The columns of a frame to learn from; all by default.
    schema : Schema, optional
        Of these columns, for an estimator that takes a `Table`.
    person : str, optional
        The name of the column that says whose each record is, for an estimator that counts people.
    notes : sequence of str
        What a report must say about the procedure.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> train = FitEstimator(DecisionTreeClassifier())
    >>> model = train(Records(np.arange(8.0)[:, None], np.array([0, 1] * 4)), seed=1)
    >>> model.predict([[3.0]]).tolist(), model.random_state == DecisionTreeClassifier().random_state
    ([1], False)
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("kind",)

    def __init__(
        self,
        estimator: Any,
        *,
        columns: Sequence[str] | None = None,
        schema: Schema | None = None,
        person: str | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        if not (hasattr(estimator, "get_params") and hasattr(estimator, "fit")):
            raise OptionError(f"an estimator has get_params and fit, got {type(estimator).__name__}")
        self.estimator, self.columns, self.schema, self.notes = estimator, columns, schema, tuple(notes)
        self.person = person

    @property
    def kind(self) -> str:
        """The name of the estimator's class."""
        return type(self.estimator).__name__

    def __call__(self, records: Records, seed: int) -> Any:
        """Return the estimator, fitted to the records."""
        from sklearn.base import clone
        from sklearn.exceptions import ConvergenceWarning

        if records.labels is None:
            raise InputError("a model cannot be trained on records without labels")
        model = clone(self.estimator)
        names = sorted(model.get_params(deep=True))
        seeded = [name for name in names if name.rpartition("__")[2] in _SEEDS]
        numbers = np.random.SeedSequence(seed).generate_state(max(len(seeded), 1)) >> 1  # below 2**31
        model.set_params(**dict(zip(seeded, numbers.tolist(), strict=False)))
        model.set_params(**{name: None for name in names if name.rpartition("__")[2] in _NEVER})
        rows: Any = records.rows if self.columns is None else records.frame.select(self.columns)
        rows = rows if self.person is None else _with_people(records, rows, self.person)
        rows = rows if self.schema is None else Table(rows, self.schema)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the target was trained for as long
            return model.fit(rows, records.labels)


class RunRecipe(Discreet):
    """Do what the recipe of a release says, on other records.

    A recipe of `train` or `federate` gives a model that has learned all given records: none is held out. For the second
    they are split at random among as many holders in this process. A recipe of `anonymize`,
    `mask`, `perturb` or `synthesize` gives the released frame. No ledger is charged, because nothing is released.

    Parameters
    ----------
    recipe : Recipe
        For instance ``sf.load(folder).recipe``.

    Examples
    --------
    >>> import sfumato as sf
    >>> patients = sf.read("patients.csv").to_polars()
    >>> released = sf.anonymize(patients, "k=2", qi=["zip", "age"])
    >>> again = RunRecipe(released.recipe)(Records(patients.head(4)), seed=0)
    >>> again.height, again.columns == patients.columns
    (4, True)
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("command",)
    notes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, recipe: Recipe) -> None:
        if recipe.command not in (*_MODELS, *_TABLES):
            raise OptionError(
                f"a recipe of '{recipe.command}' makes neither a model nor a table",
                hint=f"recipes of {', '.join((*_MODELS, *_TABLES))} can be run on other records",
            )
        self.recipe = recipe

    @property
    def command(self) -> str:
        """The command that the recipe is of."""
        return self.recipe.command

    def __call__(self, records: Records, seed: int) -> Any:
        """Return the model, or the released frame."""
        if self.command in _MODELS:
            return self._train(records, seed)
        if self.command == "synthesize":
            return self._synthesize(records, seed)
        released: pl.DataFrame = self.recipe.run(self._rows(records)).table.to_polars()
        return released

    def _rows(self, records: Records) -> pl.DataFrame:
        """Return the records as the recipe takes them: with their people, if it protects people."""
        person = self.recipe.schema.person
        return records.frame if person is None else _with_people(records, records.frame, person)

    def _synthesize(self, records: Records, seed: int) -> pl.DataFrame:
        rows = self._rows(records)
        known = Schema(one for one in self.recipe.schema.columns if one.name in rows.columns)
        made = replace(self.recipe, schema=known).run(
            rows, ledger=False, insecure_seed=seed, seed=None, keep=records.frame.columns
        )
        drawn: pl.DataFrame = made.table.to_polars()
        return drawn

    def _train(self, records: Records, seed: int) -> Any:
        if records.labels is None:
            raise InputError("a model cannot be trained on records without labels")
        kept = {name: value for name, value in self.recipe.options.items() if name not in _OF_THE_SPLIT}
        if "rows" in kept:  # the number of training records, which is public
            kept["rows"] = len(records)
        _, firsts = np.unique(records.labels, return_index=True)
        tested = records.take(np.repeat(firsts, 2))  # `train` wants test rows, and nobody looks at their scores
        own: dict[str, Any] = {"seed": seed}
        if self.command == "train":
            own |= {"scores": "none", "insecure_seed": seed, "ledger": False}
        else:
            own["centralised"] = False
        data: Any
        declared = self.recipe.schema
        if isinstance(records.rows, pl.DataFrame):
            target = kept.get("target") or self.recipe.schema.target
            data, own["test"] = (_with_labels(one, target) for one in (records, tested))
            if (person := self.recipe.schema.person) is not None:
                data = _with_people(records, data, person)
                own["test"] = own["test"].with_columns(pl.lit(None, data.schema[person]).alias(person))  # of others
            declared = Schema(one for one in self.recipe.schema.columns if one.name in data.columns)
            kept.pop("identifiers", None)  # the records have none
        else:
            data = Images(records.rows, _bytes(records), np.asarray(tested.rows), _bytes(tested))
        training = replace(self.recipe, options=kept, schema=declared).run(data, **own)
        if self.command == "federate":
            return training.model
        if len(training.models) != 1:
            raise OptionError(
                f"the recipe trains {len(training.models)} models", hint="take the recipe of one model's release"
            )
        return next(iter(training.models.values()))


def _with_people(records: Records, rows: pl.DataFrame, person: str) -> pl.DataFrame:
    if records.people is None:
        raise InputError(
            f"the release protects people, and it is not known whose each record is: column '{person}'",
            hint="give Records(..., people=...)",
        )
    return rows.with_columns(records.people.alias(person))


def _with_labels(records: Records, target: str | None) -> pl.DataFrame:
    if target is None:
        raise OptionError("the recipe does not name the column to predict")
    assert records.labels is not None
    return records.frame.with_columns(pl.Series(target, records.labels.tolist()))


def _bytes(records: Records) -> Any:
    return np.asarray(records.labels).astype(np.uint8)

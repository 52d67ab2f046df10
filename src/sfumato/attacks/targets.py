"""What can be attacked: a released table, a model, a synthetic set; a model or a set together with its procedure.

A target shows an attacker what the release shows, and nothing else. A target with a *procedure* can be made again from
other records, which is what the strongest attacks do: they compare the target with others that have not seen a record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.attacks.base import Records
from sfumato.attacks.membership.references import halves_of, train_references
from sfumato.attacks.membership.signals import Signals
from sfumato.attacks.predictions import call, label_codes, own_label, places, probabilities, smooth, trees_of
from sfumato.data.schema import Schema
from sfumato.data.validate import whole
from sfumato.errors import InputError

__all__ = ["ModelTarget", "Procedure", "SyntheticTarget", "TableTarget"]

Floats = NDArray[np.float64]
Procedure = Callable[[Records, int], Any]
"""Make a model, or a synthetic frame, from records with a seed. It must be picklable to run in several processes.

A procedure with a method ``together`` trains all reference models at once: see `StackedNetworks`.
"""


class ModelTarget(Discreet):
    """A model that predicts classes, and if known the procedure that trained it.

    Parameters
    ----------
    model : object with ``predict_proba``, or at least ``predict``
        The model that is attacked.
    classes : array, optional
        The classes in the order of the columns of ``predict_proba``; the model's ``classes_`` by default.
    procedure : Procedure, optional
        How the model was trained; attacks with reference models need it.
    references : int
        The number of reference models that an attack with references trains, each on half of all records, or people.
    processes : int, optional
        The number of processes that train them; as many as cores by default.
    progress : callable, optional
        Called with the share of reference models that are trained.
    sensitive : sequence of str
        The columns whose values an attacker would guess with the model.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> people = Records(np.arange(8.0)[:, None], np.array([0, 1] * 4))
    >>> train = lambda records, seed: DecisionTreeClassifier().fit(records.rows, records.labels)
    >>> target = ModelTarget(train(people, 0), procedure=train)
    >>> target.own_label(people).tolist()  # right, and the vote of a single tree is smoothed
    [0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75]
    """

    kind: ClassVar[str] = "model"
    _repr_fields = ("references",)

    def __init__(
        self,
        model: Any,
        *,
        classes: Any = None,
        procedure: Procedure | None = None,
        references: int = 16,
        processes: int | None = None,
        progress: Callable[[float], None] | None = None,
        sensitive: Sequence[str] = (),
    ) -> None:
        known = getattr(model, "classes_", None) if classes is None else classes
        if known is None:
            raise InputError(f"{type(model).__name__} does not say its classes", hint="give classes=[...]")
        self.model, self.classes, self.procedure = model, np.asarray(known), procedure
        self.references = whole("the number of reference models", references, least=2, most=10_000)
        self.processes, self.progress, self.sensitive = processes, progress, tuple(sensitive)
        self._signals: list[tuple[Records, Records, int, Signals]] = []
        if len(self.classes) < 2:
            raise InputError("the model knows a single class, so that its predictions say nothing about records")

    def probabilities(self, records: Records) -> Floats:
        """Return the probability of each class for each record; the votes of a forest are smoothed."""
        return _predict(self.model, records, self.classes)

    @property
    def has_probabilities(self) -> bool:
        """Whether the model says more than the class that it predicts."""
        return hasattr(self.model, "predict_proba")

    def labels(self, records: Records) -> NDArray[np.int64]:
        """Return the position of each record's predicted class among the classes; -1 for any other answer."""
        predict = getattr(self.model, "predict", None)
        if predict is None:
            return np.asarray(self.probabilities(records).argmax(axis=1), dtype=np.int64)
        name = type(self.model).__name__
        found = np.asarray(call(f"predict of {name}", predict, records.rows))
        if found.shape not in ((len(records),), (len(records), 1)):
            raise InputError(f"predict of {name} gave the shape {found.shape} for {len(records)} records")
        return places(found.ravel(), self.classes)

    def codes(self, records: Records) -> NDArray[np.int64]:
        """Return the position of each record's label among the classes."""
        if records.labels is None:
            raise InputError("an attack on a model needs the labels of the records")
        return label_codes(records.labels, self.classes)

    def own_label(self, records: Records) -> Floats:
        """Return the probability of each record's own label."""
        return own_label(self.probabilities(records), self.codes(records))

    def accuracy(self, records: Records) -> float:
        """Return the share of records whose predicted class is their label."""
        return float(np.mean(self.labels(records) == self.codes(records)))

    def signals(self, members: Records, nonmembers: Records, seed: int) -> Signals:
        """Return the probabilities of the records' own labels by the target and by reference models.

        Members come first. The reference models are trained once for a seed, whichever attacks use them.
        """
        if self.procedure is None:
            raise InputError("this attack trains reference models, and the target has no procedure")
        for known, others, number, signals in self._signals:
            if known is members and others is nonmembers and number == seed:
                return signals
        pool = members.and_(nonmembers)
        inside, own = halves_of(pool, self.references, seed), self.own_label(pool)
        answers = _OwnLabel(self.procedure, pool, self.classes, self.codes(pool))
        if hasattr(self.procedure, "together"):  # it trains all references at once
            seeds = [seed + 1 + number for number in range(len(inside))]
            models = call("the training procedure", self.procedure.together, pool, inside, seeds, self.progress)
            found = np.stack([answers.of(model) for model in models])
        else:
            found = train_references(answers, inside, seed=seed, processes=self.processes, progress=self.progress)
        self._signals.append((members, nonmembers, seed, Signals(own, found, inside)))
        return self._signals[-1][-1]


def _predict(model: Any, records: Records, classes: NDArray[Any]) -> Floats:
    found = probabilities(model, records.rows, classes)
    trees = trees_of(model)
    return found if trees is None else smooth(found, trees)


class _OwnLabel:
    """Train on some rows of a pool; return the probability of its own label for every row of the pool."""

    def __init__(self, procedure: Procedure, pool: Records, classes: NDArray[Any], codes: NDArray[np.int64]) -> None:
        self.procedure, self.pool, self.classes, self.codes = procedure, pool, classes, codes

    def __call__(self, rows: NDArray[np.int64], seed: int) -> Floats:
        model = call("the training procedure", self.procedure, self.pool.take(rows), seed)
        return self.of(model)

    def of(self, model: Any) -> Floats:
        """Return the probability of its own label for every row of the pool."""
        return own_label(_predict(model, self.pool, self.classes), self.codes)


class TableTarget(Discreet):
    """A released table.

    Parameters
    ----------
    frame : polars.DataFrame
        The released values; generalised ones are text, as in the released file.
    schema : Schema
        The roles of the columns.
    procedure : Procedure, optional
        Makes a released frame from other records.
    population : polars.DataFrame, optional
        A table of many people by name or other identity, which an attacker links with the release; it has the
        quasi-identifiers of the release.
    person : str, optional
        The column that says whose each row of the population is, if people may have several.
    references : int
        The number of tables that an attack with a procedure makes, each from half of all records.
    processes, progress : optional
        See `ModelTarget`.
    """

    kind: ClassVar[str] = "table"
    _repr_fields = ("rows",)

    def __init__(
        self,
        frame: pl.DataFrame,
        schema: Schema,
        *,
        procedure: Procedure | None = None,
        population: pl.DataFrame | None = None,
        person: str | None = None,
        references: int = 16,
        processes: int | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self.frame, self.schema, self.procedure = frame, schema, procedure
        self.population, self.person = population, person
        self.references = whole("the number of reference tables", references, least=2, most=10_000)
        self.processes, self.progress = processes, progress

    @property
    def rows(self) -> int:
        """The number of released rows."""
        return self.frame.height


class SyntheticTarget(TableTarget):
    """A synthetic table: its rows look like records, and none of them is meant to be one."""

    kind: ClassVar[str] = "synthetic"

"""Named models and protections: the procedures of `sfumato attack DATA --model forest --protect guided:k=100`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from sfumato import anonymizers, learners
from sfumato.anonymizers.anonymize import METHODS, as_method
from sfumato.anonymizers.base import NewRows
from sfumato.anonymizers.publish import Output
from sfumato.attacks.procedures import FitEstimator, features_of
from sfumato.data.coding import canonical_text
from sfumato.data.schema import Column, Kind, Role, Schema
from sfumato.data.table import Table
from sfumato.data.validate import real
from sfumato.errors import OptionError, did_you_mean
from sfumato.learners.estimators.features import Columns, Undeclared, describe
from sfumato.measures.models import as_guarantees
from sfumato.synthesizers.tables.methods.catalogue import method_of
from sfumato.synthesizers.tables.synthesize import synthesize

__all__ = [
    "MODELS",
    "AnonymousTraining",
    "Protection",
    "SyntheticTraining",
    "estimator_of",
    "procedure_of",
    "protection",
    "texts_in",
    "with_domains",
]

MODELS = ("forest", "tree", "mlp", "boosting")
"""The named models."""

_PRIVATE: dict[str, tuple[str, dict[str, Any]]] = {
    "forest": ("PrivateRandomForest", {}),
    "tree": ("PrivateRandomForest", {"trees": 1}),
    "mlp": ("PrivateClassifier", {"model": "mlp"}),
    "boosting": ("PrivateAdditiveClassifier", {}),
}


_WITH_EPSILON = {"dp": ("epsilon", "delta", "rows"), "synthetic": ("epsilon", "delta", "rows", "method")}
"""The options of protections that have an epsilon."""
_GUIDED: dict[str, Any] = {"guide": "soft", "cut_by": "qi", "transform": False}  # one way, instead of trying several
_LABEL = "label"
_RECODED = "epsilon covers the training on the anonymous rows, and not how these were recoded: it is no guarantee"
_LATTICE = "the hierarchies cover the categories of all rows, members and others"


@dataclass(frozen=True)
class Protection:
    """How a model is protected in training.

    Attributes
    ----------
    name : "guided", another method of anonymization, "dp" or "synthetic"
    guarantees : of the training rows, as a text; empty for "dp" and "synthetic"
    epsilon, delta : for "dp" and "synthetic"; with a method of anonymization, of the training on the anonymous rows
    method : for "synthetic", how rows are made up
    rows : with an epsilon for people, how many rows of a person count
    """

    name: str
    guarantees: str = ""
    epsilon: float | None = None
    delta: float = 1e-5
    method: str | None = None
    rows: int | None = None

    def __str__(self) -> str:
        if self.epsilon is None:
            return f"{self.name}:{self.guarantees}"
        more = "".join(f",{name}={value}" for name, value in (("rows", self.rows), ("method", self.method)) if value)
        private = f"epsilon={self.epsilon:g},delta={self.delta:g}{more}"
        return f"{self.name}:{self.guarantees}+dp:{private}" if self.guarantees else f"{self.name}:{private}"


def protection(text: str) -> Protection:
    """Parse a protection: ``guided:k=100``, ``mondrian:k=10``, ``dp:epsilon=1``, ``synthetic:epsilon=1,method=tree``.

    ``guided:k=50+dp:epsilon=1`` trains with noise on anonymous rows. The anonymity of these rows is guaranteed; epsilon
    is not, because one person can change how the rows of others are recoded, before there is any noise. With
    ``dp:epsilon=1,rows=3``, epsilon is for people, of whom three rows each count.

    Examples
    --------
    >>> protection("dp:epsilon=2")
    Protection(name='dp', guarantees='', epsilon=2.0, delta=1e-05, method=None, rows=None)
    >>> str(protection("mondrian:k=10,l=2"))
    'mondrian:k=10,l=2'
    >>> protection("gided:k=10")
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: there is no protection 'gided' (did you mean 'guided'?)
    """
    first, _, second = (part.strip() for part in text.partition("+"))
    if second:
        anonymous, private = protection(first), protection(second)
        if anonymous.epsilon is not None or private.name != "dp":
            raise OptionError(
                f"'{text}' must be a method of anonymization and then dp", hint="for example guided:k=50+dp:epsilon=1"
            )
        return replace(private, name=anonymous.name, guarantees=anonymous.guarantees)
    name, _, rest = (part.strip() for part in text.partition(":"))
    known = (*METHODS, *_WITH_EPSILON)
    if name not in known:
        raise OptionError(f"there is no protection '{name}'", hint=did_you_mean(name, known))
    if name in _WITH_EPSILON:
        return _private(name, rest)
    if not rest:
        raise OptionError(f"the protection '{name}' needs a guarantee", hint=f"for example {name}:k=10")
    as_guarantees(rest)
    return Protection(name, rest)


def _private(kind: str, rest: str) -> Protection:
    """Parse a protection with an epsilon, a delta and, for synthetic rows, a method."""
    given = dict[str, str]()
    for part in filter(None, (one.strip() for one in rest.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in _WITH_EPSILON[kind]:
            raise OptionError(
                f"the protection '{kind}' has no option '{name}'", hint=f"for example {kind}:epsilon=1,delta=1e-5"
            )
        if name in given:
            raise OptionError(f"the protection '{kind}' has {name} twice")
        given[name] = value
    if "epsilon" not in given:
        raise OptionError(f"the protection '{kind}' needs epsilon", hint=f"for example {kind}:epsilon=1")
    numbers = {"delta": 1e-5}
    for name in given.keys() & {"epsilon", "delta"}:
        try:
            numbers[name] = float(given[name])
        except ValueError:
            raise OptionError(f"{name} of the protection '{kind}' must be a number, got '{given[name]}'") from None
    delta = real("delta", numbers["delta"], above=0, below=1)
    if "method" in given:
        method_of(given["method"])
    rows = given.get("rows")
    if rows is not None and not (rows.isdecimal() and int(rows)):
        raise OptionError(f"rows of the protection '{kind}' must be a whole number of at least 1, got '{rows}'")
    return Protection(
        kind, "", real("epsilon", numbers["epsilon"], above=0), delta, given.get("method"), int(rows) if rows else None
    )


def procedure_of(model: Any, protect: Protection | str | None, table: Table, target: str) -> FitEstimator:
    """Return the procedure that trains a model with a protection.

    Parameters
    ----------
    model : str or estimator
        "forest" (100 trees), "tree", "mlp" (one hidden layer of 100 units) or "boosting"; or an estimator or a pipeline
        that takes frames of the table's features, such as an XGBoost classifier.
    protect : Protection or str, optional
        See `protection`. "dp" trains a private model of the same kind in the place of a named one: a private random
        forest, a network trained by DP-SGD, or private additive boosting. "guided" is `sf.anonymize_model`, guided by
        the probabilities of the model: other ways are not tried, so that references cost little more than the model.
        "synthetic" trains the model on rows that `sf.synthesize` has made up; "guided:k=50+dp:epsilon=1" trains the
        private model on anonymous rows.
    table : Table
        All rows that the attack is about. Its schema says which columns are quasi-identifiers (all features, if it
        names none), and which bounds and domains are public: what it does not declare is taken from the rows. With a
        person column, methods of anonymization count people; "dp" and "synthetic" need ``rows``.
    target : str
        The column to predict.

    Returns
    -------
    FitEstimator
        Its ``notes`` say what was assumed. It takes the records of `records_of`.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.attacks import procedure_of, records_of
    >>> people = sf.datasets.nursery()
    >>> train = procedure_of("tree", "guided:k=50", people, "class")
    >>> model = train(records_of(people, "class").take(range(0, 12960, 16)), seed=1)
    >>> model.release.assessment.k >= 50, len(model.classes_) > 1
    (True, True)
    """
    names, person = features_of(table, target), table.schema.person
    protect = protection(protect) if isinstance(protect, str) else protect
    _check_people(protect, table)
    estimator, taken = estimator_of(model, protect, table, target)
    if protect is None:
        return FitEstimator(estimator, columns=names, notes=taken)
    if protect.name == "dp":
        return FitEstimator(estimator, columns=names, person=person, notes=taken)
    if protect.name == "synthetic":
        public, classes, notes = _public(table, target, names)
        made_up = SyntheticTraining(
            estimator, protect.epsilon, protect.delta, protect.method, public, classes, rows_per_person=protect.rows
        )
        return FitEstimator(made_up, columns=names, person=person, notes=notes)
    schema, notes = _roles(table, names)
    notes = [*taken, *notes, *([_RECODED] if protect.epsilon is not None else [])]
    if person is not None:
        schema = Schema([*schema.columns, table.schema[person]])
    if protect.name == "guided":
        options: dict[str, Any] = {"qi": schema.quasi, "sensitive": schema.sensitive, **_GUIDED}
        model = anonymizers.AnonymizedModel(estimator, protect.guarantees, **options)
        return FitEstimator(model, columns=names, schema=schema, person=person, notes=notes)
    if protect.name == "lattice":
        schema, notes = with_domains(schema, table), [*notes, _LATTICE]
    model = AnonymousTraining(estimator, protect.name, protect.guarantees, schema)
    return FitEstimator(model, columns=names, person=person, notes=notes)


def _check_people(protect: Protection | None, table: Table) -> None:
    """Raise an `OptionError` if an epsilon does not protect what the table asks for."""
    if protect is None or protect.epsilon is None:
        return
    person = table.schema.person
    if protect.guarantees:
        table.schema.refuse_person(f"the protection '{protect}'")
    if person is None and protect.rows is not None:
        raise OptionError(f"the protection '{protect}' is for people", hint="name their column with person / --person")
    if person is not None and protect.rows is None:
        raise OptionError(
            f"column '{person}' asks to protect people, and '{protect}' does not say how many of their rows count",
            hint=f"for example {protect.name}:epsilon={protect.epsilon:g},rows=3",
        )


def estimator_of(model: Any, protect: Protection | str | None, table: Table, target: str) -> tuple[Any, list[str]]:
    """Return what learns in `procedure_of`: a named model, or its private form if epsilon covers the training.

    Examples
    --------
    >>> import sfumato as sf
    >>> private, notes = estimator_of("tree", "mondrian:k=5+dp:epsilon=2", sf.datasets.nursery(), "class")
    >>> private.epsilon, notes
    (2.0, [])
    """
    protect = protection(protect) if isinstance(protect, str) else protect
    if isinstance(model, str) and model not in MODELS:
        raise OptionError(f"there is no model '{model}' to attack", hint=did_you_mean(model, MODELS))
    if protect is None or protect.epsilon is None or protect.name == "synthetic":
        return (_named(model) if isinstance(model, str) else model), []
    if not isinstance(model, str):
        raise OptionError(
            f"{type(model).__name__} cannot be made private", hint="give a private estimator, or a named model"
        )
    return _differentially_private(model, protect, table, target, features_of(table, target))


class AnonymousTraining(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Train an estimator on rows that a named method has anonymized.

    Groups are published by their medians, so that the model predicts for original rows. A method that publishes
    hierarchies' texts or suppresses cells (lattice, suppress) recodes the rows to predict in the same way.

    Parameters
    ----------
    estimator : estimator
        It takes frames.
    method : str or Anonymizer
        See `sf.anonymize`.
    guarantees : str or sequence of guarantees
    schema : Schema
        The roles of the features, and of the person column: people are then counted.
    """

    def __init__(self, estimator: Any, method: Any = "mondrian", guarantees: Any = "k=10", schema: Any = None) -> None:
        self.estimator, self.method, self.guarantees, self.schema = estimator, method, guarantees, schema

    def fit(self, X: pl.DataFrame, y: Any) -> Self:  # noqa: N803 - scikit-learn's names
        """Anonymize the rows, and fit the estimator to the result."""
        from sklearn.base import clone

        method = clone(as_method(self.method)).set_params(guarantees=self.guarantees, new_rows=NewRows.ROUTE)
        by_value = "output" in method.get_params()
        if by_value:
            method.set_params(output=Output.MEDIAN)
        rows = method.fit_transform(Table(X.select(self.schema.names), self.schema)).to_polars()
        rows = rows.drop(self.schema.identifiers)
        self.routes_, self.types_ = None if by_value else method, rows.schema
        self.estimator_ = clone(self.estimator).fit(rows, y)
        self.classes_ = self.estimator_.classes_
        return self

    def predict_proba(self, X: pl.DataFrame) -> NDArray[Any]:  # noqa: N803
        """Return the probability of each class."""
        rows = X
        if self.routes_ is not None:
            known = Schema(one for one in self.schema.columns if not one.role.is_identifier)
            rows = self.routes_.transform(Table(X.select(known.names), known)).to_polars()
            rows = rows.cast(dict(self.types_), strict=False)  # a suppressed number is missing
        return np.asarray(self.estimator_.predict_proba(rows))

    def predict(self, X: pl.DataFrame) -> NDArray[Any]:  # noqa: N803
        """Return the most probable class."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class SyntheticTraining(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Train an estimator on rows that were made up from the given ones with differential privacy.

    Parameters
    ----------
    estimator : estimator
        It takes frames.
    epsilon, delta : float
    method : str, optional
        See `sf.synthesize`.
    schema : Schema
        What is public of the features.
    classes : sequence
        The public classes.
    rows_per_person : int, optional
        How many rows of a person count, if the schema has a person column.
    insecure_seed : int, optional
        Makes the rows reproducible.
    """

    def __init__(
        self,
        estimator: Any,
        epsilon: Any = 1.0,
        delta: float = 1e-5,
        method: str | None = None,
        schema: Any = None,
        classes: Any = (),
        rows_per_person: int | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        self.estimator, self.epsilon, self.delta, self.method = estimator, epsilon, delta, method
        self.schema, self.classes, self.insecure_seed = schema, classes, insecure_seed
        self.rows_per_person = rows_per_person

    def fit(self, X: pl.DataFrame, y: Any) -> Self:  # noqa: N803 - scikit-learn's names
        """Make up rows, and fit the estimator to them."""
        from sklearn.base import clone

        label = _LABEL if _LABEL not in X.columns else f"{_LABEL} of {len(X.columns)} columns"
        texts = {canonical_text(str(one)): one for one in self.classes}
        labels = pl.Series(label, [canonical_text(str(one)) for one in np.asarray(y).tolist()], dtype=pl.String)
        declared = Schema([*self.schema.columns, Column(name=label, domain=tuple(texts), role=Role.TARGET)])
        release = synthesize(
            Table(X.select(self.schema.names).with_columns(labels), declared),
            self.epsilon,
            delta=self.delta,
            method=self.method,
            keep=self._features,
            ledger=False,
            rows_per_person=self.rows_per_person,
            insecure_seed=self.insecure_seed,
        )
        rows = release.table.to_polars().drop_nulls(label)
        drawn = rows.drop(label).cast({name: X.schema[name] for name in self._features}, strict=False)
        self.generator_ = release
        self.estimator_ = clone(self.estimator).fit(drawn, np.asarray([texts[one] for one in rows[label].to_list()]))
        self.classes_ = self.estimator_.classes_
        return self

    @property
    def _features(self) -> list[str]:
        return [one.name for one in self.schema.columns if not one.role.is_identifier]

    def predict_proba(self, X: pl.DataFrame) -> NDArray[Any]:  # noqa: N803
        """Return the probability of each class."""
        return np.asarray(self.estimator_.predict_proba(X.select(self._features)))

    def predict(self, X: pl.DataFrame) -> NDArray[Any]:  # noqa: N803
        """Return the most probable class."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


def _named(name: str) -> Any:
    """Return a named model as a pipeline that takes frames."""
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    models: dict[str, Callable[[], Any]] = {
        "forest": lambda: RandomForestClassifier(n_estimators=100),
        "tree": DecisionTreeClassifier,
        "mlp": lambda: MLPClassifier((100,), activation="relu", solver="adam", learning_rate_init=0.001),
        "boosting": HistGradientBoostingClassifier,
    }
    numbers = [SimpleImputer(strategy="median", keep_empty_features=True)]
    numbers += [StandardScaler()] if name == "mlp" else []
    texts = [
        FunctionTransformer(as_texts),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False, dtype=np.float32),
    ]
    columns = ColumnTransformer(
        [("numbers", make_pipeline(*numbers), numbers_in), ("texts", make_pipeline(*texts), texts_in)]
    )
    return make_pipeline(columns, models[name]())


def numbers_in(frame: pl.DataFrame) -> list[str]:
    """Return the columns that hold numbers."""
    return [name for name, kind in frame.schema.items() if kind.is_numeric() or kind == pl.Boolean]


def texts_in(frame: pl.DataFrame) -> list[str]:
    """Return the other columns."""
    return [name for name in frame.columns if name not in numbers_in(frame)]


def as_texts(frame: pl.DataFrame) -> NDArray[Any]:
    """Return the cells as texts; a missing value is a text of its own."""
    return np.asarray(frame.select(pl.all().cast(pl.String).fill_null("")).to_numpy(), dtype=object)


def _roles(table: Table, names: list[str]) -> tuple[Schema, list[str]]:
    """Return the roles of the features: those of the schema, or all quasi-identifiers if it names none."""
    columns = [table.schema[name] for name in names]
    if any(one.role is Role.QUASI for one in columns):
        return Schema(columns), []
    note = "the schema names no quasi-identifier, so all features are"
    return Schema(one if one.role is Role.SENSITIVE else replace(one, role=Role.QUASI) for one in columns), [note]


def with_domains(schema: Schema, table: Table) -> Schema:
    """Return the schema with the categories of all rows, so that a hierarchy covers rows that it was not made from."""
    found = {name: table.column(name).drop_nulls().unique().sort() for name in schema.names}
    return Schema(
        replace(one, domain=tuple(found[one.name].to_list()))
        if one.domain is None and one.hierarchy is None and found[one.name].dtype == pl.String
        else one
        for one in schema.columns
    )


def _differentially_private(
    model: str, protect: Protection, table: Table, target: str, names: list[str]
) -> tuple[Any, list[str]]:
    """Return the private form of a named model, with public bounds, domains and classes, and notes about these."""
    public, classes, notes = _public(table, target, names)
    name, options = _PRIVATE[model]
    made = getattr(learners, name)
    cost = {"epsilon": protect.epsilon, "delta": protect.delta, "rows_per_person": protect.rows}
    return made(**cost, schema=public, classes=classes, **options), notes


def _public(table: Table, target: str, names: list[str]) -> tuple[Schema, tuple[Any, ...], list[str]]:
    """Return what counts as public of the features, the classes, and a note of what was taken from the rows."""
    frame = table.to_polars()
    described = describe(Columns.of(Table(frame.select(names), Schema(table.schema[name] for name in names))), None)
    read = [one.read(frame[one.name]) if isinstance(one, Undeclared) else one for one in described]
    public = Schema(
        Column(
            name=one.name, kind=Kind.NUMBER if one.is_number else Kind.CATEGORY, bounds=one.bounds, domain=one.domain
        )
        for one in read
    )
    if table.schema.person is not None:
        public = Schema([*public.columns, table.schema[table.schema.person]])
    taken = [one.name for one in described if isinstance(one, Undeclared)]
    classes = table.schema[target].domain
    if classes is None:
        taken.append(target)
        classes = tuple(frame[target].drop_nulls().unique().sort().to_list())
    if not taken:
        return public, classes, []
    shown = f"{', '.join(taken[:5])}{' and others' if len(taken) > 5 else ''}"
    note = (
        f"the bounds and domains of {shown} are not declared; they were taken from all rows, members and others, "
        "and are not covered by epsilon"
    )
    return public, classes, [note]

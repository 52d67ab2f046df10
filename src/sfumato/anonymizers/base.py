"""The base classes of the anonymization methods.

Reduce: the engine counts the distinct tuples. Decide: the method groups them so that every guarantee holds. Apply: the
engine recodes each row like its group. No method looks at a single row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import named, parameters
from sfumato.anonymizers.problem import Problem, with_hierarchies
from sfumato.anonymizers.publish import Members, Output, Published, alike, publish, tell_apart
from sfumato.data.coding import Domain
from sfumato.data.hierarchies.label_paths import MISSING
from sfumato.data.released_values import MARK
from sfumato.data.schema import Column, Role, Schema
from sfumato.data.table import Table
from sfumato.engines.dispatch import recode, reduce
from sfumato.engines.engine import Progress, Recoding
from sfumato.engines.tuples import Tuples
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean, one_of
from sfumato.measures.assess import measure
from sfumato.measures.assessment import Assessment
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.models import as_guarantees

__all__ = [
    "Anonymizer",
    "NewRows",
    "Parameters",
    "Partitioner",
    "measure_release",
    "refuse_unreadable",
    "require_quasi",
]

_SPREAD = 1.2
"""From how many tuples of a person on smaller groups are tried too."""
_EASES = (0.8, 0.6, 0.4)
"""How much smaller than people's weight suggests, as shares of their tuples: most classes then have enough people."""
_FIT_THEM = (
    "fit the rows that are released, with fit_transform; transform rows that are not released, such as the test rows "
    "of a model, with new_rows='route'"
)


class NewRows(StrEnum):
    """How `Anonymizer.transform` treats rows other than the fitted ones.

    Examples
    --------
    >>> NewRows("route")
    <NewRows.ROUTE: 'route'>
    """

    MEASURE = "measure"
    """Recode them like their classes, and raise an error unless the result keeps every guarantee by itself: these rows
    may be released."""
    ROUTE = "route"
    """Recode them like their classes, without a guarantee: for rows that are not released, such as the test rows of a
    model."""


class Parameters:
    """Base class for dataclasses whose fields scikit-learn can read and change by name."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters by name."""
        known = self.get_params(deep=False)
        for name, value in parameters.items():
            if name not in known:
                raise OptionError(f"{type(self).__name__} has no parameter '{name}'", hint=did_you_mean(name, known))
            setattr(self, name, value)
        return self


@dataclass(eq=False, repr=False)
class Anonymizer(Parameters, ABC):
    """An anonymization method, with the conventions of scikit-learn's transformers.

    ``fit`` decides which tuples of quasi-identifiers are published together, and ``transform`` recodes each row like
    its group. ``fit_transform`` and ``transform`` measure the result, and raise an error if a guarantee does not hold.

    Parameters
    ----------
    guarantees : str, ClassGuarantee or sequence of them
        The guarantees of the release, such as ``"k=10,l=3"`` or ``[KAnonymity(10)]``.
    qi, sensitive : sequence of str
        The quasi-identifiers and sensitive columns; those of the table's schema by default.
    new_rows : {"measure", "route"}
        How ``transform`` treats rows other than the fitted ones; see `NewRows`.
    """

    guarantees: str | ClassGuarantee | Sequence[str | ClassGuarantee] = "k=2"
    qi: Sequence[str] = ()
    sensitive: Sequence[str] = ()
    new_rows: NewRows | str = field(default=NewRows.MEASURE, kw_only=True)

    name: ClassVar[str]
    """The name of the method on the command line."""

    def __repr__(self) -> str:
        usual = {one.name: one.default for one in fields(self)}
        given = {name: value for name, value in self.get_params().items() if value is not usual[name]}
        names = {name: given.pop(name) for name in ("qi", "sensitive") if given.get(name)}
        parts = [parameters(given), *(f"{name}=[{named(columns)}]" for name, columns in names.items())]
        return f"{type(self).__name__}({', '.join(filter(None, parts))})"

    @property
    def divides_tuples(self) -> bool:
        """Whether equal rows may be published differently; rows are then processed one by one, in memory."""
        return False

    @property
    def needs_rows(self) -> bool:
        """Whether the method needs more than the counts of tuples: the rows must then be in this process."""
        return self.divides_tuples

    def distributed(self, table: Table, *, keep_order: bool) -> Any:
        """Anonymize where the rows are, without fetching even their tuples; None if the method does not support it."""
        return None

    def fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Decide which tuples of a table, a frame or a file are published together."""
        table = Table.of(X, qi=self.qi, sensitive=self.sensitive)
        quasi, sensitive, person = table.schema.quasi, table.schema.sensitive, table.schema.person
        require_quasi(table.schema)
        tuples = reduce(table, [*quasi, *([] if person is None else [person]), *sensitive], progress=progress)
        problem = Problem.of(tuples, quasi, sensitive, self.asked, person)
        for domain in problem.domains:
            refuse_unreadable(domain)
        problem = self._prepared(problem)
        if person is None:
            self._learn(problem, table, y)
        else:
            self._learn_of_people(problem, table, y)
        self.problem_, self.tuples_ = problem, tuples if person is None else tuples.only([*quasi, *sensitive])
        self.person_ = person
        self.feature_names_in_ = np.asarray(table.schema.names, dtype=object)
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Recode each row like its group, and return a frame of the same kind, or a table if `X` is one.

        The result is measured, and it is an error if it does not keep every guarantee by itself. With
        ``new_rows="route"`` nothing is measured and nothing is promised.
        """
        self._require_fitted()
        new_rows = one_of(NewRows, self.new_rows, "new_rows")
        table = Table.of(X)
        recoded = self._routed(table)
        if new_rows is NewRows.MEASURE:
            self._require_kept(recoded, hint=_FIT_THEM)
        return recoded if isinstance(X, Table) else recoded.frame

    def fit_transform(self, X: Any, y: Any = None) -> Any:  # noqa: N803
        """Fit a table and recode it; raise an error if the result does not keep every guarantee."""
        table = Table.of(X, qi=self.qi, sensitive=self.sensitive)
        recoded = self.fit(table, y).apply(table)
        self._require_kept(recoded)
        return recoded if isinstance(X, Table) else recoded.frame

    def _routed(self, table: Table) -> Table:
        """Recode each row like its group, without checking the guarantees."""
        names = [domain.name for domain in self.problem_.domains]
        for name in names:
            if name not in table.schema.names:
                hint = did_you_mean(name, table.schema.names)
                raise ColumnError(f"the table lacks the quasi-identifier '{name}'", hint=hint)
        tuples = reduce(table, names)
        return recode(table, Recoding(tuples, self._publish(tuples)))

    def _require_kept(self, released: Table, *, hint: str | None = None) -> None:
        """Raise an error unless the rows keep every guarantee by themselves."""
        attributes = [one.attribute.column for one in self.problem_.counts if one.attribute is not None]
        for column in attributes:
            if column.name not in released.schema.names and any(one.needs_sensitive for one in self.asked):
                raise ColumnError(
                    f"the rows lack the sensitive column '{column.name}', so the guarantees cannot be measured",
                    hint="add it, or transform rows that are not released with new_rows='route'",
                )
        kept = [column for column in attributes if column.name in released.schema.names]
        if self.problem_.people is not None:
            if self.person_ not in released.schema.names:
                raise ColumnError(
                    f"the rows lack the column '{self.person_}', so people cannot be counted", hint=hint or ""
                )
            kept.append(Column(name=self.person_, role=Role.PERSON))
        quasi = [Column(name=domain.name, role=Role.QUASI) for domain in self.problem_.domains]
        if released.rows:
            measure_release(Table(released.source, Schema([*quasi, *kept])), self.asked, hint=hint)

    def apply(
        self,
        table: Table,
        *,
        without: Sequence[str] = (),
        to: str | Path | None = None,
        shuffle: bool = False,
        progress: Progress | None = None,
    ) -> Table:
        """Apply the fitted recoding to the training table, dropping columns; write to a file if ``to`` is given.

        The rows keep their order, unless both are Parquet files and `shuffle` is true.
        """
        return recode(table, self._recoding(without, shuffle), to, progress=progress)

    def _recoding(self, without: Sequence[str], shuffle: bool) -> Recoding:
        """Return the recoding of the training table, without some columns."""
        return self.published().recoding(self.problem_, without, shuffle=shuffle)

    def published(self) -> Published:
        """Return the groups of the training table and their published values."""
        self._require_fitted()
        members = Members.of(self.problem_, np.arange(len(self.problem_)))
        return Published(members, self._publish(self.problem_.tuples))

    def _prepared(self, problem: Problem) -> Problem:
        """Add what the method needs to know about the columns."""
        return problem

    def _learn(self, problem: Problem, table: Table, y: Any) -> None:
        """Decide which tuples are published together; a method that needs the rows overrides this."""
        self._decide(problem)

    def _learn_of_people(self, problem: Problem, table: Table, y: Any) -> None:
        """Decide for people: as for rows of their weight, and then for the people of the classes found."""
        self._refuse_divided()
        problem.require_reachable()
        self.problem_ = problem
        for ease in _EASES:  # the smallest classes first, which may be too small
            with suppress(InputError):
                self._learn(problem.weighted(max(1.0, ease * problem.spread)), table, y)
                self._settle(problem)
                return
        self._learn(problem.weighted(), table, y)
        self._settle(problem)

    def _refuse_divided(self) -> None:
        if self.divides_tuples:
            raise OptionError(
                f"{type(self).__name__} would publish equal rows differently, and people are counted by equal rows",
                hint="use strict Mondrian, or guide by the quasi-identifiers alone",
            )

    def _settle(self, problem: Problem) -> None:
        """Check that the classes found for the weights of people keep the guarantees for people."""
        published = self._publish(problem.tuples)
        marked = np.ones(len(problem), dtype=bool)
        for series in published:
            marked &= (series == MARK).fill_null(False).to_numpy() if series.dtype == pl.String else False
        kept = np.flatnonzero(~marked) if not marked.all() else np.arange(len(problem))
        number = alike([series.gather(kept) for series in published])
        groups = np.unique(number, return_inverse=True)[1]
        for check in problem.only(kept).check(groups):
            if not check.held:
                raise InputError(
                    f"{self.name} found no classes that keep {check.guarantee} for people: {check.measured.value:.6g}",
                    hint="ask for less, or use another method, such as mondrian",
                )

    @abstractmethod
    def _decide(self, problem: Problem) -> None:
        """Decide which tuples are published together."""

    @abstractmethod
    def _publish(self, tuples: Tuples) -> list[pl.Series]:
        """Return the published values of each tuple, a series per quasi-identifier."""

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns, which do not change."""
        self._require_fitted()
        return self.feature_names_in_ if input_features is None else np.asarray(input_features, dtype=object)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Do nothing: the output is always a frame of the same kind as the input."""
        return self

    def _require_fitted(self) -> None:
        if not hasattr(self, "problem_"):
            raise InputError(f"this {type(self).__name__} is not fitted", hint="call fit first")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "problem_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(categorical=True, string=True, allow_nan=True),
        )

    def details(self) -> dict[str, Any]:
        """Return the fitted results that are specific to the method, as plain values."""
        return {}

    @property
    def columns(self) -> tuple[Column, ...]:
        """The quasi-identifiers with the hierarchies that were used, which are needed to read a release."""
        return tuple(domain.column for domain in self.problem_.domains)

    @property
    def asked(self) -> tuple[ClassGuarantee, ...]:
        """The guarantees as objects."""
        asked = as_guarantees(self.guarantees)
        if not asked:
            raise OptionError("no guarantee is asked for", hint="for example 'k=10'")
        return tuple(asked)


@dataclass(eq=False, repr=False)
class Partitioner(Anonymizer):
    """An anonymizer that divides the tuples into groups; a new row is published like the nearest group.

    Parameters
    ----------
    guarantees, qi, sensitive, new_rows
        See `Anonymizer`.
    output : {"interval", "tight", "level", "median", "mean", "medoid"}
        How the values of a group are published; see `Output`.
    """

    output: Output | str = Output.INTERVAL

    def _prepared(self, problem: Problem) -> Problem:
        if one_of(Output, self.output, "output") is not Output.LEVEL:
            return problem
        return with_hierarchies(problem)

    @abstractmethod
    def _members(self, problem: Problem) -> Members:
        """Divide the records into groups."""

    def _decide(self, problem: Problem) -> None:
        output = one_of(Output, self.output, "output")
        self.members_ = self._members(problem)
        self.published_, self.exact_ = publish(problem, self.members_, output), 0
        if output is Output.INTERVAL and not self.divides_tuples:
            self.published_, self.exact_ = tell_apart(problem, self.members_, self.published_)

    def _learn_of_people(self, problem: Problem, table: Table, y: Any) -> None:
        """Decide for people, also with smaller groups that are then merged; the finer of both partitions is kept."""
        self._refuse_divided()
        problem.require_reachable()
        self._divide(problem.weighted(), table, y)
        self._settle(problem)
        if problem.spread < _SPREAD:
            return
        first = dict(vars(self))
        self._divide(problem.weighted(_EASES[0] * problem.spread), table, y)
        self._settle(problem)
        if len(self.published_[0]) <= len(first["published_"][0]):
            vars(self).update(first)

    def _divide(self, problem: Problem, table: Table, y: Any) -> None:
        """Divide the records into groups, which `_settle` publishes."""
        self.members_, self.exact_ = self._members(problem), 0

    def _settle(self, problem: Problem) -> None:
        """Merge groups that do not keep a guarantee for people, and publish the groups with all of their rows."""
        from sfumato.anonymizers.microaggregation.microaggregate import keeping

        output = one_of(Output, self.output, "output")
        groups = self.members_.of_tuple
        while True:
            groups = keeping(problem, groups)
            self.members_ = Members.of(problem, groups)
            self.published_ = publish(problem, self.members_, output)
            number = alike(self.published_)
            if int(number.max()) + 1 == len(number) or problem.only_counts_members:
                break
            groups = number[groups]  # they are one class to whoever reads the release
        problem.require_kept(problem.merge(groups))

    def details(self) -> dict[str, Any]:
        """Return the number of groups with exact ends, if any: rounded ends would have merged them."""
        return {"exact_ends": self.exact_} if self.exact_ else {}

    def published(self) -> Published:
        """Return the groups of the training table and their published values."""
        self._require_fitted()
        return Published(self.members_, self.published_)

    def _publish(self, tuples: Tuples) -> list[pl.Series]:
        from sfumato.anonymizers.nearest_group import nearest_groups

        groups = nearest_groups(self.problem_, self.members_.of_tuple, tuples)
        return [series.gather(groups) for series in self.published_]


def require_quasi(schema: Schema) -> None:
    """Raise an error if no quasi-identifier is named."""
    if not schema.quasi:
        raise OptionError("no quasi-identifier is named", hint="name the columns that others know, with qi / --qi")


def measure_release(
    released: Table, guarantees: Sequence[ClassGuarantee], progress: Progress | None = None, *, hint: str | None = None
) -> Assessment:
    """Measure a release; raise an error if it does not keep every guarantee."""
    assessment = measure(released, require=guarantees, progress=progress)
    assert assessment.verdict is not None
    if not assessment.verdict:
        raise InputError(
            f"the release does not keep {assessment.verdict.failed} when it is measured again",
            hint=hint
            or "groups that are published alike form one class: use a strict method and intervals with exact ends",
        )
    left = tuple(name for name in assessment.identifiers if name != released.schema.person)  # tokens, or about to go
    return replace(assessment, identifiers=left)


def refuse_unreadable(domain: Domain) -> None:
    """Raise an error for values that would be ambiguous as texts in a release."""
    stands_for = {MARK: "everything"} | ({MISSING: "a missing value"} if domain.missing is not None else {})
    for text, meaning in stands_for.items() if domain.values.dtype == pl.String else ():
        if domain.code_of(text) is not None or text in (domain.column.domain or ()):
            raise ColumnError(
                f"column '{domain.name}' holds the value '{text}', which stands for {meaning} in a release",
                hint="give it another name, such as 'unknown'",
            )
    ticks = domain.values.to_physical() if domain.values.dtype == pl.Datetime("ns") else None
    if ticks is not None and (ticks % 1000 != 0).any():
        raise ColumnError(
            f"column '{domain.name}' holds times of nanoseconds, which are ambiguous as texts",
            hint="round them to microseconds",
        )

"""Evaluate a released or synthetic table: its utility, and what attackers learn from it.

All figures compare the release with real rows, without noise. They are for the owner of the data: published beside a
differentially private release, they are not covered by its guarantee.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, overload

import polars as pl

from sfumato._repr import Discreet
from sfumato.attacks.attack import attack, release_of
from sfumato.attacks.report import AttackReport
from sfumato.data.coding import Domain
from sfumato.data.images import Images
from sfumato.data.schema import Column, Schema
from sfumato.data.table import Table
from sfumato.data.validate import whole
from sfumato.errors import ColumnError, InputError, OptionError, SchemaError, did_you_mean
from sfumato.measures.loss.generalised import Pairing, pair
from sfumato.measures.loss.marginals import Distances, distances_of
from sfumato.measures.loss.propensity import Propensity, propensity_of
from sfumato.measures.loss.rows_of_people import RowsOfPeople, rows_of_people
from sfumato.measures.loss.transfer import ModelTransfer, model_transfer
from sfumato.measures.loss.universe import universe
from sfumato.measures.loss.utility import MODELS, QueryError, affordable, query_error_of

if TYPE_CHECKING:
    from sfumato.frontier.images.evaluation import ImageEvaluation

__all__ = ["NOT_ASKED", "Evaluation", "evaluate"]

NOT_ASKED = "none is asked for"
"""Why a part was not measured, if it was left out on purpose."""

_KINDS = ("synthetic", "table")
_DIMENSIONS = 3  # columns of a counting query
_NOTE = "figures of real rows without noise: for the owner of the data, not for publication"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Evaluation(Discreet):
    """What a release is good for, and what it gives away; made by `evaluate`.

    Attributes
    ----------
    kind : "synthetic", or "table" for one with generalised values
    rows : the number of original, released and test rows
    columns : the columns that were compared
    left_out : those that were not: they are in one table only, or have too many categories
    target : the column that the models predict; None if there is none
    distances : the distances of all columns and pairs
    test_distances : the same of the test rows, which are real: no release can be expected to do better
    propensity : how well released rows can be told from original ones
    queries : the error of counting queries
    models : the scores of models on the test rows, trained on original and on released rows
    attacks : what attackers learn
    people : how alike the rows of people are, if both tables have the person column of the original; else None
    skipped : why a part was not measured, by name
    seed : of everything that is drawn
    pairing : both tables as codes, from which a page draws distributions; not part of `to_dict`
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("kind", "mean_pair_distance", "leaks")

    kind: str
    rows: Mapping[str, int | None]
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    target: str | None
    distances: Distances
    test_distances: Distances | None
    propensity: Propensity
    queries: QueryError
    models: tuple[ModelTransfer, ...]
    attacks: AttackReport | None
    people: RowsOfPeople | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    pairing: Pairing

    @property
    def mean_pair_distance(self) -> float | None:
        """The mean total variation distance of all pairs of columns; None for a single column."""
        return self.distances.mean_of_pairs

    @property
    def leaks(self) -> bool | None:
        """Whether any attack found leakage; None if none was run."""
        return None if self.attacks is None else self.attacks.leaks

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {
            "kind": self.kind,
            "rows": dict(self.rows),
            "columns": list(self.columns),
            "left_out": list(self.left_out),
            "target": self.target,
            "distances": self.distances.to_dict(),
            "test_distances": self.test_distances and self.test_distances.to_dict(),
            "propensity": self.propensity.to_dict(),
            "queries": self.queries.to_dict(),
            "models": [one.to_dict() for one in self.models],
            "attacks": self.attacks and self.attacks.to_dict(),
            **({} if self.people is None else {"people": self.people.to_dict()}),
            "skipped": dict(self.skipped),
            "seed": self.seed,
            "note": _NOTE,
        }

    def to_json(self) -> str:
        """Return the figures as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)


@overload
def evaluate(
    original: Images | tuple[Any, Any],
    released: Any,
    *,
    test: Any = None,
    models: Sequence[str] = (),
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> ImageEvaluation: ...


@overload
def evaluate(
    original: Any,
    released: Any,
    *,
    test: Any = None,
    control: Any = None,
    target: str | None = None,
    kind: str | None = None,
    columns: Sequence[str] = (),
    models: Sequence[str] | Mapping[str, Any] = MODELS,
    attacks: Sequence[str] | None = None,
    repeats: int = 3,
    bins: int = 10,
    queries: int = 500,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Evaluation: ...


def evaluate(
    original: Any,
    released: Any,
    *,
    test: Any = None,
    control: Any = None,
    target: str | None = None,
    kind: str | None = None,
    columns: Sequence[str] = (),
    models: Sequence[str] | Mapping[str, Any] = MODELS,
    attacks: Sequence[str] | None = None,
    repeats: int = 3,
    bins: int = 10,
    queries: int = 500,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Evaluation | ImageEvaluation:
    """Measure what a released or synthetic table, or synthetic images, are good for, and what they give away.

    The order of the rows of any table changes no figure. The figures are exact, so they are for the owner of the data:
    the guarantee of a release does not cover them.

    Parameters
    ----------
    original : Table, frame or path
        The rows that the release was made from. Images (a set, an ``.npz`` file, a folder of IDX files, "mnist", or
        arrays of images and labels) are evaluated by `sfumato.frontier.evaluate_images`: of the options below, only
        ``test``, ``models``, ``seed`` and ``progress`` are for them.
    released : Release, its folder, Table, frame or path
        Of a generator, the rows that it was released with.
    test : Table, frame or path, optional
        Real rows that the release was not made from. Models are tested on them, and they show how far apart two real
        tables are. Without them, no model is trained.
    control : Table, frame or path, optional
        Real rows that the release was not made from, which attacks compare with the original; the test rows by default.
        Without either, no attack is run. If no column of the original is sensitive, attacks guess the target.
    target : str, optional
        The column that models predict; the target of the original's schema by default.
    kind : {"synthetic", "table"}, optional
        Whether released values are plain values, or may stand for several, as ``20-29`` or ``*`` do. By default "table"
        for a release of a table, and "synthetic" for all else.
    columns : sequence of str
        By default all common columns except identifiers, without those that have more than 1,000 categories.
    models : sequence of str, or mapping of names to estimators
        Some of ``logistic``, ``tree``, ``forest``, ``boosting``; or scikit-learn estimators by name.
    attacks : sequence of str, optional
        The names of attacks, see `sfumato.attacks.ATTACKS`; all that fit by default, and none if it is empty.
    repeats : int
        The number of seeds that models are trained with.
    bins : int
        The number of bins of a number, which hold equal shares of the original rows.
    queries : int
        The number of random counting queries, each on up to three columns.
    seed : int
        Of models, queries and attacks; the same seed gives the same figures.
    progress : callable, optional
        Called with the share of the work that is done.

    Examples
    --------
    >>> import sfumato as sf
    >>> people, others = (sf.datasets.adult("test").frame.slice(at, 500) for at in (0, 500))
    >>> made = people.sample(fraction=1, with_replacement=True, seed=1)  # not synthetic at all
    >>> attacks = ["distance-to-closest-record"]
    >>> found = sf.evaluate(people, made, test=others, target="income", models=["tree"], attacks=attacks, repeats=1)
    >>> found.mean_pair_distance < found.test_distances.mean_of_pairs, found.leaks
    (True, True)
    >>> sf.write_report(found, "evaluation.html")
    """
    if _means_images(original):
        given = {"control": control, "target": target, "kind": kind, "columns": columns or None, "attacks": attacks}
        return _of_images(original, released, given, test=test, models=models, seed=seed, progress=progress)
    whole("the seed", seed, least=0, most=2**31 - 1)
    report = progress or (lambda share: None)
    ours = Table.of(original)
    theirs, meant = _released(released)
    kind = kind or meant
    if kind not in _KINDS:
        raise OptionError(f"kind must be 'synthetic' or 'table', got '{kind}'", hint=did_you_mean(str(kind), _KINDS))
    predicted = target or ours.schema.target
    names, left_out = _columns(ours, theirs, columns, target)
    raw = _sorted("original", ours, names, Schema(ours.schema[name] for name in names))
    made = _sorted("release", theirs, names)
    held = None if test is None else _sorted("test", Table.of(test), names)
    others = held if control is None else _sorted("control", Table.of(control), names)
    if kind == "synthetic":
        raw = _as_held(raw)
    both = pair(raw, made, names, generalised=kind == "table")
    report(0.02)
    tested = None if held is None else pair(raw, held, names, generalised=False)
    distances = distances_of(both, bins, quantiles=True)
    test_distances = None if tested is None else distances_of(tested, bins, quantiles=True)
    report(0.05)
    propensity = propensity_of(both, bins=bins, seed=seed)
    asked = query_error_of(both, queries=queries, dimensions=min(_DIMENSIONS, len(names)), rescale=True, seed=seed)
    report(0.1)
    skipped = {"models": _no_models(models, tested, predicted), "attacks": _no_attacks(attacks, others)}
    scores: tuple[ModelTransfer, ...] = ()
    if skipped["models"] is None:
        assert tested is not None
        assert predicted is not None
        try:
            scores = model_transfer(both, tested, predicted, models=models, repeats=repeats, seed=seed)
        except OptionError as error:
            if target is not None:  # it was asked for
                raise
            skipped["models"] = error.message
    report(0.5)
    attacked = None
    if skipped["attacks"] is None:
        person, source = ours.schema.person, raw
        if person is not None:
            source = _sorted("original", ours, [*names, person])
            others = _sorted("control", Table.of(test if control is None else control), [*names, person])
        attacked = attack(
            _with_roles(made, (theirs.schema, ours.schema), predicted),
            source,
            control=others,
            person=person,
            kind=kind,
            attacks=attacks,
            seed=seed,
            progress=lambda share: report(0.5 + share / 2),
        )
    report(1.0)
    return Evaluation(
        kind=kind,
        rows={"original": raw.rows, "released": made.rows, "test": None if held is None else held.rows},
        columns=names,
        left_out=left_out,
        target=predicted,
        distances=distances,
        test_distances=test_distances,
        propensity=propensity,
        queries=asked,
        models=scores,
        attacks=attacked,
        people=_people(ours, theirs, names, bins, seed),
        skipped={part: why for part, why in skipped.items() if why is not None},
        seed=seed,
        pairing=both,
    )


def _people(ours: Table, theirs: Table, names: Sequence[str], bins: int, seed: int) -> RowsOfPeople | None:
    """Compare the rows of people, if both tables say whose they are."""
    person = ours.schema.person
    if person is None or person not in theirs.schema.names:
        return None
    first, second = (one.to_polars().select(person, *names).sort(pl.all()) for one in (ours, theirs))
    return rows_of_people(first, second, person, names, bins=bins, seed=seed)


def _means_images(data: Any) -> bool:
    if isinstance(data, Table) or hasattr(data, "columns"):  # a frame
        return False
    from sfumato.frontier.images.sets import means_images

    return means_images(data)


def _of_images(
    original: Any, released: Any, others: Mapping[str, Any], *, models: Any, **options: Any
) -> ImageEvaluation:
    """Evaluate images; options that are for tables only are refused."""
    from sfumato.frontier.images.evaluate import evaluate_images

    if strange := [name for name, value in others.items() if value is not None]:
        raise OptionError(f"the option '{strange[0]}' is for tables, not for images", hint="leave it out")
    return evaluate_images(original, released, models=None if models is MODELS else models, **options)


def _released(released: Any) -> tuple[Table, str]:
    """Return the released rows, and what kind of values they have."""
    release = release_of(released)
    if release is None:
        return Table.of(released), "synthetic"
    if release.kind not in ("generator", "table"):
        raise InputError(f"a release of kind '{release.kind}' has no rows that could be compared with the original")
    return release.table, "synthetic" if release.kind == "generator" else "table"


def _columns(
    ours: Table, theirs: Table, asked: Sequence[str], target: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns to compare, and those that are left out."""
    known, released = ours.schema.names, theirs.schema.names
    for name in (*asked, *([] if target is None else [target])):
        for table, names in (("the original", known), ("the release", released)):
            if name not in names:
                raise ColumnError(f"{table} has no column '{name}'", hint=did_you_mean(name, names))
    if asked:
        return tuple(dict.fromkeys([*asked, *([] if target is None else [target])])), ()
    common = [name for name in known if name in released and name not in ours.schema.identifiers]
    if not common:
        raise ColumnError("the release has none of the original's columns", hint=f"it has {', '.join(released[:5])}")
    kept, _ = affordable(ours, common)
    if not kept:
        raise OptionError("every common column has too many categories", hint="name the columns to compare")
    names = tuple(name for name in common if name in kept or name == target)
    return names, tuple(name for name in dict.fromkeys([*known, *released]) if name not in names)


def _sorted(what: str, table: Table, names: Sequence[str], schema: Schema | None = None) -> Table:
    """Return the columns of a table with its rows in an order that does not depend on their present one."""
    for name in names:
        if name not in table.schema.names:
            raise ColumnError(f"the {what} has no column '{name}'", hint=did_you_mean(name, table.schema.names))
    if not table.rows:
        raise InputError(f"the {what} has no rows")
    texts = (pl.Categorical, pl.Enum)  # they sort by their first rows, or by a list
    frame = table.to_polars().select(
        pl.col(name).cast(pl.String) if isinstance(table.column(name).dtype, texts) else pl.col(name) for name in names
    )
    return Table(frame.sort(names), schema)


def _as_held(table: Table) -> Table:
    """Return the original without the bounds and domains that do not enclose its values: plain values need none."""

    def held(one: Domain) -> Column:
        try:
            universe(one)
        except SchemaError:
            return replace(one.column, bounds=None, domain=None)
        return table.schema[one.column.name]

    return Table(table.frame, Schema(map(held, table.encode(table.schema.names).domains)))


def _with_roles(table: Table, schemas: Sequence[Schema], target: str | None) -> Table:
    """Return the released table with the roles of the first schema that has any; the target may be sensitive."""
    quasi = next((schema.quasi for schema in schemas if schema.quasi), ())
    sensitive = next((schema.sensitive for schema in schemas if schema.sensitive), ()) or (target,)
    return Table.of(
        table,
        qi=[name for name in quasi if name in table.schema.names],
        sensitive=[name for name in sensitive if name in table.schema.names and name not in quasi],
    )


def _no_models(models: Any, tested: Pairing | None, target: str | None) -> str | None:
    """Say why no model is trained; None if one is."""
    if not models:
        return NOT_ASKED
    if tested is None:
        return "there are no test rows: real rows that the release was not made from"
    if target is None:
        return "no target is named"
    return None if target in tested.names else f"the target '{target}' is not among the columns"


def _no_attacks(attacks: Sequence[str] | None, control: Table | None) -> str | None:
    """Say why no attack is run; None if one is."""
    if attacks is not None and not attacks:
        return NOT_ASKED
    return None if control is not None else "there is no control: real rows that the release was not made from"

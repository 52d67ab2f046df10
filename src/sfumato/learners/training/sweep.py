"""Train one model at several epsilons on the same data, to see the cost of privacy.

Every finished run is written to disk at once, so an interrupted sweep resumes where it stopped.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from sfumato.budget.accounting.accountant import spent
from sfumato.budget.events import Composed, Event
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.budget.people import check_bound
from sfumato.data import datasets
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.recipe import Recipe
from sfumato.data.schema import Schema
from sfumato.data.table import Table, read
from sfumato.data.validate import real
from sfumato.errors import InputError, ModelError, OptionError
from sfumato.learners.estimators.features import UnusedColumn, texts_in
from sfumato.learners.options import Privacy, Split, grouped
from sfumato.learners.training.catalogue import Model, best_model, model_of
from sfumato.learners.training.resume import checkpoint_of, key_in, read_run, settings_of, sweep_folder, write_run
from sfumato.learners.training.runs import Run, Scores, Training, label_of, pictures_of
from sfumato.learners.training.scoring import exact_scores, noisy_scores, scoring_events
from sfumato.learners.training.split import Material, key_of, material_of

__all__ = ["Asked", "epsilons_of", "run_recipe", "train"]

_OR_NETWORK = ", or train it as a network with --views 0"
_PUBLIC_HISTORY = ("epoch", "step", "epsilon")

Watch = Callable[[str, Any], None]
"""Called with the label of a run and a report, after each epoch."""


@dataclass(frozen=True)
class Asked:
    """A requested run: a model with a given epsilon, or with given noise.

    Examples
    --------
    >>> Asked(0.5).name, Asked(math.inf).name, Asked(None, 1.2).name
    ('epsilon-0.5', 'epsilon-none', 'noise-1.2')
    """

    epsilon: float | None
    noise_multiplier: float | None = None

    @property
    def name(self) -> str:
        """The folder name of the model."""
        value = self.noise_multiplier if self.epsilon is None else self.epsilon
        digits = "none" if value == math.inf else repr(value).removesuffix(".0")  # all digits: no two runs share one
        return f"{'noise' if self.epsilon is None else 'epsilon'}-{digits}"

    @property
    def label(self) -> str:
        """A readable name."""
        return f"noise {self.noise_multiplier:g}" if self.epsilon is None else label_of(self.epsilon)


def epsilons_of(given: str | float | Iterable[Any] | None) -> tuple[float, ...]:
    """Parse a list of epsilons; "none" means training without privacy.

    Examples
    --------
    >>> epsilons_of("1, 5,none")
    (1.0, 5.0, inf)
    >>> epsilons_of("1,5;10")
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: epsilon must be numbers above 0 separated by commas, or none, got '5;10' \
(for example 1,5,10,none)
    """
    if given is None:
        return (math.inf,)
    parts = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int | float) else list(given)
    epsilons = []
    for part in parts:
        text = str(part).strip().lower()
        if text in ("none", "inf"):
            epsilons.append(math.inf)
            continue
        try:
            epsilons.append(real("epsilon", float(text), above=0))
        except (ValueError, OptionError):
            raise OptionError(
                f"epsilon must be numbers above 0 separated by commas, or none, got '{str(part).strip()}'",
                hint="for example 1,5,10,none",
            ) from None
    if not epsilons:
        raise OptionError("epsilon must be at least one number, or none", hint="for example 1,5,10,none")
    if len(set(epsilons)) < len(epsilons):
        raise OptionError("an epsilon is listed twice", hint="for example 1,5,10,none")
    return tuple(epsilons)


def train(
    data: Any,
    model: str | None = None,
    *,
    epsilon: str | float | Iterable[Any] | None = 1.0,
    delta: float = 1e-5,
    target: str | None = None,
    regression: bool = False,
    person: str | None = None,
    rows_per_person: int | Literal["bought"] | None = None,
    schema: Schema | Mapping[str, Any] | str | Path | None = None,
    ledger: Ledger | str | Path | Literal[False] | None = None,
    split: Split | None = None,
    privacy: Privacy | None = None,
    folder: str | Path | None = None,
    watch: Watch | None = None,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Training:
    """Train a model on a table or on images, once for each epsilon.

    Scores on the built-in public data sets are exact. On any other data, the scores of a private model are noisy and
    covered by its epsilon: a coin puts each record into either the training part or the test part, and both parts get
    the same noise (see `scoring`). Exact scores and losses per epoch are for the data owner only: they are in
    ``Run.owner``, which is not released. A model without privacy has exact scores.

    Parameters
    ----------
    data : str, path, Table, frame or Images
        "mnist", "adult" and "nursery" are built in.
    model : str, optional
        For tables "additive", "logistic", "linear", "forest", "naive-bayes" or "mlp"; for images "cnn", "resnet18",
        "scattering-linear", "mlp" or "logistic". By default the best one known: "additive", or "scattering-linear" for
        small grey images.
    epsilon : number, text or list
        One or several, such as ``"1,5,10,none"``; "none" trains without privacy.
    delta : float
        The delta that goes with each epsilon.
    target : str, optional
        The column to predict. Built-in tables have a default.
    regression : bool
        Whether the target is a number.
    person : str, optional
        The column that says which rows are of the same person, to protect people instead of rows; that of the schema by
        default. It is left out of the model. People, not rows, are then held out for testing.
    rows_per_person : int or "bought", optional
        With a person column: how many rows of a person count, in training as in testing. Of people with more, so many
        are drawn at random, which nobody learns. It must not be chosen by looking at the data; ``"bought"`` finds a
        number with a tenth of each epsilon. Networks do not buy one, because a large bound adds no noise there.
    schema : Schema, path or mapping, optional
        What is public of the columns of a table: see `Schema.of`.
    ledger : Ledger or path, optional
        Charged for every run. By default the ledger of the table, if a budget was granted for it; ``charged`` of the
        result says so. A file with a granted budget that is read in another way raises an error. False charges none:
        only for models that are never released, such as the reference models of an attack.
    split : Split, optional
        The records to train and test on, and how scores are released.
    privacy : Privacy, optional
        The public number of rows, additional runs of networks with a fixed noise, a seed of the noise.
    folder : path, optional
        The folder for finished runs while the sweep is unfinished. If it exists, the sweep resumes: finished runs are
        not trained again, and an interrupted run continues.
    watch : callable, optional
        Called with the label of a run and a report, after each epoch.
    progress : callable, optional
        Called with the fraction done, from 0 to 1.
    **options
        Parameters of the estimator, such as ``clip``, ``epochs``, ``batch_size``, ``learning_rate``, ``device`` and
        ``seed`` of a network. The mapping ``ordinary`` has different ones for the run without privacy, which for
        instance needs another learning rate without clipping.

    Examples
    --------
    >>> import sfumato as sf
    >>> training = sf.train("adult", "naive-bayes", target="income", epsilon="1,none")
    >>> [(run.name, run.scores.accuracy > 0.75) for run in training.runs]
    [('epsilon-1', True), ('epsilon-none', True)]
    """
    split, privacy = split or Split(), privacy or Privacy()
    _refuse_loose(options, split=Split, privacy=Privacy)
    if isinstance(split.test, str | Path):
        split = replace(split, test=read(split.test, inferred=False))
    asked = _asked(epsilon, privacy)
    kept = None if folder is None else Path(folder)
    key = key_in(kept) if privacy.insecure_seed is None else key_of(privacy.insecure_seed)
    given = data if schema is None else _declared(data, schema)
    material = material_of(given, target=target, person=person, split=split, key=key)
    if rows_per_person is not None or any(one.epsilon != math.inf for one in asked):
        check_bound(material.person, rows_per_person)
    material = material.with_target_type(regression=regression)
    model = model or best_model(material.train.shape[1:] if material.are_images else None)
    parameters = {name: value for name, value in options.items() if value is not None and name != "ordinary"}
    kind, its_own = model_of(model, images=material.are_images).form(parameters)
    ordinary = options.get("ordinary") or {}
    ledger, test_ledger = _ledgers(ledger, material, split, asked)
    rows = material.public_rows if privacy.rows is None else privacy.rows
    common: dict[str, Any] = {"delta": delta, "insecure_seed": privacy.insecure_seed, "ledger": ledger}
    common |= {} if rows_per_person is None else {"rows_per_person": rows_per_person}
    common |= _declared_target(material, regression, parameters.get("classes"), tested=split.test is not None)
    common |= {"seed": split.seed, "rows": rows} if kind.network or kind.images else {}
    estimators = [_estimator(kind, one, regression, {**common, **its_own}, ordinary) for one in asked]
    settings: dict[str, Any] = {}
    if kept is not None:
        own = {**parameters, **{f"ordinary {name}": value for name, value in ordinary.items()}}
        own |= {"rows": privacy.rows, "scores": split.scores, "budget": ledger is not None}
        own |= {} if material.person is None else {"person": material.person, "rows_per_person": rows_per_person}
        settings = settings_of(material, model, regression, delta, split.seed, privacy.insecure_seed, own)
    sweep = _Sweep(asked, kind, material, split.scores, ledger, test_ledger, kept, watch, progress)
    runs, models = sweep.run(estimators, settings)
    scores = {} if split.scores == "noisy" else {"scores": split.scores}
    people = {} if rows_per_person is None else {"rows_per_person": rows_per_person}
    shows_images = material.are_images and material.is_public  # images of the user are records, which no report shows
    return Training(
        data=material.name,
        model=model,
        target=material.target,
        rows=rows,
        runs=tuple(runs),
        together=_together(runs, delta),
        settings={"tested on": material.split, "seed": split.seed, **scores, **people, **parameters},
        pictures=pictures_of(material.test, material.test_target, models) if shows_images else None,
        models=models,
        charged=ledger is not None,
        material=material,
        is_public=material.is_public,
    )


def run_recipe(recipe: Recipe, data: Any, **options: Any) -> Training:
    """Train by a recipe, on the data set that it names unless other data is given."""
    asked = dict(recipe.options)
    named, model = asked.pop("data", None), asked.pop("model", None)
    if data is None and named is None:
        raise OptionError("the recipe does not name its data", hint="give the table")
    given = named if data is None else data
    if recipe.schema.columns and not (isinstance(given, str) and given in datasets.BUILT_IN):
        given = _declared(given, recipe.schema)
    identifiers = asked.pop("identifiers", None)
    if identifiers:
        given = Table.of(given, identifiers=identifiers)
    asked.setdefault("epsilon", None if asked.get("noise_multiplier") else 1.0)
    published = asked.pop("published", None)
    training = train(given, model, **grouped({**asked, **options}, split=Split, privacy=Privacy))
    return replace(training, published=published)


def _declared(data: Any, schema: Any) -> Table:
    """Return a table with a schema; its rows do not decide what its columns are."""
    if isinstance(data, datasets.Images) or (isinstance(data, str) and data in datasets.BUILT_IN):
        raise OptionError("a schema is for a table of your own: what is public of this data is known")
    return Table.of(read(data, inferred=False) if isinstance(data, str | Path) else data, schema=schema)


def _asked(epsilon: Any, privacy: Privacy) -> list[Asked]:
    asked = [Asked(None, noise) for noise in privacy.noise_multipliers]
    if epsilon is not None or not asked:
        asked += [Asked(one) for one in epsilons_of(epsilon)]
    return asked


def _refuse_loose(options: Mapping[str, Any], **groups: Any) -> None:
    """Raise an error for an option that belongs into a group; the seed is also an option of networks."""
    for name, group in groups.items():
        for one in fields(group):
            if one.name in options and one.name != "seed":
                hint = f"give {name}={group.__name__}({one.name}=...)"
                raise OptionError(f"'{one.name}' is an option of {group.__name__}", hint=hint)


def _estimator(
    kind: Model, asked: Asked, regression: bool, parameters: Mapping[str, Any], ordinary: Mapping[str, Any]
) -> Any:
    """Return the estimator of a run; invalid options raise an error before anything is trained."""
    own = {**kind.private, **parameters}
    if asked.epsilon == math.inf:
        own = {**kind.ordinary, **parameters, **ordinary, "ledger": None}
    if asked.noise_multiplier is not None:
        if not kind.network:
            raise OptionError(
                f"a noise multiplier is for networks, but '{kind.name}' is not a network",
                hint=f"give epsilon{_OR_NETWORK if kind.as_network else ''}",
            )
        own["noise_multiplier"] = asked.noise_multiplier
    else:
        own["epsilon"] = asked.epsilon
    try:
        return kind.make(regression=regression, **own)
    except TypeError as error:
        unknown = str(error).rpartition("argument '")[2].rstrip("'")
        raise OptionError(
            f"the model '{kind.name}' has no option '{unknown}'",
            hint=f"leave it out{_OR_NETWORK if kind.as_network else ''}",
        ) from None


@dataclass(frozen=True)
class _Sweep:
    """The runs of one call of `train`, and what they share."""

    asked: Sequence[Asked]
    kind: Model
    material: Material
    scores: str
    ledger: Ledger | None
    test_ledger: Ledger | None
    folder: Path | None
    watch: Watch | None
    progress: Callable[[float], None] | None

    def run(self, estimators: Sequence[Any], settings: Mapping[str, Any]) -> tuple[list[Run], dict[str, Any]]:
        """Train all models that are not yet in the folder; return the runs, and the models by name."""
        runs, models = list[Run](), dict[str, Any]()
        with sweep_folder(self.folder, settings):
            places = [None if self.folder is None else self.folder / one.name for one in self.asked]
            left = [one for place, one in zip(places, estimators, strict=True) if place is None or not place.exists()]
            _refuse_beyond(self.ledger, left, self.material)
            for at, (one, estimator, place) in enumerate(zip(self.asked, estimators, places, strict=True)):
                if place is not None and place.exists():
                    run, fitted = read_run(place)
                else:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", UnusedColumn)  # `Training.unused` names these columns
                        run, fitted = self._train(one, estimator, at)
                    if place is not None:
                        write_run(place, run, fitted)
                        checkpoint_of(place).unlink(missing_ok=True)
                runs.append(run)
                models[run.name] = fitted
                if self.progress is not None:
                    self.progress((at + 1) / len(self.asked))
        return runs, models

    def _train(self, asked: Asked, estimator: Any, at: int) -> tuple[Run, Any]:
        material, watch, progress, count = self.material, self.watch, self.progress, len(self.asked)
        part = None if progress is None else lambda share: progress((at + share) / count)
        began = time.monotonic()
        if self.folder is not None and (self.kind.network or self.kind.images):
            estimator.set_params(checkpoint=checkpoint_of(self.folder / asked.name))
        if self.kind.network:
            estimator.fit(
                material.train,
                material.train_target,
                validation=(material.test, material.test_target) if _is_usable(material.test_target) else None,
                progress=part,
                report=None if watch is None else lambda report: watch(asked.label, report),
            )
        elif self.kind.images:
            estimator.fit(material.train, material.train_target, progress=part)
        else:
            estimator.fit(material.train, material.train_target)
        cost = estimator.to_dict()
        history = tuple(cost.pop("history", ()))
        total = cost.pop("epsilon")
        epsilon = asked.epsilon if asked.epsilon is not None else float(total)
        facts = {"spent": total, **cost}
        scores, owner = _released_scores(estimator, material, self.scores, self.test_ledger), None
        if not material.is_public:
            owner = json.loads(json.dumps({"scores": _owner_scores(estimator, material), "history": history}))
            history = tuple({name: epoch[name] for name in _PUBLIC_HISTORY} for epoch in history)
        return Run(epsilon, asked.name, facts, scores, time.monotonic() - began, history, owner), estimator


def _is_usable(target: Any) -> bool:
    """Return whether any record can test the model; with a coin per record, there may be none."""
    if isinstance(target, pl.Series) and target.dtype.is_float():
        return bool(target.is_finite().any())
    return len(target) > 0


def _released_scores(model: Any, material: Material, released: str, book: Ledger | None) -> Scores:
    """Return the scores of a model for release, charged to the ledger of the test rows if they have one."""
    if material.is_public or not model.is_private:
        return exact_scores(model, material.test, material.test_target)
    if released == "none":
        return Scores.none()
    events = scoring_events(model.events_, model.rows_that_count)
    if book is not None and events:
        book.charge(Composed(events), note="scores of a model")
    seed = model.insecure_seed  # other noise than in training: the same noise on both could be subtracted
    source = Source(insecure_seed=None if seed is None else seed ^ 2**129)
    return noisy_scores(model, material.test, material.test_target, model.events_, source)


def _owner_scores(model: Any, material: Material) -> dict[str, Any] | None:
    """Return exact scores for the data owner, or None: a failure to score must not stop a private training."""
    try:
        return exact_scores(model, material.test, material.test_target).to_dict()
    except (InputError, ModelError):
        return None


def _refuse_beyond(book: Ledger | None, estimators: Sequence[Any], material: Material) -> None:
    """Raise an error before the first charge if all models together would exceed the budget, where costs are known."""
    if book is None or len(estimators) < 2:  # a single model checks this itself
        return
    try:
        planned = [event for one in estimators for event in one.events_of(material.train, material.train_target)]
    except OptionError:  # the cost depends on estimates
        return
    book.check(Composed(tuple(planned)))


def _declared_target(material: Material, regression: bool, classes: Any, *, tested: bool) -> dict[str, Any]:
    """Return the declared bounds or classes of the target, or raise an error if the given classes or rows differ."""
    public = material.declared_target(regression=regression)
    declared = public.get("classes")
    if classes is not None and declared is not None and {*map(str, classes)} != {*map(str, declared)}:
        raise OptionError(  # a model of absent classes learns nothing
            f"the classes are {', '.join(map(str, classes))}, but the domain of the target is "
            f"{', '.join(map(str, declared))}",
            hint="declare them once",
        )
    if tested:
        _refuse_test(material, regression, declared if classes is None else classes)
    return public


def _refuse_test(material: Material, regression: bool, classes: Any) -> None:
    """Raise an error if no model can be tested on the test rows, before anything is charged."""
    if material.are_images:
        return
    target = material.test_target
    if regression and not target.dtype.is_numeric():
        raise InputError(f"the test rows hold no numbers in '{material.target}'", hint="leave --regression out")
    if regression and not target.cast(pl.Float64).is_finite().any():
        raise InputError(f"no test row has a number in '{material.target}'")
    if not regression and classes is not None and not {*texts_in(classes)} & {*texts_in(target.unique().to_list())}:
        raise InputError("no test row has a class that the model knows")


def _together(runs: Sequence[Run], delta: float) -> dict[str, Any] | None:
    """Return the cost of publishing all models that have an epsilon."""
    events = [Event.from_dict(one) for run in runs if run.epsilon != math.inf for one in run.facts["events"]]
    return spent(events, delta).bound() if events else None


def _ledgers(
    given: Ledger | str | Path | Literal[False] | None, material: Material, split: Split, asked: Sequence[Asked]
) -> tuple[Ledger | None, Ledger | None]:
    """Return the ledgers of the table and of other test rows; a model without privacy cannot be charged to them."""
    if given is False:
        return None, None
    if given is None or isinstance(given, Ledger):
        ledger = Ledger.find(material.whole) if given is None and material.whole is not None else given
    elif material.whole is None:
        raise OptionError("a ledger is for a table, and this data is not one", hint="leave it out")
    else:
        ledger = Ledger.of(material.whole, given)
    test_ledger = None if split.test is None else Ledger.find(Table.of(split.test))
    unit = UNIT if material.person is None else PERSON
    for one in (ledger, test_ledger):
        if one is not None and one.unit != unit:
            raise OptionError(
                f"the ledger '{one.path}' is for each {one.unit}, and this training protects each {unit}",
                hint="sfumato budget grant ... --unit person --ledger FILE, and give it with --ledger"
                if unit == PERSON
                else "name the person column with person / --person",
            )
    if (ledger is not None or test_ledger is not None) and any(one.epsilon == math.inf for one in asked):
        raise OptionError(
            "a budget was granted for this data, and a model without privacy cannot be charged to it",
            hint="leave 'none' out of the epsilons",
        )
    return ledger, test_ledger

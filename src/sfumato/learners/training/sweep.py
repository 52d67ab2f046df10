"""Train one model at several epsilons on the same data, to see what privacy costs.

A finished run is kept on disk at once, so that a sweep that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sfumato.budget.accounting.accountant import spent
from sfumato.budget.events import Composed, Event
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.data import datasets
from sfumato.data.recipe import Recipe
from sfumato.data.schema import Schema
from sfumato.data.table import Table, read
from sfumato.data.validate import real
from sfumato.errors import InputError, ModelError, OptionError
from sfumato.learners.dpsgd.options import whole
from sfumato.learners.estimators.features import texts_in
from sfumato.learners.training.catalogue import Model, best_model, model_of
from sfumato.learners.training.division import key_of
from sfumato.learners.training.resume import checkpoint_of, keep, key_in, opened, read_run, settings_of
from sfumato.learners.training.runs import Run, Scores, Training, label_of
from sfumato.learners.training.scoring import exact_scores, noisy_scores, scoring_events
from sfumato.learners.training.split import Material, material_of

__all__ = ["SCORES", "Asked", "epsilons_of", "run_recipe", "train"]

SCORES = ("noisy", "none")
"""What can be released of how good a model is on private records."""
_PUBLIC_HISTORY = ("epoch", "step", "epsilon")

Watch = Callable[[str, Any], None]
"""Told what a run is called, and a report of the training after each of its epochs."""


@dataclass(frozen=True)
class Asked:
    """One run that is asked for: a model of some epsilon, or of some noise.

    Examples
    --------
    >>> Asked(0.5).name, Asked(math.inf).name, Asked(None, 1.2).name
    ('epsilon-0.5', 'epsilon-none', 'noise-1.2')
    """

    epsilon: float | None
    noise_multiplier: float | None = None

    @property
    def name(self) -> str:
        """The folder of the model."""
        value = self.noise_multiplier if self.epsilon is None else self.epsilon
        digits = "none" if value == math.inf else repr(value).removesuffix(".0")  # all: two runs are never one folder
        return f"{'noise' if self.epsilon is None else 'epsilon'}-{digits}"

    @property
    def label(self) -> str:
        """What a person calls it."""
        return f"noise {self.noise_multiplier:g}" if self.epsilon is None else label_of(self.epsilon)


def epsilons_of(given: str | float | Iterable[Any] | None) -> tuple[float, ...]:
    """Read a list of epsilons, of which "none" is a training without privacy.

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
    found = []
    for part in parts:
        text = str(part).strip().lower()
        if text in ("none", "inf"):
            found.append(math.inf)
            continue
        try:
            found.append(real("epsilon", float(text), above=0))
        except (ValueError, OptionError):
            raise OptionError(
                f"epsilon must be numbers above 0 separated by commas, or none, got '{str(part).strip()}'",
                hint="for example 1,5,10,none",
            ) from None
    if not found:
        raise OptionError("epsilon must be at least one number, or none", hint="for example 1,5,10,none")
    if len(set(found)) < len(found):
        raise OptionError("an epsilon is listed twice", hint="for example 1,5,10,none")
    return tuple(found)


def train(
    data: Any,
    model: str | None = None,
    *,
    epsilon: str | float | Iterable[Any] | None = 1.0,
    noise_multiplier: float | Sequence[float] = (),
    delta: float = 1e-5,
    schema: Schema | Mapping[str, Any] | str | Path | None = None,
    target: str | None = None,
    regression: bool = False,
    test: Any = None,
    holdout: float = 0.2,
    full: bool = False,
    root: str | Path | None = None,
    samples: float | None = None,
    test_samples: float | None = None,
    rows: int | None = None,
    scores: str = "noisy",
    seed: int = 0,
    insecure_seed: int | None = None,
    ledger: Ledger | None = None,
    folder: str | Path | None = None,
    ordinary: Mapping[str, Any] | None = None,
    published: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Training:
    """Train a model on a table or on images, once for each epsilon.

    Scores on the built-in public data sets are exact. On any other data, scores of a private model are noisy and part
    of its epsilon: a coin puts each record into either the training part or the test part, and both parts meet the
    same noise (see `scoring`). Exact scores and losses per epoch are for the owner of the data alone: they are in
    ``Run.owner``, which is not released. A model without privacy has no bound, and its scores are exact.

    Parameters
    ----------
    data : str, path, Table, frame or Images
        "mnist", "adult" and "nursery" are built in.
    model : str, optional
        For tables "additive", "logistic", "linear", "forest", "naive-bayes" or "mlp"; for images "cnn", "resnet18",
        "scattering-linear", "mlp" or "logistic". By default the best we know: "additive", or "scattering-linear" for
        small grey images.
    epsilon : number, text or list
        One or several, such as ``"1,5,10,none"``; "none" trains without privacy.
    noise_multiplier : float or list
        Runs of networks with this noise instead, whatever epsilon it gives.
    delta : float
    schema : Schema, path or mapping, optional
        What is public of the columns of a table: see `Schema.of`.
    target : str, optional
        The column that is predicted. A table that is built in knows its own.
    regression : bool
        Whether it is a number.
    test, holdout, full, root, samples, test_samples
        What is trained and tested on: see `material_of`.
    rows : int, optional
        The number of rows to train on, if it is public: see `PrivateClassifier`. That of a built-in data set is.
    scores : {"noisy", "none"}
        What is released of how good a private model is on private data.
    seed : int
        Of first weights, and of the division of a data set that is built in. Other data is divided by a secret.
    insecure_seed : int, optional
        Makes the noise and the division reproducible: the models are then not private.
    ledger : Ledger, optional
        Charged for every run. By default the one of the table, if a budget was granted for it; ``charged`` of the
        result says so. A file for which a budget was granted, but read in another way, is refused.
    folder : path, optional
        Where finished runs are kept until all are: if it is there, they are not trained again, and one that was
        interrupted goes on.
    ordinary : mapping, optional
        Options of the run without privacy that differ: without clipping, a network wants another learning rate.
    published : mapping, optional
        What a publication printed, for the report.
    watch : callable, optional
        Told the name of a run and a report after each of its epochs.
    progress : callable, optional
        Told the share that is done, from 0 to 1.
    **options
        Parameters of the estimator, such as ``epochs``, ``batch_size``, ``clip`` and ``learning_rate`` of a network.

    Examples
    --------
    >>> import sfumato as sf
    >>> training = sf.train("adult", "naive-bayes", target="income", epsilon="1,none")
    >>> [(run.name, run.scores.accuracy > 0.75) for run in training.runs]
    [('epsilon-1', True), ('epsilon-none', True)]
    """
    asked = _asked(epsilon, noise_multiplier)
    if scores not in SCORES:
        raise OptionError(f"the scores must be one of {', '.join(SCORES)}, got {scores!r}")
    kept = None if folder is None else Path(folder)
    key = key_in(kept) if insecure_seed is None else _seeded_key(insecure_seed)
    if schema is not None:
        data = _declared(data, schema)
    if isinstance(test, str | Path):
        test = read(test, inferred=False)
    material = material_of(
        data,
        target=target,
        test=test,
        holdout=holdout,
        full=full,
        root=root,
        samples=samples,
        test_samples=test_samples,
        seed=seed,
        key=key,
    ).predicting(regression=regression)
    if model is None:
        model = best_model(material.train.shape[1:] if material.are_images else None)
    kind = model_of(model, images=material.are_images)
    parameters = {name: value for name, value in options.items() if value is not None}
    book = ledger if ledger is not None else _ledger_of(material.whole)
    other = None if test is None else _ledger_of(Table.of(test))
    if (book is not None or other is not None) and any(one.epsilon == math.inf for one in asked):
        raise OptionError(
            "a budget was granted for this data, and a model without privacy cannot be charged to it",
            hint="leave 'none' out of the epsilons",
        )
    public = material.declared_target(regression=regression)
    _refuse_classes(parameters.get("classes"), public.get("classes"))
    if test is not None:
        _refuse_test(material, regression, parameters.get("classes", public.get("classes")))
    common = {"delta": delta, "insecure_seed": insecure_seed, "ledger": book, **public, **parameters}
    known = material.public_rows if rows is None else whole("the number of rows", rows)
    if kind.network:
        common |= {"seed": seed, "rows": known}
    estimators = [_made(kind, one, regression, common, ordinary or {}) for one in asked]
    settings: dict[str, Any] = {}
    if kept is not None:
        own = {**parameters, **{f"ordinary {name}": value for name, value in (ordinary or {}).items()}}
        own |= {"rows": rows, "scores": scores}
        settings = settings_of(material, model, regression, delta, seed, insecure_seed, book is not None, own)
    runs, models = list[Run](), dict[str, Any]()
    with opened(kept, settings):
        left = [
            each for one, each in zip(asked, estimators, strict=True) if kept is None or not (kept / one.name).exists()
        ]
        _refuse_beyond(book, left, material)
        for at, (one, estimator) in enumerate(zip(asked, estimators, strict=True)):
            place = None if kept is None else kept / one.name
            if place is not None and place.exists():
                run, fitted = read_run(place)
            else:
                share = None if progress is None else _part_of(progress, at, len(asked))
                run, fitted = _trained(one, estimator, kind, material, scores, other, kept, watch, share)
                if place is not None:
                    keep(place, run, fitted)
                    checkpoint_of(place).unlink(missing_ok=True)
            runs.append(run)
            models[run.name] = fitted
            if progress is not None:
                progress((at + 1) / len(asked))
    return Training(
        data=material.name,
        model=model,
        target=material.target,
        rows=known,
        runs=tuple(runs),
        together=_together(runs, delta),
        settings={
            "tested on": material.split,
            "seed": seed,
            **({} if scores == "noisy" else {"scores": scores}),
            **parameters,
        },
        pictures=_pictures(material, models),
        models=models,
        published=None if published is None else dict(published),
        charged=book is not None,
        material=material,
        is_public=material.is_public,
    )


def run_recipe(recipe: Recipe, data: Any, **options: Any) -> Training:
    """Train as a recipe says; on the data set that it names, unless other data is given."""
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
    return train(given, model, **asked, **options)


def _declared(data: Any, schema: Any) -> Table:
    """Return a table with a schema; its rows do not decide what its columns are."""
    if isinstance(data, datasets.Images) or (isinstance(data, str) and data in datasets.BUILT_IN):
        raise OptionError("a schema is for a table of your own: what is public of this data is known")
    return Table.of(read(data, inferred=False) if isinstance(data, str | Path) else data, schema=schema)


def _asked(epsilon: Any, noise_multiplier: Any) -> list[Asked]:
    noises = [noise_multiplier] if isinstance(noise_multiplier, int | float) else list(noise_multiplier)
    asked = [Asked(None, real("the noise multiplier", noise, above=0)) for noise in noises]
    if len(set(asked)) < len(asked):
        raise OptionError("a noise multiplier is listed twice")
    if epsilon is not None or not asked:
        asked += [Asked(one) for one in epsilons_of(epsilon)]
    return asked


def _made(
    kind: Model, asked: Asked, regression: bool, parameters: Mapping[str, Any], ordinary: Mapping[str, Any]
) -> Any:
    """Make the estimator of a run, so that what cannot be trained is told before anything is."""
    own = {**kind.private, **parameters}
    if asked.epsilon == math.inf:
        own = {**kind.ordinary, **parameters, **ordinary, "ledger": None}
    if asked.noise_multiplier is not None:
        if not kind.network:
            raise OptionError(f"a noise multiplier is for networks, and '{kind.name}' is none", hint="give epsilon")
        own["noise_multiplier"] = asked.noise_multiplier
    else:
        own["epsilon"] = asked.epsilon
    try:
        return kind.make(regression=regression, **own)
    except TypeError as error:
        unknown = str(error).rpartition("argument '")[2].rstrip("'")
        raise OptionError(f"the model '{kind.name}' has no option '{unknown}'", hint="leave it out") from None


def _trained(
    asked: Asked,
    estimator: Any,
    kind: Model,
    material: Material,
    released: str,
    book: Ledger | None,
    kept: Path | None,
    watch: Watch | None,
    progress: Callable[[float], None] | None,
) -> tuple[Run, Any]:
    began = time.monotonic()
    if kind.network:
        if kept is not None:
            estimator.set_params(checkpoint=checkpoint_of(kept / asked.name))
        estimator.fit(
            material.train,
            material.train_target,
            validation=(material.test, material.test_target) if _is_usable(material.test_target) else None,
            progress=progress,
            report=None if watch is None else lambda told: watch(asked.label, told),
        )
    else:
        estimator.fit(material.train, material.train_target)
    cost = estimator.to_dict()
    history = tuple(cost.pop("history", ()))
    total = cost.pop("epsilon")
    epsilon = asked.epsilon if asked.epsilon is not None else float(total)
    facts = {"spent": total, **cost}
    scores, owner = _scored(estimator, material, released, book), None
    if not material.is_public:
        owner = json.loads(json.dumps({"scores": _exactly(estimator, material), "history": history}))
        history = tuple({name: told[name] for name in _PUBLIC_HISTORY} for told in history)
    return Run(epsilon, asked.name, facts, scores, time.monotonic() - began, history, owner), estimator


def _is_usable(target: Any) -> bool:
    """Say whether there is anything to test on; with a coin per record, there need not be."""
    if isinstance(target, pl.Series) and target.dtype.is_float():
        return bool(target.is_finite().any())
    return len(target) > 0


def _scored(model: Any, material: Material, released: str, book: Ledger | None) -> Scores:
    """Return the scores of a model that are released, charged to the ledger of test rows that have their own."""
    if material.is_public or not model.is_private:
        return exact_scores(model, material.test, material.test_target)
    if released == "none":
        return Scores.none()
    events = scoring_events(model.events_)
    if book is not None and events:
        book.charge(Composed(events), note="scores of a model")
    seed = model.insecure_seed  # not the noise of the training: what is on both could be taken off
    source = Source(insecure_seed=None if seed is None else seed ^ 2**129)
    return noisy_scores(model, material.test, material.test_target, model.events_, source)


def _exactly(model: Any, material: Material) -> dict[str, Any] | None:
    """Return the exact scores of a model, for the owner; what cannot be scored must not stop a private training."""
    try:
        return exact_scores(model, material.test, material.test_target).to_dict()
    except (InputError, ModelError):
        return None


def _refuse_beyond(book: Ledger | None, estimators: Sequence[Any], material: Material) -> None:
    """Refuse models that together exceed the budget before the first one is charged, where their cost is known."""
    if book is None or len(estimators) < 2:  # a single one is refused by itself
        return
    try:
        planned = [event for one in estimators for event in one.events_of(material.train, material.train_target)]
    except OptionError:  # it depends on what will be bought
        return
    book.check(Composed(tuple(planned)))


def _refuse_classes(given: Any, declared: Any) -> None:
    """Refuse classes that are not those of the schema: a model of classes that no record has learns nothing."""
    if given is not None and declared is not None and {*map(str, given)} != {*map(str, declared)}:
        raise OptionError(
            f"the classes are {', '.join(map(str, given))}, but the domain of the target is "
            f"{', '.join(map(str, declared))}",
            hint="declare them once",
        )


def _refuse_test(material: Material, regression: bool, classes: Any) -> None:
    """Refuse rows that no model can be tested on, before anything is paid for."""
    if material.are_images:
        return
    target = material.test_target
    if regression and not target.dtype.is_numeric():
        raise InputError(f"the test rows hold no numbers in '{material.target}'", hint="leave --regression out")
    if regression and not target.cast(pl.Float64).is_finite().any():
        raise InputError(f"no test row has a number in '{material.target}'")
    if not regression and classes is not None and not {*texts_in(classes)} & {*texts_in(target.unique().to_list())}:
        raise InputError("no test row has a class that the model knows")


def _part_of(progress: Callable[[float], None], at: int, count: int) -> Callable[[float], None]:
    return lambda share: progress((at + share) / count)


def _together(runs: Sequence[Run], delta: float) -> dict[str, Any] | None:
    """Return what it costs to publish all models that have an epsilon."""
    events = [Event.from_dict(one) for run in runs if run.epsilon != math.inf for one in run.facts["events"]]
    return spent(events, delta).bound() if events else None


def _seeded_key(seed: Any) -> bytes:
    Source(insecure_seed=seed)  # refuses what is not a seed
    return key_of(seed)


def _ledger_of(table: Table | None) -> Ledger | None:
    return None if table is None else Ledger.find(table)


def _pictures(material: Material, models: Mapping[str, Any]) -> Any:
    if not material.are_images:
        return None
    if material.name != "mnist":
        return None  # somebody's own images are records, and no report shows those
    from sfumato.learners.training.pictures import pictures_of

    return pictures_of(material.test, material.test_target, models)

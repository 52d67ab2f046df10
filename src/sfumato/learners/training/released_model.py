"""Fitted models as files and as releases: arrays in ``model.safetensors``, the rest in ``model.json``; no pickle.

Loading a model runs no code from its files, and takes memory and time in proportion to their size: the described
network is compared with the weights before it is built. A loaded model has been tried on made-up records. The files
contain only what is released: the noisy numbers, the public description of the columns, and the parameters; no ledger,
no schema and no record, and for a private model no losses or scores, which are computed without noise.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

import sfumato
from sfumato._repr import Discreet
from sfumato.budget.accounting.accountant import Spent
from sfumato.budget.differential_privacy import DifferentialPrivacy
from sfumato.budget.events import Event, Relation
from sfumato.data.certificate import Certificate, is_regular_file, read_plain
from sfumato.data.claim import Claim
from sfumato.data.guarantee import Guarantee
from sfumato.data.io.files import why
from sfumato.data.recipe import Recipe
from sfumato.data.release import Artifact, Layout, Provenance, Release
from sfumato.data.schema import Column, Role, Schema
from sfumato.errors import FileError, MissingExtra, ModelError
from sfumato.learners.estimators.estimator import PrivateEstimator
from sfumato.learners.estimators.features import Columns
from sfumato.learners.training.runs import Run, Training

__all__ = [
    "FACTS",
    "WEIGHTS",
    "ReleasedModel",
    "load_model",
    "options_of",
    "read_arrays",
    "release_of",
    "schema_of",
    "stored_form",
    "write_model",
]

WEIGHTS, FACTS = "model.safetensors", "model.json"
_FORMAT = 1
_MOST_BYTES = 2**31  # of weights; the largest named network has 45 MB
_SMALL = 2**18  # largest image on which a model is tried when it is loaded, in numbers
_NEVER = ("ledger", "schema", "checkpoint")  # parameters that are not stored


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedModel(Artifact, Discreet):
    """A trained model, and the schema of the columns it was trained on.

    Attributes
    ----------
    model : the fitted estimator
    declared : the declared schema
    cost : the epsilon spent, delta and the relation; empty without privacy
    training : how the model was trained, and its scores; None if it was read from a folder
    stated_scores : the scores that the certificate states, if it was read from a folder
    """

    kind = "model"
    layout = Layout((WEIGHTS,), (FACTS, "recipe.toml"), ("report.html",))
    facts = ("public",)
    _repr_fields: ClassVar[tuple[str, ...]] = ("model",)

    model: Any
    declared: Schema
    cost: dict[str, Any]
    training: Training | None = None
    stated_scores: dict[str, Any] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """The declared schema."""
        return self.declared

    @property
    def claims(self) -> dict[str, Any]:
        """The epsilon spent, delta and the relation."""
        return self.cost

    @property
    def certified_loss(self) -> dict[str, Any]:
        """The scores: exact or noisy, and the events of noisy ones."""
        if self.training is None:
            return self.stated_scores
        scores = self.training.runs[0].scores
        plain = scores.to_dict()
        return {"scores": scores.how, **{name: plain[name] for name in ("accuracy", "auc", "loss", "margin", "events")}}

    def write_into(self, folder: Path, guarantees: tuple[Guarantee, ...], **options: Any) -> tuple[str, Self]:
        """Write all files that `load_model` needs, and return the name of the weights file."""
        write_model(self.model, folder)
        return WEIGHTS, self

    @classmethod
    def read(cls, folder: Path, certificate: Certificate) -> ReleasedModel:
        """Read the model of a release, ready to predict."""
        return ReleasedModel(load_model(folder), certificate.schema, certificate.claims, None, certificate.loss)

    @classmethod
    def verify(
        cls, folder: Path, certificate: Certificate, progress: Callable[[float], None] | None
    ) -> Iterator[Claim]:
        """Check epsilon against the recorded events, and the events against the stated training."""
        from sfumato.learners.training.verify_model import verify_model

        return verify_model(folder, certificate)

    def predict(self, data: Any) -> Any:
        """Predict for a table, a frame or images."""
        return self.model.predict(data)

    def to_dict(self) -> dict[str, Any]:
        """Return the training facts as plain values."""
        return {} if self.training is None else self.training.to_dict()


def release_of(training: Training, run: Run, *, alone: bool) -> Release:
    """Return one model of a training as a release; its recipe trains that model alone."""
    facts, private = run.facts, run.epsilon != math.inf
    options = training.options or options_of(training)
    if not alone:
        options = {name: value for name, value in options.items() if name not in ("epsilon", "noise_multiplier")}
        options |= _requested(run)
    schema = schema_of(training)
    origin = None if training.material is None or training.material.whole is None else training.material.whole.origin
    claims = {"epsilon": facts["spent"], "delta": facts["delta"], "relation": facts["relation"]} if private else {}
    promise = DifferentialPrivacy(run.epsilon, facts["delta"], facts["relation"], training.unit) if private else None
    return Release(
        artifact=ReleasedModel(training.models[run.name], schema, claims, replace(training, runs=(run,))),
        method=training.model,
        parameters={**{name: value for name, value in facts.items() if name != "spent"}, **training.settings},
        guarantees=() if promise is None else (promise,),
        events=tuple(Event.from_dict(one) for one in facts.get("events", ())),
        recipe=Recipe("train", options, schema),
        provenance=Provenance(
            training.data,
            facts["sampling"].get("rows", training.rows),  # that of a network is public: declared or estimated
            origin,
            {"public": training.is_public},
        ),
        seconds=run.seconds,
    )


def options_of(training: Training) -> dict[str, Any]:
    """Return the options of a training, as far as they can be derived from it."""
    requests = [_requested(run) for run in training.runs]
    epsilons = [one for each in requests for one in each.get("epsilon", [])]
    noises = [one for each in requests for one in each.get("noise_multiplier", [])]
    settings = {name: value for name, value in training.settings.items() if name != "tested on"}
    target = {} if training.material is None or training.material.are_images else {"target": training.target}
    stated = {"data": training.data, "model": training.model, **target, "epsilon": epsilons, "noise_multiplier": noises}
    return {name: value for name, value in {**stated, **settings}.items() if value not in ([], None)}


def _requested(run: Run) -> dict[str, Any]:
    if run.name.startswith("noise-"):
        return {"noise_multiplier": [run.facts["noise_multiplier"]]}
    return {"epsilon": ["none" if run.epsilon == math.inf else run.epsilon]}


def schema_of(training: Training) -> Schema:
    """Return the declared schema without hierarchies, and with no roles but identifiers and the target."""
    if training.material is None:
        return Schema([])
    columns = training.material.schema.columns
    return Schema(
        Column(
            name=one.name,
            kind=one.kind,
            domain=one.domain,
            bounds=one.bounds,
            role=one.role if one.role.is_identifier else Role.OTHER,
        )
        for one in columns
    ).with_roles(target=training.target if columns else None)


def write_model(model: PrivateEstimator, folder: str | Path) -> None:
    """Write a fitted model into an existing folder.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.learners import PrivateNaiveBayes
    >>> train = sf.datasets.adult("train")
    >>> model = PrivateNaiveBayes(epsilon=1).fit(train, "income")
    >>> Path("model").mkdir()
    >>> write_model(model, "model")
    >>> again = load_model("model")
    >>> bool((again.predict(train) == model.predict(train)).all())
    True
    """
    from safetensors.numpy import save

    arrays, plain = stored_form(model)
    text = json.dumps(plain, indent=2, allow_nan=False)
    weights = save({name: np.ascontiguousarray(one) for name, one in arrays.items()})
    Path(folder, FACTS).write_text(text + "\n", encoding="utf-8")
    Path(folder, WEIGHTS).write_bytes(weights)


def stored_form(model: PrivateEstimator) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the plain values of a fitted model, as `write_model` stores them."""
    arrays, facts = model.state()
    cost = {name: value for name, value in model.to_dict().items() if name != "history"}
    if model.is_private and "history" in facts:
        facts["history"] = [{**one, "loss": None, "score": None, "seconds": 0.0} for one in facts["history"]]
    plain = {
        "format": _FORMAT,
        "estimator": type(model).__name__,
        "parameters": {name: _plain(name, value) for name, value in model.get_params(deep=False).items()},
        "state": facts,
        "cost": cost,
        "sfumato": sfumato.__version__,
    }
    return arrays, plain


def load_model(folder: str | Path, *, module: Any = None) -> PrivateEstimator:
    """Read a model written by `write_model`, also from a release, ready to predict.

    Parameters
    ----------
    folder : path
        The folder that `write_model` wrote, or that of a release.
    module : torch.nn.Module, optional
        The network to load the weights into, if it is not a named one: files contain no code.

    Raises
    ------
    FileError
        If a file is absent, damaged or of another version.

    Examples
    --------
    >>> import sfumato as sf
    >>> sf.save(sf.train("adult", "naive-bayes", target="income", epsilon=1), "model of adult")
    >>> model = load_model("model of adult")
    >>> print(model.spent_)
    epsilon 1 at delta 1e-05 (add or remove one record)
    >>> model.predict(sf.datasets.adult("test")).shape
    (16281,)
    """
    plain = _read_facts(Path(folder, FACTS))
    arrays = read_arrays(Path(folder, WEIGHTS))
    try:
        kind = _estimator(plain["estimator"])
        names = set(kind().get_params(deep=False))
        names -= {*_NEVER}  # a path from an untrusted file is neither read nor written
        optional = {one.name for one in fields(kind) if "None" in str(one.type)}  # else None is what cannot be stored
        parameters = {
            name: value
            for name, value in plain["parameters"].items()
            if name in names and (value is not None or name in optional)
        }
        if parameters.get("epsilon") == "inf":
            parameters["epsilon"] = math.inf
        if module is not None:
            parameters["model"] = module
        model = kind(**parameters)
        model.restore(arrays, plain["state"])
        if not hasattr(model, "features_"):
            raise KeyError("features")
        _try(model)
        model.events_ = tuple(Event.from_dict(one) for one in plain["cost"]["events"])
        cost = plain["cost"]
        if model._search is not None:
            model.bought_rows_per_person_ = model._search.checked(cost["bought_rows_per_person"])
        epsilon = math.inf if cost["epsilon"] == "inf" else float(cost["epsilon"])
        model.noise_multiplier_, model.sampling_ = cost["noise_multiplier"], cost["sampling"]
        model.spent_ = Spent(epsilon, cost["delta"], Relation(cost["relation"]), cost["accountant"], model.events_)
    except (ModelError, MissingExtra):
        raise
    except Exception as error:  # an untrusted file may cause any error
        raise FileError(f"the model in '{folder}' is damaged, or is not of this version of Sfumato") from error
    return model


def _try(model: Any) -> None:
    """Predict for made-up records, so a loaded model does not fail later."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for count in (2, 5):  # a wrong shape may fit one number of records by chance, but not both
            made_up = _made_up(model, count)
            if made_up is None:
                return
            predicted = model.predict(made_up) if hasattr(model, "predict") else model.transform(made_up)
            if len(predicted) != count:
                raise ValueError("predictions")
            if hasattr(model, "classes_") and model.predict_proba(made_up).shape != (count, *model.classes_.shape):
                raise ValueError("classes")


def _made_up(model: Any, count: int) -> Any:
    """Return records with extreme values of the columns, or blank images; None if the images are large."""
    if model.features_ is None:
        return np.zeros((count, *model.inputs_)) if math.prod(model.inputs_) <= _SMALL else None
    ends = [(one.bounds if one.is_number else (one.domain or (None,))) for one in model.features_.features]
    values = [[one[0], one[-1], None, *one[:1] * count][:count] for one in ends]
    kinds = [pl.Float64 if one.is_number else pl.String for one in model.features_.features]
    names = model.features_.names
    return Columns(tuple(map(pl.Series, names, values, kinds)), None, named=False)


def _estimator(name: Any) -> type[PrivateEstimator]:
    """Return the estimator with a name; no other name is looked up."""
    from sfumato import learners

    if name not in learners.__all__ or not str(name).startswith("Private"):
        raise KeyError(name)
    kind = getattr(learners, name)
    if not issubclass(kind, PrivateEstimator):
        raise KeyError(name)
    return kind


def _read_facts(path: Path) -> dict[str, Any]:
    if not is_regular_file(path):
        raise FileError(f"'{path.parent}' does not hold a model: there is no {FACTS}", hint="sfumato train makes one")
    plain = read_plain(path)
    if not isinstance(plain, dict) or "format" not in plain:
        raise FileError(f"'{path}' is not a model of Sfumato")
    if plain["format"] != _FORMAT:
        made = str(plain.get("sfumato"))[:20]
        raise FileError(
            f"'{path}' has format {plain['format']!r}, but this version of Sfumato reads format {_FORMAT}",
            hint=f"it was written by Sfumato {made}",
        )
    return plain


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a model, or raise a `FileError` if they are damaged or larger than any model of Sfumato."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if not is_regular_file(path):
        raise FileError(f"'{path.parent}' does not hold a model: there is no {path.name}")
    try:
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise FileError(f"'{path}' has {size:,} bytes, and at most {_MOST_BYTES:,} are read")
        arrays: dict[str, NDArray[Any]] = load(path.read_bytes())
    except OSError as error:
        raise FileError(f"'{path}' cannot be read: {why(error)}") from error
    except FileError:
        raise
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"'{path}' is damaged, or is not a safetensors file") from error
    return arrays


def _plain(name: str, value: Any) -> Any:
    """Return a parameter as plain values, or None if that is not possible."""
    if name in _NEVER:
        return None
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return [_plain("", one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _plain("", one) for key, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else None
    return value if isinstance(value, bool | int | float | str) else None

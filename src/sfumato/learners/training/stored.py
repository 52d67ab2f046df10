"""Store fitted models: ``model.safetensors`` with the arrays and ``model.json`` with everything else; never a pickle.

Loading a model runs no code from its files, and takes memory and time in proportion to their size: the described
network is compared with the weights before it is built. A loaded model has been tried on made-up records. The files
contain only what is released: the noisy numbers, the public description of the columns, and the parameters; no ledger,
no schema and no record, and for a private model no losses or scores, which are computed without noise.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import sfumato
from sfumato.budget.accounting.accountant import Spent
from sfumato.budget.events import Event, Relation
from sfumato.data.certificate import is_regular_file, read_plain
from sfumato.data.io.files import why
from sfumato.errors import FileError, MissingExtra, ModelError
from sfumato.learners.estimators.estimator import PrivateEstimator
from sfumato.learners.estimators.features import Columns

__all__ = ["FACTS", "WEIGHTS", "load_model", "read_arrays", "stored_form", "write_model"]

WEIGHTS, FACTS = "model.safetensors", "model.json"
_FORMAT = 1
_MOST_BYTES = 2**31  # of weights; the largest named network has 45 MB
_SMALL = 2**18  # largest image on which a model is tried when it is loaded, in numbers
_NEVER = ("ledger", "schema", "checkpoint")  # parameters that are not stored


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
        parameters = {name: value for name, value in plain["parameters"].items() if name in names and value is not None}
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
        raise FileError(f"'{path.parent}' does not hold a model: there is no {WEIGHTS}")
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

"""The predictions of a model as an attacker sees them: one probability per record and class, checked.

Any object with ``predict_proba`` can be attacked: scikit-learn, XGBoost, `sfumato.learners`, networks with one output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.errors import InputError, SfumatoError

__all__ = ["call", "is_missing", "label_codes", "own_label", "places", "probabilities", "smooth", "trees_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def call(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the target; if it raises, say so without its message, which may quote a record.

    Examples
    --------
    >>> call("the model", float, "Ada Lovelace, born 1815")
    Traceback (most recent call last):
        ...
    sfumato.errors.InputError: the model raised a ValueError (call it with these records yourself to see why)
    """
    try:
        return function(*arguments)
    except SfumatoError:
        raise
    except Exception as error:  # noqa: BLE001 - the model of a user may raise anything
        raise InputError(
            f"{what} raised a {type(error).__name__}", hint="call it with these records yourself to see why"
        ) from None


def probabilities(model: Any, records: Any, classes: ArrayLike) -> Floats:
    """Return the probability of each class for each record; 0 for a class that the model has never seen.

    A model with a single output gives the probability of the second of two classes.

    Examples
    --------
    >>> class Always:
    ...     classes_ = ["no", "yes"]
    ...     def predict_proba(self, records):
    ...         return np.tile([0.25, 0.75], (len(records), 1))
    >>> probabilities(Always(), [[1], [2]], ["maybe", "no", "yes"]).tolist()
    [[0.0, 0.25, 0.75], [0.0, 0.25, 0.75]]
    """
    known = np.asarray(classes)
    predict = getattr(model, "predict_proba", None)
    if predict is None:
        raise InputError(
            f"{type(model).__name__} has no predict_proba, which membership attacks ask",
            hint="wrap it in a calibrated classifier, or attack only its labels with the label-only attack",
        )
    found = np.asarray(call(f"predict_proba of {type(model).__name__}", predict, records), dtype=np.float64)
    own = np.asarray(getattr(model, "classes_", known))
    if found.ndim == 1 or (found.shape[1:] == (1,) and len(own) != 1):  # a model may have seen a single class
        found = np.column_stack([1 - found.ravel(), found.ravel()])
    if found.ndim != 2 or found.shape != (len(records), len(own)):
        raise InputError(
            f"predict_proba gave the shape {found.shape} for {len(records)} records and {len(own)} classes"
        )
    if not np.isfinite(found).all():
        raise InputError(f"predict_proba gave NaN or infinity for {(~np.isfinite(found)).any(axis=1).sum()} records")
    if (found < -1e-6).any() or (found > 1 + 1e-6).any():
        raise InputError("predict_proba gave numbers below 0 or above 1")
    result, place = np.zeros((len(found), len(known))), places(own, known)
    result[:, place[place >= 0]] = np.clip(found[:, place >= 0], 0.0, 1.0)
    return result


def label_codes(labels: ArrayLike, classes: ArrayLike) -> Ints:
    """Return the position of each label among the classes.

    Examples
    --------
    >>> label_codes(["yes", "no", "yes"], ["no", "yes"]).tolist()
    [1, 0, 1]
    """
    asked, result = np.asarray(labels), places(labels, classes)
    if (missing := is_missing(asked).sum()) > 0:
        raise InputError(f"{missing:,} of {len(asked):,} labels are missing", hint="leave these records out")
    if (unknown := np.count_nonzero(result < 0)) > 0:
        raise InputError(
            f"{unknown:,} of {len(asked):,} labels are not among the {len(np.asarray(classes))} classes of the model",
            hint="leave these records out, or give all classes with classes=[...]",
        )
    return result


def places(labels: ArrayLike, classes: ArrayLike) -> Ints:
    """Return the position of each label among the classes; -1 for a label that is none of them."""
    place = {value: at for at, value in enumerate(np.asarray(classes).tolist())}
    return np.array([place.get(value, -1) for value in np.asarray(labels).tolist()], dtype=np.int64)


def is_missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which labels are missing: None or NaN."""
    return np.array([value is None or value != value for value in labels.tolist()], dtype=bool)


def own_label(p: Floats, codes: Ints) -> Floats:
    """Return the probability of each record's own label."""
    result: Floats = p[np.arange(len(codes)), codes]
    return result


def smooth(p: Floats, trees: int) -> Floats:
    """Return (v + 1/2) / (T + 1) for v votes of T trees: a forest says 0 or 1 often, whose logit would be infinite.

    Examples
    --------
    >>> smooth(np.array([0.0, 1.0]), 99).tolist()
    [0.005, 0.995]
    """
    result: Floats = (p * trees + 0.5) / (trees + 1)
    return result


def trees_of(model: Any) -> int | None:
    """Return the number of trees that vote in a model, also in a pipeline; None if it is neither forest nor tree."""
    if hasattr(model, "tree_"):
        return 1
    votes = getattr(model, "estimators_", None)
    if votes is not None and hasattr(model, "n_estimators") and not hasattr(model, "learning_rate"):
        return len(votes)
    steps = getattr(model, "steps", None)
    parts = (getattr(model, name, None) for name in ("best_estimator_", "estimator_", "model_"))
    inner = steps[-1][1] if isinstance(steps, list) else next((one for one in parts if one is not None), None)
    return None if inner is None else trees_of(inner)

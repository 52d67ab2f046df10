"""The results of training one model at several epsilons: the numbers that a report shows.

The results contain no model weights and no records; a finished run can be written as JSON and read again. `to_dict` may
be published wherever the models may: exact numbers about private records are only in ``Run.owner``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.recipe import RECIPE, Recipe
from sfumato.data.release import Release, Releases

__all__ = ["Pictures", "Run", "Scores", "Training", "label_of", "pictures_of", "surest"]

_MOST_POINTS = 101  # points of a curve
Bytes = NDArray[np.uint8]
_LEVELS = (0.0, 0.1, 0.3, 1.0)  # standard deviations of the noise, for pixels from 0 to 1
_SHOWN = 8  # images per row, and feature maps per layer
_LAYERS = 2


@dataclass(frozen=True, repr=False)
class Scores(Discreet):
    """The scores of a model on held-out rows: exact for public data, otherwise noisy.

    A classifier has an accuracy, a confusion matrix and ROC curves; a regression only the loss, which is the mean
    squared error, and the baseline, the error of always predicting the mean.

    Examples
    --------
    >>> scores = Scores.of(np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), ["no", "yes"])
    >>> scores.confusion, round(scores.accuracy, 3), scores.auc
    (((1, 0), (1, 1)), 0.667, 1.0)
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("rows", "accuracy", "loss", "how")

    rows: int
    loss: float
    """Mean cross-entropy, or mean squared error."""
    baseline: float
    """The accuracy of always predicting the most frequent class, or the squared error of always predicting the mean."""
    accuracy: float | None = None
    auc: float | None = None
    """The area under the ROC curve: for the second class, or the mean of each class against all others."""
    classes: tuple[str, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    """The number of rows of each class (by row) predicted as each class (by column)."""
    curves: tuple[tuple[tuple[float, float], ...], ...] = ()
    """ROC curves as points (false positive rate, true positive rate): one for two classes, else one per class."""
    how: str = "exact"
    """``exact``, ``noisy``, or ``none`` if nothing is released; then all other fields are unknown."""
    margin: float = 0.0
    """The margin of the noise on the accuracy, or else on the loss, in 95 % of cases."""
    events: tuple[dict[str, Any], ...] = ()
    """The events of noisy scores on the held-out records; they are among those of the training."""

    @classmethod
    def none(cls) -> Scores:
        """Return scores that release nothing."""
        return cls(0, math.nan, math.nan, how="none")

    @classmethod
    def of(cls, truth: NDArray[np.integer[Any]], chances: NDArray[np.floating[Any]], classes: Sequence[Any]) -> Scores:
        """Score the probabilities predicted by a classifier; the truth is class codes."""
        from sklearn.metrics import confusion_matrix, roc_auc_score, roc_curve

        count = len(classes)
        chances = np.asarray(chances, dtype=np.float64)
        predicted = chances.argmax(1)
        own = np.clip(chances[np.arange(len(truth)), truth], 1e-12, 1.0)
        positives = [1] if count == 2 else range(count)
        seen = [one for one in positives if 0 < (truth == one).sum() < len(truth)]
        curves = list[tuple[tuple[float, float], ...]]()
        for one in positives:
            if one not in seen:
                curves.append(((0.0, 0.0), (1.0, 1.0)))
                continue
            alarms, hits, _ = roc_curve(truth == one, chances[:, one])
            curves.append(_resample(alarms, hits))
        return cls(
            rows=len(truth),
            loss=float(-np.log(own).mean()),
            baseline=float(np.bincount(truth, minlength=count).max() / len(truth)),
            accuracy=float((predicted == truth).mean()),
            auc=float(np.mean([roc_auc_score(truth == one, chances[:, one]) for one in seen])) if seen else None,
            classes=tuple(map(str, classes)),
            confusion=tuple(map(tuple, confusion_matrix(truth, predicted, labels=range(count)).tolist())),
            curves=tuple(curves),
        )

    @classmethod
    def of_numbers(cls, truth: NDArray[np.floating[Any]], predicted: NDArray[np.floating[Any]]) -> Scores:
        """Score the numbers predicted by a regression; a loss that no float can hold is infinite."""
        with np.errstate(over="ignore"):
            return cls(
                rows=len(truth),
                loss=float(np.square(np.asarray(predicted) - truth).mean()),
                baseline=float(np.square(truth - truth.mean()).mean()),
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as plain values; unknown numbers as None, infinite ones as "inf"."""
        plain = asdict(self)
        for name in ("loss", "baseline"):
            if not math.isfinite(plain[name]):
                plain[name] = None if math.isnan(plain[name]) else "inf"
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Scores:
        """Return the scores of a `to_dict`."""
        values = {one.name: _tuples(plain[one.name]) for one in fields(cls)}
        losses = {name: math.nan if values[name] is None else float(values[name]) for name in ("loss", "baseline")}
        return cls(**{**values, **losses})


@dataclass(frozen=True, repr=False)
class Run(Discreet):
    """One trained model: its epsilon, its training facts and its scores.

    ``facts`` are the values of the command-line contract that describe the training: ``delta``, ``noise_multiplier``,
    ``clip``, ``sampling`` (``kind``, ``rate``, ``steps``), ``relation``, ``accountant``, ``spent`` (the total epsilon
    of the events), ``private`` and ``events``. ``history`` has a dictionary per epoch (``epoch``, ``step``, ``loss``,
    ``epsilon``, ``seconds``, ``score``), and is empty for models that are not trained in epochs; for private data it
    has only ``epoch``, ``step`` and ``epsilon``.

    Examples
    --------
    >>> run = Run(math.inf, "epsilon-none", {"delta": 1e-5}, Scores(10, 0.5, 0.6, accuracy=0.7), 2.0)
    >>> run.to_dict()["epsilon"], run.to_dict()["accuracy"]
    ('inf', 0.7)
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("name", "scores")

    epsilon: float
    """The epsilon that the model guarantees: infinity without privacy."""
    name: str
    """The folder name of the model."""
    facts: dict[str, Any]
    scores: Scores
    seconds: float
    history: tuple[dict[str, Any], ...] = ()
    owner: dict[str, Any] | None = field(default=None, repr=False)
    """For private data: the exact ``scores`` and the full ``history``, as plain values. Do not publish them."""

    @property
    def label(self) -> str:
        """The label of the run in a legend."""
        return label_of(self.epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Return the run as plain values, under the names of the command-line contract, without ``owner``."""
        return {
            "epsilon": "inf" if self.epsilon == math.inf else self.epsilon,
            "name": self.name,
            **self.facts,
            "accuracy": self.scores.accuracy,
            "loss": self.scores.to_dict()["loss"],
            "seconds": self.seconds,
            "history": list(self.history),
            "scores": self.scores.to_dict(),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Run:
        """Return the run of a `to_dict`."""
        rest = dict(plain)
        epsilon = math.inf if rest.pop("epsilon") == "inf" else float(plain["epsilon"])
        scores, history = Scores.from_dict(rest.pop("scores")), tuple(rest.pop("history"))
        name, seconds = rest.pop("name"), rest.pop("seconds")
        del rest["accuracy"], rest["loss"]
        return cls(epsilon, name, rest, scores, seconds, history)


@dataclass(frozen=True, eq=False, repr=False)
class Pictures(Discreet):
    """Images of a public data set, as bytes: with increasing noise, and feature maps of one of them.

    ``noisy`` has one row of images per level of noise; ``levels`` are the standard deviations, for pixels from 0 to 1,
    starting with 0. ``maps`` has, for each run by name, the feature maps of its first layers by title.
    """

    levels: tuple[float, ...]
    noisy: tuple[tuple[NDArray[np.uint8], ...], ...]
    shown: NDArray[np.uint8]
    """The image of the feature maps."""
    maps: dict[str, dict[str, tuple[NDArray[np.uint8], ...]]]


@dataclass(frozen=True, eq=False, repr=False)
class Training(Discreet, Releases):
    """One model trained at several epsilons on the same data.

    Attributes
    ----------
    data : the name of the data set
    model : the name of the model
    target : the column that is predicted
    rows : the number of training rows, if it is public; the number of records is private in itself
    is_public : whether the data set is a built-in public one, which has exact scores
    runs : in the order of the request
    together : the cost of publishing all private models: the values of `Spent.bound`; None if there is none
    settings : the other options, by name
    pictures : illustrations with images of a public data set
    models : the fitted models, by the name of their run
    charged : whether the private models were charged to a ledger
    material : the training and test records, as long as they are in memory
    options : the options of the command that trained the models, for the recipe
    published : published results of this experiment: ``title``, ``notes``, ``epochs`` (a dictionary each)

    Examples
    --------
    >>> import sfumato as sf
    >>> training = sf.train("nursery", "naive-bayes", target="class", epsilon="1,none")
    >>> [run.label for run in training.runs], training.rows
    (['epsilon 1', 'no privacy'], 10344)
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("model", "data", "target", "runs")

    data: str
    model: str
    target: str
    rows: int | None
    runs: tuple[Run, ...]
    together: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    pictures: Pictures | None = None
    models: dict[str, Any] = field(default_factory=dict)
    published: dict[str, Any] | None = None
    charged: bool = False
    material: Any = field(default=None, repr=False)
    is_public: bool = False
    options: dict[str, Any] | None = None

    @cached_property
    def releases(self) -> dict[str, Release]:
        """Each model as a release, by the name of its run."""
        from sfumato.learners.training.released_model import release_of

        return {run.name: release_of(self, run, alone=len(self.runs) == 1) for run in self.runs}

    @property
    def unit(self) -> str:
        """What the private models protect: a row, or a person with all of their rows."""
        return UNIT if self.settings.get("rows_per_person") is None else PERSON

    @property
    def bought_rows(self) -> str:
        """How many rows of a person each private model bought, in words; empty if none did.

        Examples
        --------
        >>> scores = Scores(98, 0.5, 0.6)
        >>> runs = [Run(one, "", {"bought_rows_per_person": rows}, scores, 1.0) for one, rows in ((0.5, 1), (2.0, 5))]
        >>> Training("visits", "logistic", "ill", None, tuple(runs)).bought_rows
        'at most 1 at epsilon 0.5, at most 5 at epsilon 2'
        """
        name = "bought_rows_per_person"
        return ", ".join(f"at most {run.facts[name]} at {run.label}" for run in self.runs if name in run.facts)

    def unused(self, run: Run) -> tuple[str, ...]:
        """Return the columns without a known value, which the model of a run could not use.

        A private model knows only the categories that stood out from the noise: of free text, names and the like none.
        """
        features = getattr(self.models.get(run.name), "features_", None)
        return tuple(one.name for one in features.features if one.domain == ()) if features else ()

    def beside(self) -> dict[str, str]:
        """Return ``training.json`` and the recipe of all models; running times on private records are left out."""
        from sfumato.learners.training.released_model import options_of, schema_of

        plain = self.to_dict()
        for run in plain["runs"] if not self.is_public else ():
            del run["seconds"]
        recipe = Recipe("train", self.options or options_of(self), schema_of(self))
        return {"training.json": json.dumps(plain, indent=2, allow_nan=False) + "\n", RECIPE: recipe.to_toml()}

    def for_the_owner(self) -> dict[str, Any] | None:
        """Return the exact scores and losses of private data."""
        if self.is_public:
            return None
        note = "exact numbers about private records: for the owner of the data, not for publication"
        return {
            "note": note,
            "runs": [{"name": run.name, "seconds": run.seconds, **(run.owner or {})} for run in self.runs],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the training as plain values, under the names of the command-line contract."""
        return {
            "data": self.data,
            "model": self.model,
            "target": self.target,
            "rows": self.rows,
            "public": self.is_public,
            "runs": [{**run.to_dict(), "unused": list(self.unused(run))} for run in self.runs],
            "together": self.together,
            "charged": self.charged,
            "unit": self.unit,
            "settings": self.settings,
        }


def surest(runs: Iterable[Run]) -> Scores:
    """Return the scores with the least noise, for facts that all runs share, such as the number of test rows.

    Examples
    --------
    >>> noisy, exact = Scores(98, 0.5, 0.6, how="noisy", margin=0.1), Scores(100, 0.5, 0.61)
    >>> surest([Run(1.0, "a", {}, noisy, 2.0), Run(math.inf, "b", {}, exact, 2.0)]).rows
    100
    """
    order = ("exact", "noisy", "none")
    return min((run.scores for run in runs), key=lambda one: (order.index(one.how), one.margin), default=Scores.none())


def label_of(epsilon: float) -> str:
    """Return the label of a run with this epsilon in a legend.

    Examples
    --------
    >>> label_of(0.5), label_of(math.inf)
    ('epsilon 0.5', 'no privacy')
    """
    return "no privacy" if epsilon == math.inf else f"epsilon {epsilon:g}"


def _resample(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[tuple[float, float], ...]:
    """Return a curve at few fixed points, from which no single record can be read."""
    at = np.linspace(0, 1, _MOST_POINTS)
    heights = np.interp(at, x, y)
    return tuple((round(float(one), 4), round(float(two), 4)) for one, two in zip(at, heights, strict=True))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def pictures_of(images: Bytes, labels: Any, models: Mapping[str, Any]) -> Pictures:
    """Return the first image of each class with increasing noise, and the feature maps of one image.

    The images must be of a public data set, because they are shown unchanged. Networks without convolutions have no
    feature maps.

    Examples
    --------
    >>> import sfumato as sf
    >>> digits = sf.datasets.mnist()
    >>> pictures = pictures_of(digits.test_images, digits.test_labels, {})
    >>> len(pictures.levels), len(pictures.noisy[0]), pictures.shown.shape
    (4, 8, (28, 28))
    """
    numbers = np.asarray(labels)
    first = [int(np.flatnonzero(numbers == one)[0]) for one in np.unique(numbers)[:_SHOWN]]
    generator = np.random.default_rng(0)  # an illustration, not protection
    clean = images[first].astype(np.float64) / 255
    noisy = tuple(
        tuple(_bytes(image, 0.0, 1.0) for image in clean + level * generator.normal(size=clean.shape))
        for level in _LEVELS
    )
    shown = images[first[-1]]
    maps = {name: _maps(model, shown) for name, model in models.items()}
    return Pictures(_LEVELS, noisy, shown, {name: layers for name, layers in maps.items() if layers})


def _maps(model: Any, image: Bytes) -> dict[str, tuple[Bytes, ...]]:
    """Return the outputs of the first convolutions by title, each map scaled to its own range."""
    import torch
    from torch import nn

    module = getattr(model, "module_", nn.Identity())
    layers = [one for one in module.modules() if isinstance(one, nn.Conv2d)][:_LAYERS]
    caught: dict[int, Any] = {}

    def catch(at: int) -> Any:
        return lambda layer, given, result: caught.__setitem__(at, result)

    handles = [layer.register_forward_hook(catch(at)) for at, layer in enumerate(layers)]
    try:
        with torch.no_grad():
            model.predict(image[None])
    finally:
        for handle in handles:
            handle.remove()
    maps = {}
    for at, result in sorted(caught.items()):
        channels = result[0].float().cpu().numpy()[:_SHOWN]
        title = f"convolution {at + 1} ({layers[at].out_channels} channels)"
        maps[title] = tuple(_bytes(one, float(one.min()), float(one.max())) for one in channels)
    return maps


def _bytes(image: NDArray[np.floating[Any]], low: float, high: float) -> Bytes:
    scaled = (image - low) * (255 / (high - low if high > low else 1.0))
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)

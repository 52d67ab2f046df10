"""What came out of training one model at several epsilons: the numbers that a report shows.

Nothing in here is a model or holds a record; a finished run can be written as JSON and read again. What `to_dict`
returns may be published as far as the models may: exact numbers about private records are in ``Run.owner`` alone.
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
from sfumato.data.recipe import RECIPE, Recipe
from sfumato.data.release import Release, Releases

__all__ = ["Pictures", "Run", "Scores", "Training", "label_of", "surest"]

_MOST_POINTS = 101  # of a curve


@dataclass(frozen=True, repr=False)
class Scores(Discreet):
    """How well a model answers on rows that it was not trained on: exactly for public data, else with noise.

    Of a classifier there are an accuracy, a confusion matrix and ROC curves; of a regression only the loss, which is
    the mean squared error, and the baseline, that of always answering the mean.

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
    """The accuracy of always answering the most frequent class, or the squared error of always answering the mean."""
    accuracy: float | None = None
    auc: float | None = None
    """The area under the ROC curve: of the second class, or the mean of each class against all others."""
    classes: tuple[str, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    """How many rows of each class (by row) were given each class (by column)."""
    curves: tuple[tuple[tuple[float, float], ...], ...] = ()
    """ROC curves as points (share of false alarms, share found): one for two classes, else one per class."""
    how: str = "exact"
    """``exact``, ``noisy``, or ``none`` if nothing is released; then all else is unknown."""
    margin: float = 0.0
    """How far noise moves the accuracy, or else the loss, to either side in 95 % of cases."""
    events: tuple[dict[str, Any], ...] = ()
    """What noisy scores did with the held-out records; these events are among those of the training."""

    @classmethod
    def none(cls) -> Scores:
        """Return the scores of a model of which none are released."""
        return cls(0, math.nan, math.nan, how="none")

    @classmethod
    def of(cls, truth: NDArray[np.integer[Any]], chances: NDArray[np.floating[Any]], classes: Sequence[Any]) -> Scores:
        """Score the probabilities that a classifier gives; the truth is numbers of classes."""
        from sklearn.metrics import confusion_matrix, roc_auc_score, roc_curve

        count = len(classes)
        chances = np.asarray(chances, dtype=np.float64)
        found = chances.argmax(1)
        own = np.clip(chances[np.arange(len(truth)), truth], 1e-12, 1.0)
        positives = [1] if count == 2 else range(count)
        seen = [one for one in positives if 0 < (truth == one).sum() < len(truth)]
        curves = list[tuple[tuple[float, float], ...]]()
        for one in positives:
            if one not in seen:
                curves.append(((0.0, 0.0), (1.0, 1.0)))
                continue
            alarms, hits, _ = roc_curve(truth == one, chances[:, one])
            curves.append(_thinned(alarms, hits))
        return cls(
            rows=len(truth),
            loss=float(-np.log(own).mean()),
            baseline=float(np.bincount(truth, minlength=count).max() / len(truth)),
            accuracy=float((found == truth).mean()),
            auc=float(np.mean([roc_auc_score(truth == one, chances[:, one]) for one in seen])) if seen else None,
            classes=tuple(map(str, classes)),
            confusion=tuple(map(tuple, confusion_matrix(truth, found, labels=range(count)).tolist())),
            curves=tuple(curves),
        )

    @classmethod
    def of_numbers(cls, truth: NDArray[np.floating[Any]], found: NDArray[np.floating[Any]]) -> Scores:
        """Score the numbers that a regression predicts."""
        return cls(
            rows=len(truth),
            loss=float(np.square(np.asarray(found) - truth).mean()),
            baseline=float(np.square(truth - truth.mean()).mean()),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as plain values; what is unknown is None."""
        unknown = {name: None for name in ("loss", "baseline") if math.isnan(getattr(self, name))}
        return {**asdict(self), **unknown}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Scores:
        """Read what `to_dict` wrote."""
        told = {one.name: _tupled(plain[one.name]) for one in fields(cls)}
        return cls(**{**told, **{name: math.nan for name in ("loss", "baseline") if told[name] is None}})


@dataclass(frozen=True, repr=False)
class Run(Discreet):
    """One model: what was asked, what it cost, and how good it is.

    ``facts`` are the values of the command-line contract that say how it was made: ``delta``, ``noise_multiplier``,
    ``clip``, ``sampling`` (``kind``, ``rate``, ``steps``), ``relation``, ``accountant``, ``spent`` (the epsilon that
    the events add up to), ``private`` and ``events``. ``history`` has a dictionary per epoch (``epoch``, ``step``,
    ``loss``, ``epsilon``, ``seconds``, ``score``), and is empty for models that are not trained in epochs; of private
    data it has ``epoch``, ``step`` and ``epsilon`` only.

    Examples
    --------
    >>> run = Run(math.inf, "epsilon-none", {"delta": 1e-5}, Scores(10, 0.5, 0.6, accuracy=0.7), 2.0)
    >>> run.to_dict()["epsilon"], run.to_dict()["accuracy"]
    ('inf', 0.7)
    """

    _repr_fields: ClassVar[tuple[str, ...]] = ("name", "scores")

    epsilon: float
    """The bound that the model keeps: infinity without privacy."""
    name: str
    """The folder of the model."""
    facts: dict[str, Any]
    scores: Scores
    seconds: float
    history: tuple[dict[str, Any], ...] = ()
    owner: dict[str, Any] | None = field(default=None, repr=False)
    """Of private data: the exact ``scores`` and the whole ``history``, as plain values. Not to be published."""

    @property
    def label(self) -> str:
        """What a legend calls it."""
        return label_of(self.epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Return the run as plain values, under the names of the command-line contract, without ``owner``."""
        return {
            "epsilon": "inf" if self.epsilon == math.inf else self.epsilon,
            "name": self.name,
            **self.facts,
            "accuracy": self.scores.accuracy,
            "loss": None if math.isnan(self.scores.loss) else self.scores.loss,
            "seconds": self.seconds,
            "history": list(self.history),
            "scores": self.scores.to_dict(),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Run:
        """Read what `to_dict` wrote."""
        rest = dict(plain)
        epsilon = math.inf if rest.pop("epsilon") == "inf" else float(plain["epsilon"])
        scores, history = Scores.from_dict(rest.pop("scores")), tuple(rest.pop("history"))
        name, seconds = rest.pop("name"), rest.pop("seconds")
        del rest["accuracy"], rest["loss"]
        return cls(epsilon, name, rest, scores, seconds, history)


@dataclass(frozen=True, eq=False, repr=False)
class Pictures(Discreet):
    """Images of a public data set, as bytes: before and after noise, and what the first layers make of one.

    ``noisy`` has one row of images per level of noise; ``levels`` are the deviations, of pixels from 0 to 1, the first
    of which is 0. ``maps`` has, for each run by its name, the layers by their titles with what comes out of them.
    """

    levels: tuple[float, ...]
    noisy: tuple[tuple[NDArray[np.uint8], ...], ...]
    shown: NDArray[np.uint8]
    """The image of which the feature maps are."""
    maps: dict[str, dict[str, tuple[NDArray[np.uint8], ...]]]


@dataclass(frozen=True, eq=False, repr=False)
class Training(Discreet, Releases):
    """One model trained at several epsilons on the same data.

    Attributes
    ----------
    data : the name of the data set
    model : the name of the model
    target : what is predicted
    rows : how many rows were trained on, if that number is public; the number of records is private by itself
    is_public : whether the data set is a public one that is built in; then scores are exact
    runs : in the order in which they were asked for
    together : what publishing all private models costs: the values of `Spent.bound`; None if there is none
    settings : the other options, by their names
    pictures : of images of a public data set
    models : the fitted models, by the names of their runs
    charged : whether the private models were charged to a ledger
    material : what they were trained and tested on, as long as it is in memory
    options : the options of the command that trained them, for the recipe
    published : what a publication printed for this experiment: ``title``, ``notes``, ``epochs`` (a dictionary each)

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

    def beside(self) -> dict[str, str]:
        """Return ``training.json`` and the recipe of all models; how long private records took is not published."""
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
            "runs": [run.to_dict() for run in self.runs],
            "together": self.together,
            "charged": self.charged,
            "settings": self.settings,
        }


def surest(runs: Iterable[Run]) -> Scores:
    """Return the scores with the least noise: what all runs share, such as the test rows, is taken from them.

    Examples
    --------
    >>> noisy, exact = Scores(98, 0.5, 0.6, how="noisy", margin=0.1), Scores(100, 0.5, 0.61)
    >>> surest([Run(1.0, "a", {}, noisy, 2.0), Run(math.inf, "b", {}, exact, 2.0)]).rows
    100
    """
    order = ("exact", "noisy", "none")
    return min((run.scores for run in runs), key=lambda one: (order.index(one.how), one.margin), default=Scores.none())


def label_of(epsilon: float) -> str:
    """Return what a legend calls a run of this epsilon.

    Examples
    --------
    >>> label_of(0.5), label_of(math.inf)
    ('epsilon 0.5', 'no privacy')
    """
    return "no privacy" if epsilon == math.inf else f"epsilon {epsilon:g}"


def _thinned(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[tuple[float, float], ...]:
    """Return a rising curve by few points, so that no record can be read off it."""
    at = np.linspace(0, 1, _MOST_POINTS)
    heights = np.interp(at, x, y)
    return tuple((round(float(one), 4), round(float(two), 4)) for one, two in zip(at, heights, strict=True))


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value

"""The named models for tables and for images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfumato.errors import OptionError, did_you_mean

__all__ = ["IMAGE_MODELS", "TABLE_MODELS", "Model", "best_model", "model_of"]

_SMALL = 64  # pixels a side: for larger images, scattering has too many features for the noise


@dataclass(frozen=True)
class Model:
    """A named model, and its estimators."""

    name: str
    classifier: str | None = None
    regressor: str | None = None
    network: bool = False
    """Whether it is a torch network, trained in epochs."""
    images: bool = False
    """Whether it is for images only, but not a network."""
    as_network: Model | None = None
    """Another form of the model: a network, which ``views=0`` asks for."""
    private: Mapping[str, Any] = field(default_factory=dict)
    ordinary: Mapping[str, Any] = field(default_factory=dict)
    """Default parameters with and without privacy, chosen on training rows only."""

    def form(self, options: Mapping[str, Any]) -> tuple[Model, dict[str, Any]]:
        """Return the form of the model that the options ask for, and the options of its estimator.

        Examples
        --------
        >>> model, options = IMAGE_MODELS["scattering-linear"].form({"views": 0, "epochs": 5})
        >>> model.classifier, options
        ('PrivateClassifier', {'epochs': 5})
        """
        if self.as_network is None or options.get("views") != 0:
            return self, dict(options)
        return self.as_network, {name: value for name, value in options.items() if name != "views"}

    def make(self, *, regression: bool, **parameters: Any) -> Any:
        """Return a new estimator, not fitted."""
        from sfumato import learners

        kind = self.regressor if regression else self.classifier
        if kind is None and regression:
            able = ", ".join(one.name for one in TABLE_MODELS.values() if one.regressor)
            raise OptionError(
                f"the model '{self.name}' predicts classes, not numbers (--regression)",
                hint=f"models of numbers are {able}; or leave --regression out if the target has classes",
            )
        if kind is None:
            raise OptionError(
                f"the model '{self.name}' predicts numbers, not classes",
                hint="give --regression if the target is a number, or use another model",
            )
        made = getattr(learners, kind)(**parameters)
        return made.set_params(model=self.name) if self.network else made


def _network(name: str, private: Mapping[str, Any], ordinary: Mapping[str, Any]) -> Model:
    return Model(name, "PrivateClassifier", "PrivateRegressor", network=True, private=private, ordinary=ordinary)


def _images(name: str, rate: float, ordinary: float, schedule: str = "cosine") -> Model:
    common = {"batch_size": 256, "epochs": 5, "scale": _MNIST, "schedule": schedule}
    private = {**common, "clip": 1.0, "learning_rate": rate, "momentum": 0.0}
    return _network(name, private, {**common, "learning_rate": ordinary, "momentum": 0.9})


def _scattering(name: str) -> Model:
    private = {  # full batches; `networks.scattering` chooses the number of steps and the learning rate
        "batch_size": None,
        "epochs": None,
        "clip": 0.1,
        "learning_rate": None,
        "momentum": 0.9,
        "schedule": "constant",
    }
    network = _network(name, private, {"batch_size": 256, "epochs": 20, "learning_rate": 0.1, "momentum": 0.9})
    return Model(name, "PrivateScatteringClassifier", images=True, as_network=network)


_MNIST = (0.1307, 0.3081)  # the mean and the standard deviation of its pixels, which are published

TABLE_MODELS = {
    "additive": Model("additive", "PrivateAdditiveClassifier", "PrivateAdditiveRegressor"),
    "logistic": Model("logistic", "PrivateLogisticRegression"),
    "linear": Model("linear", None, "PrivateLinearRegression"),
    "forest": Model("forest", "PrivateRandomForest"),
    "tree": Model("tree", "PrivateRandomForest", private={"trees": 1}, ordinary={"trees": 1}),
    "naive-bayes": Model("naive-bayes", "PrivateNaiveBayes"),
    "mlp": _network("mlp", {}, {}),  # the defaults of the estimators
}
IMAGE_MODELS = {
    "cnn": _images("cnn", 2.0, 0.1),
    "resnet18": _images("resnet18", 1.5, 0.01, "linear"),
    "scattering-linear": _scattering("scattering-linear"),
    "mlp": _images("mlp", 1.0, 0.1),
    "logistic": _images("logistic", 2.0, 0.1),
}


def best_model(shape: Sequence[int] | None) -> str:
    """Return the model that did best in our comparisons, for images of a shape or for tables.

    Examples
    --------
    >>> best_model(None), best_model((28, 28)), best_model((3, 32, 32))
    ('additive', 'scattering-linear', 'cnn')
    """
    if shape is None:
        return "additive"
    *channels, height, width = shape
    return "scattering-linear" if channels in ([], [1]) and max(height, width) <= _SMALL else "cnn"


def model_of(name: str, *, images: bool) -> Model:
    """Return a model by name, for tables or for images.

    Examples
    --------
    >>> model_of("resnet18", images=True).network
    True
    >>> model_of("resnet", images=True)
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: there is no model 'resnet' for images (did you mean 'resnet18'?)
    """
    known = IMAGE_MODELS if images else TABLE_MODELS
    if name not in known:
        what = "images" if images else "tables"
        raise OptionError(f"there is no model '{name}' for {what}", hint=did_you_mean(name, known))
    return known[name]

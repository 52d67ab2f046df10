"""Networks as estimators: a classifier and a regressor, trained with differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sfumato.errors import ModelError
from sfumato.learners.estimators.estimator import Classifier, Regressor
from sfumato.learners.estimators.features import Feature, texts_in
from sfumato.learners.gradients.clipping import Loss
from sfumato.learners.networks.network import Network

__all__ = ["PrivateClassifier", "PrivateRegressor"]

_MISSING = 2.0  # a missing target, among targets scaled to [-1, 1]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(Network, Classifier):
    """A neural network classifier, trained with differential privacy.

    Parameters
    ----------
    model : str, torch.nn.Module or callable
        "mlp" or "logistic", for tables and images; "cnn", "resnet18" or "scattering-linear", for images; see
        `architecture`. A module is copied, and `fit` never changes it. A callable gets the inputs (the number of
        columns, or the shape of an image with its channels) and the number of classes, and returns a module. For two
        classes, a single output is enough.
    model_options : mapping, optional
        Options of a named model, for instance ``{"hidden": (50, 50)}``.
    noise_multiplier : float, optional
        The standard deviation of the noise on the sum of a batch, in clips, instead of one calibrated to epsilon.
        Epsilon is then only for undeclared bounds, domains and the number of records; ``spent_`` has the total cost.
    clip : float
        The largest norm of a record's gradient.
    batch_size : int, optional
        The average number of records per step, or of people if they are protected. None, or a number not below that of
        the records, uses all of them.
    epochs : float, optional
        How often each record is drawn on average. None is for "scattering-linear": the number of steps then follows
        from epsilon and the number of records.
    rows : int, optional
        The number of records, or of people, if it is public; it determines the sampling rate and the number of steps.
        By default it is estimated with a fiftieth of epsilon.
    learning_rate, momentum : float
        For "sgd". Adam has no momentum, and needs a learning rate of about 0.01. A learning rate of None is for
        "scattering-linear", like epochs.
    optimizer : str, Sgd or Adam
        "sgd" or "adam", or one like ``Adam(learning_rate=0.01, weight_decay=0.1)``, with its own learning rate.
    schedule : str or callable
        The learning-rate schedule: "constant", "linear", "cosine", "warm-cosine".
    averaging : float, optional
        The decay of a moving average of the weights, which then is the result; it costs no privacy.
    knots : int, optional
        The number of knots of the linear spline that encodes a number of a table: the inputs are its weights on the
        two knots around it. None, or a module of the user, encodes a number as one input from -1 to 1.
    scale : tuple, optional
        The mean and the standard deviation for normalising images: public constants, for all channels or per channel.
        Bytes are scaled to 0..1 first; other numbers are used as they are, and 0 if missing or infinite.
    trainer_options : mapping, optional
        ``noise_schedule``, ``augment`` and ``views`` of `Optimization`; ``micro_batch``, ``precision`` and ``layout``
        (the memory format) of `Speed`; ``adaptive``, an `AdaptiveClip` that starts at ``clip``; ``replace=True``, which
        replaces layers that mix samples: see `make_private`.
    device : str
        "cpu", or "cuda" where there is a GPU.
    seed : int, optional
        The seed of initial weights, augmentation and dropout, not of the noise. Without privacy it makes everything
        reproducible. Torch's own generator is not affected.
    checkpoint : path, optional
        Written after every epoch; calling the same `fit` resumes an interrupted training. Estimated bounds, domains
        and numbers of records are in a file next to it. A checkpoint belongs to one training on one set of records and
        is rejected for others, so it is not for cross-validation. A finished training is returned without a charge.
    epsilon, delta, schema, bounds, classes, ledger, insecure_seed, rows_per_person
        As for every estimator; epsilon covers estimates and training together. The ledger is charged before each
        estimate and before each epoch.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained network.
    architecture_ : Architecture or None
        The architecture of a named model.
    classes_ : array
    features_ : Features or None
        The public description of the columns; None for images.
    history_ : list of Report
        One per epoch; their epsilon includes that of the estimates. Losses and scores are computed without noise, for
        the data owner only: do not release them or act on them.
    noise_multiplier_ : float
    sampling_ : dict
        ``kind``, ``rate``, ``steps``, and the public number of ``rows``: declared or estimated.
    events_, spent_
        The events for the accountant, and their total cost.

    Notes
    -----
    If people are protected, a step draws people, and clips the mean of the gradients of a person's rows.

    The defaults are for tables of tens of thousands of records and about a hundred columns: they were chosen by
    cross-validation on the training part of Adult, for epsilon 1. For images, set a batch size and few epochs; for
    "scattering-linear", use those of `sfumato train --views 0`: ``batch_size=None, clip=0.1, schedule="constant",
    epochs=None, learning_rate=None``.

    Examples
    --------
    >>> import sfumato as sf
    >>> model = PrivateClassifier(model="logistic", epsilon=1, epochs=5).fit(sf.datasets.adult("train"), "income")
    >>> model.score(sf.datasets.adult("test"), "income") > 0.82
    True
    >>> model.spent_.epsilon <= 1
    True

    With images, and a module of your own:

    >>> digits = sf.datasets.mnist()
    >>> own = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    >>> model = PrivateClassifier(model=own, classes=range(10), epsilon=2, batch_size=500, epochs=2, learning_rate=0.5)
    >>> model.fit(digits.train_images, digits.train_labels).predict(digits.test_images).shape
    (2000,)
    """

    @property
    def _outputs(self) -> int:
        return len(self.classes_)

    @property
    def _loss(self) -> Loss:
        return _CrossEntropy(len(self.classes_))

    def _loss_target(self, target: Any) -> NDArray[Any]:
        return np.asarray(target)

    def _validation_target(self, target: pl.Series | None) -> Any:
        assert target is not None
        return Feature("target", domain=texts_in(self.classes_)).codes(target)

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return the probability of each class, in the order of ``classes_``."""
        scores = self._predictions(X)
        if scores.shape[1] == 1:
            scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
        return scores.softmax(1).numpy()


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRegressor(Network, Regressor):
    """A neural network regressor, trained with differential privacy.

    For training, the target is scaled from its public bounds to [-1, 1]; predictions, losses and scores are in its own
    units. A record without a target has no gradient.

    Parameters
    ----------
    target_bounds : tuple of two numbers, optional
        The public bounds of the target. By default those of the schema; without them, they are estimated like those of
        a column.

    Notes
    -----
    All other parameters are those of `PrivateClassifier`; the model has one output, and the default learning rate is
    0.2.

    Examples
    --------
    >>> x = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    >>> model = PrivateRegressor(epsilon=4, bounds=(-1, 1), target_bounds=(0, 100), learning_rate=0.5)
    >>> bool(model.fit(x, 50 + 40 * x[:, 0]).score(x, 50 + 40 * x[:, 0]) > 0.8)
    True
    """

    learning_rate: float | None = 0.2

    @property
    def _outputs(self) -> int:
        return 1

    @property
    def _loss(self) -> Loss:
        return _squared_error

    @property
    def _ends(self) -> tuple[float, float]:
        assert self.target_.bounds is not None
        return self.target_.bounds

    @property
    def _unit(self) -> float:
        low, high = self._ends
        return ((high - low) / 2) ** 2

    def _loss_target(self, target: Any) -> NDArray[Any]:
        low, high = self._ends
        return np.nan_to_num((target - low) * (2 / (high - low)) - 1, nan=_MISSING).astype(np.float32)

    def _validation_target(self, target: pl.Series | None) -> Any:
        assert target is not None
        return self.target_.numbers(target)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the prediction for each record, within the bounds of the target."""
        scaled, (low, high) = self._predictions(X).numpy()[:, 0], self._ends
        return np.clip(low + (scaled + 1) * ((high - low) / 2), low, high)


@dataclass(frozen=True)
class _CrossEntropy:
    """The cross-entropy of every sample; 0 for a sample of no known class, which then has no gradient."""

    classes: int

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        rows = outputs.reshape(len(targets), -1)
        if rows.shape[1] == 1 and self.classes == 2:
            known = targets < self.classes
            wanted = (targets == 1).to(rows.dtype)
            return functional.binary_cross_entropy_with_logits(rows[:, 0], wanted, reduction="none") * known
        if rows.shape[1] != self.classes:
            raise ModelError(f"the model must have one output per class, {self.classes}, got {rows.shape[1]}")
        return functional.cross_entropy(rows, targets, ignore_index=self.classes, reduction="none")


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error of every sample; 0 where the target is missing."""
    rows = outputs.reshape(len(targets), -1)
    if rows.shape[1] != 1:
        raise ModelError(f"the model of a regression must have one output, got {rows.shape[1]}")
    return (rows[:, 0] - targets).square() * (targets < (1 + _MISSING) / 2)

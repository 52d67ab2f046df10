"""A published study of auto-encoders for synthetic images, again: what it did beside what it intended.

It trained an auto-encoder without privacy, added noise to the finished weights, and measured how well a classifier
learns from the images that come out, before and after. It intended private auto-encoders with a mixture of codes by
DP-EM. Both are run here on the same public images, with the same classifier.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sfumato.budget.accounting.accountant import check_delta
from sfumato.budget.noise import Source
from sfumato.data import datasets
from sfumato.data.validate import real, whole
from sfumato.errors import OptionError, did_you_mean, require_extra
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers.images.base import Bytes, Canvas, ImageRecords, Ints, Progress
from sfumato.synthesizers.images.catalogue import image_method_of
from sfumato.synthesizers.images.noisy_weights import train_openly
from sfumato.synthesizers.plan import multiplier

__all__ = ["Outcome", "Study", "classify", "run_study"]

_LAYERS = (512, 256, 128, 64)  # of the study's classifier
_BATCH = 128
_WEIGHTS, _CLASSIFIER = 0.1, 0.05  # the study's noise in finished weights
_METHODS = ("auto-encoder", "variational")


@dataclass(frozen=True)
class Outcome:
    """The accuracy of the classifier that learned from some images."""

    trained_on: str
    tested_on: str
    epsilon: float | None
    """None if the images are not private."""
    accuracy: float
    published: float | None
    """The accuracy that the study printed."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain values."""
        return dict(vars(self))


@dataclass(frozen=True)
class Study:
    """All outcomes, and how they came about."""

    outcomes: tuple[Outcome, ...]
    settings: Mapping[str, Any]
    title: str = ""
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return the study as plain values."""
        return {
            "title": self.title,
            "settings": dict(self.settings),
            "outcomes": [one.to_dict() for one in self.outcomes],
            "notes": list(self.notes),
        }


def classify(
    images: Bytes,
    labels: Ints,
    tests: Sequence[tuple[Bytes, Ints]],
    classes: int,
    *,
    epochs: int,
    deviation: float = 0.0,
    seed: int = 0,
) -> list[float]:
    """Return the accuracy of the study's classifier on each set of test images.

    It has five dense layers and no activations between them, so it is linear. Adam, cross-entropy, batches of 128.

    Parameters
    ----------
    images, labels : array
        What it learns from.
    tests : sequence of (images, labels)
    classes, epochs : int
    deviation : float
        The standard deviation of noise in its finished weights.
    seed : int

    Examples
    --------
    >>> images = np.zeros((200, 2, 2, 1), np.uint8)
    >>> images[100:] = 255
    >>> labels = np.repeat([0, 1], 100)
    >>> classify(images, labels, [(images[::50], labels[::50])], 2, epochs=5)
    [1.0]
    """
    import torch
    from torch import nn

    pixels = math.prod(images.shape[1:])
    inputs, wanted = torch.from_numpy(images.reshape(len(images), pixels)), torch.from_numpy(labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = [pixels, *_LAYERS, classes]
        network = nn.Sequential(*(nn.Linear(one, other) for one, other in itertools.pairwise(sizes)))
        rule = torch.optim.Adam(network.parameters())
        for _ in range(epochs):
            for at in torch.split(torch.randperm(len(inputs)), _BATCH):
                rule.zero_grad()
                loss = nn.functional.cross_entropy(network(inputs[at].float() / 255), wanted[at])
                loss.backward()  # type: ignore[no-untyped-call]
                rule.step()
        with torch.no_grad():
            for one in network.parameters():
                one.add_(torch.randn_like(one), alpha=deviation)
            found = [
                network(torch.from_numpy(shown.reshape(len(shown), pixels)).float() / 255).argmax(dim=1).numpy()
                == right
                for shown, right in tests
            ]
    return [float(one.mean()) for one in found]


def run_study(
    *,
    data: str = "mnist",
    full: bool = False,
    epsilon: float | Sequence[float] = (1.0, 10.0),
    delta: float = 1e-5,
    methods: Sequence[str] = _METHODS,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    epochs: int = 10,
    samples: int | None = None,
    seed: int = 0,
    insecure_seed: int | None = None,
    published: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    watch: Callable[[Outcome], None] | None = None,
) -> Study:
    """Run the study on public images.

    Parameters
    ----------
    data : str
        "mnist": the images must be public, because most outcomes are not private.
    full : bool
        All 60,000 images for training and 10,000 for testing.
    epsilon : number or list
        Of the private auto-encoders; every row has its own.
    delta : float
    methods : list of str
        "auto-encoder", "variational", or both.
    parameters : mapping, optional
        Those of each method, by its name.
    epochs : int
        Of the auto-encoder without privacy. The classifier has half as many, as in the study, which had 100.
    samples : int, optional
        Use only the first images, for training and for testing.
    seed, insecure_seed : int, optional
        Of everything but the noise, and of the noise, which is then not private.
    published : mapping, optional
        The study's ``title`` and ``notes``, and its accuracy ``before`` and ``after`` noise, in percent.
    progress, watch : callable, optional
        Called with the share that is done, and with each outcome.

    Examples
    --------
    >>> tiny = {"auto-encoder": {"steps": 2, "hidden": 4, "width": 2}}
    >>> study = run_study(epochs=1, samples=200, epsilon=1, methods=["auto-encoder"], parameters=tiny)
    >>> [(one.trained_on, one.epsilon) for one in study.outcomes][-1]
    ('auto-encoder', 1.0)
    """
    require_extra("torch", "torch", "the auto-encoder")
    if data != "mnist":
        raise OptionError(f"the study runs on mnist, which is public, got '{str(data)[:40]}'")
    whole("the number of epochs", epochs)
    check_delta(delta)
    costs = [real("epsilon", one, above=0) for one in ([epsilon] if isinstance(epsilon, int | float) else epsilon)]
    for name in methods:
        if name not in _METHODS:
            raise OptionError(f"the study has no method '{str(name)[:40]}'", hint=did_you_mean(str(name), _METHODS))
    made = [image_method_of(name, (parameters or {}).get(name)) for name in methods]
    digits = datasets.mnist(full=full)
    some = slice(samples)
    images, labels = digits.train_images[some, :, :, None], digits.train_labels[some].astype(np.int64)
    tests, truth = digits.test_images[some, :, :, None], digits.test_labels[some].astype(np.int64)
    canvas = Canvas(28, 28, 1, 10)
    records, half = ImageRecords(images, labels, canvas), max(1, round(epochs / 2))
    printed = dict(published or {})
    before, after = (_share(printed, name) for name in ("before", "after"))
    report = _Course(watch, progress, 5 + len(costs) * len(made))

    def learned(shown: Bytes, known: Ints, *tests: tuple[Bytes, Ints], deviation: float = 0.0) -> list[float]:
        return classify(shown, known, tests, canvas.classes, epochs=half, deviation=deviation, seed=seed)

    real_test = (tests, truth)
    report("real images", "real images", None, learned(images, labels, real_test)[0])
    noisy = learned(images, labels, real_test, deviation=_CLASSIFIER)[0]
    report("real images", f"real images, noise of {_CLASSIFIER:g} in the classifier", None, noisy)
    networks = train_openly(images, epochs=epochs, seed=seed)
    through = learned(networks.through(images), labels, (networks.through(tests), truth))
    report("an auto-encoder, before noise", "images through the auto-encoder", None, through[0], before)
    noised = networks.with_noise(_WEIGHTS, np.random.default_rng(seed))
    own, alone = learned(noised.through(images), labels, (noised.through(tests), truth), real_test)
    name = f"an auto-encoder, noise of {_WEIGHTS:g} in its weights"
    report(name, "images through the noisy auto-encoder", None, own, after)
    report(name, "real images", None, alone)
    for method in made:
        shares = method.shares(canvas)
        for cost in costs:
            sums = NoisySums(shares, multiplier([], shares, cost, delta), Source(insecure_seed=insecure_seed))
            rng = np.random.default_rng(seed)
            drawn, classes = method.learn(records, sums, rng).sample(len(labels), rng)
            report(method.name, "real images", cost, learned(drawn, classes, real_test)[0])
    settings = {
        "data": data,
        "images for training": len(labels),
        "images for testing": len(truth),
        "epochs of the auto-encoder without privacy": epochs,
        "epochs of the classifier": half,
        "delta": delta,
        "seed": seed,
    }
    return Study(tuple(report.outcomes), settings, str(printed.get("title", "")), tuple(printed.get("notes", ())))


class _Course:
    """Collects the outcomes, and tells how far the study is."""

    def __init__(self, watch: Callable[[Outcome], None] | None, progress: Progress | None, steps: int) -> None:
        self.outcomes: list[Outcome] = []
        self._watch, self._progress, self._steps = watch, progress, steps
        self._began = time.monotonic()

    def __call__(
        self, trained_on: str, tested_on: str, epsilon: float | None, accuracy: float, published: float | None = None
    ) -> None:
        now = time.monotonic()
        one = Outcome(trained_on, tested_on, epsilon, accuracy, published, now - self._began)
        self._began = now
        self.outcomes.append(one)
        if self._watch is not None:
            self._watch(one)
        if self._progress is not None:
            self._progress(min(1.0, len(self.outcomes) / self._steps))


def _share(published: Mapping[str, Any], name: str) -> float | None:
    """Return an accuracy that was printed in percent."""
    found = published.get(name)
    return None if found is None else real(f"the published accuracy '{name}'", found, least=0, most=100) / 100

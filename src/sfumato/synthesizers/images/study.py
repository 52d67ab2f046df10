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
from sfumato.synthesizers.images.base import Bytes, Canvas, ImageRecords, ImageSynthesizer, Ints, Progress
from sfumato.synthesizers.images.catalogue import image_method_of
from sfumato.synthesizers.images.noisy_weights import train_openly
from sfumato.synthesizers.plan import multiplier

__all__ = ["Outcome", "Study", "classify", "run_study"]

_LAYERS = (512, 256, 128, 64)  # of the study's classifier
_BATCH = 32
_WEIGHTS, _CLASSIFIER = 0.1, 0.05  # the study's noise in finished weights
_METHODS = ("auto-encoder", "variational")
_SHOWN = 2  # images of each class on the page


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
    pictures: Mapping[str, Bytes] = field(default_factory=dict, repr=False)
    """A few images of each set that a classifier learned from, by its name; all are public or not private anyway."""
    title: str = ""
    notes: tuple[str, ...] = ()

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

    It has five dense layers and no activations between them, so it is linear. Adam, cross-entropy, batches of 32.

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
    whole("the seed", seed, least=0)
    if samples is not None:
        whole("the number of samples", samples)
    check_delta(delta)
    costs = [real("epsilon", one, above=0) for one in (epsilon if isinstance(epsilon, list | tuple) else [epsilon])]
    printed = _published(published)
    made = _methods(methods, parameters)
    digits = datasets.mnist(full=full)
    some = slice(samples)
    images, labels = digits.train_images[some, :, :, None], digits.train_labels[some].astype(np.int64)
    tests, truth = digits.test_images[some, :, :, None], digits.test_labels[some].astype(np.int64)
    canvas = Canvas(28, 28, 1, 10)
    records, half = ImageRecords(images, labels, canvas), max(1, round(epochs / 2))
    shown = _few_of_each(labels, canvas.classes)
    pictures = {"real images": images[shown]}
    report = _Course(watch, progress, 5 + len(costs) * len(made))

    def learned(shown: Bytes, known: Ints, *tests: tuple[Bytes, Ints], deviation: float = 0.0) -> list[float]:
        return classify(shown, known, tests, canvas.classes, epochs=half, deviation=deviation, seed=seed)

    real_test = (tests, truth)
    report("real images", "real images", None, learned(images, labels, real_test)[0])
    noisy = learned(images, labels, real_test, deviation=_CLASSIFIER)[0]
    report("real images", f"real images, noise of {_CLASSIFIER:g} in the classifier", None, noisy)
    networks = train_openly(images, epochs=epochs, seed=seed)
    through = learned(networks.through(images), labels, (networks.through(tests), truth))
    report("an auto-encoder, before noise", "images through the auto-encoder", None, through[0], printed.before)
    pictures["an auto-encoder, before noise"] = networks.through(images[shown])
    noised = networks.with_noise(_WEIGHTS, np.random.default_rng(seed))
    own, alone = learned(noised.through(images), labels, (noised.through(tests), truth), real_test)
    name = f"an auto-encoder, noise of {_WEIGHTS:g} in its weights"
    report(name, "images through the noisy auto-encoder", None, own, printed.after)
    pictures[name] = noised.through(images[shown])
    report(name, "real images", None, alone)
    for method in made:
        shares = method.shares(canvas)
        for cost in costs:
            sums = NoisySums(shares, multiplier([], shares, cost, delta), Source(insecure_seed=insecure_seed))
            rng = np.random.default_rng(seed)
            drawn, classes = method.learn(records, sums, rng).sample(len(labels), rng)
            report(method.name, "real images", cost, learned(drawn, classes, real_test)[0])
            pictures[f"{method.name}, epsilon {cost:g}"] = drawn[_few_of_each(classes, canvas.classes)]
    settings = {
        "data": data,
        "images for training": len(labels),
        "images for testing": len(truth),
        "epochs of the auto-encoder without privacy": epochs,
        "epochs of the classifier": half,
        "delta": delta,
        "seed": seed,
    }
    return Study(tuple(report.outcomes), settings, pictures, printed.title, printed.notes)


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


def _few_of_each(labels: Ints, classes: int) -> Ints:
    """Return the positions of the first images of each class, one class after the other, twice."""
    found = [np.flatnonzero(labels == one)[:_SHOWN] for one in range(classes)]
    return np.array([own[at] for at in range(_SHOWN) for own in found if at < len(own)], dtype=np.int64)


@dataclass(frozen=True)
class _Printed:
    """What the study printed."""

    title: str = ""
    notes: tuple[str, ...] = ()
    before: float | None = None
    after: float | None = None


def _published(given: Mapping[str, Any] | None) -> _Printed:
    """Return what a recipe says of the study; accuracies are in percent there."""
    plain = dict(given or {})
    if strange := sorted(plain.keys() - {"title", "notes", "before", "after"}):
        raise OptionError(f"what the study published has an unknown entry '{strange[0][:40]}'")
    title, notes = plain.get("title", ""), plain.get("notes", [])
    if not isinstance(title, str) or not isinstance(notes, list) or not all(isinstance(one, str) for one in notes):
        raise OptionError("the title of the published study must be a text, and its notes a list of texts")
    shares = {
        name: real(f"the published accuracy '{name}'", plain[name], least=0, most=100) / 100
        for name in ("before", "after")
        if name in plain
    }
    return _Printed(title, tuple(notes), **shares)


def _methods(names: Any, parameters: Any) -> list[ImageSynthesizer]:
    """Return the private methods that are compared."""
    given, stated = [names] if isinstance(names, str) else list(names), dict(parameters or {})
    for name in (*given, *stated):
        if name not in _METHODS:
            raise OptionError(f"the study has no method '{str(name)[:40]}'", hint=did_you_mean(str(name), _METHODS))
    if not all(isinstance(one, Mapping) for one in stated.values()):
        raise OptionError("the parameters of a method must be a table of names and values")
    return [image_method_of(name, stated.get(name)) for name in given]

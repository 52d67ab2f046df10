"""Evaluate synthetic images: what models learn from them, how far they are from real ones, whether they copy any.

All figures compare synthetic images with real ones, without noise. They are for the owner of the data: published beside
a differentially private release, they are not covered by its guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from sfumato.attacks.statistics import clopper_pearson
from sfumato.data.validate import whole
from sfumato.errors import OptionError, did_you_mean
from sfumato.frontier.images.copies import Copies, copies_of, nearest
from sfumato.frontier.images.evaluation import ImageEvaluation, ImageFigures, ImageSamples, Score
from sfumato.frontier.images.sets import held_out_of, of_one_size, real_images, synthetic_sets
from sfumato.frontier.images.students import Exam, Student, students_for, train_student
from sfumato.learners.images.teacher import as_tensor
from sfumato.learners.networks.scattering import scattering
from sfumato.measures.loss.frechet import frechet_distance
from sfumato.synthesizers.images.base import Canvas, ImageRecords

__all__ = ["evaluate_images"]

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

_FEWEST_SEEN, _MOST_SEEN = 10_000, 100_000  # images that a model sees while it learns
_MOST_TESTED = 10_000  # test images
_MOST_FEATURES = 5000  # images of which features are compared
_MOST_COMPARED = 2000  # synthetic and held-out images that are compared with all training images
_MOST_TRAINING = 60_000  # training images that they are compared with
_MOST_PIXELS = 2**28  # of these training images together
_MOST_JUDGED = 5000  # synthetic images whose labels are compared
_AT_ONCE = 1000  # images whose features are computed at a time
_FEWEST = 20  # images of a class whose features are compared
_SHOWN = 24  # images of each class on a page
_PAIRS = 12  # synthetic images on a page beside their nearest real ones
_NO_TEST = "there are no test images: real images that the synthetic ones were not made from"
_NOT_ASKED = "none is asked for"


def evaluate_images(
    real: Any,
    synthetic: Any,
    *,
    test: Any = None,
    models: Sequence[str] | None = None,
    seen: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Callable[[float], None] | None = None,
) -> ImageEvaluation:
    """Measure what synthetic images are good for, how far they are from real ones, and whether they copy any.

    The figures are exact, so they are for the owner of the data: the guarantee of a release does not cover them.

    Parameters
    ----------
    real : Images, path, "mnist", or arrays of images and labels
        The images that the synthetic ones were made from.
    synthetic : Release, its folder, Images, path, arrays of images and labels, or mapping of names to these
        Of a generator, every style is a set of its own.
    test : Images, path, or arrays of images and labels, optional
        Real images that the synthetic ones were not made from; by default the test images of ``real``. Without them no
        model is trained, and copies are not looked for.
    models : sequence of str, optional
        Some of ``cnn`` (``mlp`` for images below 14 pixels a side) and ``scattering-linear``; both by default.
    seen : int, optional
        How many images each model sees while it learns: of a smaller set, each is seen more often. By default 20 times
        as many as the largest set has, and from 10,000 to 100,000.
    seed : int
        Of the networks and of all samples; the same seed gives the same figures.
    device : str
        Where networks learn: "cpu" or "cuda".
    progress : callable, optional
        Called with the share of the work that is done.

    Examples
    --------
    >>> import sfumato as sf
    >>> digits = sf.datasets.mnist()
    >>> real, others = digits.train_images[:600], digits.train_images[600:1200]
    >>> labels, their_labels = digits.train_labels[:600], digits.train_labels[600:1200]
    >>> test = digits.test_images[:300], digits.test_labels[:300]
    >>> found = evaluate_images((real, labels), (others, their_labels), test=test, models=["cnn"], seen=2000)
    >>> found.leaks, found.sets[0].distance < 0.2
    (False, True)
    >>> copied = evaluate_images((real, labels), (real, labels), test=test, models=[])
    >>> copied.leaks, copied.sets[0].copies.identical
    (True, 600)
    """
    whole("the seed", seed, least=0, most=2**31 - 1)
    if seen is not None:
        whole("the number of images that a model sees", seen)
    report, rng = progress or (lambda share: None), np.random.default_rng(seed)
    given = real_images(real)
    held = real_images(test) if test is not None else held_out_of(given)
    made = synthetic_sets(synthetic, seed)
    train, *sets = of_one_size(given, held, made)
    tested = _some(sets.pop(), _MOST_TESTED, rng) if held is not None else None
    exam = None if tested is None else Exam(tested)
    seen = seen or min(_MOST_SEEN, max(_FEWEST_SEEN, 20 * max(len(one.labels) for one in (train, *sets))))
    names, why_not = _models(train.canvas, models, tested)
    distances = _Distances(train, tested, sets, rng)
    report(0.1)
    real_scores, judge = _scores(names, train, exam, seen, seed, device, _within(report, 0.1, 0.3))
    figures = []
    for at, (one, records) in enumerate(zip(made, sets, strict=True)):
        begun, part = 0.4 + 0.6 * at / len(sets), 0.6 / len(sets)
        scores, _ = _scores(names, records, exam, seen, seed, device, _within(report, begun, 0.7 * part))
        agreed = None if judge is None else _agreement(judge, records, rng)
        copies, samples = _samples(records, train, tested, rng)
        distance, by_class = distances.of(at)
        figures.append(
            ImageFigures(
                name=one.name,
                images=len(records.labels),
                epsilon=one.epsilon,
                scores=scores,
                distance=distance,
                distance_by_class=by_class,
                agreement=None if agreed is None else agreed[0],
                agreement_interval=None if agreed is None else agreed[1],
                copies=copies,
                samples=samples,
            )
        )
        report(begun + part)
    floor = None if tested is None else distances.of(len(sets))
    skipped = {"models": why_not, "copies": _NO_TEST if tested is None else None}
    return ImageEvaluation(
        canvas=train.canvas,
        images={"real": len(train.labels), "test": 0 if tested is None else len(tested.labels)},
        real=real_scores,
        test_distance=None if floor is None else floor[0],
        test_distance_by_class=None if floor is None else floor[1],
        sets=tuple(figures),
        compared=distances.count,
        skipped={part: why for part, why in skipped.items() if why is not None},
        seed=seed,
        samples=ImageSamples(by_class=_by_class(train, rng)),
    )


def _models(
    canvas: Canvas, asked: Sequence[str] | None, tested: ImageRecords | None
) -> tuple[tuple[str, ...], str | None]:
    """Return the models to train, or why there are none."""
    known = students_for(canvas)
    for name in asked or ():
        if name not in known:
            raise OptionError(f"there is no model '{name}' for such images", hint=did_you_mean(str(name), known))
    if tested is None:
        return (), _NO_TEST
    if asked is not None and not asked:
        return (), _NOT_ASKED
    return tuple(known if asked is None else dict.fromkeys(asked)), None


def _scores(
    names: Sequence[str],
    records: ImageRecords,
    exam: Exam | None,
    seen: int,
    seed: int,
    device: str,
    report: Callable[[float], None],
) -> tuple[tuple[Score, ...], Student | None]:
    """Return how models do that learn from these images, and the first of them."""
    scores, first = [], None
    for at, name in enumerate(names):
        assert exam is not None
        shown = _within(report, at / len(names), 1 / len(names))
        student = train_student(name, records, seen=seen, seed=seed, device=device, progress=shown)
        scores.append(exam.score(student, len(records.labels)))
        first = first or student
    return tuple(scores), first


def _within(report: Callable[[float], None], start: float, length: float) -> Callable[[float], None]:
    """Return the progress of a part of the work."""
    return lambda share: report(start + length * share)


def _agreement(judge: Student, records: ImageRecords, rng: np.random.Generator) -> tuple[float, tuple[float, float]]:
    """Return the share of labels that a model agrees with, and its interval."""
    some = _some(records, _MOST_JUDGED, rng)
    right, count = int((judge.predict(some.images) == some.labels).sum()), len(some.labels)
    interval = clopper_pearson(right, count)
    return right / count, (interval.low, interval.high)


# --- distances of features ------------------------------------------------------------------------


class _Distances:
    """The Fréchet distances of sets of images from real ones, all measured with equally many images.

    The features are scattering coefficients (`learners.networks.scattering`), averaged over the quarters of an image.
    They are scaled so that the features of real images have a total variance of 1.
    """

    def __init__(
        self, real: ImageRecords, tested: ImageRecords | None, sets: Sequence[ImageRecords], rng: np.random.Generator
    ) -> None:
        every = [real, *sets, *([] if tested is None else [tested])]
        self.count = min(_MOST_FEATURES, *(len(one.labels) for one in every))
        chosen = [_some(one, self.count, rng) for one in every]
        self.labels = [one.labels for one in chosen]
        features = [_features(one.images) for one in chosen]
        spread = math.sqrt(float(features[0].var(axis=0).sum())) or 1.0
        self.features = [one / spread for one in features]
        self.classes = real.canvas.classes

    def of(self, at: int) -> tuple[float, tuple[float | None, ...]]:
        """Return the distance of a set from the real images, and that of each class."""
        every = frechet_distance(self.features[0], self.features[1 + at])
        return every, tuple(self._within(1 + at, label) for label in range(self.classes))

    def _within(self, at: int, label: int) -> float | None:
        counts = [int((labels == label).sum()) for labels in self.labels]
        if min(counts[0], counts[at]) < _FEWEST:
            return None
        fewest = min(count for count in counts if count >= _FEWEST)
        real, made = (self.features[one][self.labels[one] == label][:fewest] for one in (0, at))
        return frechet_distance(real, made)


def _features(images: Bytes) -> Floats:
    found = []
    for start in range(0, len(images), _AT_ONCE):
        pixels = as_tensor(images[start : start + _AT_ONCE])
        pooled = [functional.adaptive_avg_pool2d(scattering(pixels[:, one]), 2) for one in range(pixels.shape[1])]
        found.append(torch.cat(pooled, dim=1).flatten(1).double().numpy())
    return np.concatenate(found)


# --- copies, and images for the page --------------------------------------------------------------


def _samples(
    records: ImageRecords, train: ImageRecords, tested: ImageRecords | None, rng: np.random.Generator
) -> tuple[Copies | None, ImageSamples]:
    """Return whether a set copies training images, some of its images, and those that are nearest to real ones."""
    most = max(2, min(_MOST_TRAINING, _MOST_PIXELS // math.prod(train.canvas.shape)))
    made, real = _some(records, _MOST_COMPARED, rng).images, _some(train, most, rng).images
    copies, distances = None, None
    if tested is None:
        ours = nearest(made, real)
    else:
        held = _some(tested, _MOST_COMPARED, rng).images
        copies, ours, theirs = copies_of(real, made, held, rng)
        distances = ours.distances, theirs.distances

    def pairs(places: NDArray[np.int64]) -> tuple[Bytes, Bytes, Floats]:
        return made[places], real[ours.places[places]], ours.distances[places]

    return copies, ImageSamples(
        by_class=_by_class(records, rng),
        nearest=pairs(np.argsort(ours.distances, kind="stable")[:_PAIRS]),
        some=pairs(np.arange(min(_PAIRS, len(made)))),
        distances=distances,
    )


def _by_class(records: ImageRecords, rng: np.random.Generator) -> tuple[Bytes, ...]:
    found = []
    for label in range(records.canvas.classes):
        places = np.flatnonzero(records.labels == label)
        found.append(records.images[rng.permutation(places)[:_SHOWN]])
    return tuple(found)


def _some(records: ImageRecords, most: int, rng: np.random.Generator) -> ImageRecords:
    """Return records in a random order, at most so many."""
    places = rng.permutation(len(records.labels))[:most]
    return ImageRecords(records.images[places], records.labels[places], records.canvas)

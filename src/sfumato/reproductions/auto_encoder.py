"""Auto-encoders for synthetic digits: noise in finished weights, beside the private design that was intended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.reproductions.values import Experiment, Fact, Figure, Pictures, Row

__all__ = ["EXPERIMENT", "Settings"]

_UNBOUNDED = "nothing bounds how far one image moves the weights"
_SMALL = "too small a run to compare"
_NOISY = "an auto-encoder, noise of 0.1 in its weights"


@dataclass(frozen=True)
class Settings:
    """How much is trained."""

    full: bool = True
    samples: int | None = None
    epochs: int = 100
    """Of the auto-encoder; the classifier has half as many."""
    epsilons: tuple[float, ...] = (1.0, 10.0)
    clusters: bool = True
    """Also the private auto-encoders of clusters that noisy k-means finds."""
    steps: int | None = None
    """Of the private auto-encoders; None for their own default."""


def run(settings: Settings) -> Iterator[Row | Figure]:
    """Run the study as it was, then as it was intended."""
    from sfumato.data import datasets
    from sfumato.synthesizers.images.noisy_weights import train_openly
    from sfumato.synthesizers.images.study import run_study

    whole = settings == Settings()
    digits = datasets.mnist(full=settings.full)
    images = digits.train_images[: settings.samples, :, :, None]
    decoded = train_openly(images, epochs=settings.epochs, seed=0).through(images)
    loss = float(np.square((images.astype(np.float64) - decoded) / 255).mean())
    note = "mean squared error of training images; weights begin as in torch, not as in Keras"
    yield EXPERIMENT.compared("loss", loss, note, larger=False, comparable=whole)
    study = run_study(
        full=settings.full,
        samples=settings.samples,
        epochs=settings.epochs,
        epsilon=settings.epsilons,
        methods=["auto-encoder"] if settings.epsilons else [],
        parameters=_parameters(settings.steps),
    )
    found = {(one.trained_on, one.tested_on, one.epsilon): one.accuracy for one in study.outcomes}
    before = found["an auto-encoder, before noise", "images through the auto-encoder", None]
    after = found[_NOISY, "images through the noisy auto-encoder", None]
    alone = found[_NOISY, "real images", None]
    in_classifier = found["real images", "real images, noise of 0.05 in the classifier", None]
    linear = "the classifier has no activations, so it is linear, and real images give it no more than "
    best = max(one for (_, _, epsilon), one in found.items() if epsilon is None)
    yield EXPERIMENT.compared("before", before, f"{linear}{best:.3f} here", comparable=whole)
    note = f"tested on images through the same noisy auto-encoder; on real images it is {alone:.3f}"
    yield EXPERIMENT.compared("after", after, note, comparable=whole)
    note = f"{_UNBOUNDED}; with this noise, {in_classifier:.3f} of real images are classified right"
    yield EXPERIMENT.row("classifier", "infinite", "refuted", note)
    yield EXPERIMENT.row("private", "infinite", "refuted", _certified(images, digits.train_labels))
    private = {epsilon: one for (name, _, epsilon), one in found.items() if name == "auto-encoder" and epsilon}
    if private:
        told = ", ".join(f"{one:.3f} at epsilon {epsilon:g}" for epsilon, one in sorted(private.items()))
        yield EXPERIMENT.row(
            "intended",
            told,
            "built",
            "the classifier of the study, trained on images drawn from private auto-encoders, tested on real ones",
        )
    if settings.clusters:
        yield _clustered(settings)
    for name, some in study.pictures.items():
        yield Pictures(name, list(some[..., 0]), 10)


def _certified(images: Any, labels: Any) -> str:
    """Return what the certificate of such a release says."""
    import sfumato as sf

    some = sf.datasets.Images.of(images[:200, :, :, 0], labels[:200], classes=10)
    release = sf.synthesize(some, method="noisy-weights", rows=10)
    return f"{_UNBOUNDED}; our certificate: {_guarantee(release)}"


def _guarantee(release: Any) -> str:
    return ", ".join(map(str, release.guarantees)) or "nothing is guaranteed"


def _clustered(settings: Settings) -> Row:
    import sfumato as sf
    from sfumato.synthesizers.images.study import classify

    digits = sf.datasets.mnist(full=settings.full)
    images, labels = digits.train_images[: settings.samples], digits.train_labels[: settings.samples]
    some = sf.datasets.Images.of(images, labels, classes=10)
    options = _parameters(settings.steps).get("auto-encoder", {})
    epsilon = max(settings.epsilons, default=10.0)
    from sfumato.synthesizers import AutoEncoderImages

    method = AutoEncoderImages(**options, groups="clusters")
    release = sf.synthesize(some, epsilon=epsilon, delta=1e-5, method=method, rows=len(labels))
    tests = (
        digits.test_images[: settings.samples, :, :, None],
        digits.test_labels[: settings.samples].astype(np.int64),
    )
    drawn = np.asarray(release.images)
    shape = (*drawn.shape[:3], 1)
    (accuracy,) = classify(
        drawn.reshape(shape),
        np.asarray(release.labels).astype(np.int64),
        [tests],
        10,
        epochs=max(1, settings.epochs // 2),
    )
    return EXPERIMENT.row(
        "clusters", accuracy, "built", f"groups by noisy k-means, epsilon {epsilon:g}, everything paid for"
    )


def _parameters(steps: int | None) -> dict[str, dict[str, Any]]:
    return {} if steps is None else {"auto-encoder": {"steps": steps, "rounds": 1, "components": 2}}


EXPERIMENT = Experiment(
    name="private-auto-encoder",
    title="Auto-encoders for synthetic digits",
    source='"Variational Auto-Encoder for Data Privacy": MNIST, a dense auto-encoder 784-64-784, noise in its weights',
    facts={
        "loss": Fact("loss of the auto-encoder after 100 epochs", 0.0036, 0.0005),
        "before": Fact("accuracy of the classifier on data before noise", 0.936, 0.01),
        "after": Fact("accuracy of the classifier on data after noise", 0.7627, 0.02),
        "classifier": Fact("noise of 0.05 in the finished classifier: epsilon", "called differentially private"),
        "private": Fact("noise of 0.1 in the finished auto-encoder: epsilon", "called differentially private"),
        "intended": Fact("an auto-encoder for each label, DP-EM, new images", "the intended design"),
        "clusters": Fact("groups by k-means in the place of labels", "the intended design"),
    },
    full=Settings(),
    quick=Settings(full=False, samples=1000, epochs=4, epsilons=(10.0,), steps=20),
    run=run,
    needs="all of MNIST, which is downloaded or read from SFUMATO_DATA, and about an hour",
    extra="torch",
)

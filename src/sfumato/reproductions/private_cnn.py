"""A small convolutional network on MNIST, private and ordinary, and the epsilon that was printed for it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sfumato.budget.accounting.accountant import spent
from sfumato.budget.events import Gaussian, PoissonSampled, Repeated, Shuffled
from sfumato.reproductions.studies import study
from sfumato.reproductions.values import Curves, Experiment, Fact, Figure, Pictures, Row

__all__ = ["EXPERIMENT", "Settings"]

_SIGMA, _BATCH, _ROWS, _DELTA = 1.2, 64, 60_000, 1e-5
_STEPS = math.ceil(_ROWS / _BATCH)  # in an epoch
_PRINTED = {  # epoch: loss of the ordinary network, of the private one, epsilon
    1: (0.312060, 1.164523, 0.68),
    2: (0.075240, 0.572431, 0.69),
    3: (0.053376, 0.542119, 0.71),
    4: (0.042650, 0.507823, 0.72),
    5: (0.034689, 0.474783, 0.73),
    6: (0.030651, 0.451766, 0.75),
    7: (0.027995, 0.442711, 0.76),
    8: (0.023730, 0.419686, 0.78),
    9: (0.020594, 0.398222, 0.79),
}
_WITHIN = 0.1  # of the printed loss, relative
_SMALL = "too small a run to compare"
_TAKEN = {
    "ordinary": "one run; the mean over the samples of the epoch",
    "private": "one run; the mean over the samples drawn in the epoch, with Poisson samples, not shuffled batches",
}


@dataclass(frozen=True)
class Settings:
    """How much is trained; all else is in the recipe ``private-cnn``."""

    full: bool = True
    samples: int | None = None
    epochs: int = 9


def run(settings: Settings) -> Iterator[Row | Figure]:
    """Account for the printed run exactly, then train both networks."""
    yield from _accounted()
    if settings.epochs:
        yield from _trained(settings)


def _accounted() -> Iterator[Row | Figure]:
    lines: dict[str, list[tuple[float, float]]] = {"printed": [], "provable, shuffled": [], "provable, Poisson": []}
    for epoch, (_, _, printed) in _PRINTED.items():
        shuffled, poisson = _epsilons(_SIGMA, epoch)
        yield EXPERIMENT.row(
            f"epsilon-{epoch}",
            _written(shuffled, poisson),
            "refuted" if printed < shuffled else "differs",
            "the batches were shuffled, for which only the first can be proved; Poisson samples would have had the "
            f"second. With a noise multiplier of 1.0, as in another listing: {_written(*_epsilons(1.0, epoch))}",
        )
        for name, value in zip(lines, (printed, shuffled, poisson), strict=True):
            lines[name].append((epoch, value))
    yield Curves("Epsilon after each epoch", "epoch", "epsilon", lines)


def _epsilons(sigma: float, epochs: int) -> tuple[float, float]:
    """Return the provable epsilon of shuffled batches, and that of Poisson samples."""
    shuffled = Repeated(Shuffled(_STEPS, Gaussian(sigma)), epochs)
    poisson = Repeated(PoissonSampled(_BATCH / _ROWS, Gaussian(sigma)), epochs * _STEPS)
    return spent(shuffled, _DELTA).epsilon, spent(poisson, _DELTA).epsilon


def _written(shuffled: float, poisson: float) -> str:
    return f"{shuffled:.2f} shuffled; {poisson:.3f} Poisson"


def _trained(settings: Settings) -> Iterator[Row | Figure]:
    options: dict[str, Any] = {"full": settings.full, "epochs": settings.epochs}
    if settings.samples is not None:
        options |= {"samples": settings.samples, "test_samples": settings.samples // 5}
    times: dict[str, list[tuple[int, float]]] = {}

    def watch(label: str, report: Any) -> None:
        times.setdefault(label, []).append((report.step, time.process_time()))

    training = study("learners", "private-cnn", watch=watch, **options)
    clock = list(times.values())  # in the order of the recipe: private, ordinary
    whole = settings == Settings()
    private = next(one for one in training.runs if one.epsilon < math.inf)
    ordinary = next(one for one in training.runs if one.epsilon == math.inf)
    both = {"ordinary": ordinary, "private": private}
    for name, one in both.items():
        for past in one.history:
            epoch, loss = int(past["epoch"]), float(past["loss"])
            if epoch in _PRINTED:
                note = _TAKEN[name] if whole else _SMALL
                row = EXPERIMENT.compared(f"{name}-{epoch}", loss, note, larger=False, comparable=whole)
                unknown = "; why ours stays higher is not known" if row.verdict == "differs" else ""
                yield replace(row, note=row.note + unknown)
        accuracy = one.scores.accuracy or math.nan
        note = f"one run, test images; {_spent(private) if name == 'private' else 'no privacy'}" if whole else _SMALL
        yield EXPERIMENT.compared(f"accuracy-{name}", accuracy, note, larger=True, comparable=whole)
    rates = {"private": _speed(clock[0]), "ordinary": _speed(clock[1])}
    for name, rate in rates.items():
        verdict = "differs" if rate > 0 else "not judged"  # a run of one epoch has no rate
        note = "batches of 64 in a CPU second of one thread; a different machine, see the ratio below"
        yield EXPERIMENT.row(f"speed-{name}", round(rate, 1), verdict, note)
    share = round(rates["private"] / rates["ordinary"], 2)
    yield EXPERIMENT.compared("speed", share, "CPU time with the scores of each epoch, on one machine", larger=True)
    steps = [past["epsilon"] for past in private.history]
    yield EXPERIMENT.row(
        "incremental",
        ", ".join(f"{one:.3f}" for one in steps),
        "built",
        "epsilon after each epoch; a ledger is charged before every use, and training resumes from checkpoints",
    )
    yield EXPERIMENT.row(
        "together", "see the experiment 'encrypted'", "built", "sums, analyses and training under a key of all parties"
    )
    for what, title in (("loss", "Loss on training images"), ("score", "Test accuracy")):
        lines = {name: [(past["epoch"], past[what]) for past in one.history] for name, one in both.items()}
        yield Curves(f"{title} after each epoch", "epoch", what.replace("score", "accuracy"), lines)
    pictures = list(_pictures(training))
    digits = sum(one.title.startswith("Digits") for one in pictures)
    yield EXPERIMENT.row(
        "pictures",
        f"{digits} rows of digits, feature maps of {len(pictures) - digits} layers" if pictures else None,
        "built" if pictures else "not judged",
        "on the page of the run, with accuracy, loss and epsilon per epoch",
    )
    yield from pictures


def _speed(marks: list[tuple[int, float]]) -> float:
    """Return the steps in a CPU second, from the end of the first epoch on."""
    (first, began), (last, ended) = marks[0], marks[-1]
    return (last - first) / max(ended - began, 1e-9) if last > first else math.nan


def _spent(one: Any) -> str:
    return f"epsilon {one.epsilon:.3f} at delta 1e-5, Poisson samples"


def _pictures(training: Any) -> Iterator[Pictures]:
    found = training.pictures
    if found is None:
        return
    for level, images in zip(found.levels, found.noisy, strict=True):
        title = "Digits" if level == 0 else f"Digits with normal noise of {level:g}"
        yield Pictures(title, images, len(images))
    for name, layers in found.maps.items():
        for title, maps in layers.items():
            kind = "without privacy" if name == "epsilon-none" else "with privacy"
            yield Pictures(f"Feature maps {kind}: {title}", maps, 16)


def _facts() -> dict[str, Fact]:
    found = {}
    for name, at in (("ordinary", 0), ("private", 1), ("epsilon", 2)):
        for epoch, printed in _PRINTED.items():
            what = "epsilon" if at == 2 else f"loss, {name} network"
            found[f"{name}-{epoch}"] = Fact(
                f"{what}, epoch {epoch}", printed[at], None if at == 2 else _WITHIN * printed[at]
            )
    return {
        **found,
        "accuracy-ordinary": Fact("test accuracy, ordinary network", 0.988, 0.005),
        "accuracy-private": Fact("test accuracy, private network", 0.934, 0.005),
        "speed-ordinary": Fact("batches a second, ordinary network", 36.0),
        "speed-private": Fact("batches a second, private network", 22.0),
        "speed": Fact("speed of private training relative to ordinary", round(22 / 36, 2), 0.1),
        "pictures": Fact("figures: digits and feature maps of both networks before and after noise", "drawn"),
        "incremental": Fact("use the budget step by step", "wished for"),
        "together": Fact(
            "several parties compute on encrypted inputs, decrypted only when all come together", "wished for"
        ),
    }


EXPERIMENT = Experiment(
    name="private-cnn",
    title="A small network, private and ordinary",
    source='"Differential Privacy in Machine Learning": MNIST, 9 epochs, noise multiplier 1.2, clip 1, batches of 64',
    facts=_facts(),
    full=Settings(),
    quick=Settings(full=False, samples=4_000, epochs=2),
    run=run,
    needs="all of MNIST, which is downloaded or read from SFUMATO_DATA",
    extra="torch",
)

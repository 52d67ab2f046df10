"""Make a generator of synthetic images from labelled ones: check, pay, learn, draw."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sfumato.budget.accounting.accountant import check_delta
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.data import datasets
from sfumato.data.images import Images, check_classes, check_images, check_labels
from sfumato.data.io.images import read_images
from sfumato.data.release import Provenance, Release
from sfumato.data.validate import real, whole
from sfumato.errors import BudgetError, InputError, OptionError, SfumatoError
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers.images.base import Canvas, ImageRecords, ImageSynthesizer
from sfumato.synthesizers.images.catalogue import image_method_of
from sfumato.synthesizers.images.generator import ImageGenerator, draw_images, image_plan_of, most_images
from sfumato.synthesizers.plan import Plan

__all__ = ["synthesize_images"]

_EPSILON = 1.0
_ROWS = 10_000  # drawn by a model that does not know how many images there were
_LEARNING = 0.8  # of the progress


def synthesize_images(
    data: Any,
    epsilon: float | None = None,
    *,
    delta: float = 1e-5,
    method: str | ImageSynthesizer | None = None,
    rows: int | None = None,
    classes: int | None = None,
    style: str | None = None,
    quick: bool = False,
    full: bool = False,
    public: bool = False,
    device: str | None = None,
    ledger: Ledger | str | Path | Literal[False] | None = None,
    seed: int | None = None,
    insecure_seed: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Release:
    """Learn a generator of synthetic images with differential privacy, and draw images from it.

    Parameters
    ----------
    data : Images, path or name
        "mnist" is built in; an ``.npz`` file with ``images`` and ``labels``, or a folder of IDX files. Test images are
        not used.
    epsilon, delta : float
        The total cost, for adding or removing one image; epsilon is 1 by default. Delta must be below one over the
        number of images.
    method : str or ImageSynthesizer, optional
        By default "distillation".
    rows : int, optional
        How many images to draw; by default about as many as there are, by a noisy count. `ImageGenerator.sample` draws
        more at any time, at no cost.
    classes : int, optional
        The number of classes, which is public; 10 for mnist. Labels are whole numbers below it. A class without images
        is not an error: its noisy count says so.
    style : str, optional
        How images are drawn; by default as the method draws them to be learned from.
    quick : bool
        A smaller form of the method "distillation", which learns several times faster, and less.
    full : bool
        All 60,000 training images of mnist, instead of the 10,000 that are built in.
    public : bool
        Whether the data set is public: its number of images is then stated, and a page may show some of them.
    device : str, optional
        "cpu" or "cuda"; by default the GPU, if there is one.
    ledger : Ledger or path, optional
        Charged before anything is learned. By default the ledger of the images, if a budget was granted for them.
        False charges none: only for generators that are never released.
    seed : int, optional
        Makes everything but the noise reproducible.
    insecure_seed : int, optional
        Makes the noise reproducible too: the result is then not private.
    progress : callable, optional
        Called with the share of the work that is done.

    Returns
    -------
    Release
        Of kind ``image-generator``, with the attributes of `ImageGenerator`: ``images`` and ``labels``; ``sample(n)``
        draws more.

    Examples
    --------
    >>> few = Images.of(np.zeros((50, 12, 12), np.uint8), np.arange(50) % 2, classes=2)
    >>> quick = image_method_of("distillation", {"steps": 2, "views": 1, "whitening": 8, "samples": 50})
    >>> release = synthesize_images(few, 1, delta=1e-3, method=quick, rows=20)
    >>> release.images.shape, print(release.spent)
    epsilon 1 at delta 0.001 (add or remove one record)
    ((20, 12, 12), None)
    """
    began = time.monotonic()
    delta = check_delta(delta)
    for name, number in (("the seed", seed), ("the insecure seed", insecure_seed)):
        if number is not None:
            whole(name, number, least=0)
    chosen = _on_device(image_method_of(method), device)
    if quick:
        chosen = chosen.quick()
    cost = _cost(chosen, epsilon)
    manner = chosen.model.style_of(style)
    is_named = isinstance(data, str) and data == "mnist" and not Path(data).exists()
    is_public = is_named or public
    records, origin = _records(data, classes, full, is_named=is_named)
    canvas = records.canvas
    if rows is not None:
        whole("the number of images", rows, most=most_images(canvas))
    check_delta(delta, len(records.labels))
    chosen.prepare(canvas)
    plan = None if cost is None else image_plan_of(chosen, canvas, cost, delta)
    book = _ledger(ledger, records, origin)
    _charge(book, plan, chosen, private=insecure_seed is None)
    report = progress or (lambda share: None)
    own = seed if seed is not None else insecure_seed
    learning, drawing = (np.random.default_rng(one) for one in np.random.SeedSequence(own).spawn(2))
    source = Source(insecure_seed=insecure_seed)
    sums = NoisySums({}, 0.0, source) if plan is None else plan.sums(source)
    try:
        model = chosen.learn(records, sums, learning, lambda share: report(_LEARNING * share))
        count = rows if rows is not None else _default_rows(model.total, records if is_public else None)
        images, labels = draw_images(
            model, canvas, count, drawing, manner, lambda share: report(_LEARNING + (1 - _LEARNING) * share)
        )
    except SfumatoError as error:
        spent = "nothing is guaranteed" if plan is None else f"epsilon {plan.spent.epsilon:.3g}"
        how = "" if plan is None else " was spent" if book is None else " was charged"
        raise type(error)(f"{error.message}; {spent}{how}", hint=error.hint) from error
    generator = ImageGenerator(
        images=images,
        labels=labels,
        canvas=canvas,
        model=model,
        method=chosen,
        plan=plan,
        secret=insecure_seed is None,
        style=manner,
        options={
            "data": data if is_named else None,
            "full": full or None,
            "public": (public and not is_named) or None,
            "rows": rows,
            "seed": seed,
            "insecure_seed": insecure_seed,
        },
    )
    known = len(records.labels) if is_public else None
    if is_named:
        provenance = Provenance(str(data), known, None, {"public": True})
    else:
        place = Path(data) if isinstance(data, str | Path) else origin
        provenance = Provenance(place.name if place else None, known, origin, {"public": is_public})
    return generator.release(provenance, time.monotonic() - began, charged=book is not None)


def _cost(method: ImageSynthesizer, epsilon: float | None) -> float | None:
    """Return epsilon; None for a method that guarantees nothing."""
    if method.private:
        return real("epsilon", _EPSILON if epsilon is None else epsilon, above=0)
    if epsilon is not None:
        raise OptionError(
            f"the method '{method.name}' guarantees nothing, so it has no epsilon", hint="leave out epsilon"
        )
    return None


def _on_device(method: ImageSynthesizer, device: str | None) -> ImageSynthesizer:
    """Return the method on a device: the one given, its own, or the GPU if there is one."""
    import torch

    if not any(one.name == "device" for one in fields(method)):  # type: ignore[arg-type]
        if device not in (None, "cpu"):
            raise OptionError(f"the method '{method.name}' runs on the cpu only, got device '{str(device)[:40]}'")
        return method
    wanted = device or ("cuda" if torch.cuda.is_available() else method.device)  # type: ignore[attr-defined]
    try:
        torch.zeros(0, device=wanted)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise OptionError(
            f"there is no device '{str(wanted)[:40]}'", hint="cpu, or cuda where there is a GPU"
        ) from error
    moved: ImageSynthesizer = replace(method, device=wanted)  # type: ignore[type-var]
    return moved


def _records(data: Any, classes: int | None, full: bool, *, is_named: bool) -> tuple[ImageRecords, Path | None]:
    """Return the images to learn from, and their file."""
    if classes is not None:
        check_classes(classes)
    if is_named:
        if classes not in (None, 10):
            raise OptionError(f"mnist has 10 classes, got {classes}", hint="leave out the number of classes")
        given = datasets.mnist(full=full)
    elif full:
        raise OptionError("'full' is for mnist: all images of other data are used", hint="leave it out")
    else:
        given = data if isinstance(data, Images) else read_images(data, classes)
    known = classes if classes is not None else given.classes
    if known is None:
        raise OptionError(
            "the number of classes is not declared, and it must not be counted from private labels",
            hint="--classes N, or classes=N",
        )
    images = check_images(given.train_images)
    labels = check_labels(given.train_labels, len(images), check_classes(known))
    if not len(images):
        raise InputError("there are no images")
    channels = images.shape[3] if images.ndim == 4 else 1
    canvas = Canvas(images.shape[1], images.shape[2], channels, known)
    return ImageRecords(images.reshape(-1, *canvas.shape), labels.astype(np.int64), canvas), given.origin


def _default_rows(total: float | None, public: ImageRecords | None) -> int:
    if public is not None:
        return len(public.labels)
    return _ROWS if total is None else max(1, round(total))


def _ledger(
    given: Ledger | str | Path | Literal[False] | None, records: ImageRecords, origin: Path | None
) -> Ledger | None:
    """Return the ledger to charge: the given one, or that of the images if a budget was granted for them."""
    if given is False:
        return None
    images = Images.of(records.images, records.labels, classes=records.canvas.classes, origin=origin)
    return Ledger.find(images) if given is None else Ledger.of(images, given)


def _charge(book: Ledger | None, plan: Plan | None, method: ImageSynthesizer, *, private: bool) -> None:
    if book is None:
        return
    if plan is None:
        raise BudgetError(
            f"the method '{method.name}' guarantees nothing, so no budget can pay for it",
            hint="a budget was granted for these images: use a private method",
        )
    book.charge(plan.event, note="synthesis of images", private=private)

"""A generator of images as a release: images that were drawn, and the noisy numbers from which more are drawn for free.

The folder holds the drawn images (``images.npz`` with ``images`` and ``labels``), what is public of them, the plan of
all purchases and the settings of the model (``generator.json``), and its noisy arrays (``generator.safetensors``). It
holds no image of the original, no number of records and no ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

import sfumato
from sfumato._repr import Discreet
from sfumato.budget.accounting.accountant import Spent
from sfumato.budget.differential_privacy import DifferentialPrivacy
from sfumato.data.certificate import Certificate, is_regular_file
from sfumato.data.claim import DAMAGED, Claim, reason_of
from sfumato.data.guarantee import Guarantee
from sfumato.data.images import check_classes
from sfumato.data.io.images import MOST_BYTES, read_npz
from sfumato.data.recipe import Recipe
from sfumato.data.release import Artifact, Layout, Provenance, Release
from sfumato.data.schema import Schema
from sfumato.data.validate import real, whole
from sfumato.errors import FileError, InputError, SfumatoError
from sfumato.learners.training.released_model import read_arrays
from sfumato.synthesizers.catalogue import parameters_of
from sfumato.synthesizers.images.base import Bytes, Canvas, ImageModel, ImageSynthesizer, Progress
from sfumato.synthesizers.images.catalogue import image_method_of
from sfumato.synthesizers.plan import Plan, derived, multiplier
from sfumato.synthesizers.state import State
from sfumato.synthesizers.stored import ARRAYS, FACTS, read_facts, write_stored

__all__ = ["IMAGES", "ImageGenerator", "draw_images", "image_plan_of", "most_images"]

IMAGES = "images.npz"
_FORMAT = 1
_LONGEST_SIDE = 4096
_SMALL, _RATIO = 2**27, 32  # bytes of images that any file may hold, and per byte of a file
_ENOUGH, _PER_CLASS = 300, 30  # images per unit of the noise multiplier, without which little is learned
_KEYS = {
    "format", "method", "parameters", "canvas", "style", "epsilon", "delta", "noise", "private", "plan", "settings",
    "sfumato",
}  # fmt: skip


def image_plan_of(
    method: ImageSynthesizer, canvas: Canvas, epsilon: float, delta: float, noise: float | None = None
) -> Plan:
    """Return the plan of a method for images of a canvas; it depends on nothing that is private.

    Examples
    --------
    >>> plan = image_plan_of(image_method_of("distillation"), Canvas(28, 28, 1, 10), 1.0, 1e-5)
    >>> [one.name for one in plan.purchases]
    ['norms', 'tones', 'middle', 'spread', 'basis', 'moments', 'centres', 'gradients']
    """
    shares = method.shares(canvas)
    return Plan(epsilon, delta, shares, multiplier([], shares, epsilon, delta) if noise is None else noise)


def most_images(canvas: Canvas) -> int:
    """Return how many images of a canvas may be drawn at once."""
    return max(1, MOST_BYTES // 2 // math.prod(canvas.shape))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ImageGenerator(Artifact, Discreet):
    """Draws synthetic images. It holds noisy numbers and public facts only, so drawing costs no privacy.

    Attributes
    ----------
    images, labels : what was drawn when it was made; images of shape (count, height, width), or that x 3 in colour
    canvas : the size of the images, the number of channels and of classes
    model : what the method has learned
    method : how it has learned
    plan : every purchase; None for a method that guarantees nothing
    secret : False if the noise came from a given seed
    style : how the images were drawn

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.synthesizers import Distillation
    >>> few = sf.datasets.Images.of(np.zeros((50, 12, 12), np.uint8), np.arange(50) % 2, classes=2)
    >>> quick = Distillation(directions=4, steps=2, views=1, whitening=8, samples=50)
    >>> release = sf.synthesize(few, epsilon=1, delta=1e-3, method=quick, rows=20)
    >>> release.kind, release.images.shape, [one.shape for one in release.sample(3)]
    ('image-generator', (20, 12, 12), [(3, 12, 12), (3,)])
    """

    kind = "image-generator"
    layout = Layout((IMAGES,), (FACTS, ARRAYS, "recipe.toml", "report.html"))
    facts = ("public",)
    _repr_fields: ClassVar[tuple[str, ...]] = ("rows", "canvas")

    images: Bytes
    labels: NDArray[Any]
    canvas: Canvas
    model: ImageModel
    method: ImageSynthesizer
    plan: Plan | None
    secret: bool
    style: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else the recipe says."""

    @property
    def rows(self) -> int:
        """The number of images that were drawn when it was made."""
        return len(self.labels)

    @property
    def private(self) -> bool:
        """Whether anything is guaranteed: the method is private, and its noise was secret."""
        return self.secret and self.plan is not None

    @property
    def epsilon(self) -> float:
        """The epsilon that was asked for; infinite if the method guarantees nothing."""
        return math.inf if self.plan is None else self.plan.epsilon

    @property
    def delta(self) -> float:
        """The delta that was asked for."""
        return 0.0 if self.plan is None else self.plan.delta

    @property
    def spent(self) -> Spent | None:
        """What the generator has cost; None if the method guarantees nothing."""
        return None if self.plan is None else self.plan.spent

    @property
    def note(self) -> str:
        """What to know if the noise is larger than what was to be learned; empty if all is well.

        It follows from what is released, so it says no more about the records.
        """
        if self.plan is None:
            return f"the method '{self.method.name}' guarantees nothing: its epsilon is infinite"
        total, enough = self.model.total, self.plan.noise * max(_ENOUGH, _PER_CLASS * self.canvas.classes)
        if total is None or total >= enough:
            return ""
        return (
            f"at epsilon {self.epsilon:g}, the noise hides what fewer than about {enough:,.0f} images show, and there "
            f"are about {total:,.0f}: take a larger epsilon, or more images"
        )

    @property
    def schema(self) -> Schema:
        """A schema without columns."""
        return Schema([])

    @property
    def claims(self) -> dict[str, Any]:
        """The number of drawn images and, if the noise is secret, the cost by the recorded events."""
        if self.plan is None:
            return {"rows": self.rows, "epsilon": "inf"}
        if not self.secret:
            return {"rows": self.rows}
        cost = self.plan.spent
        return {"rows": self.rows, "epsilon": cost.epsilon, "delta": cost.delta, "relation": cost.relation.value}

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything from which the cost follows."""
        return {
            **self._terms,
            "relation": None if self.plan is None else self.plan.relation.value,
            "seed": self.options.get("seed"),
            "events": [] if self.plan is None else [one.to_dict() for one in self.plan.events],
        }

    @property
    def _terms(self) -> dict[str, Any]:
        return {
            "parameters": parameters_of(self.method),
            "canvas": {name: getattr(self.canvas, name) for name in ("height", "width", "channels", "classes")},
            "style": self.style,
            "epsilon": "inf" if self.plan is None else self.plan.epsilon,
            "delta": self.delta,
            "noise": None if self.plan is None else self.plan.noise,
            "private": self.private,
        }

    def sample(
        self, rows: int, *, style: str | None = None, seed: int | None = None, progress: Progress | None = None
    ) -> tuple[Bytes, NDArray[Any]]:
        """Return new images and their labels; a seed makes the draw reproducible.

        Parameters
        ----------
        rows : int
            How many images to draw.
        style : str, optional
            One of the styles of the method; by default its first.
        seed : int, optional
            Draw the same images again.
        progress : callable, optional
            Called with the share of the work that is done.
        """
        return self.draw(rows, np.random.default_rng(seed), style=style, progress=progress)

    def draw(
        self, rows: int, rng: np.random.Generator, *, style: str | None = None, progress: Progress | None = None
    ) -> tuple[Bytes, NDArray[Any]]:
        """Return new images and their labels."""
        return draw_images(self.model, self.canvas, rows, rng, self.model.style_of(style), progress)

    def release(self, provenance: Provenance, seconds: float, *, charged: bool) -> Release:
        """Return the generator as a release."""
        promises: tuple[Guarantee, ...] = ()
        if self.plan is not None and self.secret:
            promises = (DifferentialPrivacy(self.plan.epsilon, self.plan.delta, self.plan.spent.relation),)
        stated = {
            "method": self.method.name,
            "parameters": parameters_of(self.method),
            "epsilon": None if self.plan is None else self.plan.epsilon,
            "delta": None if self.plan is None else self.plan.delta,
            "classes": self.canvas.classes,
            "style": self.style,
        }
        return Release(
            artifact=self,
            method=self.method.name,
            parameters=self.parameters,
            guarantees=promises,
            events=() if self.plan is None else self.plan.events,
            recipe=Recipe("synthesize", {**stated, **self.options}, self.schema),
            provenance=provenance,
            seconds=seconds,
            details={"charged": charged},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what was made, and what it cost, as plain values."""
        spent = self.spent
        return {
            "epsilon": "inf" if self.plan is None else self.epsilon,
            "delta": self.delta,
            "rows": self.rows,
            "utility": {},
            "style": self.style,
            "images": self._terms["canvas"],
            "spent": "inf" if spent is None else spent.epsilon,
            "relation": None if spent is None else spent.relation.value,
            "purchases": [] if self.plan is None else self.plan.to_dict(),
            "private": self.private,
            "note": self.note,
        }

    # --- files ------------------------------------------------------------------------------------

    def stored_form(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the plain values and the arrays that `write_into` stores."""
        state = self.model.to_state()
        plain = {
            "format": _FORMAT,
            "method": self.method.name,
            **self._terms,
            "plan": [] if self.plan is None else self.plan.to_dict(),
            "settings": dict(state.settings),
            "sfumato": sfumato.__version__,
        }
        return plain, {name: np.ascontiguousarray(one) for name, one in state.arrays.items()}

    def write_into(self, folder: Path, guarantees: tuple[Guarantee, ...], **options: Any) -> tuple[str, Self]:
        """Write the generator and the drawn images."""
        write_stored(folder, *self.stored_form())
        np.savez_compressed(folder / IMAGES, images=self.images, labels=self.labels)
        if self.images.nbytes > _most_bytes(folder / IMAGES):  # nearly blank images: `read` would take it for a bomb
            np.savez(folder / IMAGES, images=self.images, labels=self.labels)
        return IMAGES, self

    @classmethod
    def read(cls, folder: Path, certificate: Certificate) -> ImageGenerator:
        """Read the generator of a release, ready to draw from."""
        path = folder / certificate.data
        if not is_regular_file(path):
            raise FileError(f"'{certificate.data}' is missing, or not a regular file")
        plain = read_facts(folder / FACTS, _KEYS, format=_FORMAT)
        arrays = read_arrays(folder / ARRAYS)
        try:
            canvas = _canvas(plain["canvas"])
            method = image_method_of(plain["method"], plain["parameters"])
            method.prepare(canvas)
            images, labels = _drawn(path, canvas)
            plan, secret = _plan(plain, method, canvas)
            return cls(
                images=images,
                labels=labels,
                canvas=canvas,
                model=method.model.from_state(canvas, State(plain["settings"], arrays)),
                method=method,
                plan=plan,
                secret=secret,
                style=method.model.style_of(plain["style"]),
                options={"seed": certificate.parameters.get("seed")},
            )
        except (SfumatoError, *DAMAGED) as error:
            raise FileError(f"the generator in '{folder}' cannot be used: {reason_of(error)}") from error

    @classmethod
    def verify(
        cls, folder: Path, certificate: Certificate, progress: Callable[[float], None] | None
    ) -> Iterator[Claim]:
        """Derive the cost again from the method and the canvas, and check every file against the certificate."""
        from sfumato.synthesizers.images.verify_images import verify_images

        return verify_images(folder, certificate)


def draw_images(
    model: ImageModel,
    canvas: Canvas,
    rows: int,
    rng: np.random.Generator,
    style: str,
    progress: Progress | None = None,
) -> tuple[Bytes, NDArray[Any]]:
    """Return images and labels as they are stored: grey images without an axis for channels, small labels."""
    count = whole("the number of images", rows, least=0, most=most_images(canvas))
    images, labels = model.sample(count, rng, style=style, progress=progress)
    return images[..., 0] if canvas.channels == 1 else images, labels.astype(_label_type(canvas))


def _label_type(canvas: Canvas) -> np.dtype[Any]:
    return np.min_scalar_type(canvas.classes - 1)


# --- a stranger's files ---------------------------------------------------------------------------


def _canvas(plain: Any) -> Canvas:
    if not isinstance(plain, dict) or plain.keys() != {"height", "width", "channels", "classes"}:
        raise InputError("the canvas must have a height, a width, channels and classes")
    height, width = (whole(f"the {name}", plain[name], most=_LONGEST_SIDE) for name in ("height", "width"))
    if plain["channels"] not in (1, 3):
        raise InputError("the number of channels must be 1 or 3")
    return Canvas(height, width, int(plain["channels"]), check_classes(plain["classes"]))


def _most_bytes(path: Path) -> int:
    """Return how many bytes of images a file may hold: a small file must not fill the memory."""
    return min(MOST_BYTES // 2, max(_SMALL, _RATIO * path.stat().st_size))


def _drawn(path: Path, canvas: Canvas) -> tuple[Bytes, NDArray[Any]]:
    """Return the drawn images of a file, or raise an error if they do not fit the canvas."""
    arrays = read_npz(path, ["images", "labels"], most=2 * _most_bytes(path))
    images, labels = arrays.get("images"), arrays.get("labels")
    shape = canvas.shape if canvas.channels > 1 else canvas.shape[:2]
    if images is None or images.dtype != np.uint8 or images.shape[1:] != shape:
        raise InputError(f"'{path.name}' must hold images of {' x '.join(map(str, shape))} bytes")
    if labels is None or labels.dtype != _label_type(canvas) or labels.shape != (len(images),):
        raise InputError(f"'{path.name}' must hold a label of type {_label_type(canvas)} for every image")
    if len(labels) and labels.max() >= canvas.classes:
        raise InputError(f"'{path.name}' has a label that is not one of the {canvas.classes} classes")
    return images, labels


def _plan(plain: Mapping[str, Any], method: ImageSynthesizer, canvas: Canvas) -> tuple[Plan | None, bool]:
    """Return the plan that follows from the method, the canvas and the noise, and whether the noise was secret."""
    if not isinstance(plain["private"], bool):
        raise InputError("'private' must be true or false")
    if not method.private:
        if plain["private"] or plain["epsilon"] != "inf" or plain["noise"] is not None:
            raise InputError(f"the method '{method.name}' guarantees nothing, so its epsilon must be infinite")
        return None, True
    epsilon, delta, noise = (real(name, plain[name], above=0) for name in ("epsilon", "delta", "noise"))
    return derived(image_plan_of(method, canvas, epsilon, delta, noise)), plain["private"]

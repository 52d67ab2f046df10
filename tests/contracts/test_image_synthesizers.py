"""What every method of synthetic images keeps, whatever it learns: one battery for all names of the registry."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import sfumato as sf
from sfumato.budget.noise import Source
from sfumato.errors import InputError
from sfumato.learners.estimators.noisy_sums import Floats, NoisySums
from sfumato.synthesizers import (
    IMAGE_METHODS,
    AutoEncoderImages,
    Distillation,
    ImageSynthesizer,
    NoisyWeights,
    VariationalImages,
)
from sfumato.synthesizers.images.base import Canvas, ImageRecords
from sfumato.synthesizers.state import State
from tests.forgery import change_json, failed

TINY: dict[str, Any] = {"width": 2, "hidden": 4, "components": 2, "rounds": 1, "steps": 3, "rate": 0.2}
QUICK: dict[str, ImageSynthesizer] = {
    "distillation": Distillation(directions=4, steps=2, views=2, whitening=8, samples=50),
    "auto-encoder": AutoEncoderImages(**TINY),
    "variational": VariationalImages(**TINY),
    "noisy-weights": NoisyWeights(width=3, epochs=1),
}
"""Each method with parameters that make it quick."""
PRIVATE = {name: one for name, one in QUICK.items() if one.private}
every = pytest.mark.parametrize("method", QUICK.values(), ids=QUICK)
every_private = pytest.mark.parametrize("method", PRIVATE.values(), ids=PRIVATE)
CANVAS = Canvas(8, 12, 1, 3)


def pictures(count: int = 90, canvas: Canvas = CANVAS, seed: int = 0) -> sf.datasets.Images:
    """Return dark noise with a bright bar, whose place is the class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % canvas.classes
    images = rng.integers(0, 60, (count, *canvas.shape), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[1 + 2 * (label % 3) : 3 + 2 * (label % 3), 2:10] = 220
    return sf.datasets.Images.of(images, labels, classes=canvas.classes)


def records(count: int = 90, canvas: Canvas = CANVAS) -> ImageRecords:
    given = pictures(count, canvas)
    return ImageRecords(given.train_images.reshape(-1, *canvas.shape), given.train_labels.astype(np.int64), canvas)


def part(given: ImageRecords, at: Any) -> ImageRecords:
    return ImageRecords(given.images[at], given.labels[at], given.canvas)


def test_the_battery_has_every_method_of_the_registry() -> None:
    assert QUICK.keys() == IMAGE_METHODS.keys()
    assert {name: one.name for name, one in QUICK.items()} == {name: name for name in IMAGE_METHODS}


# --- the promise ------------------------------------------------------------------------------


class Recording(NoisySums):
    """Noisy sums that keep what they were asked, or that answer what another has answered."""

    def __init__(self, method: ImageSynthesizer, multiplier: float = 1.0, answers: list[Any] | None = None) -> None:
        super().__init__(method.shares(CANVAS), multiplier, Source(insecure_seed=7))
        self.asked: list[Any] = []
        self.times = Counter[str]()
        self._answers = answers

    def __call__(self, name: str, sums: Any, norm: float) -> Floats:
        noisy = super().__call__(name, sums, norm)
        if self._answers is not None:
            noisy = self._answers[len(self.asked)][3]
        self.asked.append((name, np.array(sums, dtype=np.float64), norm, noisy))
        self.times[name] += 1
        return noisy.copy()

    def run(self, name: str, mechanism: Any, times: int = 1) -> Any:
        found = super().run(name, mechanism, times) if self._answers is None else self._answers[len(self.asked)][3]
        self.asked.append((name, np.zeros(0), 0.0, found))
        self.times[name] += times
        return found


@every
def test_a_method_uses_exactly_what_it_declares(method: ImageSynthesizer) -> None:
    sums = Recording(method)
    method.learn(records(), sums, np.random.default_rng(1))
    assert sums.times == {name: one.times for name, one in method.shares(CANVAS).items()}


@every_private
def test_one_image_moves_every_sum_by_at_most_its_norm(method: ImageSynthesizer) -> None:
    whole = records()
    sums = Recording(method)
    method.learn(whole, sums, np.random.default_rng(1))
    for image in (0, 57, 89):
        less = Recording(method, answers=sums.asked)
        method.learn(part(whole, np.arange(90) != image), less, np.random.default_rng(1))
        assert [one[0] for one in less.asked] == [one[0] for one in sums.asked]
        for more, fewer in zip(sums.asked, less.asked, strict=True):
            assert more[2] == fewer[2], "the norm must not depend on a record"
            assert np.linalg.norm(more[1] - fewer[1]) <= more[2] * (1 + 1e-9)


@every_private
@pytest.mark.parametrize("multiplier", [0.0, 1.0])
def test_no_bit_of_a_sum_depends_on_the_order_of_images(multiplier: float, method: ImageSynthesizer) -> None:
    whole = records()
    sums = Recording(method, multiplier)
    method.learn(whole, sums, np.random.default_rng(1))
    other = Recording(method, multiplier, sums.asked)
    method.learn(part(whole, np.random.default_rng(3).permutation(90)), other, np.random.default_rng(1))
    assert [one[0] for one in other.asked] == [one[0] for one in sums.asked]
    for one, same in zip(sums.asked, other.asked, strict=True):
        assert np.array_equal(one[1], same[1]), one[0]


# --- states ------------------------------------------------------------------------------------


def learned(method: ImageSynthesizer) -> Any:
    return method.learn(records(), Recording(method), np.random.default_rng(1))


@every
def test_a_model_survives_its_state(method: ImageSynthesizer) -> None:
    model = learned(method)
    state = model.to_state()
    again = method.model.from_state(CANVAS, State(json.loads(json.dumps(state.settings)), state.arrays))
    for style in method.model.styles:
        drawn = [one.sample(20, np.random.default_rng(2), style=style) for one in (model, again)]
        assert all(np.array_equal(*pair) for pair in zip(*drawn, strict=True))
        images, labels = drawn[0]
        assert (images.shape, images.dtype, labels.shape) == ((20, 8, 12, 1), np.uint8, (20,))
        assert set(labels.tolist()) <= {0, 1, 2}
    stored = again.to_state()
    assert stored.settings == state.settings
    assert all(np.array_equal(stored.arrays[name], one) for name, one in state.arrays.items())


@every_private
@pytest.mark.parametrize("multiplier", [30.0, 3000.0])
def test_noise_of_any_size_leaves_a_valid_state(multiplier: float, method: ImageSynthesizer) -> None:
    sums = NoisySums(method.shares(CANVAS), multiplier, Source(insecure_seed=0))
    state = method.learn(records(), sums, np.random.default_rng(0)).to_state()
    assert len(method.model.from_state(CANVAS, state).sample(5, np.random.default_rng(2))[1]) == 5


@every
def test_a_forged_state_is_refused(method: ImageSynthesizer) -> None:
    state = learned(method).to_state()
    for name, array in state.arrays.items():
        wrong = [
            array[:-1],
            array.astype(np.complex128),
            np.full_like(array, np.nan) if array.dtype.kind == "f" else -array,
        ]
        for forged in (*wrong, None):
            arrays = {**state.arrays, name: forged}
            if forged is None:
                arrays.pop(name)
            with pytest.raises(InputError):
                method.model.from_state(CANVAS, State(state.settings, arrays))
    for name in state.settings:
        for forged in ("many", -1, 1e300, None, [0]):
            with pytest.raises(InputError):
                method.model.from_state(CANVAS, State({**state.settings, name: forged}, state.arrays))


# --- releases ---------------------------------------------------------------------------------


def made(method: ImageSynthesizer, data: Any = None, **options: Any) -> sf.Release:
    options = {"rows": 30, "ledger": False, "delta": 1e-3, **options}
    epsilon = 2.0 if method.private else None
    return sf.synthesize(pictures() if data is None else data, epsilon, method=method, **options)


@every
def test_a_release_is_saved_loaded_and_verified(method: ImageSynthesizer, tmp_path: Path) -> None:
    release = made(method)
    sf.save(release, tmp_path / "made")
    assert failed(tmp_path / "made") == []
    loaded = sf.load(tmp_path / "made")
    assert loaded.artifact.method == method
    assert loaded.events == release.events
    with np.load(tmp_path / "made" / "images.npz", allow_pickle=False) as arrays:
        assert {name: (one.shape, one.dtype) for name, one in arrays.items()} == {
            "images": ((30, 8, 12), np.uint8),
            "labels": ((30,), np.uint8),
        }
        assert np.array_equal(arrays["images"], release.images)
    certificate = json.loads((tmp_path / "made" / "certificate.json").read_text())
    if method.private:
        assert 1.98 < release.spent.epsilon <= 2
        assert [str(one) for one in release.guarantees] == ["epsilon=2, delta=0.001 (add or remove one record)"]
    else:
        assert (release.guarantees, release.epsilon, certificate["claims"]["epsilon"]) == ((), math.inf, "inf")
    for rows in (0, 1, 7):
        one, same = (each.sample(rows, seed=3) for each in (release, loaded))
        assert one[0].shape == (rows, 8, 12)
        assert all(np.array_equal(*pair) for pair in zip(one, same, strict=True))


@every_private
def test_noise_that_is_nearly_zero_or_infinite_does_not_verify(method: ImageSynthesizer, tmp_path: Path) -> None:
    sf.save(made(method), tmp_path / "made")
    for noise in (5e-324, 1e-160, 1e200, 1e300):
        change_json(tmp_path / "made", "generator.json", lambda plain, one=noise: plain.update(noise=one))
        assert failed(tmp_path / "made") != []


@every
def test_the_same_seeds_give_the_same_images_and_others_do_not(method: ImageSynthesizer) -> None:
    one, same, other = (made(method, insecure_seed=seed).images for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@every_private
def test_neighbours_differ_in_noisy_numbers_and_drawn_images_only(method: ImageSynthesizer, tmp_path: Path) -> None:
    whole = pictures()
    fewer = sf.datasets.Images.of(whole.train_images[1:], whole.train_labels[1:], classes=3)
    for name, data in (("one", whole), ("other", fewer)):
        sf.save(made(method, data, insecure_seed=1), tmp_path / name)
    folders = [tmp_path / name for name in ("one", "other")]
    assert {file.name for file in folders[0].iterdir()} == {file.name for file in folders[1].iterdir()}
    plain = [json.loads((one / "generator.json").read_text()) for one in folders]
    settings = [one.pop("settings") for one in plain]
    assert plain[0] == plain[1]
    assert settings[0].keys() == settings[1].keys()
    assert len({(one / "recipe.toml").read_text() for one in folders}) == 1
    certificates = [{**json.loads((one / "certificate.json").read_text()), "made": "", "files": {}} for one in folders]
    assert certificates[0] == certificates[1]
    shapes = [
        {name: (array.shape, array.dtype) for name, array in load_file(one / "generator.safetensors").items()}
        for one in folders
    ]
    assert shapes[0] == shapes[1]
    sizes = [(one / "generator.safetensors").stat().st_size for one in folders]
    assert sizes[0] == sizes[1]
    pages = [len((one / "report.html").read_text()) for one in folders]
    assert pages[0] > 0
    assert pages[1] > 0


@every_private
def test_no_file_holds_an_image_of_the_original(method: ImageSynthesizer, tmp_path: Path) -> None:
    whole = pictures()
    planted = np.random.default_rng(9).integers(0, 256, (8, 12), dtype=np.uint8)
    images = np.concatenate([whole.train_images, planted[None]])
    release = made(method, sf.datasets.Images.of(images, [*whole.train_labels, 1], classes=3), insecure_seed=5)
    sf.save(release, tmp_path / "made")
    arrays = dict(load_file(tmp_path / "made" / "generator.safetensors"))
    arrays |= {"images": release.images, "sampled": release.sample(200, seed=1)[0]}
    forms = [planted, planted / 255, (planted / 255).astype(np.float32), planted.astype(np.float64)]
    hidden = [form[2].tobytes() for form in forms]  # a row of pixels is enough
    contents = {file.name: file.read_bytes() for file in (tmp_path / "made").iterdir()}
    contents |= {name: np.ascontiguousarray(one).tobytes() for name, one in arrays.items()}
    for name, content in contents.items():
        assert not any(one in content for one in hidden), name
    assert any(hidden[0] in one for one in [planted.tobytes()])  # the search finds what is there
    texts = repr(release) + json.dumps(release.to_dict()) + str(release.artifact)
    assert "array" not in texts


ODD = {
    "one image": (Canvas(8, 8, 1, 2), 1),
    "a class without images": (Canvas(8, 8, 1, 5), 4),
    "colour": (Canvas(8, 8, 3, 2), 40),
    "an odd size": (Canvas(9, 13, 1, 2), 40),
}


@every
@pytest.mark.parametrize("name", ODD)
def test_odd_sets_give_images_of_their_canvas(name: str, method: ImageSynthesizer) -> None:
    canvas, count = ODD[name]
    method.prepare(canvas)
    sums = NoisySums(method.shares(canvas), 1.0, Source(insecure_seed=1))
    model = method.learn(records(count, canvas), sums, np.random.default_rng(1))
    for style in method.model.styles:
        images, labels = model.sample(12, np.random.default_rng(2), style=style)
        assert images.shape == (12, *canvas.shape)
        assert set(labels.tolist()) <= {*range(canvas.classes)}

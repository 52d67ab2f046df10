"""The public page of synthetic images shows no real one; the page that shows them can be read by the owner alone."""

from __future__ import annotations

import base64
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.budget.accounting.accountant import spent
from sfumato.data.certificate import CERTIFICATE
from sfumato.data.release import Provenance
from sfumato.frontier import ImageEvaluation, evaluate_images
from sfumato.report.image_generator.owner import render_image_evaluation
from sfumato.report.image_generator.page import page_of
from sfumato.report.image_generator.sheets import paper_of
from sfumato.synthesizers.images.base import Canvas
from sfumato.synthesizers.images.catalogue import image_method_of
from sfumato.synthesizers.images.distillation import Distillation
from tests.frontier.test_evaluate_images import bars
from tests.report.test_pictures import pixels

QUICK = Distillation(directions=6, steps=4, views=1, whitening=16, samples=100)
CALM = {"delta": 1e-4, "rows": 60, "method": QUICK, "ledger": False}


def private_images() -> sf.datasets.Images:
    """Return bars with planted images, whose pixels no generator would draw."""
    images, labels = bars(200, 0)
    images[::10] = planted()
    return sf.datasets.Images.of(images, labels, *bars(120, 2), classes=3)


def planted() -> np.ndarray[Any, Any]:
    return np.random.default_rng(9).integers(0, 256, (20, 16, 16), dtype=np.uint8)


@pytest.fixture(scope="module")
def release() -> sf.Release:
    return sf.synthesize(private_images(), epsilon=2, **CALM)


@pytest.fixture(scope="module")
def evaluation(release: sf.Release) -> ImageEvaluation:
    return evaluate_images(private_images(), {"made": release, "copies": bars(200, 0)}, models=["cnn"], seen=3000)


def texts(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def pictures(page: str) -> list[np.ndarray[Any, Any]]:
    """Return the pixels of all images on a page."""
    return [pixels(base64.b64decode(one)) for one in re.findall('src="data:image/png;base64,([^"]*)"', page)]


def shows(page: str, image: np.ndarray[Any, Any]) -> bool:
    """Return whether an image is on a page, at any place of any picture."""
    high, wide = image.shape
    row = int(image.var(axis=1).argmax())  # the line of the image that is looked for first
    for picture in pictures(page):
        grey = np.ascontiguousarray(picture[..., 0])
        for top in range(len(grey) - high + 1):
            line, at = grey[top + row].tobytes(), -1
            while (at := line.find(image[row].tobytes(), at + 1)) >= 0:
                if np.array_equal(grey[top : top + high, at : at + wide], image):
                    return True
    return False


def test_the_public_page_of_private_images_shows_no_real_one(release: sf.Release, tmp_path: Path) -> None:
    sf.save(release, tmp_path / "made")
    page = (tmp_path / "made" / "report.html").read_text()
    real = private_images()
    assert 2 <= len(pictures(page)) <= 6  # three classes in two styles; noise may leave out a class
    for image in (*planted(), *real.train_images[:40], *real.test_images[:10]):
        assert not shows(page, image)
    for file in (tmp_path / "made").iterdir():  # nor does any file hold the bytes of one
        content = file.read_bytes()
        assert not any(one.tobytes() in content for one in planted())
    assert "It shows no real image" in texts(page)
    assert "Real images" not in page


def test_the_search_finds_what_is_on_a_page(release: sf.Release, evaluation: ImageEvaluation) -> None:
    page = page_of(release, name="made").html
    assert all(shows(page, release.images[release.labels == label][0]) for label in np.unique(release.labels))
    owned = render_image_evaluation(evaluation)
    shown = [one[..., 0] for some in evaluation.samples.by_class for one in some[:12]]
    assert len(shown) == 36
    assert all(shows(owned, one) for one in shown)


def test_the_page_shows_nothing_but_the_folder(release: sf.Release, tmp_path: Path) -> None:
    """What is loaded from the folder has never seen the images, and makes the same page."""
    sf.save(release, tmp_path / "made")
    again = page_of(sf.load(tmp_path / "made"), name="made").html
    assert again == (tmp_path / "made" / "report.html").read_text()


def test_every_purchase_is_on_the_page_and_what_each_style_is_for(release: sf.Release) -> None:
    page = page_of(release, name="a & b").html
    said = texts(page).replace("&#34;", '"')
    assert "60 synthetic images at epsilon 2 and delta 0.0001" in said
    for one in release.plan.purchases:
        assert f"{one.name} " in said
        assert str(one.event) in said
        assert f'style="width:{100 * one.share:.1f}%"' in page
    assert str(release.spent) in said
    assert "Images to train on: distilled" in said
    assert "Images to look at: faithful" in said
    assert 'sfumato.load("a &amp; b").sample(1000, style="faithful")' in said
    assert "16 x 16 pixels, grey" in said
    assert "3: labels 0 to 2" in said
    assert "This is the public page" in said


def test_real_images_are_on_the_page_of_a_public_data_set_only(release: sf.Release) -> None:
    digits = sf.datasets.mnist()
    images = sf.datasets.Images.of(digits.train_images[:200], digits.train_labels[:200], classes=10)
    quick = image_method_of("auto-encoder", {"steps": 2, "rounds": 1})
    made = sf.synthesize(images, epsilon=2, **{**CALM, "method": quick})
    private = page_of(made, name="made").html
    assert "for comparison" not in private
    assert not any(shows(private, one) for one in digits.train_images[:20])
    public = Provenance("mnist", 200, None, {"public": True})
    page = page_of(replace(made, provenance=public), name="made").html
    assert "Real images, for comparison" in page
    assert "The only real images on it belong to a public data set" in page
    assert all(shows(page, one) for one in digits.train_images[:20])
    # A certificate that claims so shows nothing but the built-in digits, and these only for their size.
    assert "for comparison" not in page_of(replace(release, provenance=public), name="made").html


def test_a_page_without_privacy_says_so() -> None:
    seeded = texts(page_of(sf.synthesize(private_images(), epsilon=2, insecure_seed=3, **CALM), name="seeded").html)
    assert "The noise came from a given seed: this is reproducible, and not private." in seeded
    assert "nothing is guaranteed" in seeded


def test_a_method_without_a_guarantee_has_its_page_in_the_colour_of_warnings() -> None:
    options = {**CALM, "method": "noisy-weights"}
    release = sf.synthesize(private_images(), **options)
    page = page_of(release, name="weights").html
    warning = re.search(r'<section class="warning">(.*?)</section>', page, re.DOTALL)
    assert warning is not None
    assert "Epsilon is infinite: the method &#39;noisy-weights&#39; guarantees nothing" in warning[1]
    said = texts(page)
    assert "60 synthetic images without any guarantee" in said
    assert "What it cost" not in said
    assert "at no cost" not in said
    found = evaluate_images(private_images(), {"weights": release}, models=[])
    assert "Epsilon is infinite for weights: nothing is guaranteed." in texts(render_image_evaluation(found))
    assert found.to_dict()["sets"][0]["epsilon"] == "infinite"


def test_test_images_change_nothing_in_a_release() -> None:
    """They are for the evaluation: nothing is learned from them."""
    given = private_images()
    others = sf.datasets.Images.of(
        given.train_images, given.train_labels, 255 - given.test_images[::-1], given.test_labels, classes=3
    )
    first, second = (sf.synthesize(one, epsilon=2, insecure_seed=1, **CALM) for one in (given, others))
    assert np.array_equal(first.images, second.images)
    assert np.array_equal(first.labels, second.labels)
    for name, array in first.model.to_state().arrays.items():
        assert np.array_equal(array, second.model.to_state().arrays[name])


def test_the_page_of_the_owner_has_its_figures(evaluation: ImageEvaluation) -> None:
    page = render_image_evaluation(evaluation, title="Real beside made")
    said = texts(page)
    assert said.startswith(" Real beside made")
    assert "For the owner of the data alone" in said
    names = ["made, distilled", "made, faithful", "copies"]
    assert [one.name for one in evaluation.sets] == names
    for one in evaluation.sets:
        assert f"{100 * one.scores[0].accuracy:.2f}%" in said
        assert f"{one.distance:.3f}" in said
        assert one.copies is not None
        assert f"{100 * one.copies.nearer_to_training:.1f}%" in said
    assert f"{100 * evaluation.real[0].accuracy:.2f}%" in said
    assert "copies: may copy real images" in said
    assert "✗ may copy" in said
    assert "200 images, epsilon 2" not in said
    assert "60 images, epsilon 2" in said
    assert "This is the owner&#39;s page" in page or "This is the owner's page" in page
    assert len(page) < 1_000_000


def test_the_page_of_the_owner_is_written_for_the_owner_alone(evaluation: ImageEvaluation, tmp_path: Path) -> None:
    path = tmp_path / "made.owner.html"
    path.write_text("old")
    sf.write_report(evaluation, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "Real beside synthetic images" in path.read_text()


def test_an_evaluation_without_test_images_has_a_page_too() -> None:
    found = evaluate_images(bars(60, 0, 8), bars(60, 1, 8))
    said = texts(render_image_evaluation(found))
    assert "Distance of the synthetic images from the real ones" in said
    assert "models were not measured: there are no test images" in said
    assert "The nearest real images" in said
    assert "without copies" not in said


def test_several_generators_are_compared_class_by_class(release: sf.Release, tmp_path: Path) -> None:
    other = sf.synthesize(private_images(), epsilon=5, **{**CALM, "rows": 40})
    sf.save({"two": release, "five": other}, tmp_path / "both")
    page = (tmp_path / "both" / "report.html").read_text()
    said = texts(page)
    assert "2 generators of synthetic images" in said
    assert 'href="two/report.html"' in page
    together = spent([*release.events, *other.events], 1e-4)
    assert str(together) in said
    assert together.epsilon > 5
    assert not any(shows(page, one) for one in planted())
    assert "It shows no real image" in said
    drawn = release.draw(225, np.random.default_rng(0), style="faithful")
    label = int(drawn[1][0])
    assert shows(page, drawn[0][0]), label
    open_ = sf.synthesize(private_images(), **{**CALM, "method": "noisy-weights"})
    sf.save({"two": release, "open": open_}, tmp_path / "open")
    said = texts((tmp_path / "open" / "report.html").read_text())
    assert "Epsilon is infinite" in said
    assert "Do not publish what guarantees nothing" in said


def test_the_folder_of_a_release_can_be_evaluated(release: sf.Release, tmp_path: Path) -> None:
    sf.save(release, tmp_path / "made")
    assert (tmp_path / "made" / CERTIFICATE).exists()
    found = sf.evaluate(private_images(), tmp_path / "made", models=[])
    assert [one.name for one in found.sets] == ["distilled", "faithful"]
    assert [(one.images, one.epsilon) for one in found.sets] == [(60, 2.0), (60, 2.0)]


@pytest.mark.parametrize(("canvas", "sheets"), [((28, 28, 1), 60), ((224, 224, 3), 40), ((512, 300, 3), 60)])
def test_sheets_of_noise_stay_below_a_megabyte(canvas: tuple[int, int, int], sheets: int) -> None:
    """Noise cannot be compressed, so no images take more room."""
    paper = paper_of(Canvas(*canvas, 20), sheets, columns=5, rows=5)
    noise = np.random.default_rng(0).integers(0, 256, (paper.images, *canvas), dtype=np.uint8)
    sheet = paper.sheet("Class 1", noise, "noise")
    assert sheet is not None
    assert sheets * len(sheet.source) < 900_000
    assert paper.images >= 1

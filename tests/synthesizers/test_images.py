"""Synthetic images: what is asked, what is charged, what is refused, and that a forged generator does not verify."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import sfumato as sf
from sfumato.errors import BudgetError, FileError, InputError, OptionError
from sfumato.synthesizers import Distillation, NoisyWeights
from tests.contracts.test_image_synthesizers import pictures
from tests.forgery import bind, change_json, change_text, failed

QUICK = Distillation(directions=4, steps=2, views=1, whitening=8, samples=50)


def made(data: Any = None, epsilon: float | None = 2.0, **options: Any) -> sf.Release:
    options = {"method": QUICK, "rows": 20, "delta": 1e-3, "ledger": False, **options}
    return sf.synthesize(pictures() if data is None else data, epsilon, **options)


# --- what is made ---------------------------------------------------------------------------------


def test_the_default_number_of_images_is_a_noisy_count_and_exact_for_public_data() -> None:
    private, public = made(rows=None, insecure_seed=1), made(rows=None, public=True)
    assert private.rows == max(1, round(private.model.total)) != 90
    assert public.rows == 90
    assert (private.provenance.rows, public.provenance.rows) == (None, 90)


def test_styles_of_the_method_can_be_drawn_and_others_cannot() -> None:
    release = made(style="faithful")
    assert release.style == "faithful"
    assert [release.sample(4, style=style)[0].shape for style in ("distilled", "faithful")] == [(4, 8, 12)] * 2
    for call in (lambda: release.sample(4, style="faithfull"), lambda: made(style="faithfull")):
        with pytest.raises(OptionError, match=r"there is no style 'faithfull' .did you mean 'faithful'"):
            call()


def test_a_recipe_makes_the_generator_again(tmp_path: Path) -> None:
    first = made(style="faithful", seed=4)
    sf.save(first, tmp_path / "first")
    again = sf.run(tmp_path / "first", pictures(), ledger=False)
    assert again.recipe == first.recipe
    assert (again.style, again.rows, again.epsilon, again.canvas) == ("faithful", 20, 2.0, first.canvas)
    assert not np.array_equal(again.images, first.images)  # with new noise


def test_files_and_arrays_give_the_same_images(tmp_path: Path) -> None:
    whole = pictures()
    np.savez(tmp_path / "scans.npz", images=whole.train_images / 255, labels=whole.train_labels)
    one, same = (made(data, insecure_seed=1, classes=3) for data in (whole, tmp_path / "scans.npz"))
    assert np.array_equal(one.images, same.images)
    assert (same.provenance.name, one.provenance.name) == ("scans.npz", None)


def test_progress_never_goes_back_and_ends_at_1() -> None:
    seen: list[float] = []
    made(progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


# --- the budget -----------------------------------------------------------------------------------


def test_the_ledger_is_charged_before_anything_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = sf.Ledger.grant(pictures(), epsilon=3, delta=1e-3, path=tmp_path / "ledger")
    release = made(ledger=tmp_path / "ledger")
    assert release.details == {"charged": True}
    assert 1.98 < ledger.spent.epsilon <= 2

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Distillation, "learn", killed)
    with pytest.raises(KeyboardInterrupt):
        made(epsilon=0.5, ledger=tmp_path / "ledger")
    assert ledger.spent.epsilon > 2.01
    assert ledger.history()[-1]["note"] == "synthesis of images"
    with pytest.raises(BudgetError, match="exceed the limit"):
        made(ledger=tmp_path / "ledger")


def test_an_error_while_learning_says_what_was_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise InputError("too noisy")

    monkeypatch.setattr(Distillation, "learn", fails)
    with pytest.raises(InputError, match="too noisy; epsilon 2 was spent"):
        made()


# --- what is refused ------------------------------------------------------------------------------

UNDECLARED = sf.datasets.Images.of(pictures().train_images, pictures().train_labels)
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "one class": (lambda: made(classes=1), "images need at least 2 classes, got 1"),
    "classes not declared": (lambda: made(UNDECLARED), "the number of classes is not declared"),
    "fewer classes than labels": (lambda: made(UNDECLARED, classes=2), "a label is outside 0 to 1"),
    "classes of mnist": (lambda: made("mnist", classes=3), "mnist has 10 classes, got 3"),
    "an epsilon of 0": (lambda: made(epsilon=0), "epsilon must be a finite number above 0, got 0"),
    "an epsilon too small": (lambda: made(epsilon=1e-12, delta=1e-12), "no amount of noise reduces the event"),
    "a delta too large": (lambda: made(delta=0.1), "delta must be below 1 / 90"),
    "an option of tables": (lambda: made(target="ill"), "'target' is not an option for images (it is for tables)"),
    "an unknown option": (
        lambda: made(stile="faithful"),
        "'stile' is not an option for images (did you mean 'style'?)",
    ),
    "an option of images": (
        lambda: sf.synthesize("nursery", 1, style="faithful"),
        "'style' is not an option for tables (it is for images)",
    ),
    "another method": (lambda: made(method="tree"), "there is no method 'tree' for synthetic images"),
    "an unknown device": (lambda: made(device="abacus"), "there is no device 'abacus'"),
    "all of other data": (lambda: made(full=True), "'full' is for mnist"),
    "too many images": (lambda: made(rows=10**12), "the number of images must be a whole number from 1 to"),
    "no image to draw": (lambda: made(rows=0), "the number of images must be a whole number from 1 to"),
    "tiny images": (
        lambda: made(sf.datasets.Images.of(np.zeros((9, 4, 4)), [0] * 9, classes=2)),
        "images must have at least 8 pixels a side, got 4 x 4",
    ),
    "large images": (
        lambda: made(sf.datasets.Images.of(np.zeros((3, 64, 64, 3), np.uint8), [0] * 3, classes=2)),
        "images of 64 x 64 in colour are too large for the method 'distillation'",
    ),
    "a wrong parameter": (lambda: Distillation(steps=0), "the number of steps must be a whole number from 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_refused_in_one_sentence_and_nothing_is_charged(name: str, tmp_path: Path) -> None:
    call, message = WRONG[name]
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_noise_that_hides_everything_is_noted() -> None:
    assert "the noise hides what fewer than about" in made(epsilon=0.01, insecure_seed=1).note
    assert made(pictures(900), epsilon=50, delta=1e-4, insecure_seed=1).note == ""


# --- a method that guarantees nothing --------------------------------------------------------------


OPEN = NoisyWeights(width=3, epochs=1)


def test_a_method_that_guarantees_nothing_says_so_everywhere(tmp_path: Path) -> None:
    release = made(epsilon=None, method=OPEN)
    assert (release.guarantees, release.events, release.plan, release.spent) == ((), (), None, None)
    assert (release.private, release.epsilon) == (False, math.inf)
    assert release.note == "the method 'noisy-weights' guarantees nothing: its epsilon is infinite"
    assert release.to_dict()["epsilon"] == release.to_dict()["spent"] == "inf"
    sf.save(release, tmp_path / "made")
    certificate = json.loads((tmp_path / "made" / "certificate.json").read_text())
    assert certificate["guarantees"] == []
    assert certificate["claims"] == {"rows": 20, "epsilon": "inf"}
    assert "Epsilon is infinite" in (tmp_path / "made" / "report.html").read_text()
    assert failed(tmp_path / "made") == []
    change_json(tmp_path / "made", "certificate.json", lambda plain: plain["claims"].update(epsilon=1.0))
    assert failed(tmp_path / "made") == ["epsilon is 1"]


def test_a_method_that_guarantees_nothing_has_no_epsilon_and_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="the method 'noisy-weights' guarantees nothing, so it has no epsilon"):
        made(epsilon=1.0, method=OPEN)
    sf.Ledger.grant(pictures(), epsilon=3, delta=1e-3, path=tmp_path / "ledger")
    with pytest.raises(BudgetError, match="guarantees nothing, so no budget can pay for it"):
        made(epsilon=None, method=OPEN, ledger=tmp_path / "ledger")


# --- forgeries ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "made"
    sf.save(made(), folder)
    assert failed(folder) == []
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(saved, tmp_path / "copy"))


def _certificate(**values: Any) -> Callable[[Path], None]:
    return lambda folder: change_json(folder, "certificate.json", lambda plain: plain["claims"].update(values))


def _facts(**values: Any) -> Callable[[Path], None]:
    return lambda folder: change_json(folder, "generator.json", lambda plain: plain.update(values))


def _images(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        with np.load(folder / "images.npz", allow_pickle=False) as arrays:
            held = dict(arrays)
        change(held)
        np.savez(folder / "images.npz", **held)
        bind(folder, "images.npz")

    return forge


def _arrays(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        held = dict(load_file(folder / "generator.safetensors"))
        change(held)
        save_file(held, folder / "generator.safetensors")
        bind(folder, "generator.safetensors")

    return forge


FORGERIES: dict[str, Callable[[Path], None]] = {
    "a smaller epsilon": _certificate(epsilon=0.5),
    "more rows": _certificate(rows=21),
    "a private claim more": _certificate(count=90),
    "less noise": _facts(noise=0.1),
    "more noise": _facts(noise=100.0),
    "another method": _facts(method="tree"),
    "another style": _facts(style="faithful"),
    "another canvas": _facts(canvas={"height": 8, "width": 8, "channels": 1, "classes": 3}),
    "more classes": _facts(canvas={"height": 8, "width": 12, "channels": 1, "classes": 4}),
    "an absurd canvas": _facts(canvas={"height": 10**9, "width": 12, "channels": 1, "classes": 3}),
    "not private": _facts(private=False),
    "no epsilon": _facts(epsilon="inf"),
    "a record": _facts(record="Zaphod"),
    "a hidden array": _arrays(lambda held: held.update(hidden=np.zeros(5))),
    "a wild weight": _arrays(lambda held: held.update(weights=held["weights"] * np.nan)),
    "a wide basis": _arrays(lambda held: held.update(basis=held["basis"] * 1e6)),
    "a wild middle": _arrays(lambda held: held.update(middle=held["middle"] + 1e6)),
    "no tones": _arrays(lambda held: held.pop("tones")),
    "images of another size": _images(lambda held: held.update(images=held["images"][:, :7])),
    "images of floats": _images(lambda held: held.update(images=held["images"] / 255)),
    "a label too large": _images(lambda held: held.update(labels=held["labels"] + np.uint8(3))),
    "labels of another type": _images(lambda held: held.update(labels=held["labels"].astype(np.int64))),
    "a label too few": _images(lambda held: held.update(labels=held["labels"][1:])),
    "fewer images": _images(lambda held: held.update(labels=held["labels"][1:], images=held["images"][1:])),
    "an array more": _images(lambda held: held.update(originals=held["images"])),
    "a pickle": _images(lambda held: held.update(labels=held["labels"].astype(object))),
    "another recipe": lambda folder: change_text(folder, "recipe.toml", "epsilon = 2.0", "epsilon = 9.0"),
    "no recipe of images": lambda folder: change_text(folder, "recipe.toml", "classes = 3", "classes = 4"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_generator_does_not_verify(name: str, copy: Path) -> None:
    FORGERIES[name](copy)
    assert failed(copy) != []


def test_a_damaged_generator_is_refused_in_one_sentence(copy: Path) -> None:
    FORGERIES["a pickle"](copy)
    with pytest.raises(FileError, match=r"cannot be used: .*holds pickled objects") as caught:
        sf.load(copy)
    assert "\n" not in str(caught.value)


def test_a_small_file_cannot_fill_the_memory_but_blank_images_are_read(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blank = replace(sf.load(copy).artifact, images=np.zeros((5000, 8, 12), np.uint8), labels=np.zeros(5000, np.uint8))
    np.savez_compressed(copy / "images.npz", images=blank.images, labels=blank.labels)
    bind(copy, "images.npz")
    assert failed(copy) == ["rows is 20"]
    monkeypatch.setattr("sfumato.synthesizers.images.generator._SMALL", 1000)
    with pytest.raises(FileError, match="would take more than"):
        sf.load(copy)
    blank.write_into(copy, ())
    bind(copy, "images.npz")
    assert sf.load(copy).rows == 5000

"""``sfumato synthesize`` on images: a folder that verifies, and one sentence for a mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.data.io.images import read_images
from tests.conftest import Ran, refused
from tests.contracts.test_image_synthesizers import pictures

Run = Callable[..., Ran]
FILES = ["certificate.json", "generator.json", "generator.safetensors", "images.npz", "recipe.toml", "report.html"]
ASK = ("--classes", "3", "--delta", "1e-3", "-n", "12", "-o", "out")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path.with_name(f"{tmp_path.name}-home")))


@pytest.fixture
def scans(tmp_path: Path) -> str:
    whole = pictures()
    np.savez(tmp_path / "scans.npz", images=whole.train_images, labels=whole.train_labels)
    return "scans.npz"


def test_images_become_a_folder_that_verifies_and_is_read_again(sfumato: Run, scans: str) -> None:
    sf.Ledger.grant(scans, epsilon=3, delta=1e-3)
    ran = sfumato("synthesize", scans, "--epsilon", "2", *ASK)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("12 images like those of scans.npz, made up by the method 'distillation'\n")
    assert "guarantee              epsilon=2, delta=0.001 (add or remove one record)" in ran.out
    assert "The ledger of this data was charged" in ran.err
    assert 1.9 < sf.Ledger.of(scans).spent.epsilon <= 2
    assert sorted(one.name for one in Path("out").iterdir()) == FILES
    assert sfumato("verify", "out").code == 0
    made = read_images("out/images.npz", classes=3)
    assert made.train_images.shape == (12, 8, 12)


def test_json_is_one_object_and_says_what_the_images_are(sfumato: Run, scans: str) -> None:
    ran = sfumato("synthesize", scans, *ASK, "--style", "faithful", "--insecure-seed", "1", "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["epsilon"], ran.json["rows"], ran.json["style"]) == (1.0, 12, "faithful")
    assert ran.json["images"] == {"height": 8, "width": 12, "channels": 1, "classes": 3}
    assert ran.json["private"] is False
    assert "not private" in ran.err
    assert sfumato("verify", "out").code == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target", "label"), "--target is for tables, and DATA is a set of images"),
        (("--given", "sex=f"), "--given is for tables"),
        (("--format", "csv"), "--format is for tables"),
        (("--numbers", "age"), "--numbers is for tables"),
        (("--separator", ";"), "--separator is for tables"),
        (("--method", "tree"), "there is no method 'tree' for synthetic images"),
        (("--style", "pretty"), "there is no style 'pretty'"),
        (("--full",), "'full' is for mnist"),
        (("--device", "abacus"), "there is no device 'abacus'"),
        (("--classes", "1"), "images need at least 2 classes, got 1"),
        (("--classes", "2"), "a label is outside 0 to 1"),
    ],
)
def test_what_does_not_fit_images_is_refused_by_name(
    options: tuple[str, ...], message: str, sfumato: Run, scans: str
) -> None:
    refused(sfumato("synthesize", scans, *ASK, *options), message)
    assert not Path("out").exists()


def test_what_is_for_images_is_refused_for_tables(sfumato: Run) -> None:
    ran = sfumato("synthesize", "nursery", "--classes", "3", "-n", "5", "-o", "out")
    refused(ran, "--classes is for images, and DATA is a table")

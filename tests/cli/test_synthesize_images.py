"""``sfumato synthesize`` on images: a folder that verifies, and one sentence for a mistake."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

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
    assert sfumato("budget", "grant", scans, "--epsilon", "3", "--delta", "1e-3").code == 0
    ran = sfumato("synthesize", scans, "--epsilon", "2", *ASK)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("12 images like those of scans.npz, synthesized by the method 'distillation'\n")
    assert "guarantee              epsilon=2, delta=0.001 (add or remove one record)" in ran.out
    assert "The ledger of this data was charged" in ran.err
    assert 1.9 < sfumato("budget", "show", scans, "--json").json["spent"]["epsilon"] <= 2
    refused(sfumato("budget", "show", scans, "--separator", ";"), "'scans.npz' holds images")
    refused(sfumato("attack", "out"), "attacks on synthetic images are not known")
    assert sorted(one.name for one in Path("out").iterdir()) == FILES
    assert sfumato("verify", "out").code == 0
    made = read_images("out/images.npz", classes=3)
    assert made.train_images.shape == (12, 8, 12)


def test_the_quick_form_of_the_default_method_is_stated_and_verifies(sfumato: Run, scans: str) -> None:
    ran = sfumato("synthesize", scans, "--quick", *ASK)
    assert ran.code == 0, ran.err
    assert "gradients             75.0 %  120 times" in ran.out
    assert json.loads(Path("out/generator.json").read_text())["parameters"]["views"] == 1
    assert sfumato("verify", "out").code == 0
    refused(
        sfumato("synthesize", scans, "--quick", "--method", "variational", *ASK, "--force"),
        "the method 'variational' has no smaller form",
    )


def test_a_method_that_guarantees_nothing_says_so_plainly(sfumato: Run, scans: str) -> None:
    ran = sfumato("synthesize", scans, *ASK, "--method", "noisy-weights")
    assert ran.code == 0, ran.err
    assert "guarantee              none" in ran.out
    assert "spent                  epsilon infinite" in ran.out
    assert "NOT PRIVATE: nothing is guaranteed, epsilon is infinite. Do not publish it." in ran.err
    said = sfumato("verify", "out")
    assert said.code == 0
    assert "nothing is guaranteed: the method is there for comparison" in said.out
    again = sfumato("synthesize", scans, *ASK, "--method", "noisy-weights", "--json", "--force")
    assert (again.json["epsilon"], again.json["spent"], again.json["rows"]) == ("inf", "inf", 12)
    assert again.json["images"] == {"height": 8, "width": 12, "channels": 1, "classes": 3}
    assert again.json["private"] is False
    asked = sfumato("synthesize", scans, *ASK, "--method", "noisy-weights", "--epsilon", "1", "--force")
    refused(asked, "the method 'noisy-weights' guarantees nothing, so it has no epsilon")


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


def test_what_holds_no_images_is_refused(sfumato: Run) -> None:
    Path("pngs").mkdir()
    refused(sfumato("synthesize", "pngs", *ASK), "'pngs' has no IDX file of images")
    refused(sfumato("synthesize", "mnst", *ASK[2:]), "there is no file 'mnst' (did you mean 'mnist'?)")
    refused(sfumato("synthesize", "scans.npz", *ASK), "there is no file 'scans.npz'")


def test_what_is_for_images_is_refused_for_tables(sfumato: Run) -> None:
    ran = sfumato("synthesize", "nursery", "--classes", "3", "-n", "5", "-o", "out")
    refused(ran, "--classes is for images, and DATA is a table")


def test_the_page_of_the_owner_is_written_beside_the_folder_on_request(sfumato: Run, tmp_path: Path) -> None:
    whole = pictures()
    np.savez(
        tmp_path / "scans.npz",
        images=whole.train_images,
        labels=whole.train_labels,
        test_images=whole.train_images[:40],
        test_labels=whole.train_labels[:40],
    )
    ran = sfumato("synthesize", "scans.npz", *ASK, "--method", "noisy-weights", "--private-page")
    assert ran.code == 0, ran.err
    assert "Real images beside synthetic ones are in out.owner.html: it is for you alone, do not publish it" in ran.err
    assert sorted(one.name for one in Path("out").iterdir()) == FILES
    page = Path("out.owner.html")
    assert "For the owner of the data alone" in page.read_text()
    assert "Epsilon is infinite" in page.read_text()
    figures = json.loads(Path("out.owner.json").read_text())
    assert figures["images"] == {"real": len(whole.train_labels), "test": 40}
    assert [stat.S_IMODE(one.stat().st_mode) for one in (page, Path("out.owner.json"))] == [0o600, 0o600]


def test_without_a_request_there_is_no_page_of_the_owner(sfumato: Run, scans: str) -> None:
    assert sfumato("synthesize", scans, *ASK, "--method", "noisy-weights").code == 0
    assert not Path("out.owner.html").exists()
    refused(sfumato("synthesize", "adult", "--private-page", "-o", "rows"), "--private-page is for images")


def test_several_epsilons_make_a_release_each_and_pages_that_compare_them(sfumato: Run, scans: str) -> None:
    ask = ("--epsilon", "1,4", "--method", "auto-encoder", "--private-page")
    ran = sfumato("synthesize", scans, *ask, *ASK)
    assert ran.code == 0, ran.err
    assert sorted(one.name for one in Path("out").iterdir()) == ["epsilon1", "epsilon4", "report.html"]
    assert sorted(one.name for one in Path("out/epsilon4").iterdir()) == FILES
    assert "2 generators of synthetic images" in Path("out/report.html").read_text()
    figures = json.loads(Path("out.owner.json").read_text())
    assert [(one["name"], one["epsilon"]) for one in figures["sets"]] == [("epsilon1", 1.0), ("epsilon4", 4.0)]
    assert sfumato("verify", "out/epsilon4").code == 0

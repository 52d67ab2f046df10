"""``sfumato anonymize --k 5,10 --method mondrian,lattice``: several releases side by side on one page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.report.summarise import share
from tests.conftest import Ran

Run = Callable[..., Ran]
ROLES = ["--qi", "age,zip", "--sensitive", "disease", "--identifiers", "name"]


@pytest.fixture
def release(sfumato: Run) -> Run:
    rows = [f"p{n},{20 + n % 25},{n % 3},{'flu' if n % 2 else 'ulcer'}" for n in range(60)]
    Path("t.csv").write_text("\n".join(["name,age,zip,disease", *rows]))
    return lambda *arguments: sfumato("anonymize", "t.csv", *ROLES, *arguments)


def test_each_k_and_method_gets_a_release_and_one_page_compares_them(release: Run, sfumato: Run) -> None:
    ran = release("--k", "3,6", "--method", "mondrian,microaggregate", "--l", "2", "-o", "out", "--json")
    assert ran.code == 0, ran.err
    names = ["mondrian-k3", "mondrian-k6", "microaggregate-k3", "microaggregate-k6"]
    told = ran.json["releases"]
    assert [one["name"] for one in told] == names
    assert [one["assessment"]["k"] >= k for one, k in zip(told, (3, 6, 3, 6), strict=True)] == [True] * 4
    assert sorted(path.name for path in Path("out").iterdir()) == sorted([*names, "report.html"])
    assert sfumato("verify", "out/mondrian-k6").code == 0
    page = Path("out/report.html").read_text(encoding="utf-8")
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page))
    for one in told:
        assert f'<a href="{one["name"]}/report.html">{one["name"]}</a>' in page
        lost = "-" if one["method"] == "microaggregate" else share(one["loss"]["gcp"])
        assert f"0% {lost} {share(one['loss']['entropy'])} {share(one['query_error']['median'])}" in text
    assert text.count("k=3, l=2") == 2
    assert "p1" not in text
    assert sfumato("verify", "out").code == 2


def test_a_person_gets_a_line_for_each(release: Run) -> None:
    ran = release("--k", "3,6", "-o", "out/")
    assert ran.code == 0, ran.err
    assert re.search(r"mondrian-k3 .*\nmondrian-k6 ", ran.out)
    assert "out/report.html" in ran.err


def test_one_value_gives_what_it_always_gave(release: Run) -> None:
    one, listed = (
        release("--k", "4", *more, "-o", to, "--json") for more, to in (((), "a"), (("--method", "mondrian,"), "b"))
    )
    for ran in (one, listed):
        assert ran.code == 0, ran.err
        assert {"assessment", "loss", "method", "seconds"} <= set(ran.json)
    assert sorted(path.name for path in Path("b").iterdir()) == sorted(path.name for path in Path("a").iterdir())


def test_the_accuracy_is_compared_if_there_is_a_target(sfumato: Run) -> None:
    rows = [f"{20 + n % 25},{n % 3},{'yes' if n % 25 > 12 else 'no'}" for n in range(80)]
    Path("t.csv").write_text("\n".join(["age,zip,ill", *rows]))
    ran = sfumato(
        "anonymize",
        "t.csv",
        "--qi",
        "age,zip",
        "--target",
        "ill",
        "--k",
        "4,8",
        "--model",
        "tree",
        "-o",
        "out",
        "--json",
    )
    assert ran.code == 0, ran.err
    page = Path("out/report.html").read_text(encoding="utf-8")
    for one in ran.json["releases"]:
        (told,) = one["accuracy"]
        assert told["model"] == "tree"
        assert f"{100 * told['released']:.1f}%" in page


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--k", "3,6", "-o", "out.csv"], "several releases need a folder"),
        (["--k", "3,x", "-o", "out"], "'x'"),
        (["--k", "3,1.5", "-o", "out"], "1.5"),
        (["--k", "3", "--t", "0,5", "-o", "out"], "write 0.5, not 0,5"),
        (["--k", "3", "--l", "2,3", "-o", "out"], "write 0.5, not 0,5"),
        (["--k", ",", "-o", "out"], "the guarantee 'k' needs a number"),
        (["--k", "3", "--method", "mondrian,latice", "-o", "out"], "latice"),
        (["--k", "3", "--method", "mondrian,hilbert", "--suppress", "0.1", "-o", "out"], "--suppress is for"),
    ],
)
def test_mistakes_are_named_before_the_table_is_read(release: Run, options: list[str], said: str) -> None:
    ran = release(*options)
    assert ran.code == 2
    assert said in ran.err
    assert not Path("out").exists()


def test_an_option_goes_to_the_methods_that_have_it(release: Run) -> None:
    ran = release("--k", "4", "--method", "mondrian,lattice", "--suppress", "0.2", "-o", "out", "--json")
    assert ran.code == 0, ran.err
    mondrian, lattice = ran.json["releases"]
    assert lattice["parameters"]["suppress"] == 0.2
    assert "suppress" not in mondrian["parameters"]


def test_in_python_a_mapping_of_releases_is_saved_the_same_way(tmp_path: Path) -> None:
    nursery = sf.datasets.nursery()
    table = sf.Table(nursery.frame[::10], nursery.schema)
    releases = {f"k {k}": sf.anonymize(table, f"k={k}", qi=["parents", "form", "children"]) for k in (5, 50)}
    sf.save(releases, tmp_path / "out")
    assert sf.verify(tmp_path / "out" / "k 5").ok
    assert '<a href="k%205/report.html">k 5</a>' in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for name in ("a/b", "..", "", "report.html"):
        with pytest.raises(sf.errors.OptionError, match="cannot be the folder of a release"):
            sf.save({name: releases["k 5"]}, tmp_path / "other")
    with pytest.raises(sf.errors.OptionError, match="no release"):
        sf.save({}, tmp_path / "other")

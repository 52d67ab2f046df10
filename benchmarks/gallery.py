"""Make the pictures of docs/gallery.md: the reports of the built-in public data sets, as a browser shows them.

    python gallery.py                      all pages and pictures; two to three CPU minutes
    python gallery.py assessment frontier  only these

Chromium takes the pictures; SFUMATO_CHROMIUM names another one. The pages themselves are not kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sfumato as sf

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDE = 900


def assessment() -> Any:
    """Return how anonymous the census table is."""
    return sf.assess(sf.datasets.adult(), require="k=5,l=2", detail=True)


def release() -> Any:
    """Return an anonymized census table."""
    return sf.anonymize(sf.datasets.adult(), "k=10,l=2")


def training() -> Any:
    """Return a release of a model at epsilon 1, beside others."""
    return sf.train("adult", epsilon="0.1,0.3,1,3,10,none", target="income")


def generator() -> Any:
    """Return a generator of synthetic rows."""
    return sf.synthesize("adult", epsilon=1, target="income", rows=10_000)


def attacks() -> Any:
    """Return what attackers learn from a forest."""
    frame = sf.datasets.adult("test").frame.head(6000).drop("fnlwgt")
    return sf.attack(frame, target="income", model="forest", attacks=["loss", "gap", "rmia"], references=4, processes=1)


def frontier() -> Any:
    """Return protections of the census table, compared."""
    frame = sf.datasets.adult("train").frame.head(5000)
    table = sf.Table.of(frame, schema=sf.datasets.adult("train").schema)
    return sf.explore(
        table,
        target="income",
        protections=["raw", "mondrian:k=5,20,100", "guided:k=20,100", "dp:epsilon=0.3,1,3", "synthetic:epsilon=1"],
        utilities=["tree"],
        seeds=1,
        jobs=1,
        max_risk=0.09,
        max_advantage=0.1,
        public=True,
    )


def reproduction() -> Any:
    """Return a published experiment, printed figures beside ours."""
    return sf.reproduce("techniques")


# The page of each, its title, and how much of it is shown.
PICTURES: dict[str, tuple[Callable[[], Any], str, int]] = {
    "assessment": (assessment, "How anonymous is the census table?", 760),
    "release": (release, "The census table with k = 10 and l = 2", 900),
    "training": (training, "What privacy costs a model of the census table", 820),
    "generator": (generator, "Made-up rows like those of the census table", 820),
    "attacks": (attacks, "What attackers learn from a forest", 820),
    "frontier": (frontier, "Which protection for the census table?", 1000),
    "reproduction": (reproduction, "Which attack each model prevents", 820),
}


def draw(name: str, folder: Path) -> None:
    """Make a page and its picture."""
    make, title, height = PICTURES[name]
    page, picture = folder / f"{name}.html", IMAGES / f"gallery-{name}.png"
    made = make()
    if name == "training":
        from sfumato.report.model.page import render_training

        page.write_text(render_training(made, title=title), encoding="utf-8")
    else:
        sf.write_report(made, page, title=title)
    chromium = os.environ.get("SFUMATO_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium is not installed")
    flags = ["--headless", "--no-sandbox", "--disable-background-networking", "--hide-scrollbars"]
    size = [f"--window-size={WIDE},{height}", f"--screenshot={picture}"]
    subprocess.run([chromium, *flags, *size, page.as_uri()], check=True, capture_output=True, timeout=180)
    print(f"{picture.name}: {picture.stat().st_size:,} bytes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *PICTURES], help=", ".join(PICTURES))
    names = parser.parse_args().names or list(PICTURES)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            draw(name, Path(folder))


if __name__ == "__main__":
    main()

"""What ``sfumato train mnist --model scattering-linear`` gives by default: accuracy on the test images.

Its settings were fixed before, on training images alone. Every run is kept in training_defaults.json, so an interrupted
study resumes. Runs of the network (``--views 0``) are kept, and no more are made.

Run ``python training_defaults.py [RUNS] [DEVICE]``: it runs what is missing, and prints the table.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import sfumato as sf
from sfumato.learners import Split

KEPT = Path(__file__).with_suffix(".json")
RUNS, VIEWS = 3, 4
CASES = ((False, 0.79), (False, 1.0), (False, 3.0), (True, 0.79), (True, 3.0))
"""All 60,000 images or the 10,000 built in, and epsilon."""
ASKED = {(True, 0.79, VIEWS): "at least 98.6%", (True, 3.0, VIEWS): "at least 99.0%"}


def trained(full: bool, epsilon: float, device: str) -> dict[str, Any]:
    """Train once, and return what came of it."""
    began, cpu = time.monotonic(), time.process_time()
    (run,) = sf.train("mnist", "scattering-linear", epsilon=epsilon, split=Split(full=full), device=device).runs
    facts = {name: run.to_dict()[name] for name in ("epsilon", "spent", "accuracy", "noise_multiplier")}
    took = {"cpu": time.process_time() - cpu, "seconds": time.monotonic() - began, "device": device}
    return {"full": full, "views": VIEWS, **took, **facts, "steps": run.facts["sampling"]["steps"]}


def main(count: int = 0, device: str = "cpu") -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows of the runs that are kept, after making up to ``count`` of each."""
    runs: list[dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT.exists() else []
    rows = []
    for views in (VIEWS, 0):
        for full, epsilon in CASES:
            case = (full, epsilon, views)
            while views and sum(_case(run) == case for run in runs) < count:
                runs.append(trained(full, epsilon, device))
                KEPT.write_text(json.dumps(runs, indent=1) + "\n")
            mine = [run for run in runs if _case(run) == case]
            if not mine:
                continue
            found = [run["accuracy"] for run in mine]
            spread = f", spread {statistics.stdev(found):.2%}" if len(found) > 1 else ""
            options = f"{' --full' if full else ''} --model scattering-linear --epsilon {epsilon:g}"
            options += "" if views else " --views 0"
            rows.append(
                (
                    f"`sfumato train mnist{options}`: {mine[0]['steps']} noisy sums over all images, runs with noise "
                    f"of their own: {len(mine)}",
                    f"{statistics.mean(found):.2%}{spread}",
                    ASKED.get(case, ""),
                )
            )
    return rows


def _case(run: dict[str, Any]) -> tuple[bool, float, int]:
    return run["full"], run["epsilon"], run["views"]


if __name__ == "__main__":
    for row in main(int(sys.argv[1]) if sys.argv[1:] else RUNS, *sys.argv[2:3]):
        print(" | ".join(row))

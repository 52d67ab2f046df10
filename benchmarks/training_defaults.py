"""What ``sfumato train mnist --model scattering-linear`` gives by default: accuracy on the test images.

Steps and learning rate follow from epsilon and the number of images (see `learners/networks/scattering.py`), which was
fixed before, on training images alone. Every run is kept in training_defaults.json, so an interrupted study resumes.

Run ``python training_defaults.py [RUNS]``: it runs what is missing, and prints the table.
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
RUNS = 3
CASES = ((False, 0.79), (False, 1.0), (False, 3.0), (True, 0.79))  # all 60,000 images or the 10,000 built in, epsilon


def trained(full: bool, epsilon: float) -> dict[str, Any]:
    """Train once, and return what came of it."""
    began = time.process_time()
    (run,) = sf.train("mnist", "scattering-linear", epsilon=epsilon, split=Split(full=full)).runs
    return {"full": full, "cpu": time.process_time() - began, **kept(run.to_dict())}


def kept(run: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a run, from the JSON of the command too."""
    facts = {name: run[name] for name in ("epsilon", "spent", "accuracy", "noise_multiplier")}
    return {**facts, "steps": run["sampling"]["steps"], "learning_rate": run["rule"]["learning_rate"]}


def main(count: int = 0) -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows of the runs that are kept, after making up to ``count`` of each."""
    runs: list[dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT.exists() else []
    rows = []
    for full, epsilon in CASES:
        while sum((run["full"], run["epsilon"]) == (full, epsilon) for run in runs) < count:
            runs.append(trained(full, epsilon))
            KEPT.write_text(json.dumps(runs, indent=1) + "\n")
        mine = [run for run in runs if (run["full"], run["epsilon"]) == (full, epsilon)]
        if not mine:
            continue
        found = [run["accuracy"] for run in mine]
        spread = f", spread {statistics.stdev(found):.2%}" if len(found) > 1 else ""
        rows.append(
            (
                f"`sfumato train mnist{' --full' if full else ''} --model scattering-linear --epsilon {epsilon:g}`: "
                f"{mine[0]['steps']} full-batch steps, rate {mine[0]['learning_rate']:.2f}, noise "
                f"{mine[0]['noise_multiplier']:.2f} clips, runs with noise of their own: {len(mine)}",
                f"{statistics.mean(found):.2%}{spread}",
                "98.0%, that of the loop by hand" if full else "",
            )
        )
    return rows


if __name__ == "__main__":
    for row in main(int(sys.argv[1]) if sys.argv[1:] else RUNS):
        print(" | ".join(row))

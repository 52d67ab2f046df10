"""Our bounds of audits beside those of jax_privacy, on the same counts.

jax_privacy's auditing module needs only numpy, scipy and dp-accounting, so it runs in our environment without jax:

    pip install --no-deps --target /tmp/jax-privacy jax-privacy==2.0.0
    python attacks_peers_jax.py /tmp/jax-privacy/jax_privacy/auditing.py
"""

from __future__ import annotations

import importlib.util
import math
import sys
from typing import Any

import numpy as np

from sfumato.attacks import Calls, Guesses, fdp_gaussian_epsilon, one_run_epsilon

DELTA = 1e-5


def loaded(path: str) -> Any:
    """Return jax_privacy's auditing module without its package, which needs jax."""
    found = importlib.util.spec_from_file_location("auditing", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["auditing"] = module
    found.loader.exec_module(module)
    return module


def main() -> None:
    """Print the largest differences over many random counts."""
    peer = loaded(sys.argv[1])
    rng = np.random.default_rng(0)
    differences: dict[str, list[float]] = {"one run": [], "one run, curves": [], "two samples": []}
    for _ in range(40):
        canaries = int(rng.choice([50, 200, 1000, 5000]))
        made = int(rng.integers(10, min(canaries, 1500) + 1))
        right = int(rng.integers(made // 2, made + 1))
        sure = float(rng.choice([0.9, 0.95, 0.99]))
        guesses, counts = Guesses(canaries, made, right), (0, canaries, made, right, 1 - sure, DELTA)
        differences["one run"].append(one_run_epsilon(guesses, DELTA, sure) - peer._epsilon_one_run(*counts))
        curves = fdp_gaussian_epsilon(guesses, DELTA, sure) - peer._epsilon_one_run_fdp(*counts)
        differences["one run, curves"].append(curves)
        runs = int(rng.integers(50, 2000))
        hits, alarms = int(rng.integers(runs // 2, runs + 1)), int(rng.integers(0, runs // 2))
        scores = [np.repeat([1.0, 0.0], [count, runs - count]) for count in (hits, alarms)]
        auditor = peer.CanaryScoreAuditor(*scores)
        theirs = auditor.epsilon_clopper_pearson(1 - sure, DELTA, threshold_strategy=peer.Explicit(0.5))
        power, false = Calls(hits, runs, alarms, runs).bounds(sure)  # theirs looks at one of the two ratios only
        ours = max(0.0, math.log(max(power - DELTA, 1e-300) / false))
        differences["two samples"].append(ours - theirs)
    for name, found in differences.items():
        print(f"{name}: {len(found)} random counts, largest difference {np.abs(found).max():.1e}")


if __name__ == "__main__":
    main()

"""Synthetic rows by dpmm, in the environment of requirements-dpmm.txt; synthesizers.py scores them.

dpmm is given its defaults, with the public domain of every column. Its binning of numbers (PrivTree) costs an epsilon
of 0.1 beside that of the method, so it spends up to 1.1 where our methods spend 1.

    python synthesizers_peers_dpmm.py train.csv domain.json aim --seed 0 --epsilon 1 --rows 32561 -o aim-0.csv

``domain.json`` has a list of categories, or a pair of bounds, for every column.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path
from typing import Any

_PIPELINES = {"aim": "AIMPipeline", "mst": "MSTPipeline", "privbayes": "PrivBayesPipeline"}


def domain_of(columns: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """Return the domain in the form that dpmm asks for."""
    return {
        name: {"categories": one} if isinstance(one[0], str) else {"lower": one[0], "upper": one[1]}
        for name, one in columns.items()
    }


def main() -> None:
    """Write synthetic rows, and print what they took."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("rows_of", type=Path)
    options.add_argument("domain", type=Path)
    options.add_argument("method", choices=_PIPELINES)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--epsilon", type=float, default=1.0)
    options.add_argument("--delta", type=float, default=1e-5)
    options.add_argument("--rows", type=int, required=True)
    options.add_argument("-o", "--output", type=Path, required=True)
    asked = options.parse_args()
    pandas = importlib.import_module("pandas")
    pipelines = importlib.import_module("dpmm.pipelines")

    columns = json.loads(asked.domain.read_text())
    texts = {name: str for name, one in columns.items() if isinstance(one[0], str)}
    table = pandas.read_csv(asked.rows_of, dtype=texts, keep_default_na=False)
    began = time.process_time()
    method = getattr(pipelines, _PIPELINES[asked.method])(epsilon=asked.epsilon, delta=asked.delta, n_jobs=1)
    method.fit(table, domain=domain_of(columns), random_state=asked.seed)
    learned = time.process_time()
    drawn = method.generate(n_records=asked.rows, random_state=asked.seed)
    ended = time.process_time()
    drawn[list(columns)].to_csv(asked.output, index=False)
    print(json.dumps({"method": asked.method, "seed": asked.seed, "learn": learned - began, "draw": ended - learned}))


if __name__ == "__main__":
    main()

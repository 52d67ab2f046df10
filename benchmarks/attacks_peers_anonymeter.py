"""Singling-out, linkability and inference beside anonymeter, on the same synthetic sets of Adult.

Distances and conditions must agree exactly, and rates of success up to what ties and random conditions explain. The
tables have no missing values, negative numbers or copies of rows: there anonymeter counts otherwise, or wrongly.

    python attacks_peers_anonymeter.py .venv-anonymeter/bin/python     # see requirements-anonymeter.txt
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

COLUMNS = ["age", "workclass", "education", "marital-status", "occupation", "sex", "capital-gain", "hours-per-week"]
SECRET = "income"
ROWS, CONDITIONS = 2000, 500
ONE, OTHER = COLUMNS[0::2], COLUMNS[1::2]


def theirs(folder: Path) -> dict[str, Any]:
    """Return what anonymeter finds in the tables of a folder; this runs in its environment."""
    evaluators = importlib.import_module("anonymeter.evaluators")
    neighbours = importlib.import_module("anonymeter.neighbors.mixed_types_kneighbors")
    singling = importlib.import_module("anonymeter.evaluators.singling_out_evaluator")
    inside, outside = (pl.read_parquet(folder / f"{name}.parquet") for name in ("inside", "outside"))
    both = pl.concat([inside, outside])
    found: dict[str, Any] = {}
    for name in ("permuted", "leaky"):
        made = pl.read_parquet(folder / f"{name}.parquet")
        ours, control, synthetic = (frame.to_pandas() for frame in (inside, outside, made))
        search = neighbours.MixedTypeKNeighbors(n_neighbors=1, n_jobs=1).fit(synthetic[COLUMNS])
        distance, _ = search.kneighbors(both.to_pandas()[COLUMNS], return_distance=True)
        conditions = [_expression(parts) for parts in json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))]
        single = singling.univariate_singling_out_queries(made, 10**9, np.random.default_rng(0))
        rates = {}
        common = {"ori": ours, "syn": synthetic, "control": control, "n_attacks": ROWS}
        for attack, evaluator in (
            ("linkability", evaluators.LinkabilityEvaluator(aux_cols=(ONE, OTHER), **common)),
            ("inference", evaluators.InferenceEvaluator(aux_cols=COLUMNS, secret=SECRET, **common)),
        ):
            result = evaluator.evaluate(n_jobs=1).results()
            rates[attack] = [int(result.n_success), int(result.n_control), ROWS]
        for attack, mode in (("singling-out", "multivariate"), ("singling-out-univariate", "univariate")):
            evaluator = evaluators.SinglingOutEvaluator(**{**common, "n_attacks": CONDITIONS}, seed=0)
            result = evaluator.evaluate(mode=mode).results()
            rates[attack] = [int(result.n_success), int(result.n_control), CONDITIONS]
        found[name] = {
            "distance": distance[:, 0].tolist(),
            "met": list(singling._evaluate_queries(inside, conditions)),
            "single": len(single),
            "rates": rates,
        }
    return found


def _expression(parts: list[list[Any]]) -> pl.Expr:
    """Return a condition as an expression."""
    signs = {"is": pl.Expr.eq, "at most": pl.Expr.le, "at least": pl.Expr.ge}
    return pl.all_horizontal([signs[sign](pl.col(column), value) for column, sign, value in parts])


def tables() -> dict[str, pl.DataFrame]:
    """Return distinct rows of Adult, members and others, and two synthetic sets."""
    from sfumato import datasets

    adult = datasets.adult().to_polars().select(*COLUMNS, SECRET).with_columns(pl.col(pl.String).fill_null("unknown"))
    rows = adult.drop_nulls().unique(maintain_order=True).sample(fraction=1, shuffle=True, seed=0)
    inside, outside, others = (rows[start * ROWS : (start + 1) * ROWS] for start in range(3))
    rng = np.random.default_rng(0)
    permuted = pl.DataFrame([values.gather(rng.permutation(ROWS)) for values in inside.iter_columns()])
    leaky = pl.concat([inside[: ROWS // 5], others[: ROWS - ROWS // 5]]).sample(fraction=1, shuffle=True, seed=1)
    return {"inside": inside, "outside": outside, "permuted": permuted.unique(maintain_order=True), "leaky": leaky}


def compare(python: str) -> None:
    """Run both, and print them beside each other."""
    import sfumato as sf
    from sfumato.attacks import Records, SyntheticTarget, result_of
    from sfumato.attacks.tables.conditions import ReleasedRows, joined, met
    from sfumato.attacks.tables.distances import Distances
    from sfumato.attacks.tables.inference import Inference
    from sfumato.attacks.tables.linkability import Linkability
    from sfumato.attacks.tables.reading import read_pairing
    from sfumato.attacks.tables.singling_out import SinglingOut, SinglingOutUnivariate

    made = tables()
    inside, outside = Records(made["inside"]), Records(made["outside"])
    signs = ["is", "at most", "at least"]
    ours: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for table, frame in made.items():
            frame.write_parquet(folder / f"{table}.parquet")
        for table in ("permuted", "leaky"):
            target = SyntheticTarget(made[table], sf.Table.of(made[table], sensitive=[SECRET]).schema)
            both = read_pairing(target, inside, outside, [*COLUMNS, SECRET])
            release = ReleasedRows(both, np.random.default_rng(0), distinct=True)
            random = release.random(2000, 3, np.random.default_rng(1))
            values = [domain.values.to_list() for domain in both.domains]
            plain = [
                [
                    [both.names[column], signs[sign], values[column][code]]
                    for column, sign, code in zip(*parts, strict=True)
                ]
                for parts in zip(random.column.tolist(), random.sign.tolist(), random.code.tolist(), strict=True)
            ]
            (folder / f"{table}.json").write_text(json.dumps(plain), encoding="utf-8")
            attacks = [
                Linkability((ONE, OTHER), queries=ROWS),
                Inference(SECRET, queries=ROWS),
                SinglingOut(queries=CONDITIONS),
                SinglingOutUnivariate(queries=CONDITIONS),
            ]
            rates = {}
            for attack in attacks:
                found = result_of(attack, [attack.run(target, inside, outside, 0)], seed=0).decisions
                rates[attack.name] = [found.true_positives, found.false_positives, found.members]
            ours[table] = {
                "distance": (len(COLUMNS) * Distances(both, COLUMNS).least(np.arange(2 * ROWS))).tolist(),
                "met": met(both, random, np.arange(ROWS)).tolist(),
                "single": len(joined([release.once(column) for column in range(len(both.names))], 1)),
                "rates": rates,
            }
        command = [python, __file__, "--peer", str(folder)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        peer = json.loads(done.stdout.splitlines()[-1])
    for table in ("permuted", "leaky"):
        mine, other = ours[table], peer[table]
        apart = np.abs(np.subtract(mine["distance"], other["distance"])).max()
        differ = int(np.sum(np.not_equal(mine["met"], other["met"])))
        print(f"{table}: {2 * ROWS} distances to the nearest row differ by at most {apart:.1e};", end=" ")
        print(f"{differ} of {len(mine['met'])} conditions are met by another number of records;", end=" ")
        print(f"conditions on one column: {mine['single']}, anonymeter {other['single']}")
        for attack, (hits, alarms, number) in mine["rates"].items():
            theirs_hits, theirs_alarms, theirs_number = other["rates"][attack]
            shown = []
            for what, a, b in (("members", hits, theirs_hits), ("control", alarms, theirs_alarms)):
                one, two = a / number, b / theirs_number
                pooled = (a + b) / (number + theirs_number)
                error = math.sqrt(max(pooled * (1 - pooled), 1e-12) * (1 / number + 1 / theirs_number))
                shown.append(f"{what} {one:.4f}, anonymeter {two:.4f} ({abs(one - two) / error:.1f} standard errors)")
            print(f"  {attack}: {'; '.join(shown)}")


def main() -> None:
    """Compare, or be the peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", nargs="?", help="the Python of the environment with anonymeter")
    parser.add_argument("--peer", help="the folder with the tables")
    given = parser.parse_args()
    if given.peer:
        print(json.dumps(theirs(Path(given.peer))))
    else:
        compare(given.python)


if __name__ == "__main__":
    main()

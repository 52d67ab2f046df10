"""What attackers learn from models: published tables of membership and attribute inference, made anew.

Table 1 and 2 of Goldsteen et al., "Anonymizing machine learning models" (DPM 2021): Adult, Lending Club in the place of
their loan table, and Nursery; and two sets that membership attacks are often reported on, Location30 and a sample of
Texas hospital discharges. All rows of a table are one pool. A target is trained on a random half of it, its members;
the other half are the non-members. The reference models, each on a random half of the pool too (each row is in half of
them), are shared by all targets of a row: their halves are independent of the targets'. The parameters were fixed
beforehand.

    python attacks.py                                     all rows, 5 targets, 32 references, one process per core
    python attacks.py --only adult-rf,nursery --targets 1 --references 8
    python attacks.py --table                             prints the tables of what attacks.json holds

Each finished row is kept in attacks.json at once; what its reference models say is kept in the folder of the large
tables (see README.md), so that another attack does not train them again. All tables but Adult and Nursery are in the
folder that SFUMATO_DATA names. The networks of Table 1 are trained on a GPU, and forests may be: see attacks_gpu.py.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes are parallel, not the libraries

import argparse
import json
import math
import resource
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from joblib.externals.loky import get_reusable_executor  # type: ignore[import-untyped]
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

import attacks_gpu
import sfumato as sf
from guided_study import LOAN, TWELVE
from sfumato.anonymizers import AnonymizedModel
from sfumato.attacks import (
    ATTACKS,
    AttributeInference,
    FitEstimator,
    ModelTarget,
    Records,
    attacks_of,
    procedure_of,
    records_of,
    run_attacks,
)
from sfumato.attacks.membership.references import halves, train_references
from sfumato.attacks.membership.signals import Signals
from sfumato.learners import PrivateClassifier

KEPT = Path(__file__).with_suffix(".json")
RESULTS = Path(__file__).with_name("RESULTS.md")
CACHE = Path(os.environ.get("SFUMATO_BENCH", Path(tempfile.gettempdir()) / "sfumato-bench"))
DATA = Path(os.environ.get("SFUMATO_DATA", "../shared/data"))
BEGIN, END = "<!-- attacks -->", "<!-- end of attacks -->"
USUAL = ("loss", "lira", "rmia")
_MEMBERSHIP = (
    "loss", "gap", "network", "quantile", "label-only", "lira", "lira-offline", "rmia", "rmia-offline", "informia",
    "bavaria", "bavaria-offline",
)  # fmt: skip
MEMBERSHIP = tuple(name for name in _MEMBERSHIP if name in ATTACKS)
Printed = tuple[float, float, float, float, float]


@dataclass(frozen=True)
class Row:
    """A row of a table: what is trained on what, how it is protected, and the figures that were printed."""

    title: str
    table: str
    model: str
    protect: str | None = None
    printed: Printed | None = None
    """Training and test accuracy; accuracy, precision and recall of the attack network."""
    references: int = 32


ROWS = {
    "adult-rf": Row("Adult RF", "adult", "forest", None, (0.98, 0.83, 0.58, 0.56, 0.78)),
    "adult-rf-k50": Row("Adult RF k=50", "adult", "forest", "guided:k=50", (0.85, 0.83, 0.51, 0.51, 0.33)),
    "adult-rf-k100": Row("Adult RF k=100", "adult", "forest", "guided:k=100", (0.85, 0.81, 0.50, 0.50, 0.76)),
    "adult-rf-e10": Row("Adult RF epsilon 10", "adult", "forest", "dp:epsilon=10", (0.82, 0.81, 0.53, 0.52, 0.95)),
    "adult-rf-e1": Row("Adult RF epsilon 1", "adult", "forest", "dp:epsilon=1", (0.80, 0.79, 0.50, 0.52, 0.13)),
    "adult-nn": Row("Adult NN", "adult", "network", None, (0.96, 0.89, 0.53, 0.52, 0.60)),
    "adult-nn-k25": Row("Adult NN k=25", "adult", "network", "guided:k=25", (0.84, 0.82, 0.50, 0.50, 0.71)),
    "adult-nn-k50": Row("Adult NN k=50", "adult", "network", "guided:k=50", (0.84, 0.81, 0.50, 0.50, 0.32)),
    "adult-nn-e2.11": Row(
        "Adult NN epsilon 2.11, delta 1e-5", "adult", "mlp", "dp:epsilon=2.11", (0.83, 0.83, 0.50, 0.50, 0.14), 8
    ),
    "loan-rf": Row("Loan RF", "loan", "forest", None, (1.0, 0.92, 0.67, 0.65, 0.71), 8),
    "loan-rf-k100": Row("Loan RF k=100", "loan", "forest", "guided:k=100", (1.0, 0.92, 0.51, 0.51, 0.29), 8),
    "loan-rf-e10": Row("Loan RF epsilon 10", "loan", "forest", "dp:epsilon=10", (0.82, 0.81, 0.50, 0.66, 0.0094), 8),
    "loan-rf-e1": Row("Loan RF epsilon 1", "loan", "forest", "dp:epsilon=1", (0.82, 0.80, 0.50, 0.50, 0.18), 8),
    "loan-nn": Row("Loan NN", "loan", "network", None, (0.95, 0.95, 0.54, 0.53, 0.67)),
    "loan-nn-k200": Row("Loan NN k=200", "loan", "network", "guided:k=200", (0.95, 0.92, 0.50, 0.50, 0.46)),
    "loan-nn-e3.1": Row(
        "Loan NN epsilon 3.1, delta 1e-5", "loan", "mlp", "dp:epsilon=3.1", (0.87, 0.87, 0.50, 0.50, 0.47), 8
    ),
    "location30": Row("Location30, MLP 512-256-128", "location30", "location-mlp"),
    "texas": Row("Texas sample, RF, type of admission", "texas", "forest"),
    "nursery": Row("Nursery DT", "nursery", "tree"),
    "nursery-k100": Row("Nursery DT k=100", "nursery", "tree", "guided:k=100"),
    "mnist": Row("MNIST, one hidden layer of 100, ordinary", "mnist", "mlp"),
    "mnist-e1": Row("MNIST, the same, epsilon 1", "mnist", "mlp", "dp:epsilon=1"),
}
# Nursery, `social` is `problematic`: test accuracy; accuracy, precision and recall of the guesses about members.
TABLE_2 = {"nursery": (0.68, 0.61, 0.41, 0.32), "nursery-k100": (0.74, 0.56, 0.31, 0.21)}


@cache
def pool_of(name: str) -> tuple[sf.Table | None, Records]:
    """Return a table, and all its records; Location30 is an array."""
    if name == "location30":
        stored = np.load(DATA / "location30" / "location30.npz")
        rows = np.unpackbits(stored["X"], axis=1)[:, : int(stored["n_features"])].astype(np.float32)
        return None, Records(rows, stored["y"].astype(np.int64))
    if name == "texas":
        frame = pl.read_parquet(DATA / "texas-sample" / "texas_sample.parquet")
        table, target = sf.Table(frame.with_columns(pl.col("TYPE_OF_ADMISSION").cast(pl.String))), "TYPE_OF_ADMISSION"
    elif name == "loan":
        table, target = sf.Table(sf.datasets.lending().frame.select(*LOAN, "outcome")), "outcome"
    elif name == "nursery":
        table, target = sf.datasets.nursery(), "class"
        frame = table.to_polars().cast(pl.String)
        table = sf.Table(frame.filter(pl.len().over("class") > 2))  # "recommend" has two rows
    else:
        public = sf.datasets.adult()
        names = [*TWELVE, "income"]
        frame = public.to_polars().select(names).cast({pl.Categorical: pl.String})
        schema = sf.Schema(
            sf.Column(name=one, bounds=public.schema[one].bounds, domain=public.schema[one].domain) for one in names
        )
        table, target = sf.Table(frame, schema), "income"
    return table, records_of(table, target)


def target_of(name: str) -> str:
    """Return the column that the models predict."""
    return {"adult": "income", "loan": "outcome", "nursery": "class", "texas": "TYPE_OF_ADMISSION"}[name]


def procedure(row: Row) -> Any:
    """Return how the models of a row are trained; RESULTS.md says which choices were made after a first look.

    Guided anonymization is guided by the labels themselves; all features are quasi-identifiers, rows are published by
    the medians of their groups, and no other configuration is tried.
    """
    if row.model == "network":
        return _trained_elsewhere
    if row.model == "location-mlp":
        return FitEstimator(MLPClassifier((512, 256, 128), learning_rate_init=0.001, max_iter=50))
    table, _ = pool_of(row.table)
    assert table is not None
    if row.protect is None or not row.protect.startswith("guided:"):
        return procedure_of(row.model, row.protect, table, target_of(row.table))
    plain = procedure_of(row.model, None, table, target_of(row.table))
    model = AnonymizedModel(
        plain.estimator,
        row.protect.removeprefix("guided:"),
        qi=plain.columns or (),
        guide="true",
        cut_by="qi",
        transform=False,
    )
    return FitEstimator(model, columns=plain.columns)


def _trained_elsewhere(records: Records, seed: int) -> Any:
    raise NotImplementedError("the networks are trained by attacks_gpu.py")


class OwnLabel:
    """Train a reference model; return the probability that it gives to every row's own label."""

    def __init__(self, train: Any, pool: Records) -> None:
        self.train, self.pool = train, pool

    def __call__(self, rows: NDArray[np.int64], seed: int) -> Any:
        """Train on some rows of the pool."""
        assert self.pool.labels is not None
        model = self.train(self.pool.take(rows), seed)
        return ModelTarget(model, classes=np.unique(self.pool.labels)).own_label(self.pool)


class SharedReferences(ModelTarget):
    """A target that is compared with reference models that are trained already."""

    def __init__(self, model: Any, train: Any, found: NDArray[Any], inside: NDArray[np.bool_], **options: Any) -> None:
        super().__init__(model, procedure=train, references=len(found), **options)
        self.found, self.inside = found, inside

    def signals(self, members: Records, nonmembers: Records, seed: int) -> Signals:
        """Return the signals of members and non-members, in this order."""
        return Signals(self.own_label(members.and_(nonmembers)), self.found, self.inside)


def cpu() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def split_of(size: int, target: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the members and the non-members of a target."""
    order = np.random.default_rng([19, target]).permutation(size)
    return np.sort(order[: size // 2]), np.sort(order[size // 2 :])


def membership(
    name: str, targets: range, references: int, processes: int | None, elsewhere: Path | None
) -> dict[str, Any]:
    """Attack the targets of a row with all membership attacks."""
    row = ROWS[name]
    _, pool = pool_of(row.table)
    train, each = procedure(row), list[dict[str, Any]]()
    made = None if elsewhere is None else references_from(elsewhere, name)
    found, trained = made or references_of(name, train, pool, references, processes)
    inside, began = halves(len(pool), len(found), seed=7), cpu()
    for number in targets:
        if elsewhere is not None and made is not None:
            model = model_from(elsewhere, name, number)
        else:
            model = train(pool.take(split_of(len(pool), number)[0]), 500 + number)
        each.append(attacked(row, model, number, train, found, inside))
        print(f" target {number + 1}: RMIA {each[-1]['attacks']['rmia']['auc']:.4f}", flush=True)
    return {
        "targets": each,
        "references": len(found),
        "elsewhere": made is not None,
        "attacks": list(each[0]["attacks"]),
        "rows": len(pool),
        "cpu_references": round(trained, 1),
        "cpu": round(trained + cpu() - began, 1),
    }


def references_of(
    name: str, train: Any, pool: Records, count: int, processes: int | None
) -> tuple[NDArray[Any], float]:
    """Return what reference models say about all rows, and the CPU seconds of their training."""
    place = CACHE / f"attacks-{name}-{count}.npz"
    if place.exists():
        stored = np.load(place)
        return stored["found"].astype(np.float64), float(stored["cpu"])
    began, inside = cpu(), halves(len(pool), count, seed=7)
    found = train_references(OwnLabel(train, pool), inside, seed=1000, processes=processes, progress=_dots)
    get_reusable_executor().shutdown(wait=True)  # the CPU time of a process counts when it has ended
    place.parent.mkdir(parents=True, exist_ok=True)
    np.savez(place, found=found, cpu=cpu() - began)
    return found, cpu() - began


def references_from(folder: Path, name: str) -> tuple[NDArray[Any], float] | None:
    """Return what reference models say that were trained by attacks_gpu.py; None if there are none of a row."""
    if (place := folder / f"{name}-references.npz").exists():
        stored = np.load(place)
        return 1 / (1 + np.exp(-stored["logits"].astype(np.float64))), 0.0
    if (place := folder / f"{name}-forests.npz").exists():
        stored = np.load(place)
        return stored["found"].astype(np.float64), float(stored["cpu"])
    return None


def model_from(folder: Path, name: str, number: int) -> Any:
    """Return a target of attacks_gpu.py: a network that it has trained, or a forest of the rows that it has coded."""
    _, pool = pool_of(ROWS[name].table)
    assert pool.labels is not None
    coding, classes = attacks_gpu.Coding(pool.frame), np.unique(pool.labels)
    if ROWS[name].model == "network":
        return attacks_gpu.Network(attacks_gpu.load(folder, name, number), coding, classes)
    return attacks_gpu.Forest(attacks_gpu.forest_of(folder, name, number), coding, classes)


def attacked(
    row: Row, model: Any, number: int, train: Any, found: NDArray[Any], inside: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return the accuracies of one target, and what each attack found."""
    _, pool = pool_of(row.table)
    assert pool.labels is not None
    own, others = split_of(len(pool), number)
    order = np.concatenate([own, others])
    target = SharedReferences(model, train, found[:, order], inside[:, order], classes=np.unique(pool.labels))
    members, nonmembers = pool.take(own), pool.take(others)
    report = run_attacks(attacks_of(MEMBERSHIP), target, members, nonmembers, seed=number)
    results = {}
    for result in report.results:
        plain = result.to_dict()
        results[result.name] = {
            **{name: _round(plain[name]) for name in ("auc", "ci", "accuracy", "precision", "recall")},
            "leaks": plain["leaks"],
            "tpr_at_fpr": {
                rate: None if one is None else [_round(one["tpr"]), _round(one["ci"])]
                for rate, one in plain["tpr_at_fpr"].items()
            },
        }
    spent = getattr(getattr(model, "spent_", None), "epsilon", None)
    return {
        "train": _round(target.accuracy(members)),
        "test": _round(target.accuracy(nonmembers)),
        "epsilon": None if spent is None else _round(spent),
        "attacks": results,
    }


def inversion(row: Row, targets: range) -> dict[str, Any]:
    """Reconstruct the classes of MNIST from networks: 10,000 training images, 4 epochs of batches of 256 on average."""
    digits, began, each = sf.datasets.mnist(), cpu(), []
    images = np.concatenate([digits.train_images, digits.test_images])  # the test images are by other writers
    pool = Records(images, np.concatenate([digits.train_labels, digits.test_labels]))
    private = row.protect is not None
    for number in targets:
        order = np.random.default_rng([19, number]).permutation(len(pool))
        members, nonmembers = pool.take(order[:10_000]), pool.take(order[10_000:])
        model = PrivateClassifier(
            model="mlp", epsilon=1.0 if private else math.inf, classes=range(10), rows=len(members), batch_size=256,
            epochs=4, learning_rate=0.5 if private else 0.05, seed=number,
        )  # fmt: skip
        target = ModelTarget(model.fit(members.rows, members.labels))
        result = run_attacks(attacks_of(["inversion"]), target, members, nonmembers, seed=number).results[0].to_dict()
        each.append(
            {
                "train": _round(target.accuracy(members)),
                "test": _round(target.accuracy(nonmembers)),
                "epsilon": _round(model.spent_.epsilon) if private else None,
                **{name: _round(result[name]) for name in ("auc", "ci", "details")},
            }
        )
        print(f" target {number + 1}: {each[-1]['details']['likeness']}", flush=True)
    return {"targets": each, "references": 0, "rows": len(pool), "cpu": round(cpu() - began, 1)}


def published_network(number: int) -> dict[str, float]:
    """Attack a forest of Adult with the network of the paper, as ART 1.20.1 has it: probabilities in place of logits.

    Branches of 512-100-64 units for the probabilities and of 256-64 for the label, Adam 0.0001, batches of 100, 100
    epochs; half of the members and as many non-members train it, and it judges the others.
    """
    import torch
    from torch import nn

    _, pool = pool_of("adult")
    own, others = split_of(len(pool), number)
    model = procedure(ROWS["adult-rf"])(pool.take(own), 500 + number)
    codes = np.unique(np.asarray(pool.labels), return_inverse=True)[1]
    given = torch.from_numpy(np.hstack([model.predict_proba(pool.frame), np.eye(2)[codes]])).float()
    rng = np.random.default_rng(number)
    halves_of = [np.array_split(rng.permutation(rows), 2) for rows in (own, others)]
    known, asked = (torch.from_numpy(np.concatenate([half[i] for half in halves_of])) for i in (0, 1))
    inside = torch.zeros(len(pool))
    inside[torch.from_numpy(own)] = 1
    torch.manual_seed(number)
    parts = [(2, 512), (512, 100), (100, 64)], [(2, 256), (256, 64)]
    branches = nn.ModuleList(
        nn.Sequential(*(layer for pair in widths for layer in (nn.Linear(*pair), nn.ReLU()))) for widths in parts
    )
    last = nn.Linear(128, 1)

    def score(rows: Any) -> Any:
        x = given[rows]
        return last(torch.cat([branches[0](x[:, :2]), branches[1](x[:, 2:])], dim=1))[:, 0]

    optimizer = torch.optim.Adam([*branches.parameters(), *last.parameters()], lr=1e-4)
    for _ in range(100):
        for rows in known[torch.randperm(len(known))].split(100):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(score(rows), inside[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        called, true = score(asked) > 0, inside[asked] == 1
    hits, alarms = (float(called[true == yes].float().mean()) for yes in (True, False))
    precision = hits / (hits + alarms)
    return {"accuracy": (1 + hits - alarms) / 2, "precision": precision, "recall": hits}


def attributes(row: Row, targets: range) -> dict[str, Any]:
    """Guess `social` of Nursery with the models of a row."""
    _, pool = pool_of(row.table)
    train, began, each = procedure(row), cpu(), []
    for number in targets:
        members, nonmembers = (pool.take(rows) for rows in split_of(len(pool), number))
        assert pool.labels is not None
        target = ModelTarget(train(members, 500 + number), classes=np.unique(pool.labels))
        attack = AttributeInference("social", positive="problematic")
        result = run_attacks([attack], target, members, nonmembers, seed=number).results[0]
        plain = result.to_dict()
        each.append(
            {
                "train": _round(target.accuracy(members)),
                "test": _round(target.accuracy(nonmembers)),
                **{name: _round(plain[name]) for name in ("auc", "ci", "accuracy", "precision", "recall", "control")},
                "details": {name: _round(value) for name, value in plain["details"].items()},
                "verdict": plain["verdict"],
            }
        )
        print(f" target {number + 1}: {plain['verdict']}", flush=True)
    return {"targets": each, "references": 0, "rows": len(pool), "cpu": round(cpu() - began, 1)}


def _dots(share: float) -> None:
    print(f"\r references: {share:.0%}", end="\n" if share >= 1 else "", flush=True)


def _round(value: Any) -> Any:
    """Return numbers with four decimals, which is more than the intervals allow."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: _round(one) for name, one in value.items()}
    return [_round(one) for one in value] if isinstance(value, list) else value


def kept(file: Path = KEPT) -> dict[str, Any]:
    """Return the rows that are finished."""
    stored: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return stored


def keep(file: Path, name: str, result: dict[str, Any]) -> None:
    """Keep a finished row."""
    stored = {**kept(file), name: result}
    lines = [f"{json.dumps(one)}: {json.dumps(stored[one])}" for one in ROWS if one in stored]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def join(file: Path, others: Sequence[Path]) -> None:
    """Keep rows whose targets were attacked one by one."""
    found: dict[str, Any] = {}
    for other in sorted(others):
        for name, result in kept(other).items():
            one = found.setdefault(name, {**result, "targets": [], "cpu": result["cpu_references"]})
            one["targets"] += result["targets"]
            one["cpu"] = round(one["cpu"] + result["cpu"] - result["cpu_references"], 1)
    for name, result in found.items():
        keep(file, name, result)


def _spread(values: Sequence[float | None]) -> str:
    """Return the mean, and the standard deviation over targets."""
    known = [value for value in values if value is not None]
    if not known:
        return "none"
    mean = statistics.mean(known)
    return f"{mean:.3f}" + (f" ± {statistics.stdev(known):.3f}" if len(known) > 1 else "")


def _of(result: dict[str, Any], attack: str, what: str) -> list[Any]:
    return [target["attacks"].get(attack, {}).get(what) for target in result["targets"]]


def table() -> str:
    """Return what is kept as tables in Markdown: ours, and the printed figures in brackets."""
    stored = kept()
    lines = [
        "Table 1, membership inference: mean ± deviation over the targets, and in brackets what was printed. "
        "Accuracy, precision and recall are those of the attack network, the attack of the paper; the last columns "
        "are the AUC of other attacks.",
        "",
        "| target | targets, references | train | test | accuracy | precision | recall "
        "| loss | LiRA | RMIA | best of all |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in ROWS.items():
        if name not in stored or row.table in ("nursery", "mnist"):
            continue
        result = stored[name]
        own = [_spread([target[what] for target in result["targets"]]) for what in ("train", "test")]
        own += [_spread(_of(result, "network", what)) for what in ("accuracy", "precision", "recall")]
        if row.printed is not None:
            own = [f"{one} ({printed:g})" for one, printed in zip(own, row.printed, strict=True)]
        aucs = {attack: statistics.mean(_of(result, attack, "auc")) for attack in result["attacks"]}
        best = max(aucs, key=lambda attack: aucs[attack])
        cells = [row.title, f"{len(result['targets'])}, {result['references']}", *own]
        cells += [_spread(_of(result, attack, "auc")) for attack in USUAL]
        lines.append(f"| {' | '.join([*cells, f'{aucs[best]:.3f} ({best})'])} |")
    usual = [name for name in ("adult-rf", "location30", "texas") if name in stored]
    if usual:
        lines += [
            "",
            "The usual rows: AUC with its 95 % interval, and the true positive rate at 1 % and 0.1 % false positives "
            "where at least 20 non-members may be false positives; the first target.",
            "",
            "| set | attack | AUC | TPR at 1 % | TPR at 0.1 % |",
            "|---|---|---|---|---|",
        ]
        for name in usual:
            first = stored[name]["targets"][0]["attacks"]
            for attack in USUAL:
                one = first[attack]
                rates = ["too few rows" if rate is None else f"{rate[0]:.3f}" for rate in one["tpr_at_fpr"].values()]
                area = f"{one['auc']:.3f} ({one['ci'][0]:.3f} to {one['ci'][1]:.3f})"
                lines.append(f"| {' | '.join([ROWS[name].title, attack, area, *rates])} |")
    if any(name in stored for name in TABLE_2):
        lines += [
            "",
            "Table 2, attribute inference on Nursery: is `social` `problematic`? Of members, and in brackets what was "
            "printed; then the accuracy for non-members, and for members without the model.",
            "",
            "| target | test | accuracy | precision | recall "
            "| non-members | most frequent value | imputation | leakage |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for name, printed in TABLE_2.items():
            if name not in stored:
                continue
            each = stored[name]["targets"]
            own = [_spread([one[what] for one in each]) for what in ("test", "accuracy", "precision", "recall")]
            cells = [f"{one} ({was:g})" for one, was in zip(own, printed, strict=True)]
            cells.append(_spread([one["control"] for one in each]))
            cells += [_spread([one["details"]["members"][how] for one in each]) for how in ("majority", "imputation")]
            cells.append(_spread([one["details"]["leakage"] for one in each]))
            lines.append(f"| {' | '.join([ROWS[name].title, *cells])} |")
    if any(name in stored for name in ("mnist", "mnist-e1")):
        lines += [
            "",
            "Model inversion (MI-Face): the correlation of the reconstructed classes with the mean training image, and "
            "with that of other images; the AUC of the similarity of single images.",
            "",
            "| target | test | training images | others | AUC |",
            "|---|---|---|---|---|",
        ]
        for name in ("mnist", "mnist-e1"):
            each = stored.get(name, {"targets": []})["targets"]
            like = [_spread([one["details"]["likeness"][side] for one in each]) for side in ("members", "nonmembers")]
            cells = [_spread([one["test"] for one in each]), *like, _spread([one["auc"] for one in each])]
            lines.append(f"| {' | '.join([ROWS[name].title, *cells])} |")
    if "published_network" in stored.get("adult-rf", {}):
        found = stored["adult-rf"]["published_network"]
        shares = [_spread([one[what] for one in found]) for what in ("accuracy", "precision", "recall")]
        lines += [
            "",
            f"The network of the paper itself, as ART has it, on {len(found)} of the forests of Adult: accuracy "
            f"{shares[0]}, precision {shares[1]}, recall {shares[2]}. It sees probabilities; ours sees logits.",
        ]
    spent = ", ".join(f"{name} {stored[name]['cpu']:.0f}" for name in stored)
    lines += ["", f"CPU seconds of all targets and references, but for the training of the networks: {spent}."]
    return "\n".join(lines)


def write_table() -> None:
    """Write the tables into RESULTS.md, between two marks."""
    text = RESULTS.read_text()
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n## What attackers learn from models\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    RESULTS.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    """Run the rows that are asked for, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="rows, separated by commas; a name ending with * stands for all that begin so")
    parser.add_argument("--targets", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the number of the first target")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the file that keeps the rows")
    parser.add_argument("--published-network", action="store_true", help="only ART's network, on the forests of Adult")
    parser.add_argument("--join", type=Path, nargs="+", help="files of other targets, whose rows are added")
    parser.add_argument("--references", type=int, help="instead of each row's own number")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--elsewhere", type=Path, help="the folder of what attacks_gpu.py has trained")
    parser.add_argument("--again", action="store_true", help="also rows that are kept")
    parser.add_argument("--table", action="store_true", help="only print the tables")
    asked = parser.parse_args()
    targets = range(asked.first, asked.first + asked.targets)
    if asked.published_network:
        found = [_round(published_network(number)) for number in targets]
        stored = kept(asked.kept)["adult-rf"]
        keep(asked.kept, "adult-rf", {**stored, "published_network": found})
    elif asked.join:
        join(asked.kept, asked.join)
    elif not asked.table:
        patterns = (asked.only or "*").split(",")
        for name, row in ROWS.items():
            if not any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in patterns):
                continue
            if (name in kept(asked.kept) and not asked.again) or (row.model == "network" and asked.elsewhere is None):
                continue
            print(name, flush=True)
            if name in TABLE_2:
                keep(asked.kept, name, attributes(row, targets))
            elif row.table == "mnist":
                keep(asked.kept, name, inversion(row, targets))
            else:
                count = asked.references or row.references
                keep(asked.kept, name, membership(name, targets, count, asked.processes, asked.elsewhere))
    if asked.kept == KEPT:
        write_table()
        print(table())


if __name__ == "__main__":
    main()

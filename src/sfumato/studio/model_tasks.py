"""The tasks of an engineer: train privately, make up rows, and keep the budget; every private access is charged."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import sfumato as sf
from sfumato.studio.tasks import Progress, Task

__all__ = ["Budget", "Synthesize", "Train"]

_COMPARED = 20_000  # rows of a large table that synthetic ones are compared with


class Train(Task):
    """Train a model at several epsilons."""

    kind, title, private = "train", "Training", True

    def run(self, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return a line for each model; the points of the chart are known as soon as a model is."""
        runs = folder / "runs"

        def report(share: float) -> None:
            progress(share, points=_points(runs))

        training = sf.train(self.table(), self.options["model"], folder=runs, progress=report, **self._given())
        points = _points(runs)
        sf.save(training, folder / "models")
        lines = []
        for run in training.runs:
            known = run.scores.accuracy
            accuracy = "-" if known is None else f"{100 * known:.1f} %"
            margin = f" ± {100 * run.scores.margin:.1f}" if run.scores.how == "noisy" else ""
            lines.append([run.label, accuracy + margin, run.scores.how, f"{run.seconds:.1f} s"])
        return {"points": points, "lines": lines, "charged": training.charged, "together": training.together}

    def _given(self) -> dict[str, Any]:
        return {"epsilon": list(self.options["epsilons"]), "delta": self.options["delta"]}

    def program(self, folder: Path) -> list[str]:
        """Return the training as a program."""
        given = "".join(f", {name}={value!r}" for name, value in self._given().items())
        return [f"training = sf.train(table, {self.options['model']!r}{given})", "sf.save(training, 'models')"]

    def words(self, folder: Path) -> list[str]:
        """Return the training as a command."""
        target = next(name for name, one in self.schema["columns"].items() if one["role"] == "target")
        epsilons = ",".join(f"{one:g}" for one in self.options["epsilons"])
        how = ["--model", self.options["model"], "--target", target, "--epsilon", epsilons]
        return ["train", *self.from_table(folder), *how, "--delta", f"{self.options['delta']:g}", "-o", "models"]


def _points(runs: Path) -> list[list[float]]:
    """Return the epsilon and the accuracy of each model that is finished."""
    found = []
    for file in runs.glob("*/run.json") if runs.is_dir() else ():
        with suppress(OSError, ValueError, KeyError, TypeError):
            plain = json.loads(file.read_text(encoding="utf-8"))
            epsilon, accuracy = float(plain["epsilon"]), float(plain["scores"]["accuracy"])
            if math.isfinite(epsilon):
                found.append([epsilon, accuracy])
    return sorted(found)


class Synthesize(Task):
    """Make up rows at several epsilons, and compare them with the original."""

    kind, title, private = "synthesize", "Making up rows", True

    def run(self, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return how near each synthetic table comes."""
        table, made, found = self.table(), {}, {}
        epsilons = self.options["epsilons"]
        for at, epsilon in enumerate(epsilons):
            part = lambda share, at=at: progress((at + 0.8 * share) / len(epsilons))  # noqa: E731
            made[f"epsilon{epsilon:g}"] = sf.synthesize(table, epsilon, progress=part, **self._given())
        sf.save(made, folder / "releases")
        names = next(iter(made.values())).table.schema.names
        original = table.sample(_COMPARED, names) if table.rows > _COMPARED else table
        for name, release in made.items():
            found[name] = sf.evaluate(original, release.table, models=(), attacks=(), queries=200)
        first = next(iter(found.values()))
        sf.write_report(
            first if len(found) == 1 else found, folder / "report.html", title=f"Made up beside {self.name}"
        )
        lines = []
        for name, one in found.items():
            distances = one.distances
            pairs = "-" if distances.mean_of_pairs is None else f"{distances.mean_of_pairs:.3f}"
            spent = f"{made[name].spent.epsilon:.4g}"
            lines.append([name, f"{made[name].rows:,}", spent, f"{distances.mean_of_columns:.3f}", pairs])
        return {"lines": lines, "charged": any(one.details["charged"] for one in made.values())}

    def _given(self) -> dict[str, Any]:
        named = {"method": self.options["method"], "rows": self.options["rows"], "delta": self.options["delta"]}
        return {name: value for name, value in named.items() if value is not None}

    def program(self, folder: Path) -> list[str]:
        """Return the synthesis as a program."""
        given = "".join(f", {name}={value!r}" for name, value in self._given().items())
        return [
            f"epsilons = {list(self.options['epsilons'])!r}",
            f"releases = {{f'epsilon{{one:g}}': sf.synthesize(table, one{given}) for one in epsilons}}",
            "sf.save(releases, 'synthetic')",
        ]

    def words(self, folder: Path) -> list[str]:
        """Return the synthesis as a command."""
        epsilons = ",".join(f"{one:g}" for one in self.options["epsilons"])
        rows = ["-n", str(self.options["rows"])] if self.options["rows"] else []
        how = ["--epsilon", epsilons, "--delta", f"{self.options['delta']:g}", "--method", self.options["method"]]
        return ["synthesize", *self.from_table(folder), *how, *rows, "-o", "synthetic"]


class Budget(Task):
    """Show the ledger of a table, after a grant if one is asked for."""

    kind, title, private = "budget", "Opening the ledger", True

    def run(self, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return what was granted, spent and is left, with the history."""
        table = self.table(with_schema=False)
        grant = self.options.get("grant")
        ledger = sf.Ledger.grant(table, **grant) if grant else sf.Ledger.find(table)
        if ledger is None:
            return {"granted": False}
        with ledger:
            return {"granted": True, **ledger.to_dict(), "history": [_entry(one) for one in ledger.history()]}

    def program(self, folder: Path) -> list[str]:
        """Return it as a program."""
        grant = self.options.get("grant")
        named = "".join(f", {name}={value!r}" for name, value in grant.items()) if grant else ""
        return [f"ledger = sf.Ledger.{'grant' if grant else 'of'}(table{named})", "print(ledger.spent, ledger.left)"]

    def words(self, folder: Path) -> list[str]:
        """Return it as a command."""
        grant = self.options.get("grant")
        named = [word for name in ("epsilon", "delta") for word in (f"--{name}", f"{grant[name]:g}")] if grant else []
        note = ["--note", grant["note"]] if grant and grant["note"] else []
        return ["budget", "grant" if grant else "show", *self.from_table(folder, schema=False), *named, *note]

    def _reading(self, folder: Path) -> list[str]:
        more = f", table={self.source['table']!r}" if self.source.get("table") else ""
        return [f"table = sf.read({self.shown!r}{more}, inferred=False)"]


def _entry(entry: Mapping[str, Any]) -> list[str]:
    """Return an entry of the history in words."""
    what = {
        "made": "the ledger was made",
        "grant": f"granted epsilon {entry.get('epsilon', 0)}, delta {entry.get('delta', 0)}",
        "charge": f"charged {entry.get('what', '')}",
        "reserve": f"reserved {entry.get('what', '')}",
    }.get(entry["kind"], entry["kind"])
    return [str(entry["time"])[:19].replace("T", " "), what, str(entry.get("note", ""))]

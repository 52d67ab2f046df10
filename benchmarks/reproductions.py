"""Published experiments, printed figures beside ours; the runs in reproductions.jsonl make a page of the docs.

    python reproductions.py run private-cnn                  a whole run, kept
    python reproductions.py run guided-models setups=()      with other settings
    python reproductions.py run epsilon-sweep --quick        a quick run, whose judged rows are kept
    python reproductions.py keep found.json                  what `sfumato reproduce NAME --json` has printed
    python reproductions.py page                             writes docs/explanation/published-experiments.md

Where a whole run was too dear for two shared cores, the figures of an earlier study stand in, with the script or the
command that made them: see `earlier`.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sfumato as sf
from sfumato.reproductions import VERDICTS, Experiment, experiments
from sfumato.reproductions.guided_models import AHEAD, SETUPS, accuracy_verdict, before_row
from sfumato.reproductions.membership import TARGETS, note_of, told, verdict_of
from sfumato.reproductions.values import NOT_RUN, Row, shown

HERE = Path(__file__).parent
KEPT = HERE / "reproductions.jsonl"
PAGE = HERE.parent / "docs" / "explanation" / "published-experiments.md"
BEGIN, END = "<!-- rows -->", "<!-- end of rows -->"
Line = dict[str, Any]
_SEEDS = "mean of 5 splits"


def run(name: str, settings: Sequence[str], *, quick: bool) -> None:
    """Run an experiment, and keep what came out."""
    changes = {key: ast.literal_eval(value) for key, _, value in (one.partition("=") for one in settings)}
    found = sf.reproduce(name, quick=quick, **changes).to_dict()
    words = ["python benchmarks/reproductions.py run", name, *settings, *(["--quick"] if quick else [])]
    keep(found, " ".join(words) if changes else f"sfumato reproduce {name}{' --quick' * quick}")


def keep(found: Mapping[str, Any], command: str) -> None:
    """Add a run to those that are kept."""
    kept_fields = ("key", "ours", "verdict", "note")  # what was printed is in the package
    rows = [{name: row[name] for name in kept_fields} for row in found["rows"] if row["note"] != NOT_RUN]
    line = {
        "name": found["name"],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": sf.__version__,
        "command": command,
        "quick": found["quick"],
        "settings": found["settings"],
        "cpu_seconds": found["cpu_seconds"],
        "rows": rows,
    }
    with KEPT.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(f"{found['name']}: {len(rows)} rows kept")


def kept() -> list[Line]:
    """Return all runs that are kept, the oldest first."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


# --- earlier studies --------------------------------------------------------------------------------------------------


def earlier() -> list[Line]:
    """Return the figures of earlier studies, in the form of runs."""
    return [_sweep(), _guided(), _membership(), _auto_encoder()]


def _line(name: str, date: str, command: str, rows: Mapping[str, tuple[Any, str, str]]) -> Line:
    """Return a line of an earlier study: for each fact ours, the verdict and a note."""
    facts = next(one for one in experiments() if one.name == name).facts
    unknown = rows.keys() - facts.keys()
    if unknown:
        raise KeyError(f"{name} has no facts {sorted(unknown)}")
    every = [
        {"key": key, "ours": ours, "verdict": verdict, "note": note} for key, (ours, verdict, note) in rows.items()
    ]
    return {"name": name, "date": date, "command": command, "quick": False, "rows": every, "cpu_seconds": None}


def _sweep() -> Line:
    """Return the run of ResNet18 that RESULTS.md reports: 18.4 CPU minutes."""
    found = {"1": (0.860, 1.61), "5": (0.914, 0.74), "10": (0.932, 0.57), "none": (0.971, None)}
    rows: dict[str, tuple[Any, str, str]] = {}
    for name, (accuracy, noise) in found.items():
        how = "no privacy" if noise is None else f"noise multiplier {noise}, Poisson samples"
        rows[f"accuracy-{name}"] = (accuracy, "reproduced", f"one run, {how}")
    values = ", ".join(f"{accuracy:.3f}" for accuracy, _ in found.values())
    rows["order"] = (values, "reproduced", "at epsilon 1, 5, 10, none")
    return _line("epsilon-sweep", "2026-11-15", "sfumato train --recipe epsilon-sweep", rows)


def _guided() -> Line:
    """Return the curves of guided_study.py."""
    points = json.loads((HERE / "guided_study.json").read_text())

    def mean(name: str, who: str, k: int) -> float:
        own = [one["score"] for one in points if (one["name"], one["who"], one["k"]) == (name, who, k)]
        return float(statistics.mean(own))

    rows: dict[str, tuple[Any, str, str]] = {}
    for key, setup in SETUPS.items():
        ks = sorted({one["k"] for one in points if one["name"] == key and one["k"]})
        loan = "another loan table, 119,987 loans and 14 columns; " if setup.table == "loan" else ""
        found = before_row(key, round(mean(key, "before", 0), 4), _SEEDS)
        missed = found.verdict == "differs" and not loan
        test = "not reached on rows that the model has not seen; " if missed else ""
        rows[f"{key}-before"] = (found.ours, found.verdict, f"{loan}{test}{_SEEDS}")
        guided = {k: mean(key, "guided", k) for k in ks}
        pairs: list[tuple[str, tuple[str, ...]]] = [(key, ("mondrian", "hilbert", "rplus"))]
        if key.endswith("nn"):
            pairs.append((f"{key}-workload", ("workload",)))
        for at, others in pairs:
            best = {k: max(mean(key, who, k) for who in others) for k in ks}
            values = ", ".join(f"k={k}: {guided[k]:.3f} ({best[k]:.3f})" for k in ks)
            what = "in brackets the best of the three others" if len(others) > 1 else "in brackets workload-aware"
            rows[at] = (values, accuracy_verdict(best, guided), f"{loan}{what}; {AHEAD}; {_SEEDS}")
    return _line("guided-models", "2026-11-15", "python benchmarks/guided_study.py", rows)


def _membership() -> Line:
    """Return the targets of attacks.py."""
    stored = json.loads((HERE / "attacks.json").read_text())
    rows: dict[str, tuple[Any, str, str]] = {}
    for key, target in TARGETS.items():
        each = stored[key]["targets"]

        def mean(what: str, each: Any = each) -> float:
            values = [one["attacks"]["network"][what] if what not in one else one[what] for one in each]
            known = [one for one in values if one is not None]
            return statistics.mean(known) if known else math.nan

        ours = tuple(mean(what) for what in ("train", "test", "accuracy", "precision", "recall"))
        auc = statistics.mean(one["attacks"]["rmia"]["auc"] for one in each)
        own = f"; RMIA, a stronger attack, has AUC {auc:.3f}; mean of {len(each)} targets"
        rows[key] = (told(ours), verdict_of(target, ours), note_of(target) + own)
    return _line("membership", "2026-11-16", "python benchmarks/attacks.py", rows)


def _auto_encoder() -> Line:
    """Return the study at its full length that RESULTS.md reports, with weights that begin as in Keras."""
    lines = [json.loads(line) for line in (HERE / "private_auto_encoder.jsonl").read_text().splitlines()]
    own = {
        epsilon: statistics.mean(
            one["student"] for one in lines if (one.get("method"), one.get("epsilon")) == ("auto-encoder", epsilon)
        )
        for epsilon in (1.0, 10.0)
    }
    five = "5 runs on a GPU with all 60,000 images, weights that begin as in Keras"
    rows: dict[str, tuple[Any, str, str]] = {
        "loss": (0.0036, "reproduced", five),
        "before": (0.918, "differs", f"{five}; the classifier is linear, and on real images it has no more than 0.922"),
        "after": (
            0.934,
            "differs",
            f"{five}; tested on images through the same noisy auto-encoder. On real images it is 0.555; 0.799 with "
            "noise in the classifier too; no reading of the publication gives both of its figures",
        ),
        "classifier": (
            "infinite",
            "refuted",
            f"nothing bounds how far one image moves the weights; with this noise, 0.756 of real images are classified "
            f"right: {five}",
        ),
        "intended": (
            ", ".join(f"{one:.3f} at epsilon {epsilon:g}" for epsilon, one in own.items()),
            "built",
            "a small convolutional network trained on images drawn from it, tested on real ones, 3 runs",
        ),
    }
    return _line(
        "private-auto-encoder",
        "2026-11-18",
        "`benchmarks/private_auto_encoder.py --device cuda`, before the script was put into its present form",
        rows,
    )


# --- the page ---------------------------------------------------------------------------------------------------------


def best_rows(experiment: Experiment, lines: Sequence[Line]) -> list[tuple[Line, Line | None]]:
    """Return the row of each fact, and its run: a whole run, an earlier study, or a quick one whose row is judged."""
    own = [line for line in lines if line["name"] == experiment.name]
    whole = [line for line in own if not line["quick"] and line["cpu_seconds"] is not None]
    order = [*(one for one in own if one["quick"]), *(one for one in own if one["cpu_seconds"] is None), *whole]
    found: dict[str, tuple[Line, Line | None]] = {
        key: ({"key": key, "ours": None, "verdict": "not judged", "note": NOT_RUN}, None) for key in experiment.facts
    }
    for line in order:
        for row in line["rows"]:
            if row["key"] in found and row["verdict"] != "not judged":
                found[row["key"]] = (row, line)
    return [found[key] for key in experiment.facts]


def rows_in_markdown() -> str:
    """Return the tables of all experiments."""
    lines = [*kept(), *earlier()]
    every = {one.name: best_rows(one, lines) for one in experiments()}
    names = list(VERDICTS)
    parts = [
        "| experiment | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for one in experiments():
        counts = [sum(row["verdict"] == name for row, _ in every[one.name]) for name in names]
        link = f"[{one.title}](#{one.name})"
        parts.append(f"| {link} | " + " | ".join(str(count or "") for count in counts) + " |")
    total = [sum(row["verdict"] == name for rows in every.values() for row, _ in rows) for name in names]
    parts += [f"| all | {' | '.join(map(str, total))} |", "", "The verdicts:", ""]
    parts += [f"- **{name}**: {meaning}." for name, meaning in VERDICTS.items()]
    for one in experiments():
        parts += [
            "",
            f"## {one.title} {{ #{one.name} }}",
            "",
            f"{one.source}. Run it: `sfumato reproduce {one.name}`.",
            "",
        ]
        sources: list[str] = []
        table = ["| what | printed | ours | verdict | note |", "|---|---|---|---|---|"]
        for (row, line), fact in zip(every[one.name], one.facts.values(), strict=True):
            mark = ""
            if line is not None:
                source = _source(line)
                sources += [source] * (source not in sources)
                mark = f" [{sources.index(source) + 1}]" if row["ours"] is not None else ""
            target = Row(row["key"], "", fact.printed, None, row["verdict"], within=fact.within).target
            cells = (fact.what, target, shown(row["ours"]) + mark, row["verdict"], row["note"])
            table.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
        parts += [*table, ""]
        parts += [f"[{at}] {source}  " for at, source in enumerate(sources, 1)]
    return "\n".join(part.rstrip() if not part.endswith("  ") else part for part in parts).strip()


def _source(line: Line) -> str:
    spent = "" if line["cpu_seconds"] is None else f", {line['cpu_seconds']:,.0f} CPU seconds"
    form = " (the quick form; only what does not depend on its size)" if line["quick"] else ""
    made = line["command"] if "`" in line["command"] else f"`{line['command']}`"
    old = "an earlier study: " if line["cpu_seconds"] is None else ""
    return f"{line['date']}, {old}{made}{spent}{form}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").strip()


def write_page() -> None:
    """Write the tables into the page, between two marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{rows_in_markdown()}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "keep", "page"))
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.what == "run":
        run(given.rest[0], given.rest[1:], quick=given.quick)
    elif given.what == "keep":
        for path in map(Path, given.rest):
            found = json.loads(path.read_text())
            keep(found, f"sfumato reproduce {found['name']}{' --quick' * found['quick']}")
    else:
        write_page()


if __name__ == "__main__":
    main()

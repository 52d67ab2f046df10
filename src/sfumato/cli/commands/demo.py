"""``sfumato demo``: from "how identifiable is it" to a verified release, on the built-in census table."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import sfumato as sf
from sfumato.cli.options import Command, print_json
from sfumato.cli.progress import progress_bar
from sfumato.cli.terminal import echo, echo_wrapped, printable, style
from sfumato.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

__all__ = ["demo"]

_TARGET = "income"
_KEPT = ["education-num", "fnlwgt"]  # the education again, and a survey weight
_K = 10
_WHOLE = ("raw", "mondrian:k=5,20,100", "lattice:k=20", "dp:epsilon=0.3,1,3,10", "synthetic:epsilon=1,10")
_QUICK = ("raw", "mondrian:k=10,50", "dp:epsilon=1,10", "synthetic:epsilon=3")
_QUICK_ROWS = 6000
_LIMITS = {"max_risk": 0.09, "max_advantage": 0.05}
_QUICK_LIMITS = {"max_risk": 0.09, "max_advantage": 0.2}  # less is not sure from fewer rows and one seed


@click.command(cls=Command)
@click.option(
    "-o", "--output", default="sfumato-demo", show_default=True, help="The folder for the pages and the releases."
)
@click.option("--quick", is_flag=True, help="Use fewer rows and fewer protections: half a minute instead of three.")
def demo(as_json: bool, output: str, quick: bool) -> None:
    """See what Sfumato does, on a built-in census table.

    48,842 people of the 1994 US census. How many are unique by six facts that a neighbour
    may know? Can an attacker find them in the table, and tell whose rows a model learned
    from? Then the same attacks on protected releases, a synthetic table, and what each
    protection costs; and the recommended release, verified. Needs no network. What was
    measured is kept in the folder: a stopped demo resumes.
    """
    from sfumato.data.io.files import write_owned

    stages = _Stages(_folder(output), quick=quick, shown=not as_json)
    result = stages.run()
    write_owned(Path(output) / "demo.json", result)
    if as_json:
        print_json(result)
        return
    _print_end(result)


def _folder(output: str) -> Path:
    from sfumato.data.io.files import why

    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"the folder '{output}' cannot be made: {why(error)}") from error
    return folder


class _Stages:
    """The stages of the demo, each with its result in a line."""

    def __init__(self, folder: Path, *, quick: bool, shown: bool) -> None:
        self.folder, self.quick, self.shown = folder, quick, shown
        self.table = sf.datasets.without_split(sf.datasets.adult())
        if quick:
            rows = self.table.frame.sample(_QUICK_ROWS, seed=0)
            self.table = sf.Table(rows, self.table.schema)
        self.people = folder / "people.csv"
        sf.write(self.table.frame, self.people)
        self.said: list[dict[str, Any]] = []

    def run(self) -> dict[str, Any]:
        """Run all stages; return what was found as plain values."""
        began = time.perf_counter()
        assessment = self._stage("How identifiable is it?", self._assess)
        attacked = self._stage("Can an attacker use it?", self._attack)
        released = self._stage("And a protected release?", self._attack_again)
        made_up = self._stage("A table of nobody", self._synthesize)
        frontier = self._stage("Which protection?", self._explore)
        release, verdict = self._stage("Make it, and check it", lambda progress: self._release(frontier, progress))
        return {
            "report": str(self.folder / "assessment.html"),
            "people": str(self.people),
            "quasi": list(self.table.schema.quasi),
            "assessment": assessment.to_dict(),
            "attacks": {"raw": attacked, "protected": released},
            "synthetic": made_up,
            "frontier": str(self.folder / "frontier" / "report.html"),
            "recommended": frontier.recommended.to_dict(),
            "command": frontier.recommended.command,
            "release": str(release),
            "verification": verdict,
            "stages": self.said,
            "seconds": round(time.perf_counter() - began, 1),
        }

    def _stage(self, name: str, work: Callable[[Any], tuple[Any, str]]) -> Any:
        began = time.perf_counter()
        with progress_bar(name) as progress:
            found, said = work(progress)
        seconds = time.perf_counter() - began
        self.said.append({"name": name, "result": said, "seconds": round(seconds, 1)})
        if self.shown:
            title = f"{len(self.said)}. {name}{'' if name.endswith('?') else ':'}"
            echo_wrapped(f"{style(title, bold=True)} {printable(said)}")
        return found

    def _assess(self, progress: Any) -> tuple[sf.Assessment, str]:
        assessment = sf.assess(self.table, detail=True)
        page = self.folder / "assessment.html"
        sf.write_report(assessment, page, title="How anonymous is the Adult census table?")
        unique = assessment.risk.uniques
        return assessment, (
            f"{unique:,} of {assessment.rows:,} people ({unique / assessment.rows:.0%}) are the only ones with their "
            f"{', '.join(assessment.quasi)}."
        )

    def _halves(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Divide the rows into those of a release, and others as the control of the attacks."""
        rows = self.table.frame.sample(fraction=1, shuffle=True, seed=1)
        return rows.head(rows.height // 2), rows.tail(rows.height - rows.height // 2)

    def _attack(self, progress: Any) -> tuple[dict[str, Any], str]:
        inside, outside = self._halves()
        linked = self._linkage(inside, inside, outside)
        model = sf.attack(self.table, target=_TARGET, model="forest", attacks=["loss", "gap"])
        sf.write_report(model, self.folder / "attack-raw.html", title="Attacks on a model of the raw rows")
        found = {"linkage": linked, "membership": self._gain(model)}
        return found, (
            f"Yes: with these facts, it picks a person's row with a chance of {linked:.0%}; and from the answers of "
            f"a forest it tells who was in its training data {100 * found['membership']:.0f} points better than by "
            "guessing."
        )

    def _attack_again(self, progress: Any) -> tuple[dict[str, Any], str]:
        inside, outside = self._halves()
        anonymous = sf.anonymize(sf.Table(inside, self.table.schema), k=_K)
        linked = self._linkage(anonymous.table.to_polars(), inside, outside)
        model = sf.attack(self.table, target=_TARGET, model="forest", protect="dp:epsilon=1", attacks=["loss", "gap"])
        sf.write_report(model, self.folder / "attack-private.html", title="Attacks on a private model")
        found = {"linkage": linked, "membership": self._gain(model)}
        return found, (
            f"In groups of {_K} or more who look alike, the chance is {linked:.1%}; and from a private forest (epsilon "
            f"1) it gains {100 * max(found['membership'], 0):.1f} points."
        )

    def _linkage(self, released: pl.DataFrame, inside: pl.DataFrame, outside: pl.DataFrame) -> float:
        """Return the chance of picking a person's row by their quasi-identifiers."""
        names = [*self.table.schema.quasi, *self.table.schema.sensitive]
        schema = sf.Schema(self.table.schema[name] for name in names)
        tables = [sf.Table(one.select(names), schema) for one in (inside, outside)]
        roles: dict[str, Any] = {"qi": self.table.schema.quasi, "sensitive": self.table.schema.sensitive}
        target = sf.Table.of(released.select(names), **roles)
        report = sf.attack(target, tables[0], control=tables[1], kind="table", attacks=["linkage"], **roles)
        return float(report.results[0].scores.details["prosecutor"])

    @staticmethod
    def _gain(report: Any) -> float:
        return float(max(one.decisions.advantage for one in report.results))

    def _synthesize(self, progress: Any) -> tuple[dict[str, Any], str]:
        inside, outside = self._halves()
        keep = [name for name in self.table.schema.names if name != _TARGET]
        made = sf.synthesize(
            sf.Table(inside, self.table.schema), 1, target=_TARGET, rows=inside.height, keep=keep, ledger=False
        )
        sf.save(made, self.folder / "synthetic", replace=True)
        names = made.table.schema.names
        found = sf.evaluate(
            inside.select(names),
            made.table.to_polars(),
            test=outside.select(names),
            target=_TARGET,
            models=["tree"],
            attacks=(),
            repeats=1,
            queries=50,
        )
        (score,) = found.models
        real, ours = score.raw, score.released
        return {"release": str(self.folder / "synthetic"), "real": real, "synthetic": ours}, (
            f"{inside.height:,} synthetic people (epsilon 1). A tree trained on them is right about {ours:.1%} of real "
            f"people; one trained on real ones, {real:.1%}."
        )

    def _explore(self, progress: Any) -> tuple[Any, str]:
        from sfumato.data.io.files import write_owned

        folder = self.folder / "frontier"
        asked = _QUICK if self.quick else _WHOLE
        limits: dict[str, Any] = _QUICK_LIMITS if self.quick else _LIMITS
        roles: dict[str, Any] = {"target": _TARGET, "qi": self.table.schema.quasi, "keep": _KEPT}
        found = sf.explore(
            self.people if self.quick else "adult",
            **roles,
            protections=asked,
            seeds=1 if self.quick else 3,
            folder=folder / "points",
            public=True,
            progress=progress,
            **limits,
        )
        sf.write_report(found, folder / "report.html", title="Which protection for the census table?")
        write_owned(folder / "frontier.md", found.to_markdown())
        write_owned(folder / "frontier.json", found.to_dict())
        chosen = found.recommended
        if chosen.point is None:
            return found, chosen.reason
        raw = next(point.utility["accuracy"].mean for point in found.points if point.name == "raw")
        point, gain = chosen.point, max(chosen.point.risk["membership_advantage"].mean, 0)
        return found, (
            f"Of {len(found.points)}, take {point.name}: a model is right about {point.utility['accuracy'].mean:.1%} "
            f"of other people ({raw:.1%} without protection), and attackers gain {100 * gain:.1f} points."
        )

    def _release(self, frontier: Any, progress: Any) -> tuple[tuple[Path, dict[str, Any]], str]:
        """Run the recommended command, as a user would, and verify the release."""
        release = self.folder / "release"
        command = frontier.recommended.command
        if not command:
            raise InputError("no protection keeps the limits of the demo", hint="run it again without --quick")
        words = shlex.split(command)[1:]
        words[words.index("-o") + 1] = str(release)
        shutil.rmtree(release, ignore_errors=True)
        ran = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "sfumato", *words, "--force", "--quiet"], capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise InputError(f"the recommended command ended with exit code {ran.returncode}", hint=ran.stderr.strip())
        (made,) = [one.parent for one in release.rglob("certificate.json")]
        verdict = sf.verify(made)
        held = sum(claim.held is True for claim in verdict.claims)
        checked = sum(claim.held is not None for claim in verdict.claims)
        return (
            made,
            verdict.to_dict(),
        ), f"{held} of {checked} claims of the release hold, measured on its files alone."


def _print_end(result: dict[str, Any]) -> None:
    folder = Path(result["report"]).parent
    echo()
    echo(style("Where to look", bold=True))
    for path, what in (
        (result["report"], "who is easy to find, and by what"),
        (str(folder / "attack-raw.html"), "what attackers learn from a model; attack-private.html beside it"),
        (result["synthetic"]["release"] + "/report.html", "the synthetic people"),
        (result["frontier"], "what each protection costs, and the recommendation"),
        (result["release"] + "/report.html", "the release, with its certificate beside it"),
    ):
        echo(printable(f"  {path}"))
        echo(f"      {what}")
    echo()
    echo(style("Try next", bold=True))
    for command in _next(result, folder):
        echo(printable(f"  {command}"))
    echo("Then replace people.csv by your own file, and name its columns after --qi.")


def _next(result: dict[str, Any], folder: Path) -> list[str]:
    """Return three commands that work on the files of the demo."""
    people, quasi = result["people"], ",".join(result["quasi"])
    commands: tuple[list[str], ...] = (
        ["assess", people, "--qi", quasi, "--keep", ",".join(_KEPT), "--sensitive", _TARGET],
        ["anonymize", people, "--qi", quasi, "--keep", ",".join(_KEPT), "--k", "10", "-o", str(folder / "anonymous")],
        ["verify", result["release"]],
    )
    return [shlex.join(["sfumato", *words]) for words in commands]

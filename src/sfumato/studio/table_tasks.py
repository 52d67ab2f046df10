"""The tasks of a steward: look at a table, measure it, anonymize it, attack it, explore, and verify."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import sfumato as sf
from sfumato.errors import OptionError, SfumatoError
from sfumato.studio.tasks import Progress, Task

__all__ = ["Anonymize", "Assess", "Attack", "Explore", "Look", "Map", "Preview", "Verify", "release_folder"]

_MOST_VALUES = 300  # of a column, in the editor of its hierarchy
_LARGEST = 10_000  # a larger class is as good as this one
_PREVIEWED = 10  # rows
_CHOSEN = re.compile(r"\d{4}-(anonymize|synthesize)/\w[\w.-]*")


def required(options: Mapping[str, Any]) -> str:
    """Return the guarantees as the text that they are parsed from."""
    return ",".join(f"{name}={value:g}" for name, value in options["require"].items())


def release_folder(project: Path, chosen: str) -> Path:
    """Return the folder of a release of a project, by its job and its name."""
    folder = project / "jobs" / chosen.replace("/", "/releases/")
    if not _CHOSEN.fullmatch(chosen) or folder.is_symlink() or folder.parent.is_symlink():
        raise OptionError("there is no such release")
    return folder


class Look(Task):
    """Propose the roles of the columns, with reasons."""

    kind, title = "look", "Looking at the columns"

    def run(self, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return the rows, and each column with its proposed role, kind and reason."""
        if name := self.source.get("built-in"):
            table = sf.datasets.without_split(sf.datasets.TABLES[name]())
            proposed = table.schema
            sf.write(table, self.source["path"])
        else:
            table = self.table()
            progress(0.3)
            proposed = sf.Schema.suggest(table)
        progress(0.9)
        columns = [
            {"name": one.name, "role": one.role.value, "kind": one.kind.value, "reason": one.reason}
            for one in proposed.columns
        ]
        return {"rows": table.rows, "columns": columns}

    def program(self, folder: Path) -> list[str]:
        """Return the proposal as a program."""
        return ["schema = sf.Schema.suggest(table)", "print(schema.to_toml())"]

    def words(self, folder: Path) -> list[str]:
        """Return the proposal as a command."""
        return ["schema", *self.from_table(folder, schema=False)]


class Preview(Task):
    """Fetch some rows, because the owner wants to see them."""

    kind, title = "preview", "Fetching some rows"

    def run(self, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return some rows as texts."""
        table = self.table(with_schema=False)
        frame = table.sample(_PREVIEWED, table.schema.names).to_polars()
        return {
            "names": frame.columns,
            "rows": [["" if one is None else str(one) for one in row] for row in frame.rows()],
        }

    def program(self, folder: Path) -> list[str]:
        """Return the preview as a program."""
        return [f"print(table.sample({_PREVIEWED}, table.schema.names).to_polars())"]


class Assess(Task):
    """Measure how identifiable the table is, and count what guarantees would cost."""

    kind, title = "assess", "Counting"

    def run(self, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return the summary, the costs of guarantees and the values of the quasi-identifiers."""
        from sfumato.report.summarise import summarise

        table = self.table()
        found = sf.assess(
            table, require=required(self.options), detail=True, progress=lambda share: progress(share / 2)
        )
        sf.write_report(found, folder / "report.html", title=f"How anonymous is {self.name}?")
        progress(0.7)
        summary = summarise(found)
        lines = [
            [one.title, one.value, one.meaning, "" if one.held is None else ("held" if one.held else "not held")]
            for one in summary.lines
        ]
        return {
            "headline": summary.headline,
            "good": summary.good,
            "facts": list(summary.facts),
            "warnings": list(summary.warnings),
            "lines": lines,
            "rows": found.rows,
            **_counts(table, found, progress),
        }

    def program(self, folder: Path) -> list[str]:
        """Return the measurement as a program."""
        require = f", require={required(self.options)!r}" if self.options["require"] else ""
        return [f"result = sf.assess(table{require}, detail=True)", "sf.write_report(result, 'report.html')"]

    def words(self, folder: Path) -> list[str]:
        """Return the measurement as a command."""
        asked = ["--require", required(self.options)] if self.options["require"] else []
        return ["assess", *self.from_table(folder), *asked, "--report", "report.html"]


def _counts(table: sf.Table, found: sf.Assessment, progress: Progress) -> dict[str, Any]:
    """Count the rows by the size, the diversity and the closeness of their class, and list values with their paths."""
    import numpy as np

    from sfumato.engines import reduce
    from sfumato.measures import class_counts

    tuples = reduce(table, [*found.quasi, *found.sensitive])
    counts = [class_counts(tuples, found.quasi, name) for name in found.sensitive or (None,)]
    columns = [np.minimum(counts[0].size, _LARGEST)]
    if found.sensitive:
        columns.append(np.min([sf.LDiversity().per_class(one) for one in counts], axis=0))
        apart = np.max([sf.TCloseness().per_class(one) for one in counts], axis=0)
        columns.append(np.ceil(np.round(100 * apart, 6)).astype(np.int64))
    kinds, of_class = np.unique(np.stack(columns, axis=1).astype(np.int64), axis=0, return_inverse=True)
    rows = np.bincount(of_class.ravel(), weights=counts[0].records).astype(np.int64)
    progress(0.85)
    costs = [[*kind, count] for kind, count in zip(kinds.tolist(), rows.tolist(), strict=True)]
    return {"costs": costs, "values": {name: _values(table, tuples, name) for name in found.quasi}}


def _values(table: sf.Table, tuples: Any, name: str) -> dict[str, Any]:
    """Return the values of a column with their paths and their numbers of rows."""
    import numpy as np

    from sfumato.data.proposal import round_bounds

    at = tuples.position[name]
    counted = np.bincount(tuples.codes[:, at], weights=tuples.count).astype(int).tolist()
    values = tuples.domains[at].values.to_list()
    known = [(value, rows) for value, rows in zip(values, counted, strict=False) if value is not None and rows]
    column = table.schema[name]
    try:
        plain = replace(column, hierarchy=None)  # its own one is known without the table
        hierarchy = sf.Hierarchy.automatic(plain, [one for one, _ in known], [n for _, n in known])
        paths = hierarchy.paths([value for value, _ in known[:_MOST_VALUES]])
    except SfumatoError as error:
        return {"distinct": len(known), "listed": [], "error": str(error)}
    numbers = [value for value, _ in known if isinstance(value, int | float) and math.isfinite(value)]
    bounds = list(round_bounds(min(numbers), max(numbers))) if numbers else None
    listed = [[*path[:-1], rows] for path, (_, rows) in zip(paths, known, strict=False)]
    return {"distinct": len(known), "listed": listed, "bounds": bounds}


class Anonymize(Task):
    """Make a release with each method."""

    kind, title = "anonymize", "Anonymizing"

    def run(self, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return the figures of each release, and why others could not be made."""
        from sfumato.data.io.folders import atomic_folder
        from sfumato.measures.released_table import Format
        from sfumato.releases.save import write_release
        from sfumato.report.page import page_of_all
        from sfumato.report.table.side_by_side import HEADINGS, ComparedRelease

        table, methods = self.table(), list(self.options["methods"])
        stored, made, pages, failed = Format.like(table.origin), {}, {}, {}
        with atomic_folder(folder / "releases") as out:
            for at, name in enumerate(methods):
                inside = out / name
                inside.mkdir(0o700)
                part = lambda share, at=at: progress((at + 0.7 * share) / len(methods))  # noqa: E731
                try:
                    made[name] = sf.anonymize(
                        table, required(self.options), method=self._method(name), to=inside / stored.file, progress=part
                    )
                    pages[name] = write_release(made[name], inside, name=name, format=stored, models=["forest"])
                except SfumatoError as error:
                    inside.rename(folder / "tmp" / f"failed-{name}")
                    failed[name] = str(error)
            if not made:
                raise OptionError("; ".join(f"{name}: {why}" for name, why in failed.items()))
            if len(made) > 1:
                (out / "report.html").write_text(page_of_all(made, pages, name=self.name).html, encoding="utf-8")
        lines = {name: ComparedRelease.of(name, one, pages[name].summary) for name, one in made.items()}
        releases = [
            {"name": name, "line": [name, *lines[name].texts()], "levels": _levels(one)} for name, one in made.items()
        ]
        return {"headings": ["Method", *HEADINGS], "releases": releases, "failed": failed}

    def _method(self, name: str) -> Any:
        from sfumato.anonymizers.anonymize import as_method

        return as_method(name).set_params(**self._parameters(name))

    def _parameters(self, name: str) -> dict[str, Any]:
        known = {"suppress": self.options["suppress"]} if name in ("lattice", "suppress") else {}
        levels = self.options.get("levels") if name == "lattice" else None
        return {**known, "levels": levels} if levels else known

    def program(self, folder: Path) -> list[str]:
        """Return all releases as a program."""
        classes = {"lattice": "Lattice", "suppress": "LocalSuppression"}
        lines = ["releases = {"]
        for name in self.options["methods"]:
            own = self._parameters(name)
            given = ", ".join(f"{key}={value!r}" for key, value in own.items())
            method = f"sf.{classes[name]}({given})" if own else repr(name)
            lines.append(f"    {name!r}: sf.anonymize(table, {required(self.options)!r}, method={method}),")
        return [*lines, "}", "sf.save(releases, 'releases')"]

    def words(self, folder: Path) -> list[str]:
        """Return all releases as a command."""
        methods = self.options["methods"]
        asked = [word for name, value in self.options["require"].items() for word in (f"--{name}", f"{value:g}")]
        suppress = ["--suppress", f"{self.options['suppress']:g}"] if {"lattice", "suppress"} & {*methods} else []
        chosen = (self.options.get("levels") or {}) if "lattice" in methods else {}
        levels = [word for name, level in chosen.items() for word in ("--level", f"{name}={level}")]
        out = ["--method", ",".join(methods), *suppress, *levels, "-o", "releases"]
        return ["anonymize", *self.from_table(folder), *asked, *out]


def _levels(release: sf.Release) -> dict[str, int]:
    """Return the level of each column on its hierarchy, if the method publishes levels."""
    levels = release.details.get("levels")
    return {str(name): int(level) for name, level in levels.items()} if isinstance(levels, Mapping) else {}


class Map(Task):
    """Measure the combinations of levels of the lattice."""

    kind, title = "map", "Measuring the lattice"

    def run(self, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return the map."""
        around = self.options["around"]
        return self._method().map(self.table(), around=around, progress=progress).to_dict()

    def _method(self) -> sf.Lattice:
        return sf.Lattice(required(self.options), suppress=self.options["suppress"])

    def program(self, folder: Path) -> list[str]:
        """Return the map as a program."""
        around = f", around={self.options['around']!r}" if self.options["around"] else ""
        return [
            f"method = sf.Lattice({required(self.options)!r}, suppress={self.options['suppress']!r})",
            f"found = method.map(table{around})",
            "print(found.best, len(found.nodes))",
        ]


class Attack(Task):
    """Attack a release, made again from a random half of the table."""

    kind, title = "attack", "Attacking"

    def run(self, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return the verdict and a line for each attack."""
        release = release_folder(folder.parent.parent, self.options["release"])
        found = sf.attack(release, self.table(with_schema=False), processes=1, progress=progress)
        sf.write_report(found, folder / "report.html", title=f"Attacks on {self.name}, {release.name}")
        lines = [
            [
                one.name,
                f"{one.auc:.3f}",
                f"{100 * one.accuracy:.1f} %",
                f"{100 * one.baseline.accuracy:.1f} %",
                one.word,
            ]
            for one in sorted(found.results, key=lambda one: -one.auc)
        ]
        return {"verdict": found.verdict, "leaks": found.leaks, "lines": lines, "skipped": dict(found.skipped)}

    def program(self, folder: Path) -> list[str]:
        """Return the attacks as a program."""
        release = release_folder(folder.parent.parent, self.options["release"])
        return [f"report = sf.attack({str(release)!r}, table)", "sf.write_report(report, 'attacks.html')"]

    def words(self, folder: Path) -> list[str]:
        """Return the attacks as a command."""
        release = release_folder(folder.parent.parent, self.options["release"])
        source = self.from_table(folder, schema=False)
        return ["attack", str(release), "--source", *source, "-o", "attacks.html"]

    def _reading(self, folder: Path) -> list[str]:
        return Task(name=self.name, source=self.source)._reading(folder)


class Explore(Task):
    """Compare protections with each other, and recommend one."""

    kind, title = "explore", "Exploring"

    def run(self, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return the recommendation."""
        found = sf.explore(self.table(), folder=folder.parent.parent / "explored", progress=progress, **self._given())
        sf.write_report(found, folder / "report.html", title=f"Which protection for {self.name}?")
        chosen = found.recommended
        name = "" if chosen.point is None else chosen.point.name
        return {
            "recommended": name,
            "reason": chosen.reason,
            "points": len(found.points),
            "note": found.note,
            "charging": found.charging,
        }

    def _given(self) -> dict[str, Any]:
        limits = {name: self.options[name] for name in ("max_risk", "max_advantage") if self.options[name] is not None}
        shared = {name: self.options[name] for name in ("protections", "seeds")}
        declared = {"uncharged": True}  # the page says so
        return {
            **shared,
            "utilities": [self.options["model"]],
            "jobs": min(os.cpu_count() or 1, 2),
            **limits,
            **declared,
        }

    def program(self, folder: Path) -> list[str]:
        """Return the exploration as a program."""
        given = "".join(f", {name}={value!r}" for name, value in self._given().items())
        return [f"found = sf.explore(table{given})", "sf.write_report(found, 'frontier.html')"]

    def words(self, folder: Path) -> list[str]:
        """Return the exploration as a command."""
        given = self._given()
        protect = [word for one in given["protections"] for word in ("--protect", one)]
        limits = [
            word
            for name in ("max_risk", "max_advantage")
            if name in given
            for word in (f"--{name.replace('_', '-')}", f"{given[name]:g}")
        ]
        how = ["--model", given["utilities"][0], "--seeds", str(given["seeds"]), "--uncharged"]
        return ["explore", *self.from_table(folder), *protect, *limits, *how, "-o", "explored"]


class Verify(Task):
    """Check every claim of a release on its data alone."""

    kind, title = "verify", "Checking"

    def run(self, folder: Path, progress: Progress) -> dict[str, Any]:
        """Return the claims, and whether they hold."""
        release = release_folder(folder.parent.parent, self.options["release"])
        found = sf.verify(release, progress=progress)
        return {"ok": found.ok, "claims": [[one.claim, one.held, str(one.measured)] for one in found.claims]}

    def program(self, folder: Path) -> list[str]:
        """Return the check as a program."""
        return [f"assert sf.verify({str(release_folder(folder.parent.parent, self.options['release']))!r})"]

    def words(self, folder: Path) -> list[str]:
        """Return the check as a command."""
        return ["verify", str(release_folder(folder.parent.parent, self.options["release"]))]

    def _reading(self, folder: Path) -> list[str]:
        return []

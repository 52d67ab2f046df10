"""The lattice, which can be walked: what each choice of a level for every column would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.errors import OptionError
from sfumato.studio import jobs
from sfumato.studio.hierarchies import labels_of
from sfumato.studio.jobs import Job
from sfumato.studio.steps import Form, Step, columns_of, number_in
from sfumato.studio.workspace import Project

__all__: list[str] = []

_WHOLE = 160  # dots of a lattice that is drawn whole; of a larger one, what is near
_SAMPLE = 3  # labels of a level
Levels = tuple[int, ...]


class _Lattice(Step):
    """One level for each column, chosen by walking through the lattice."""

    name, title, kind = "lattice", "Lattice", "map"

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        suppress = number_in(form, "suppress", "the share to suppress", least=0, most=1, empty=_suppress(project))
        if form.get("what") == "measure":
            return "the lattice", {"suppress": suppress, "around": None}
        found = _found(jobs.latest(project, self.kind))
        levels = _levels_in(str(form.get("at") or ""), found)
        named = dict(zip(found["columns"], levels, strict=True)) if found and levels is not None else None
        if named is None:
            raise OptionError("no levels are chosen", hint="measure the lattice first")
        if form.get("what") == "around":
            return "the middle of the lattice", {"around": named}
        return "the levels", {"methods": ["lattice"], "suppress": suppress, "levels": named, "chosen": None}

    def options(self, project: Project) -> dict[str, Any] | None:
        state = project.state
        quasi = {one["name"] for one in columns_of(project) if one["role"] == "quasi"}
        around = state.get("around")
        if "k" not in state.get("require", {}):
            return None
        known = around if around is not None and around.keys() == quasi else None
        return {"require": state["require"], "suppress": _suppress(project), "around": known}

    def shown(self, project: Project, job: Job | None, query: Mapping[str, str]) -> dict[str, Any]:
        basic = {"asked": project.state.get("require", {}), "suppress": _suppress(project)}
        found = _found(job)
        return {**basic, "walk": found and _walk(project, found, query.get("at", ""))}


def _suppress(project: Project) -> float:
    return float(project.state.get("suppress", 0.05))


def _found(job: Job | None) -> dict[str, Any] | None:
    """Return the map; None before it is measured."""
    return job.result if job is not None and job.status == "done" and job.result.get("nodes") else None


def _levels_in(text: str, found: Mapping[str, Any] | None) -> Levels | None:
    """Return the levels of an address, such as ``2.0.1``; None if they are not those of a node."""
    parts = text.split(".")
    if (
        found is None
        or len(parts) != len(found["heights"])
        or not all(one.isascii() and one.isdigit() for one in parts)
    ):
        return None
    levels = tuple(int(one[:4]) for one in parts)
    return levels if all(one <= most for one, most in zip(levels, found["heights"], strict=True)) else None


def _walk(project: Project, found: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Return where somebody is in the lattice, what can be seen from there, and where they can go."""
    from sfumato.report.charts.lattice import Dot, lattice_picture

    names, heights, rows = found["columns"], found["heights"], found["rows"]
    nodes = {tuple(one[0]): one for one in found["nodes"]}
    best = None if found["best"] is None else tuple(found["best"])
    taken = project.state.get("levels") or {}
    chosen = tuple(taken[name] for name in names) if taken.keys() == set(names) else None
    here = _levels_in(at, found) or (chosen if chosen in nodes else None) or best or next(reversed(nodes))
    shown = nodes if len(nodes) <= _WHOLE else {one for one in nodes if _is_near(one, here) or one == best}

    def text(levels: Levels) -> str:
        named = ", ".join(f"{name} {level}" for name, level in zip(names, levels, strict=True))
        node = nodes.get(levels)
        if node is None:
            return f"{named}: not measured"
        return f"{named}: {_percent(node[3] / rows)} of the rows suppressed, {_percent(node[4])} of the detail lost"

    columns = []
    samples = labels_of(project, names)
    for column, (name, height) in enumerate(zip(names, heights, strict=True)):
        steps = []
        for level in range(height + 1):
            levels = (*here[:column], level, *here[column + 1 :])
            node = nodes.get(levels)
            state = "unknown" if node is None else "kept" if node[5] else "broken"
            steps.append({"level": level, "at": _address(levels), "state": state, "text": text(levels)})
        columns.append(
            {"name": name, "steps": steps, "level": here[column], "sample": _sample(samples, name, here[column])}
        )
    dots = [Dot(one, text(one), bool(nodes[one][5])) for one in shown]
    picture = lattice_picture(dots, here, best, lambda levels: f"?at={_address(levels)}#walk")
    return {
        "at": _address(here),
        "node": _node(nodes.get(here), rows),
        "best": None if best is None else _address(best),
        "is_best": here == best,
        "best_node": None if best is None else _node(nodes.get(best), rows),
        "columns": columns,
        "picture": picture,
        "shown": len(dots),
        "measured": len(nodes),
        "size": found["size"],
        "rows": rows,
        "allowed": found["most_suppressed"],
    }


def _is_near(one: Levels, here: Levels) -> bool:
    """Return whether a node is one or two steps up or down."""
    steps = [a - b for a, b in zip(one, here, strict=True)]
    return sum(map(abs, steps)) <= 2 and (min(steps) >= 0 or max(steps) <= 0)


def _address(levels: Sequence[int]) -> str:
    return ".".join(map(str, levels))


def _node(plain: Sequence[Any] | None, rows: int) -> dict[str, Any] | None:
    if plain is None:
        return None
    _, classes, smallest, suppressed, loss, holds = plain
    return {
        "classes": classes,
        "smallest": smallest,
        "suppressed": suppressed,
        "share": suppressed / rows,
        "loss": loss,
        "holds": holds,
    }


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _sample(samples: Mapping[str, list[list[str]]], name: str, level: int) -> str:
    """Return the labels of some values of a column on a level."""
    labels = samples.get(name, [])
    if level >= len(labels):
        return "all values alike" if level else ""
    more = ", …" if len(labels[level]) > _SAMPLE else ""
    return ", ".join(labels[level][:_SAMPLE]) + more

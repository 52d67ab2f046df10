"""The path of a steward: from a table to a verified release."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sfumato.data.hierarchies.hierarchy import Hierarchy
from sfumato.data.hierarchies.label_paths import ROOT
from sfumato.errors import OptionError, SfumatoError
from sfumato.measures.assessment import SMALLEST_SHOWN
from sfumato.studio import jobs
from sfumato.studio.jobs import Job
from sfumato.studio.steps import (
    KINDS,
    ROLES,
    Form,
    Step,
    choice_in,
    columns_of,
    number_in,
    public_in,
    target_of,
    with_target,
)
from sfumato.studio.workspace import Project

__all__ = ["asked_in", "choice_of", "cost_of", "preview_of", "releases_of"]

METHODS = {
    "mondrian": "halves the rows again and again; keeps much detail",
    "hilbert": "groups neighbours along a curve; keeps much detail",
    "rplus": "grows boxes around neighbours",
    "lattice": "one level per column for all rows; easy to explain",
    "microaggregate": "replaces numbers by the means of small groups",
    "suppress": "removes single values of rare rows",
    "guided": "keeps what a model needs; needs a target",
}
GUARANTEES = {
    "k": ("k-anonymity", "every person shares their values with at least k - 1 others", 2, 1000, 1),
    "l": ("l-diversity", "every such group has at least l different sensitive values", 1, 50, 1),
    "t": ("t-closeness", "sensitive values in every group are distributed nearly as overall", 0, 1, 0.01),
}
PROTECTIONS = {
    "mondrian:k=5,20,100": "Mondrian, k = 5, 20, 100",
    "lattice:k=5,20,100": "Lattice, k = 5, 20, 100",
    "hilbert:k=5,20,100": "Hilbert, k = 5, 20, 100",
    "guided:k=20,100": "Guided, k = 20, 100",
    "dp:epsilon=0.3,1,3": "A private model, epsilon = 0.3, 1, 3",
    "synthetic:epsilon=1,3": "Synthetic rows, epsilon = 1, 3",
}
_FEW = "(few rows)"
_LINES = 60  # of a drawn hierarchy
_MOST_TEXT = 200_000  # characters of an edited tree


class _Columns(Step):
    """The role of each column."""

    name, title, kind = "columns", "Columns", "look"

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        columns = columns_of(project)
        roles, kinds, public = {}, {}, {}
        for at, one in enumerate(columns):
            roles[one["name"]] = choice_in(form, f"role-{at}", "a role", ROLES)
            kinds[one["name"]] = kind = choice_in(form, f"kind-{at}", "a kind", KINDS)
            if declared := public_in(form, f"public-{at}", kind):
                public[one["name"]] = declared
        if list(roles.values()).count("target") > 1:
            raise OptionError("a table has at most one target", hint="give the other one another role")
        return "the roles", {"roles": roles, "kinds": kinds, "public": public}

    def options(self, project: Project) -> dict[str, Any]:
        return {}

    def schema(self, project: Project) -> dict[str, Any]:
        return {}

    def shown(self, project: Project, job: Job | None) -> dict[str, Any]:
        preview = jobs.latest(project, "preview") if project.preview else None
        return {"columns": columns_of(project), "roles": ROLES, "kinds": KINDS, "preview": preview}


class _Risk(Step):
    """How identifiable the table is."""

    name, title, kind = "risk", "Risk", "assess"

    def options(self, project: Project) -> dict[str, Any]:
        return {"require": project.state.get("require", {})}


class _Guarantees(Step):
    """What must hold, and what it costs."""

    name, title = "guarantees", "Guarantees"

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        return "the guarantees", {"require": asked_in(form)}

    def shown(self, project: Project, job: Job | None) -> dict[str, Any]:
        asked = project.state.get("require", {})
        sensitive = any(one["role"] == "sensitive" for one in columns_of(project))
        known = {name: one for name, one in GUARANTEES.items() if sensitive or name == "k"}
        return {"asked": asked, "guarantees": known, "cost": cost_of(project, asked)}


def asked_in(form: Form) -> dict[str, float]:
    """Return the guarantees of a form; an empty field asks for nothing."""
    asked = {}
    for name, (title, _, least, most, step) in GUARANTEES.items():
        value = number_in(form, name, title, least=least, most=most, whole=step == 1)
        if value is not None and not (name == "l" and value == 1):
            asked[name] = value
    return asked


def cost_of(project: Project, asked: dict[str, float]) -> list[tuple[str, int, int]] | None:
    """Return how many rows are in classes that break each guarantee, and any of them; None before they are counted."""
    job = jobs.latest(project, "assess")
    known = {} if job is None else job.result
    if "costs" not in known:
        return None
    costs, rows = known["costs"], known["rows"]
    lines = []
    for names in [*([name] for name in asked), [*asked]] if len(asked) > 1 else [[name] for name in asked]:
        some = sum(one[-1] for one in costs if any(_breaks(one, name, asked[name]) for name in names))
        lines.append((f"{names[0]} = {asked[names[0]]:g}" if len(names) == 1 else "any of them", some, rows))
    return lines


def _breaks(kind: Sequence[int], name: str, value: float) -> bool:
    """Return whether a class of this size, diversity and closeness (in hundredths, rounded up) breaks a guarantee."""
    if name == "k":
        return kind[0] < value
    if len(kind) < 4:  # no column is sensitive
        return False
    return kind[1] < value if name == "l" else kind[2] > math.floor(100 * value + 1e-9)


class _Hierarchies(Step):
    """How the values of quasi-identifiers get coarser."""

    name, title = "hierarchies", "Hierarchies"

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        name, hierarchy = hierarchy_in(project, form)
        others = {key: one for key, one in project.state.get("hierarchies", {}).items() if key != name}
        chosen = others if hierarchy is None else {**others, name: hierarchy.to_dict()}
        return f"the hierarchy of {name}", {"hierarchies": chosen}

    def shown(self, project: Project, job: Job | None) -> dict[str, Any]:
        quasi = [one for one in columns_of(project) if one["role"] == "quasi"]
        known = _values_of(project)
        lines = []
        for one in quasi:
            values = known.get(one["name"])
            plain = project.state.get("hierarchies", {}).get(one["name"])
            lines.append({**one, "values": values, "own": plain, **_drawn(project, values, plain, one["kind"])})
        return {"quasi": lines, "smallest": SMALLEST_SHOWN, "measured": bool(known)}


def _values_of(project: Project) -> dict[str, Any]:
    job = jobs.latest(project, "assess")
    values: dict[str, Any] = {} if job is None else job.result.get("values", {})
    return values


def _listed(project: Project, values: dict[str, Any] | None) -> list[list[str]]:
    """Return the paths of the values, without labels of few rows, unless the owner sees rows anyway."""
    every = [] if values is None else values["listed"]
    if project.preview:
        return [one[:-1] for one in every]
    rows: Counter[tuple[int, str]] = Counter()
    for *path, count in every:
        rows.update(dict.fromkeys(enumerate(path), count))
    known = {path[0] for *path, count in every if count >= SMALLEST_SHOWN}
    found: dict[tuple[str, ...], None] = {}
    for *path, _ in every:
        shown = [*path, ROOT]
        for level in range(len(path) - 1, -1, -1):
            if rows[level, path[level]] < SMALLEST_SHOWN:
                above = shown[level + 1]
                shown[level] = above if above.startswith(_FEW) else f"{_FEW} in {above}"
            else:
                shown[level] = _without_hidden(path[level], known, rows[level, path[level]])
        found[tuple(shown[:-1])] = None
    return [list(path) for path in found]


def _without_hidden(label: str, known: set[str], rows: int) -> str:
    """Return the label of a group without the values that are hidden; its number of rows tells it from others."""
    before, brace, inside = label.partition("{")
    if not brace or not inside.endswith("}"):
        return label
    members = inside[:-1].split(", ")
    seen = [one for one in members if one in known]
    return label if len(seen) == len(members) else f"{before}{{{', '.join([*seen, '…'])}}} ({rows:,} rows)"


def _drawn(project: Project, values: dict[str, Any] | None, plain: Any, kind: str) -> dict[str, Any]:
    """Return a hierarchy as a drawing, as rows to edit, and what is wrong with it."""
    drawing, rows, problem = "", "", ""
    paths = _listed(project, values)
    seen = [_value(path[0], kind) for path in paths if not path[0].startswith(_FEW)]
    try:
        if not plain and paths:
            drawing, rows = Hierarchy.tree(paths).draw([path[0] for path in paths], lines=_LINES), _rows(paths)
        elif plain:
            hierarchy = Hierarchy.from_dict(plain)
            missing = hierarchy.uncovered(seen)
            problem = f"not covered: {', '.join(map(str, missing[:10]))}" if missing else ""
            covered = [one for one in seen if one not in missing]
            drawing = hierarchy.draw(covered, lines=_LINES) if covered else str(hierarchy)
            rows = _rows([path[:-1] for path in hierarchy.paths(covered)])
    except SfumatoError as error:
        problem = str(error)
    return {"drawing": re.sub(rf"{re.escape(_FEW)} in [^,\n]*", "…", drawing), "rows": rows, "problem": problem}


def _rows(paths: Sequence[Sequence[str]]) -> str:
    return "\n".join("; ".join(path) for path in paths if not path[0].startswith(_FEW))


def _value(text: str, kind: str) -> Any:
    """Return a value as the table has it."""
    try:
        number = float(text) if kind == "number" else math.nan
    except ValueError:
        return text
    return text if not math.isfinite(number) else int(number) if number == int(number) else number


def preview_of(project: Project, form: Form) -> dict[str, Any]:
    """Return the drawing of a hierarchy that is being edited, and which of the shown values it does not cover."""
    name, hierarchy = hierarchy_in(project, form)
    kind = next(one["kind"] for one in columns_of(project) if one["name"] == name)
    return _drawn(project, _values_of(project).get(name), hierarchy and hierarchy.to_dict(), kind)


def hierarchy_in(project: Project, form: Form) -> tuple[str, Hierarchy | None]:
    """Return the column of a form and its hierarchy; None for the automatic one."""
    quasi = [one["name"] for one in columns_of(project) if one["role"] == "quasi"]
    at = number_in(form, "column", "the column", least=0, most=max(len(quasi) - 1, 0), whole=True)
    if at is None or not quasi:
        raise OptionError("no column is named")
    name, how, text = quasi[int(at)], form.get("how"), str(form.get("text") or "")
    if how == "automatic":
        return name, None
    if len(text) > _MOST_TEXT:
        raise OptionError("the hierarchy is too long", hint="write it to a file, and name it in a schema")
    if how == "tree":
        rows = [[cell.strip() for cell in line.split(";")] for line in text.splitlines() if line.strip()]
        return name, Hierarchy.tree(rows)
    if how == "dates":
        return name, Hierarchy.dates()
    try:
        numbers = [float(one) for one in text.replace(",", " ").split()]
        whole = [int(one) if one == int(one) else one for one in numbers]
    except (ValueError, OverflowError):
        raise OptionError(f"'{text[:40]}' must be numbers, such as 5, 10, 20") from None
    bounds = _values_of(project).get(name, {}).get("bounds")
    if how == "intervals" and whole:
        if bounds is None:
            raise OptionError(f"'{name}' has no numbers that are counted", hint="measure the risk first")
        return name, Hierarchy.intervals(widths=whole, bounds=bounds, outside="code")
    if how == "prefixes" and len(whole) == 1:
        return name, Hierarchy.prefixes(int(whole[0]))
    raise OptionError("there is no such hierarchy")


class _Methods(Step):
    """Releases by several methods beside each other."""

    name, title, kind = "methods", "Methods", "anonymize"

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        methods = [name for name in METHODS if name in form.getlist("method")]
        if not methods:
            raise OptionError("no method is chosen", hint="choose at least one")
        if "guided" in methods and target_of(project) is None:
            raise OptionError("the method guided needs a target", hint="give a column this role under Columns")
        suppress = number_in(form, "suppress", "the share to suppress", least=0, most=1, empty=0.05)
        return "the methods", {"methods": methods, "suppress": suppress}

    def options(self, project: Project) -> dict[str, Any] | None:
        state = project.state
        if not state.get("methods") or "k" not in state.get("require", {}):
            return None
        return {"methods": state["methods"], "require": state["require"], "suppress": state["suppress"]}

    def shown(self, project: Project, job: Job | None) -> dict[str, Any]:
        asked = project.state.get("require", {})
        chosen = project.state.get("methods", ["mondrian"])
        suppress = project.state.get("suppress", 0.05)
        return {"known": METHODS, "chosen": chosen, "asked": asked, "suppress": suppress}


def releases_of(project: Project) -> list[str]:
    """Return the releases that were made, as the job and the name of each, the newest first."""
    found = []
    folders = [one for one in project.jobs.iterdir() if one.name[5:] in ("anonymize", "synthesize")]
    for folder in sorted(folders, reverse=True):
        inside = folder / "releases"
        if inside.is_dir() and not inside.is_symlink():
            names = sorted(one.name for one in inside.iterdir() if (one / "certificate.json").is_file())
            found += [f"{folder.name}/{name}" for name in names]
    return found


def _chosen(project: Project, kinds: Sequence[str] = ("anonymize",)) -> str | None:
    """Return the release that was chosen, or else the newest."""
    known = [one for one in releases_of(project) if one.split("/")[0][5:] in kinds]
    given = project.state.get("chosen")
    return given if given in known else next(iter(known), None)


class _OfRelease(Step):
    """A step that is about one release."""

    kinds: Sequence[str] = ("anonymize",)

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        given = form.get("release")
        if given not in releases_of(project):
            raise OptionError("there is no such release", hint="choose one of the list")
        return "the release", {"chosen": given}

    def options(self, project: Project) -> dict[str, Any] | None:
        release = _chosen(project, self.kinds)
        return None if release is None else {"release": release}

    def shown(self, project: Project, job: Job | None) -> dict[str, Any]:
        known = [one for one in releases_of(project) if one.split("/")[0][5:] in self.kinds]
        return {"releases": known, "chosen": _chosen(project, self.kinds)}


class _Attack(_OfRelease):
    """What an attacker learns from a release."""

    name, title, kind = "attack", "Attack", "attack"


class _Explore(Step):
    """Which protection to take."""

    name, title, kind = "explore", "Frontier", "explore"

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        protections = [one for one in PROTECTIONS if one in form.getlist("protection")]
        if not protections:
            raise OptionError("no protection is chosen", hint="choose at least one")
        asked = {
            "protections": ["raw", *protections],
            "seeds": number_in(form, "seeds", "the number of repetitions", least=1, most=10, whole=True, empty=2),
            "model": choice_in(form, "model", "the model", ("tree", "forest")),
            "max_risk": number_in(form, "max_risk", "the largest risk", least=0, most=1),
            "max_advantage": number_in(form, "max_advantage", "the largest advantage", least=0, most=1),
        }
        return "the exploration", {"roles": with_target(project, str(form.get("target"))), "explore": asked}

    def options(self, project: Project) -> dict[str, Any] | None:
        return project.state.get("explore") if target_of(project) else None

    def shown(self, project: Project, job: Job | None) -> dict[str, Any]:
        default = {"protections": list(PROTECTIONS)[:2], "seeds": 2, "model": "tree"}
        asked = {**default, "max_risk": None, "max_advantage": None, **(project.state.get("explore") or {})}
        columns = [one["name"] for one in columns_of(project) if one["role"] != "identifier"]
        return {"known": PROTECTIONS, "asked": asked, "columns": columns, "target": target_of(project)}


def choice_of(project: Project) -> dict[str, Any]:
    """Return the settings that make the recommended release."""
    job = jobs.latest(project, "explore")
    name, _, rest = str("" if job is None else job.result.get("recommended", "")).partition(":k=")
    if name not in METHODS or not rest.isdigit():
        raise OptionError("there is no recommended release", hint="explore first")
    require = {**project.state.get("require", {}), "k": int(rest)}
    return {"methods": [name], "suppress": project.state.get("suppress", 0.05), "require": require}


class _Release(_OfRelease):
    """Check a release, and take it away."""

    name, title, kind = "release", "Release", "verify"
    kinds = ("anonymize", "synthesize")

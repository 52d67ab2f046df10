"""The path of a steward: from a table to a verified release."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.errors import OptionError
from sfumato.studio import jobs
from sfumato.studio.jobs import Job
from sfumato.studio.pages import moment
from sfumato.studio.steps import (
    KINDS,
    ROLES,
    STEPS,
    Form,
    Step,
    choice_in,
    columns_of,
    number_in,
    public_in,
    schema_of,
    target_of,
    with_target,
)
from sfumato.studio.workspace import Project

__all__ = ["asked_in", "choice_of", "cost_of", "releases_of"]

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

    def shown(self, project: Project, job: Job | None, query: Mapping[str, str]) -> dict[str, Any]:
        preview = jobs.latest(project, "preview") if project.preview else None
        return {"columns": columns_of(project), "roles": ROLES, "kinds": KINDS, "preview": preview}


class _Risk(Step):
    """How identifiable the table is."""

    name, title, kind = "risk", "Risk", "assess"

    def options(self, project: Project) -> dict[str, Any]:
        return {"require": project.state.get("require", {})}

    def schema(self, project: Project) -> dict[str, Any]:
        return schema_of(project, plain=True)


class _Guarantees(Step):
    """What must hold, and what it costs."""

    name, title = "guarantees", "Guarantees"

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        return "the guarantees", {"require": asked_in(form)}

    def is_decided(self, project: Project) -> bool:
        return "k" in project.state.get("require", {})

    def shown(self, project: Project, job: Job | None, query: Mapping[str, str]) -> dict[str, Any]:
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
        levels = project.state.get("levels") if form.get("levels") and "lattice" in methods else None
        return "the methods", {"methods": methods, "suppress": suppress, "levels": levels, "chosen": None}

    def options(self, project: Project) -> dict[str, Any] | None:
        state = project.state
        if not state.get("methods") or "k" not in state.get("require", {}):
            return None
        levels = state.get("levels") if "lattice" in state["methods"] else None
        known = {"methods": state["methods"], "require": state["require"], "suppress": state["suppress"]}
        return {**known, **({"levels": levels} if levels else {})}

    def shown(self, project: Project, job: Job | None, query: Mapping[str, str]) -> dict[str, Any]:
        asked = project.state.get("require", {})
        chosen = project.state.get("methods", ["mondrian"])
        suppress = project.state.get("suppress", 0.05)
        levels = project.state.get("levels")
        return {"known": METHODS, "chosen": chosen, "asked": asked, "suppress": suppress, "levels": levels}


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


def release_name(project: Project, chosen: str) -> str:
    """Return the name of a release in words: its method, what it keeps, and when it was made."""
    folder, _, name = chosen.partition("/")
    task = jobs.find(project, folder).task
    asked = ", ".join(f"{key} = {value:g}" for key, value in task["options"].get("require", {}).items())
    what = f"{name} with {asked}" if asked else name.replace("epsilon", "synthetic rows with epsilon = ")
    return f"{what}; made {moment(task['started'])}"


def _chosen(project: Project, kinds: Sequence[str] = ("anonymize",)) -> str | None:
    """Return the release that was chosen, or else the newest."""
    known = [one for one in releases_of(project) if one.split("/")[0][5:] in kinds]
    given = project.state.get("chosen")
    return given if given in known else next(iter(known), None)


def _is_outdated(project: Project, chosen: str) -> bool:
    """Return whether a release was made by other settings than those of now."""
    job = jobs.find(project, chosen.partition("/")[0])
    return job.task["kind"] == _Methods.kind and STEPS[_Methods.name].is_stale(project, job)


class _OfRelease(Step):
    """A step that is about one release."""

    kinds: Sequence[str] = ("anonymize",)

    def schema(self, project: Project) -> dict[str, Any]:
        return {}  # that of the release, which does not change

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        given = form.get("release")
        if given not in releases_of(project):
            raise OptionError("there is no such release", hint="choose one of the list")
        return "the release", {"chosen": given}

    def options(self, project: Project) -> dict[str, Any] | None:
        release = _chosen(project, self.kinds)
        return None if release is None else {"release": release}

    def shown(self, project: Project, job: Job | None, query: Mapping[str, str]) -> dict[str, Any]:
        known = [one for one in releases_of(project) if one.split("/")[0][5:] in self.kinds]
        names = {one: release_name(project, one) for one in known}
        chosen = _chosen(project, self.kinds)
        return {"releases": names, "chosen": chosen, "outdated": chosen is not None and _is_outdated(project, chosen)}


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

    def shown(self, project: Project, job: Job | None, query: Mapping[str, str]) -> dict[str, Any]:
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
    return {
        "methods": [name],
        "suppress": project.state.get("suppress", 0.05),
        "levels": None,
        "chosen": None,
        "require": require,
    }


class _Release(_OfRelease):
    """Check a release, and take it away."""

    name, title, kind = "release", "Release", "verify"
    kinds = ("anonymize", "synthesize")

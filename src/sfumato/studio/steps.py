"""The steps of the studio: what a page reads from its form, which task it runs, and what it shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from sfumato.data.schema import Kind, Role
from sfumato.errors import OptionError
from sfumato.studio import jobs
from sfumato.studio.jobs import Job
from sfumato.studio.tasks import Task, task_of
from sfumato.studio.workspace import Project

__all__ = [
    "KINDS",
    "ROLES",
    "STEPS",
    "Form",
    "Step",
    "choice_in",
    "columns_of",
    "number_in",
    "numbers_in",
    "public_in",
    "schema_of",
    "target_of",
    "with_target",
]

STEPS: dict[str, Step] = {}
"""The steps by their name in the address, in order."""
_ORDER = (
    *("columns", "risk", "guarantees", "hierarchies", "lattice", "methods", "attack", "explore", "release"),
    *("train", "synthesize", "budget"),
)


class Form(Protocol):
    """The fields of a form that was sent."""

    def get(self, key: str, /) -> Any:
        """Return the value of a field; None if it was not sent."""

    def getlist(self, key: Any, /) -> list[Any]:
        """Return all values of a field."""


class Step:
    """A page of a project: a form, a task, and its result.

    Attributes
    ----------
    name : in the address, and of its template
    title : in the navigation
    path : for whom it is: the steward or the engineer
    kind : of its task; empty if it has none
    """

    name: ClassVar[str]
    title: ClassVar[str]
    path: ClassVar[str] = "steward"
    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            known = {**STEPS, cls.name: cls()}
            STEPS.clear()
            STEPS.update({name: known[name] for name in _ORDER if name in known})

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        """Return the settings of a form, and in words what they change."""
        return "", {}

    def options(self, project: Project) -> dict[str, Any] | None:
        """Return the options of the task; None as long as something is missing."""
        return None

    def schema(self, project: Project) -> dict[str, Any]:
        """Return the schema of the task."""
        return schema_of(project)

    def shown(self, project: Project, job: Job | None, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the values for the template; the query of the address may choose a part."""
        return {}

    def is_stale(self, project: Project, job: Job) -> bool:
        """Return whether the work was done by other settings than those of now."""
        task = self.task(project)
        return task is not None and any(job.task.get(name) != value for name, value in task.to_dict().items())

    def is_decided(self, project: Project) -> bool:
        """Return whether something was chosen on a page without work."""
        return False

    def place(self, form: Form) -> str:
        """Return where on the page to go on after a form was saved."""
        return ""

    def task(self, project: Project) -> Task | None:
        """Return the task by the settings as they are; None as long as something is missing."""
        options = self.options(project) if self.kind else None
        if options is None:
            return None
        plain = {"kind": self.kind, "name": project.name, "source": project.source}
        return task_of({**plain, "schema": self.schema(project), "options": options})

    def job(self, project: Project) -> Job | None:
        """Return the newest work of the step."""
        return jobs.latest(project, self.kind) if self.kind else None


def columns_of(project: Project) -> list[dict[str, Any]]:
    """Return the columns with the roles and kinds that were chosen, or else proposed; none before they are known."""
    job, state = jobs.latest(project, "look"), project.state
    roles, kinds = state.get("roles", {}), state.get("kinds", {})
    found = [] if job is None else job.result.get("columns", [])
    return [
        {
            **one,
            "proposed": one["role"],
            "role": roles.get(one["name"], one["role"]),
            "kind": kinds.get(one["name"], one["kind"]),
            "public": _public_text(state.get("public", {}).get(one["name"], {})),
        }
        for one in found
    ]


def _public_text(declared: Mapping[str, Any]) -> str:
    bounds, domain = declared.get("bounds"), declared.get("domain", [])
    return ", ".join(domain) if bounds is None else f"{bounds[0]:g}..{bounds[1]:g}"


def public_in(form: Form, name: str, kind: str) -> dict[str, Any]:
    """Return the bounds or the values that a field declares to be public: ``0..120``, or ``yes, no``."""
    text = str(form.get(name) or "").strip()
    if not text:
        return {}
    if kind != Kind.NUMBER:
        return {"domain": list(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))}
    low, dots, high = text.partition("..")
    bounds = [_number(one.strip(), "a public bound", -1e15, 1e15, False) for one in (low, high)] if dots else []
    if len(bounds) != 2 or bounds[0] > bounds[1]:
        raise OptionError(f"public bounds must be two numbers in order, got '{text[:40]}'", hint="for example 0..120")
    return {"bounds": bounds}


def schema_of(project: Project, *, public: bool = False, plain: bool = False) -> dict[str, Any]:
    """Return the schema as plain values: roles and kinds, with hierarchies or with what is declared to be public."""
    hierarchies = {} if public or plain else project.state.get("hierarchies", {})
    declared = project.state.get("public", {}) if public else {}
    columns = {}
    for one in columns_of(project):
        column = {"role": one["role"], "kind": one["kind"], **declared.get(one["name"], {})}
        if one["name"] in hierarchies and one["role"] == Role.QUASI:
            column["hierarchy"] = hierarchies[one["name"]]
        columns[one["name"]] = column
    return {"columns": columns}


def with_target(project: Project, target: str) -> dict[str, str]:
    """Return the roles with another target; the old one has no role."""
    roles = {one["name"]: one["role"] for one in columns_of(project)}
    if target not in roles:
        raise OptionError("there is no such column", hint="choose one of the list")
    freed = {name: Role.OTHER.value if role == Role.TARGET else role for name, role in roles.items()}
    return {**freed, target: Role.TARGET.value}


def target_of(project: Project) -> str | None:
    """Return the name of the target; None if there is none."""
    return next((one["name"] for one in columns_of(project) if one["role"] == Role.TARGET), None)


def number_in(
    form: Form, name: str, what: str, *, least: float, most: float, whole: bool = False, empty: float | None = None
) -> float | None:
    """Return a number of a form, or ``empty`` if the field is empty; refuse another text."""
    text = str(form.get(name) or "").strip()
    return empty if not text else _number(text, what, least, most, whole)


def numbers_in(form: Form, name: str, what: str, *, least: float, most: float) -> list[float]:
    """Return the numbers of a field, separated by commas or blanks."""
    texts = str(form.get(name) or "").replace(",", " ").split()
    if not 1 <= len(texts) <= 20:
        raise OptionError(f"{what} must be one to twenty numbers, got {len(texts)}", hint="for example 0.5, 1, 3")
    return sorted({float(_number(one, what, least, most, False)) for one in texts})


def _number(text: str, what: str, least: float, most: float, whole: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        raise OptionError(f"{what} must be a number, got '{text[:40]}'") from None
    if not (math.isfinite(value) and least <= value <= most) or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise OptionError(f"{what} must be {kind} from {least:g} to {most:g}, got '{text[:40]}'")
    return int(value) if whole else value


def choice_in(form: Form, name: str, what: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    """Return one of the known values; refuse others."""
    given = str(form.get(name) or "")
    if given not in known:
        raise OptionError(f"{what} must be one of {', '.join(known)}, got '{given[:40]}'")
    return given


KINDS = tuple(one.value for one in Kind)
ROLES = {
    "identifier": "left out",
    "quasi": "others may know it",
    "sensitive": "nobody may learn it",
    "target": "to be predicted",
    "kept": "unchanged on purpose",
    "other": "unchanged",
}

"""The path of an engineer: private models, synthetic rows, and the budget that pays for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.errors import OptionError
from sfumato.studio import jobs
from sfumato.studio.jobs import Job
from sfumato.studio.steps import (
    Form,
    Step,
    choice_in,
    columns_of,
    number_in,
    numbers_in,
    schema_of,
    target_of,
    with_target,
)
from sfumato.studio.workspace import Project

__all__ = ["chart_of"]

MODELS = {
    "additive": "sums of small curves; the best one known for tables",
    "logistic": "logistic regression",
    "forest": "random forest",
    "naive-bayes": "naive Bayes; the fastest",
}
METHODS = {"tree": "the default", "aim": "best for few columns; slow", "independent": "each column alone; fast"}
_EPSILONS = {"least": 0.001, "most": 100.0}


class _Private(Step):
    """A step whose work is charged: only what is declared to be public is known of the table before."""

    path = "engineer"

    def schema(self, project: Project) -> dict[str, Any]:
        return schema_of(project, public=True)


class _Train(_Private):
    """Models at several epsilons."""

    name, title, kind = "train", "Train", "train"

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        asked = {
            "model": choice_in(form, "model", "the model", MODELS),
            "epsilons": numbers_in(form, "epsilons", "the epsilons", **_EPSILONS),
            "delta": number_in(form, "delta", "delta", least=1e-12, most=0.1, empty=1e-5),
        }
        return "the training", {"roles": with_target(project, str(form.get("target"))), "train": asked}

    def options(self, project: Project) -> dict[str, Any] | None:
        return project.state.get("train") if target_of(project) else None

    def shown(self, project: Project, job: Job | None, query: Mapping[str, str]) -> dict[str, Any]:
        asked = project.state.get("train") or {"model": "additive", "epsilons": [0.5, 1, 3], "delta": 1e-5}
        columns = [one["name"] for one in columns_of(project) if one["role"] != "identifier"]
        return {"models": MODELS, "asked": asked, "columns": columns, "target": target_of(project)}


def chart_of(job: Job | None) -> Any:
    """Return the accuracy of the models that are trained by now, as a chart; None as long as there is none."""
    if job is None or job.task["kind"] != _Train.kind:
        return None
    from sfumato.report.charts.lines import Axis, Line, line_chart
    from sfumato.report.summarise import percent

    points = (job.result if job.status == "done" else job.progress).get("points", [])
    line = Line("accuracy", [(epsilon, accuracy) for epsilon, accuracy in points])
    return line_chart("Accuracy by epsilon", [line], Axis("epsilon", log=True), Axis(text=percent)) if points else None


class _Synthesize(_Private):
    """Synthetic rows at several epsilons."""

    name, title, kind = "synthesize", "Synthesize", "synthesize"

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        asked = {
            "method": choice_in(form, "method", "the method", METHODS),
            "epsilons": numbers_in(form, "epsilons", "the epsilons", **_EPSILONS),
            "delta": number_in(form, "delta", "delta", least=1e-12, most=0.1, empty=1e-5),
            "rows": number_in(form, "rows", "the number of rows", least=1, most=10_000_000, whole=True),
        }
        return "the synthetic rows", {"synthesize": asked, "chosen": None}

    def options(self, project: Project) -> dict[str, Any] | None:
        return project.state.get("synthesize")

    def shown(self, project: Project, job: Job | None, query: Mapping[str, str]) -> dict[str, Any]:
        default = {"method": "tree", "epsilons": [1], "delta": 1e-5, "rows": None}
        return {"methods": METHODS, "asked": project.state.get("synthesize") or default}


class _Budget(Step):
    """The ledger of the table."""

    name, title, path, kind = "budget", "Budget", "engineer", "budget"

    def is_stale(self, project: Project, job: Job) -> bool:
        later = (jobs.latest(project, kind) for kind in (_Train.kind, _Synthesize.kind))
        return any(one is not None and one.id > job.id for one in later)

    def shown(self, project: Project, job: Job | None, query: Mapping[str, str]) -> dict[str, Any]:
        return {"charged_since": job is not None and job.status == "done" and self.is_stale(project, job)}

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        if form.get("what") != "grant":
            return "the view of the ledger", {"grant": None}
        epsilon = number_in(form, "epsilon", "epsilon", least=0.001, most=1000)
        if epsilon is None:
            raise OptionError("epsilon is missing", hint="the limit for everything together, such as 2")
        delta = number_in(form, "delta", "delta", least=0, most=0.1, empty=0)
        grant = {"epsilon": epsilon, "delta": delta, "note": str(form.get("note") or "")[:200]}
        return "the budget", {"grant": grant}

    def options(self, project: Project) -> dict[str, Any]:
        grant = project.state.get("grant")
        return {"grant": grant} if grant else {}

    def schema(self, project: Project) -> dict[str, Any]:
        return {}

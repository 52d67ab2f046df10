"""The studio as a web application: each address, and what it answers."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from sfumato.data.io.files import format_of
from sfumato.errors import FileError, OptionError, SfumatoError
from sfumato.studio import engineer, hierarchies, jobs, lattice, steward  # noqa: F401 - each module defines steps
from sfumato.studio.files import private_folder, receive, regular_file, safe_name, zip_folder
from sfumato.studio.guard import REPORT_POLICY, Guard
from sfumato.studio.pages import STATIC, fill_page, static_file
from sfumato.studio.steps import STEPS, Step
from sfumato.studio.tasks import TASKS, task_of
from sfumato.studio.workspace import Project, Workspace

__all__ = ["create_app", "open_source"]

_MOST_FIELDS = 20_000  # of a form: two for each column
_LINK = re.compile(rb'<a href="[^"]*/report\.html">(.*?)</a>')
_BUILT_IN = ("adult", "nursery")
_Answer = Callable[[Request], Awaitable[Response]]


def create_app(folder: str | Path, *, port: int) -> Guard:
    """Return the studio with its guard, for the projects of a folder.

    Examples
    --------
    >>> app = create_app("studio-work", port=8765)
    >>> app.address.startswith("http://127.0.0.1:8765/")
    True
    """
    studio = _Studio(Workspace(folder), f"/{secrets.token_urlsafe(12)}")
    return Guard(studio.application(), port=port, root=studio.root)


def open_source(workspace: Workspace, path: str, *, table: str = "") -> Project:
    """Create a project for a file, the address of a database, or a built-in table, and look at its columns."""
    if path in _BUILT_IN:
        name = f"{path}.parquet"
        project = workspace.create(name, lambda folder: {"path": str(folder / name), "built-in": path})
    elif "://" in path:
        if not table:
            raise OptionError("the table of the database is not named", hint="name it beside its address")
        if not re.match(r"[\w+]+://", path):
            raise OptionError("the address of a database begins like postgresql:// or sqlite:///")
        project = workspace.create(table, lambda folder: {"path": path, "table": table})
    else:
        file = Path(path).expanduser()
        if file.is_symlink() or not file.is_file():
            raise FileError(f"'{path}' is not a file", hint="give the path of a table; a link is not followed")
        format_of(file)
        where = {"path": str(file.absolute()), **({"table": table} if table else {})}
        project = workspace.create(file.name, lambda folder: where)
    _start(project, STEPS["columns"])
    return project


def _start(project: Project, step: Step) -> None:
    """Start the work of a step by the settings as they are."""
    task = step.task(project)
    if task is None:
        raise OptionError("a setting is missing", hint="go through the steps before")
    jobs.start(project, task.to_dict())


class _Studio:
    """The pages of a workspace."""

    def __init__(self, workspace: Workspace, root: str) -> None:
        self.workspace, self.root = workspace, root

    def application(self) -> Starlette:
        """Return all addresses."""
        pages: list[tuple[str, str, _Answer]] = [
            ("GET", "/", self.home),
            ("GET", "/static/{file}", self.static),
            ("POST", "/upload", self.upload),
            ("POST", "/open", self.open),
            ("GET", "/p/{project}", self.first),
            ("GET", "/p/{project}/cost", self.cost),
            ("GET", "/p/{project}/tree", self.tree),
            ("GET", "/p/{project}/release.zip", self.download),
            ("GET", "/p/{project}/jobs/{job}", self.progress),
            ("GET", "/p/{project}/jobs/{job}/report", self.report),
            ("GET", "/p/{project}/jobs/{job}/report/{name}", self.report),
            ("POST", "/p/{project}/jobs/{job}/cancel", self.cancel),
            ("POST", "/p/{project}/do/{what}", self.do),
            ("GET", "/p/{project}/{step}", self.step),
            ("POST", "/p/{project}/{step}", self.save),
        ]
        routes = [Route(path, self._careful(answer), methods=[method]) for method, path, answer in pages]
        return Starlette(routes=[Mount(self.root, routes=routes)])

    def _careful(self, answer: _Answer) -> _Answer:
        """Return an answer that shows an error of ours as a page."""

        async def careful(request: Request) -> Response:
            try:
                return await answer(request)
            except SfumatoError as error:
                missing = isinstance(error, FileError) and error.message.startswith("there is no such")
                return self._page("error.html", 404 if missing else 400, title="Not possible", message=str(error))

        return careful

    def _page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(fill_page(template, root=self.root, **values), status)

    def _to(self, place: str) -> RedirectResponse:
        return RedirectResponse(f"{self.root}/{place}", 303)

    def _project(self, request: Request) -> Project:
        return self.workspace.open(request.path_params["project"])

    # --- the start page ---

    async def home(self, request: Request) -> Response:
        """Answer with all projects, and the ways to open another."""
        lines = [(one, len(jobs.running(one)), _is_unread(one)) for one in self.workspace]
        return self._page("home.html", title="Studio", projects=lines, built_in=_BUILT_IN)

    async def static(self, request: Request) -> Response:
        """Answer with a style sheet or a script."""
        name = request.path_params["file"]
        if name not in STATIC:
            raise FileError("there is no such file")
        return Response(static_file(name), media_type=STATIC[name])

    async def upload(self, request: Request) -> Response:
        """Take an uploaded table."""
        uploads = private_folder(private_folder(self.workspace.folder / "uploads") / secrets.token_hex(6))
        try:
            received = await receive(request.stream(), request.headers, uploads)
            name = safe_name(received.name)
            project = self.workspace.create(name, lambda folder: {"path": str(received.rename(folder / name))})
        finally:
            for left in uploads.iterdir():
                left.unlink()
            uploads.rmdir()
        _start(project, STEPS["columns"])
        return self._to(f"p/{project.id}/columns")

    async def open(self, request: Request) -> Response:
        """Open a table where it is."""
        form = await request.form(max_fields=10)
        path, table = (str(form.get(name) or "").strip() for name in ("path", "table"))
        if not path:
            raise OptionError("no path is given", hint="give that of a file, or the address of a database")
        return self._to(f"p/{open_source(self.workspace, path, table=table).id}/columns")

    # --- a project ---

    async def first(self, request: Request) -> Response:
        """Go to the first step."""
        return self._to(f"p/{self._project(request).id}/columns")

    async def step(self, request: Request) -> Response:
        """Answer with the page of a step."""
        return self._step(self._project(request), _step(request), query=request.query_params)

    def _step(self, project: Project, step: Step, error: str = "", query: Mapping[str, str] | None = None) -> Response:
        job = step.job(project)
        values = step.shown(project, job, query or {})
        return self._page(
            f"{step.name}.html",
            400 if error else 200,
            title=f"{project.name}: {step.title}",
            project=project,
            step=step,
            steps=list(STEPS.values()),
            marks={one.name: _mark(project, one) for one in STEPS.values()},
            job=job,
            stale=job is not None and step.is_stale(project, job),
            task_title="" if job is None else TASKS[job.task["kind"]].title,
            code=None if job is None else _code(job),
            result={} if job is None else job.result,
            error=error,
            **({"chart": engineer.chart_of(job)} if step.name == "train" else {}),
            values=values,
        )

    async def save(self, request: Request) -> Response:
        """Save the settings of a step, and start its work if that is asked for."""
        project, step = self._project(request), _step(request)
        form = await request.form(max_fields=_MOST_FIELDS)
        try:
            if form.get("settings"):
                project.change(*step.read(project, form))
            after = str(form.get("run") or form.get("next") or "")
            step_after = STEPS.get(after, step)
            if form.get("run"):
                _start(project, step_after)
        except SfumatoError as error:
            return self._step(project, step, str(error))
        place = step.place(form) if step_after is step else ""
        return self._to(f"p/{project.id}/{step_after.name}{place}")

    async def do(self, request: Request) -> Response:
        """Undo, redo, show or hide rows, or remove the project; then go back to where it was asked for."""
        project, what = self._project(request), request.path_params["what"]
        form = await request.form(max_fields=10)
        if what == "undo":
            project.undo()
        elif what == "redo":
            project.redo()
        elif what == "preview":
            self._preview(project, on=not project.preview)
        elif what == "take":
            project.change("the choice", steward.choice_of(project))
            _start(project, STEPS["methods"])
            return self._to(f"p/{project.id}/methods")
        elif what == "remove":
            for job in jobs.running(project):
                jobs.cancel(project, job.id)
            self.workspace.remove(project.id)
            return self._to("")
        back = str(form.get("back") or "")
        return self._to(f"p/{project.id}/{back if back in STEPS else 'columns'}")

    def _preview(self, project: Project, *, on: bool) -> None:
        """Fetch some rows into a file of the project, or remove that file."""
        project.show_rows(on=on)
        if on:
            plain = {"kind": "preview", "name": project.name, "source": project.source, "schema": {}, "options": {}}
            jobs.start(project, plain)
        for folder in project.jobs.glob("????-preview") if not on else ():
            (folder / "result.json").unlink(missing_ok=True)

    async def cost(self, request: Request) -> Response:
        """Answer with what the guarantees that are being chosen would cost, from the counts."""
        project = self._project(request)
        try:
            asked = steward.asked_in(request.query_params)
            return self._page("cost.html", cost=steward.cost_of(project, asked), error="", project=project)
        except OptionError as error:
            return self._page("cost.html", cost=None, error=str(error), project=project)

    async def tree(self, request: Request) -> Response:
        """Answer with the drawing of a hierarchy that is being edited."""
        project = self._project(request)
        try:
            return self._page("tree.html", error="", **hierarchies.preview_of(project, request.query_params))
        except SfumatoError as error:
            return self._page("tree.html", error=str(error), drawing="", problem="")

    async def download(self, request: Request) -> Response:
        """Answer with a release as a zip archive."""
        project = self._project(request)
        chosen = request.query_params.get("release", "")
        if chosen not in steward.releases_of(project):
            raise FileError("there is no such release")
        job, _, name = chosen.partition("/")
        folder = jobs.find(project, job).folder
        archive = zip_folder(folder / "releases" / name, folder / f"{name}.zip")
        return FileResponse(archive, media_type="application/zip", filename=f"{Path(project.name).stem}-{name}.zip")

    # --- the work ---

    async def progress(self, request: Request) -> Response:
        """Answer with how far a piece of work is; when it has ended, the page loads itself again."""
        project = self._project(request)
        job = jobs.find(project, request.path_params["job"])
        ended = {} if job.status == "running" else {"HX-Refresh": "true"}
        back = next((one.name for one in STEPS.values() if one.kind == job.task["kind"]), "")
        page = self._page(
            "work.html",
            job=job,
            project=project,
            task=task_of(job.task),
            chart=engineer.chart_of(job),
            back=back,
        )
        page.headers.update(ended)
        return page

    async def report(self, request: Request) -> Response:
        """Answer with the report of a piece of work, or of one of its releases."""
        folder = jobs.find(self._project(request), request.path_params["job"]).folder
        name = request.path_params.get("name")
        file = folder / "report.html" if name is None else folder / "releases" / name / "report.html"
        if name == "releases":
            file = folder / "releases" / "report.html"
        content = regular_file(file, folder).read_bytes()
        content = _LINK.sub(rb"\1", content)  # a frame without an origin may not follow them
        return Response(content, media_type="text/html", headers={"Content-Security-Policy": REPORT_POLICY})

    async def cancel(self, request: Request) -> Response:
        """Stop a piece of work."""
        project = self._project(request)
        jobs.cancel(project, request.path_params["job"])
        form = await request.form(max_fields=10)
        back = str(form.get("back") or "")
        return self._to(f"p/{project.id}/{back if back in STEPS else 'columns'}")


def _step(request: Request) -> Step:
    name = request.path_params["step"]
    if name not in STEPS:
        raise FileError("there is no such page")
    return STEPS[name]


def _is_unread(project: Project) -> bool:
    """Return whether the table could not be read."""
    job = jobs.latest(project, STEPS["columns"].kind)
    return job is not None and job.status == "failed"


def _mark(project: Project, step: Step) -> tuple[str, str] | None:
    """Return the state of a step for the navigation: a CSS class and a text."""
    if not step.kind:
        return ("done", "chosen") if step.is_decided(project) else None
    job = step.job(project)
    if job is None or job.status == "cancelled":
        return None
    if job.status != "done":
        return ("busy", "at work") if job.status == "running" else ("failed", "failed")
    return ("stale", "out of date") if step.is_stale(project, job) else ("done", "done")


def _code(job: jobs.Job) -> dict[str, str]:
    """Return the command and the program that do the same as a piece of work."""
    task = task_of(job.task)
    return {"command": task.command(job.folder), "python": task.python(job.folder)}

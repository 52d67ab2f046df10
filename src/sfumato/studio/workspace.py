"""The work folder: projects, their settings with undo, and where their files are.

A project is a folder with ``project.json``, the uploaded table in ``source`` and the finished and running work in
``jobs``. Every change of a setting is a new state, so that it can be undone; a page that is open twice shows the same.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sfumato.data.io.files import exclusive_lock, write_owned
from sfumato.errors import FileError
from sfumato.studio.files import private_folder

__all__ = ["Project", "Workspace", "read_json"]

_ID = re.compile(r"[0-9a-f]{12}")
_MOST_STATES = 200  # that can be undone
_FILE = "project.json"


def read_json(path: Path) -> Any:
    """Return the content of a JSON file that the studio wrote; None if there is none, or only half of one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class Project:
    """A table, what was decided about it, and what was done with it.

    Attributes
    ----------
    folder : where its files are
    name : the name of the table
    source : where the table is: its kind, and a path or an address
    state : the settings, as plain values; `change` replaces some
    """

    def __init__(self, folder: Path) -> None:
        plain = read_json(folder / _FILE)
        if not isinstance(plain, dict) or not plain.get("states"):
            raise FileError(f"the project in '{folder}' is damaged", hint="remove the folder")
        self.folder, self.id = folder, folder.name
        self.name: str = plain["name"]
        self.source: dict[str, Any] = plain["source"]
        self.opened: float = plain["opened"]
        self._plain = plain

    @property
    def state(self) -> dict[str, Any]:
        """The settings as they are now."""
        state: dict[str, Any] = self._plain["states"][self._plain["at"]]
        return state

    @property
    def jobs(self) -> Path:
        """The folder of the work."""
        return private_folder(self.folder / "jobs")

    @property
    def preview(self) -> bool:
        """Whether the owner wants to see rows; this is not undone, so that no row appears by surprise."""
        return bool(self._plain.get("preview"))

    def show_rows(self, *, on: bool) -> None:
        """Remember whether the owner wants to see rows."""
        with self._writing() as plain:
            plain["preview"] = on

    @property
    def undoable(self) -> str:
        """What the last change was; empty if there is none to undo."""
        return str(self.state.get("changed", "")) if self._plain["at"] else ""

    @property
    def redoable(self) -> str:
        """What was undone last; empty if there is nothing to do again."""
        after = self._plain["states"][self._plain["at"] + 1 :]
        return str(after[0].get("changed", "")) if after else ""

    def change(self, what: str, values: Mapping[str, Any]) -> None:
        """Replace some settings; `what` says in words what can be undone. Equal settings are no change."""
        with self._writing() as plain:
            state = plain["states"][plain["at"]]
            if all(state.get(name) == value for name, value in values.items()):
                return
            states = [*plain["states"][: plain["at"] + 1], {**state, **values, "changed": what}]
            plain["states"] = states[-_MOST_STATES:]
            plain["at"] = len(plain["states"]) - 1

    def undo(self) -> None:
        """Take the last change back."""
        with self._writing() as plain:
            plain["at"] = max(plain["at"] - 1, 0)

    def redo(self) -> None:
        """Make the change again that was taken back last."""
        with self._writing() as plain:
            plain["at"] = min(plain["at"] + 1, len(plain["states"]) - 1)

    @contextmanager
    def _writing(self) -> Iterator[dict[str, Any]]:
        """Read the newest settings, let them be changed, and write them; another tab waits."""
        with exclusive_lock(self.folder / _FILE, "the project"):
            plain = read_json(self.folder / _FILE) or self._plain
            yield plain
            write_owned(self.folder / _FILE, plain)
            self._plain = plain


class Workspace:
    """The folder with all projects, which only its owner can enter.

    Examples
    --------
    >>> space = Workspace("studio-work")
    >>> project = space.create("patients.csv", lambda folder: {"kind": "path", "path": "patients.csv"})
    >>> project.change("the roles", {"roles": {"age": "quasi"}})
    >>> project.undo()
    >>> space.open(project.id).state, [one.name for one in space]
    ({}, ['patients.csv'])
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = private_folder(Path(folder).absolute())
        self.projects = private_folder(self.folder / "projects")
        for gone in self.projects.glob(".*.gone"):
            shutil.rmtree(gone, ignore_errors=True)

    def __iter__(self) -> Iterator[Project]:
        folders = [one for one in self.projects.iterdir() if _ID.fullmatch(one.name) and not one.is_symlink()]
        found = []
        for folder in folders:
            try:
                found.append(Project(folder))
            except FileError:
                continue
        return iter(sorted(found, key=lambda one: -one.opened))

    def create(self, name: str, source: Callable[[Path], Mapping[str, Any]]) -> Project:
        """Create a project; ``source`` gets its folder and says where the table is."""
        folder = private_folder(self.projects / secrets.token_hex(6))
        try:
            where = dict(source(folder))
            plain = {"name": name, "source": where, "opened": time.time(), "states": [{}], "at": 0}
            write_owned(folder / _FILE, plain)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return Project(folder)

    def open(self, name: str) -> Project:
        """Return a project by its id."""
        folder = self.projects / name
        if not _ID.fullmatch(name) or folder.is_symlink() or not folder.is_dir():
            raise FileError("there is no such project")
        return Project(folder)

    def remove(self, name: str) -> None:
        """Remove a project with all its files."""
        gone = self.projects / f".{name}.gone"
        self.open(name).folder.rename(gone)  # a process that is being stopped writes nothing any more
        shutil.rmtree(gone, ignore_errors=True)

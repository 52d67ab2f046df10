"""What the studio does with a table: each task is a call of the Python functions, and can be written as a program.

A task runs in a process of its own (`sfumato.studio.work`), hands back plain values, and leaves its report in its
folder. `python` and `command` write the program and the command line that do the same.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import sfumato as sf
from sfumato.errors import OptionError

__all__ = ["TASKS", "Progress", "Task", "task_of"]

Progress = Callable[..., None]
"""Reports the share that is done, and by name what is known before the end."""

TASKS: dict[str, type[Task]] = {}
"""The tasks by their kind."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A call with its table, the schema and the options.

    Attributes
    ----------
    name : the name of the table, for titles
    source : where the table is: a ``path``, which may be an address, and the ``table`` of a database
    schema : the schema as plain values
    options : by name
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    """What is being done, for the bar."""
    private: ClassVar[bool] = False
    """Whether the rows must not decide how the table is read."""

    name: str
    source: Mapping[str, Any]
    schema: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __init_subclass__(cls) -> None:
        TASKS[cls.kind] = cls

    def run(self, folder: Path, progress: Progress) -> dict[str, Any]:
        """Do the work, leave files in the folder, and return plain values."""
        raise NotImplementedError

    def program(self, folder: Path) -> list[str]:
        """Return the lines of the program after the table was read."""
        raise NotImplementedError

    def words(self, folder: Path) -> list[str]:
        """Return the words of the command; empty if there is none."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Return the task as plain values."""
        return {
            "kind": self.kind,
            "name": self.name,
            "source": dict(self.source),
            "schema": dict(self.schema),
            "options": dict(self.options),
        }

    def python(self, folder: Path) -> str:
        """Return the program that does the same."""
        return "\n".join(["import sfumato as sf", "", *self._reading(folder), *self.program(folder)])

    def command(self, folder: Path) -> str:
        """Return the command line that does the same; empty if there is none."""
        words = self.words(folder)
        return shlex.join(["sfumato", *words]) if words else ""

    # --- for the tasks ---

    def table(self, *, with_schema: bool = True) -> sf.Table:
        """Read the table."""
        read = sf.read(self.source["path"], table=self.source.get("table"), inferred=not self.private)
        return sf.Table.of(read, schema=sf.Schema.of(dict(self.schema))) if with_schema and self.schema else read

    @property
    def shown(self) -> str:
        """The path of the table, or its address without the password."""
        return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1@", str(self.source["path"]))

    def from_table(self, folder: Path, *, schema: bool = True) -> list[str]:
        """Return the words of a command that name the table."""
        named = ["--table", str(self.source["table"])] if self.source.get("table") else []
        return [self.shown, *named, *(["--schema", str(folder / "schema.toml")] if schema else [])]

    def _reading(self, folder: Path) -> list[str]:
        more = "".join(
            [
                f", table={self.source['table']!r}" if self.source.get("table") else "",
                ", inferred=False" if self.private else "",
            ]
        )
        read = f"sf.read({self.shown!r}{more})"
        if not self.schema:
            return [f"table = {read}"]
        return [f"table = sf.Table.of({read}, schema={str(folder / 'schema.toml')!r})"]


def task_of(plain: Mapping[str, Any]) -> Task:
    """Return a task from the result of `Task.to_dict`."""
    from sfumato.studio import model_tasks, table_tasks  # noqa: F401 - they define the tasks

    if plain["kind"] not in TASKS:
        raise OptionError(f"there is no work of the kind '{plain['kind']}'")
    values = {name: plain[name] for name in ("name", "source", "schema", "options")}
    return TASKS[plain["kind"]](**values)

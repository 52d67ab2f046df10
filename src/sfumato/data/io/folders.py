"""Folders that are written whole or not at all, and folders for rows that do not fit into the memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sfumato.data.io.files import why
from sfumato.data.io.temporary import held, sweep, temporary_name
from sfumato.errors import FileError

__all__ = ["atomic_folder", "held", "private_folder", "refuse_taken", "sweep_private"]

_OF_SEVERAL = {"recipe.toml", "report.html", "training.json"}  # beside the folders of several releases
_SPILL = "sfumato-spill"
_SHELL = Path("/bin/sh")
_GUARD = 'trap "" HUP INT TERM; cat >/dev/null; rm -rf -- "$1"'


def refuse_taken(path: str | Path, *, replace: bool = False) -> None:
    """Refuse a folder that cannot be made anew: one that holds something, a file, or one in no folder.

    One that holds a release, and nothing else, may be replaced.
    """
    target = Path(path).resolve()
    try:
        if target.exists() and not (target.is_dir() and next(target.iterdir(), None) is None):
            if not replace:
                raise FileError(f"'{path}' exists already", hint="choose another name, or replace it with --force")
            if not _is_release(target):
                raise FileError(f"'{path}' exists already, and is not a release", hint="remove it yourself")
    except OSError as error:
        raise FileError(f"'{path}' cannot be written: {why(error)}") from error
    if not target.parent.is_dir():
        raise FileError(f"'{path}' cannot be made: there is no folder '{Path(path).parent}'")


def _is_release(folder: Path) -> bool:
    """Say whether a folder holds one release, or one per subfolder, and no file that these do not have."""
    from sfumato.data.certificate import CERTIFICATE, Certificate  # here: it imports this package

    inner = [one for one in folder.iterdir() if one.is_dir() and not one.is_symlink()]
    try:
        known = {one: {CERTIFICATE, *Certificate.read(one).files} for one in inner or [folder]}
    except FileError:
        return False
    known.setdefault(folder, _OF_SEVERAL)
    return all(
        one in inner or (one.name in names and one.is_file() and not one.is_symlink())
        for part, names in known.items()
        for one in part.iterdir()
    )


@contextmanager
def atomic_folder(path: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Give a temporary sibling of a folder to write to; it takes the folder's name when all went well.

    A release that is there already is replaced if that is asked for, once the new one is complete. Of several
    processes that write the same folder, one wins and the others are refused. What a killed one has left behind is
    removed by the next.

    Examples
    --------
    >>> with atomic_folder("release") as folder:
    ...     _ = (folder / "table.csv").write_text("age\\n30\\n")
    >>> [file.name for file in Path("release").iterdir()]
    ['table.csv']
    """
    refuse_taken(path, replace=replace)
    target = Path(path).resolve()
    try:
        sweep(target)
        with ExitStack() as stack:
            temporary = _sibling(target, stack)
            yield temporary
            for file in temporary.iterdir():
                _sync(file)
            refuse_taken(path, replace=replace)
            if replace and target.exists():
                old = _sibling(target, stack)
                target.rename(old / "replaced")
                stack.callback(shutil.rmtree, old, ignore_errors=True)
            temporary.rename(target)  # over nothing, or an empty folder; the system refuses any other
            _sync(target.parent)
    except OSError as error:
        reason = "another process has made it meanwhile" if target.exists() else why(error)
        raise FileError(f"'{path}' cannot be written: {reason}") from error


@contextmanager
def private_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a temporary folder that nobody else may read; nothing is left of it afterwards.

    Raw values may be in it, so they must not outlive this process. A guard, a process of its own, waits for the end
    of this one, however that comes (``kill -9`` too), and removes the folder. If the guard dies as well, as when the
    power fails, the next command or the next private folder in the same place removes it.

    Examples
    --------
    >>> with private_folder(Path(".")) as folder:
    ...     print(oct(folder.stat().st_mode & 0o777))
    0o700
    >>> folder.exists()
    False
    """
    try:
        target = Path(parent or tempfile.gettempdir()).resolve() / _SPILL
        sweep(target)
        with ExitStack() as stack:
            folder = _sibling(target, stack, mode=0o700)
            stack.enter_context(_guarded(folder))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)  # before the guard is dismissed
            stack = stack.pop_all()
    except OSError as error:
        where = f"'{parent}'" if parent else "the system's folder for temporary files"
        raise FileError(f"no temporary folder can be made in {where}: {why(error)}") from error
    with stack:
        yield folder


def sweep_private() -> None:
    """Remove the private folders that dead processes left in the system's folder for temporary files."""
    with suppress(OSError):
        sweep(Path(tempfile.gettempdir()).resolve() / _SPILL)


@contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Start the process that removes a folder when this process ends; a pipe between them tells it when."""
    if not _SHELL.exists():  # Windows
        yield
        return
    guard = subprocess.Popen(  # noqa: S603 - a fixed program; the folder is one of its arguments
        [_SHELL, "-c", _GUARD, "sfumato-guard", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that a signal to all processes of a terminal or a job leaves it alone
        cwd="/",
    )
    with guard:  # closes the pipe, and waits
        yield


def _sibling(target: Path, stack: ExitStack, mode: int = 0o777) -> Path:
    """Make a folder beside another and hold it, so that nobody takes it for an abandoned one."""
    while True:
        temporary = temporary_name(target)
        temporary.mkdir(mode)
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        with suppress(FileNotFoundError):
            if stack.enter_context(held(temporary)) and temporary.exists():
                return temporary
        # else another process came between, and has removed it


def _sync(path: Path) -> None:
    """Wait until the disk has what was written."""
    with suppress(OSError):  # a folder cannot be opened on Windows
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

"""Folders that are written completely or not at all, and private folders for rows that do not fit in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sfumato.data.io.files import sweep, temporary_name, try_lock, why
from sfumato.errors import FileError, InputError

__all__ = ["atomic_folder", "disk_errors", "is_full", "private_folder", "refuse_taken", "sweep_private", "try_lock"]

_OF_SEVERAL = {"recipe.toml", "report.html", "training.json"}  # beside the folders of several releases
_SPILL = "sfumato-spill"
_FULL = ("no space left", "file too large", "disk quota", "max_temp_directory_size")
_SHELL = Path("/bin/sh")
_GUARD = 'trap "" HUP INT TERM; cat >/dev/null; rm -rf -- "$1"'


def refuse_taken(path: str | Path, *, replace: bool = False) -> None:
    """Refuse a path where no folder can be created: a file, a folder that is not empty, or one without a parent.

    A folder that holds only a release may be replaced.
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
        raise FileError(f"'{path}' cannot be created: there is no folder '{Path(path).parent}'")


def _is_release(folder: Path) -> bool:
    """Return whether a folder holds one release, or one per subfolder, and no other files."""
    from sfumato.data.certificate import CERTIFICATE, Certificate  # here: it imports this package

    inner = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    try:
        known = {path: {CERTIFICATE, *Certificate.read(path).files} for path in inner or [folder]}
    except FileError:
        return False
    known.setdefault(folder, _OF_SEVERAL)
    return all(
        path in inner or (path.name in names and path.is_file() and not path.is_symlink())
        for part, names in known.items()
        for path in part.iterdir()
    )


@contextmanager
def atomic_folder(path: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside the target, and rename it to the target if no error occurs.

    With ``replace``, an existing release is replaced once the new one is complete. If several processes write the same
    folder, one succeeds and the others raise an error. The next writer removes what a killed process left behind.

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
            temporary.rename(target)  # the system refuses this if the target is not empty
            _sync(target.parent)
    except OSError as error:
        reason = "another process has created it meanwhile" if target.exists() else why(error)
        raise FileError(f"'{path}' cannot be written: {reason}") from error


@contextmanager
def private_folder(parent: Path | None = None) -> Iterator[Path]:
    """Create a temporary folder that no other user can read, and remove it afterwards.

    It may hold raw values, so it must not outlive this process. A guard process waits until this one ends, however it
    ends (``kill -9`` included), and removes the folder. If the guard dies too, as in a power failure, the next command
    or the next private folder in the same place removes it.

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
        where = f"'{parent}'" if parent else "the system's temporary folder"
        raise FileError(f"no temporary folder can be created in {where}: {why(error)}") from error
    with stack:
        yield folder


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Report a full disk while a private folder is written, instead of an error about the rows."""
    try:
        yield
    except Exception as error:
        if not is_full(error) or not (isinstance(error, OSError) or folder.name in str(error)):
            raise
        raise InputError(
            f"the disk of the folder '{folder.parent}' is too full for a copy of the rows",
            hint="set TMPDIR to a folder with more space",
        ) from error


def is_full(error: Exception) -> bool:
    """Return whether an error of the system or of a database means that a disk is full."""
    return any(sign in str(error).lower() for sign in _FULL)


def sweep_private() -> None:
    """Remove the private folders that dead processes left in the system's temporary folder."""
    with suppress(OSError):
        sweep(Path(tempfile.gettempdir()).resolve() / _SPILL)


@contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Start a process that removes a folder when this process ends and closes the pipe between them."""
    if not _SHELL.exists():  # Windows
        yield
        return
    guard = subprocess.Popen(  # noqa: S603 - a fixed program; the folder is one of its arguments
        [_SHELL, "-c", _GUARD, "sfumato-guard", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # signals to the terminal's or the job's process group must not reach it
        cwd="/",
    )
    with guard:  # closes the pipe, and waits
        yield


def _sibling(target: Path, stack: ExitStack, mode: int = 0o777) -> Path:
    """Create a folder beside the target and lock it, which protects it from `sweep`."""
    while True:
        temporary = temporary_name(target)
        temporary.mkdir(mode)
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        with suppress(FileNotFoundError):
            if stack.enter_context(try_lock(temporary)) and temporary.exists():
                return temporary
        # otherwise another process has removed it before it was locked


def _sync(path: Path) -> None:
    """Wait until the written data is on the disk."""
    with suppress(OSError):  # a folder cannot be opened on Windows
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

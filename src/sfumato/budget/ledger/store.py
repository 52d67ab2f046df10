"""An append-only, tamper-evident and crash-safe file of entries for any number of processes.

The file is a SQLite database. An entry is on disk when the `Store.transaction` around `Store.append` ends; a
process that is killed at any moment leaves an entry complete or absent. Each entry is sealed by an HMAC over
itself and the previous seal, under this user's key, so a damaged or edited file is detected; it is rejected, never
repaired or recreated. A second seal marks the last entry, so truncation is detected too. Replacing the file by
an older complete copy cannot be detected from the file alone.

SQLite runs with its rollback journal instead of the write-ahead log, so between two writes the file alone is
complete and can be copied.
"""

from __future__ import annotations

import glob
import hmac
import json
import os
import secrets
import shlex
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.data.io.files import exclusive_lock, why
from sfumato.data.io.fingerprint import user_hmac
from sfumato.errors import FileError

__all__ = ["Entry", "Store", "key_check"]

_APPLICATION = 0x53664C32  # "SfL2"
_EARLIER = 0x53664C31  # "SfL1": without the seal of the last entry
_ENTRIES = "CREATE TABLE entries (number INTEGER PRIMARY KEY, time REAL, kind TEXT, content TEXT, seal TEXT)"
_END = "CREATE TABLE ending (seal TEXT)"
_NEVER = tuple(
    f"CREATE TRIGGER never_{change} BEFORE {change} ON entries BEGIN SELECT RAISE(ABORT, 'entries stay'); END"
    for change in ("update", "delete")
)
_SCHEMA = {_ENTRIES, _END, *_NEVER}
_INSERT = "INSERT INTO entries VALUES (?, ?, ?, ?, ?)"
# One statement, so that the entries and the final seal are consistent.
_SELECT = """SELECT number, time, kind, content, seal, (SELECT CASE count(*) WHEN 1 THEN max(seal) END FROM ending)
FROM entries WHERE number >= ? ORDER BY number"""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PATIENCE = 60.0  # seconds to wait for another process
# File systems on which locks may not work across machines.
_SHARED = {"afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
           "ocfs2", "smb3", "smbfs"}  # fmt: skip
_MOUNTS = Path("/proc/self/mounts")
_PARENT_CONNECTIONS: list[sqlite3.Connection] = []


@dataclass(frozen=True)
class Entry:
    """An entry: its number, its time in seconds since 1970, its kind, its content and its seal."""

    number: int
    time: float
    kind: str
    content: dict[str, Any]
    seal: str


class Store:
    """The entries of a file, for one thread at a time and any number of processes.

    Examples
    --------
    >>> Store.create("example.ledger", [("made", {"version": 1})])
    True
    >>> store = Store("example.ledger")
    >>> with store.transaction():
    ...     entry = store.append("charge", {"note": "first"})
    >>> entry.number, [entry.kind for entry in store.read_new()]
    (2, ['made', 'charge'])
    >>> store.close()
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        self._mac = user_hmac()
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int, int] | None = None  # process, device and inode
        self._pending: list[Entry] = []
        self._last: Entry | None = None
        self._connect()

    @classmethod
    def create(cls, path: str | Path, entries: Sequence[tuple[str, dict[str, Any]]]) -> bool:
        """Create a file with these entries atomically; return False if it exists already."""
        target = Path(path).resolve()
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        _refuse_shared(target)
        try:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # private from the start
            _fill(temporary, entries)
            os.link(temporary, target)  # fails if the target exists: of two processes, one wins
            _sync(target.parent)
        except FileExistsError:
            return False
        except (OSError, sqlite3.Error) as error:
            raise FileError(f"the ledger '{path}' cannot be written: {_why(error)}") from error
        finally:
            with suppress(OSError):
                temporary.unlink()
        return True

    def read_new(self) -> list[Entry]:
        """Return the entries that any process has added since the last call; the first call returns all."""
        self._read()
        new, self._pending = self._pending, []
        return new

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Lock the file for writing; commit the appended entries when the block ends, or none if it raises."""
        with exclusive_lock(self.path, "the ledger"):
            connection = self._connect()
            with self._translate_errors():
                connection.execute("BEGIN IMMEDIATE")
            last = None
            try:
                self._read()
                last = self._last
                yield
                with self._translate_errors():
                    connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.rollback()
                if last is not None:
                    self._last = last
                    self._pending = [entry for entry in self._pending if entry.number <= last.number]
                raise

    def append(self, kind: str, content: dict[str, Any]) -> Entry:
        """Add an entry; only within `transaction`."""
        last = self._last
        assert last is not None
        assert self._connection is not None
        entry = _sealed(self._mac, last, kind, content)
        with self._translate_errors():
            self._connection.execute(_INSERT, _row(entry))
            self._connection.execute("UPDATE ending SET seal = ?", (_end_seal(self._mac, entry),))
        self._last = entry
        self._pending.append(entry)
        return entry

    def now(self) -> float:
        """Return the current time, or the time of the last entry if the clock was set back."""
        return max(time.time(), self._last.time if self._last else 0.0)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._connection is not None and self._opened is not None and self._opened[0] == os.getpid():
            self._connection.close()
        self._connection = None

    def __del__(self) -> None:
        if hasattr(self, "_opened"):  # False if __init__ failed
            self.close()

    def _connect(self) -> sqlite3.Connection:
        """Return this process's connection to the file, and check that the file was not replaced."""
        try:
            state = self.path.stat()
        except OSError as error:
            raise FileError(f"the ledger '{self.path}' cannot be read: {why(error)}") from error
        here = (os.getpid(), state.st_dev, state.st_ino)
        if self._connection is not None and self._opened == here:
            return self._connection
        if self._connection is not None and self._opened is not None and self._opened[0] == here[0]:
            self._connection.close()
            self._connection = None
            raise FileError(f"the ledger '{self.path}' was replaced while it was open", hint="find out why")
        if self._connection is not None:
            # Closing it, even by garbage collection, could disturb the parent process.
            _PARENT_CONNECTIONS.append(self._connection)
            self._connection = None
        if not stat.S_ISREG(state.st_mode):
            raise FileError(f"the ledger '{self.path}' is not a regular file")
        if state.st_nlink > 1 and self._links() > 1:  # SQLite finds a crash journal under one name only
            raise FileError(f"the ledger '{self.path}' has a second name (hard link)", hint="remove one, or copy it")
        if os.name == "posix" and stat.S_IMODE(state.st_mode) & 0o077:
            hint = f"chmod 600 {shlex.quote(str(self.path))}"
            raise FileError(f"the ledger '{self.path}' is accessible to other users", hint=hint)
        _refuse_shared(self.path)
        with self._translate_errors():
            connection = sqlite3.connect(
                f"{self.path.as_uri()}?mode=rw",
                uri=True,
                timeout=_PATIENCE,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.text_factory = lambda text: text.decode("utf-8", "replace")  # the seal then does not match
            self._connection, self._opened = connection, here
            try:
                self._check(connection)
            except BaseException:
                connection.close()
                self._connection = None
                raise
        return connection

    def _links(self) -> int:
        """Return the number of hard links, after removing temporary names that a killed process left behind."""
        for temporary in self.path.parent.glob(f".{glob.escape(self.path.name)}.*.tmp"):
            with suppress(OSError):
                if temporary.samefile(self.path):
                    temporary.unlink()
        return self.path.stat().st_nlink

    def _check(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA trusted_schema = OFF")
        sound = connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if application == _EARLIER:
            raise FileError(
                f"the ledger '{self.path}' has an earlier format, in which missing charges cannot be detected",
                hint="read it with the version that made it, move it away, and grant the data what is left",
            )
        plain = connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
        schema = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
        if not (sound and application == _APPLICATION and plain and schema == _SCHEMA):
            raise self._damaged()
        _set_pragmas(connection)

    def _read(self) -> None:
        """Read new entries, and check that they continue the known ones."""
        connection = self._connect()
        first = self._last.number if self._last else 1
        with self._translate_errors():
            rows = connection.execute(_SELECT, (first,)).fetchall()
        if not rows:
            raise self._damaged()
        for number, moment, kind, text, seal, _ in rows:
            if not all(isinstance(one, str) for one in (kind, text, seal)):  # a flipped bit can change the type
                raise self._damaged()
            if self._last is not None and number == self._last.number:
                if seal != self._last.seal:
                    raise self._damaged()
                continue
            self._refuse_other_key(number, text)
            expected = _seal(self._mac, self._last, number, moment, kind, text)
            if number != (self._last.number if self._last else 0) + 1 or seal != expected:
                raise self._damaged()
            self._last = Entry(number, moment, kind, json.loads(text), seal)
            self._pending.append(self._last)
        if self._last is None or rows[-1][-1] != _end_seal(self._mac, self._last):
            raise self._damaged()

    def _refuse_other_key(self, number: int, text: str) -> None:
        if number == 1 and f'"key": "{key_check(self._mac)}"' not in str(text):
            raise FileError(
                f"the ledger '{self.path}' was made by another user or on another machine, or is damaged",
                hint="use a ledger where it was made, with the same SFUMATO_HOME",
            )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Convert SQLite errors to a `FileError`."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
                raise self._damaged() from error
            raise FileError(f"the ledger '{self.path}' cannot be used: {_why(error)}") from error

    def _damaged(self) -> FileError:
        return FileError(f"the ledger '{self.path}' is damaged", hint="restore a copy; the file was not changed")


def _row(entry: Entry) -> tuple[int, float, str, str, str]:
    return entry.number, entry.time, entry.kind, _text(entry.content), entry.seal


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, allow_nan=False)


def _sealed(mac: hmac.HMAC, last: Entry | None, kind: str, content: dict[str, Any]) -> Entry:
    """Return a sealed entry that follows the last one."""
    number = last.number + 1 if last else 1
    moment = max(time.time(), last.time if last else 0.0)
    return Entry(number, moment, kind, content, _seal(mac, last, number, moment, kind, _text(content)))


def _seal(mac: hmac.HMAC, last: Entry | None, *entry: Any) -> str:
    seal = mac.copy()
    seal.update(json.dumps([last.seal if last else "", *entry]).encode())
    return seal.hexdigest()


def _end_seal(mac: hmac.HMAC, last: Entry) -> str:
    """Return the seal that marks an entry as the last one."""
    seal = mac.copy()
    seal.update(json.dumps(["end", last.number, last.seal]).encode())
    return seal.hexdigest()


def key_check(mac: hmac.HMAC) -> str:
    """Return a check value of the key, which distinguishes a ledger of another key from a damaged one.

    Examples
    --------
    >>> len(key_check(user_hmac()))
    16
    """
    check = mac.copy()
    check.update(b"sfumato ledger")
    return check.hexdigest()[:16]


def _fill(path: Path, entries: Sequence[tuple[str, dict[str, Any]]]) -> None:
    mac, last = user_hmac(), None
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        _set_pragmas(connection)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute("BEGIN IMMEDIATE")
        for statement in (_ENTRIES, _END, *_NEVER):
            connection.execute(statement)
        for kind, content in entries:
            last = _sealed(mac, last, kind, content if last else {**content, "key": key_check(mac)})
            connection.execute(_INSERT, _row(last))
        assert last is not None
        connection.execute("INSERT INTO ending VALUES (?)", (_end_seal(mac, last),))
        connection.execute("COMMIT")
    finally:
        connection.close()


def _set_pragmas(connection: sqlite3.Connection) -> None:
    # EXTRA also syncs the deletion of the journal, so a power failure cannot undo a charge.
    connection.execute("PRAGMA synchronous = EXTRA")
    # Earlier final seals must not remain in the free space of the file.
    connection.execute("PRAGMA secure_delete = ON")


def _sync(folder: Path) -> None:
    """Flush the directory entries of a folder to disk."""
    with suppress(OSError):  # Windows cannot open a folder
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _why(error: BaseException) -> str:
    if isinstance(error, OSError):
        return why(error)
    name = getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_").lower().replace("_", " ")
    return {"full": "the disk is full", "busy": "another process is using it", "readonly": "it is read-only"}.get(
        name, f"SQLite reports '{name or type(error).__name__}'"
    )


def _refuse_shared(path: Path) -> None:
    """Reject a network file system, on which two machines could both spend the same budget."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return
    kind = _file_system(path, mounts)
    if kind in _SHARED:
        raise FileError(
            f"the ledger '{path}' is on a network file system ({kind}), where two machines could overspend it",
            hint="keep it on a local disk: --ledger, or SFUMATO_HOME",
        )


def _file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system of a path, from the mount table."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        words = line.split(" ")
        if len(words) < 3:
            continue
        at = words[1].encode().decode("unicode_escape")  # a space is written as \040
        if path.is_relative_to(at) and len(at) >= best:
            best, kind = len(at), words[2]
    return kind

"""A file to which entries are only ever added, by any number of processes, and which no crash can spoil.

It is a SQLite database. An entry is in the file, on the disk, when `Store.append` and
the block around it return; a process that is killed at any moment leaves an entry whole or not at
all. Each entry is sealed by an HMAC over itself and the seal before, under this user's key, so that
a file that was damaged or edited is refused; it is never mended or begun anew. The last entry is sealed once more, as
the last one, so that entries cannot be cut off at the end either. A whole file of an earlier time is sound by itself:
that it is not the latest cannot be seen in it.

The journal is SQLite's plain one and not its write-ahead log: then the file alone is the whole truth
between two writes, and can be copied.
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
_EARLIER = 0x53664C31  # "SfL1": without a seal of the end
_ENTRIES = "CREATE TABLE entries (number INTEGER PRIMARY KEY, time REAL, kind TEXT, content TEXT, seal TEXT)"
_END = "CREATE TABLE ending (seal TEXT)"
_NEVER = tuple(
    f"CREATE TRIGGER never_{change} BEFORE {change} ON entries BEGIN SELECT RAISE(ABORT, 'entries stay'); END"
    for change in ("update", "delete")
)
_SCHEMA = {_ENTRIES, _END, *_NEVER}
_INSERT = "INSERT INTO entries VALUES (?, ?, ?, ?, ?)"
# In one statement, so that the entries and their end are of one moment.
_SELECT = """SELECT number, time, kind, content, seal, (SELECT CASE count(*) WHEN 1 THEN max(seal) END FROM ending)
FROM entries WHERE number >= ? ORDER BY number"""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PATIENCE = 60.0  # seconds that a reader waits for a writer
# File systems on which the locks of two machines may not see each other.
_SHARED = {"afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
           "ocfs2", "smb3", "smbfs"}  # fmt: skip
_MOUNTS = Path("/proc/self/mounts")
_OF_PARENTS: list[sqlite3.Connection] = []


@dataclass(frozen=True)
class Entry:
    """One thing that happened: its number, its time in seconds since 1970, its kind, and plain values."""

    number: int
    time: float
    kind: str
    content: dict[str, Any]
    seal: str


class Store:
    """The entries in a file; for one thread at a time, and any number of processes.

    Examples
    --------
    >>> Store.create("example.ledger", [("made", {"version": 1})])
    True
    >>> store = Store("example.ledger")
    >>> with store.writing():
    ...     entry = store.append("charge", {"note": "first"})
    >>> entry.number, [entry.kind for entry in store.fresh()]
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
        self._opening()

    @classmethod
    def create(cls, path: str | Path, entries: Sequence[tuple[str, dict[str, Any]]]) -> bool:
        """Make a new file with these entries, whole or not at all; say whether there was none before."""
        target = Path(path).resolve()
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        _refuse_shared(target)
        try:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # its owner's from the start
            _fill(temporary, entries)
            os.link(temporary, target)  # over nothing: of two that make it, one wins
            _sync(target.parent)
        except FileExistsError:
            return False
        except (OSError, sqlite3.Error) as error:
            raise FileError(f"the ledger '{path}' cannot be written: {_why(error)}") from error
        finally:
            with suppress(OSError):
                temporary.unlink()
        return True

    def fresh(self) -> list[Entry]:
        """Return the entries that were added since the last call, by whomever; at first all."""
        self._read()
        fresh, self._pending = self._pending, []
        return fresh

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep others from writing; what is appended is in the file when the block ends well, else nothing is."""
        with exclusive_lock(self.path, "the ledger"):
            connection = self._opening()
            with self._naming():
                connection.execute("BEGIN IMMEDIATE")
            last = None
            try:
                self._read()
                last = self._last
                yield
                with self._naming():
                    connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.rollback()
                if last is not None:
                    self._last = last
                    self._pending = [entry for entry in self._pending if entry.number <= last.number]
                raise

    def append(self, kind: str, content: dict[str, Any]) -> Entry:
        """Add an entry; within `writing` only."""
        last = self._last
        assert last is not None
        assert self._connection is not None
        entry = _sealed(self._mac, last, kind, content)
        with self._naming():
            self._connection.execute(_INSERT, _row(entry))
            self._connection.execute("UPDATE ending SET seal = ?", (_end_seal(self._mac, entry),))
        self._last = entry
        self._pending.append(entry)
        return entry

    def now(self) -> float:
        """Return the time, which never runs backwards: it is at least that of the last entry."""
        return max(time.time(), self._last.time if self._last else 0.0)

    def close(self) -> None:
        """Close the file; it is opened again when it is used again."""
        if self._connection is not None and self._opened is not None and self._opened[0] == os.getpid():
            self._connection.close()
        self._connection = None

    def __del__(self) -> None:
        if hasattr(self, "_opened"):  # else it was never opened
            self.close()

    def _opening(self) -> sqlite3.Connection:
        """Return the connection of this process to the file that has the name now."""
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
            raise FileError(f"the ledger '{self.path}' was replaced while it was open", hint="who did that, and why?")
        if self._connection is not None:
            _OF_PARENTS.append(self._connection)  # to close it, even unawares, could disturb the parent process
            self._connection = None
        if not stat.S_ISREG(state.st_mode):
            raise FileError(f"the ledger '{self.path}' is not a regular file")
        if state.st_nlink > 1 and self._links() > 1:  # what a crash leaves beside one name is not seen by the other
            raise FileError(f"the ledger '{self.path}' has a second name (hard link)", hint="remove one, or copy it")
        if os.name == "posix" and stat.S_IMODE(state.st_mode) & 0o077:
            hint = f"chmod 600 {shlex.quote(str(self.path))}"
            raise FileError(f"the ledger '{self.path}' is open to others", hint=hint)
        _refuse_shared(self.path)
        with self._naming():
            connection = sqlite3.connect(
                f"{self.path.as_uri()}?mode=rw",
                uri=True,
                timeout=_PATIENCE,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.text_factory = lambda text: text.decode("utf-8", "replace")  # which its seal then denies
            self._connection, self._opened = connection, here
            try:
                self._check(connection)
            except BaseException:
                connection.close()
                self._connection = None
                raise
        return connection

    def _links(self) -> int:
        """Return how many names the file has, without those that a process left which was killed while it made it."""
        for left in self.path.parent.glob(f".{glob.escape(self.path.name)}.*.tmp"):
            with suppress(OSError):
                if left.samefile(self.path):
                    left.unlink()
        return self.path.stat().st_nlink

    def _check(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA trusted_schema = OFF")
        sound = connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if application == _EARLIER:
            raise FileError(
                f"the ledger '{self.path}' is of an earlier format, from whose end charges could be cut off unnoticed",
                hint="read it with the version that made it, move it away, and grant the data what is left",
            )
        plain = connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
        schema = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
        if not (sound and application == _APPLICATION and plain and schema == _SCHEMA):
            raise self._damaged()
        _careful(connection)

    def _read(self) -> None:
        """Read what was added, and check that it continues what was read before."""
        connection = self._opening()
        first = self._last.number if self._last else 1
        with self._naming():
            rows = connection.execute(_SELECT, (first,)).fetchall()
        if not rows:
            raise self._damaged()
        for number, moment, kind, text, seal, _ in rows:
            if not all(isinstance(one, str) for one in (kind, text, seal)):  # a bit of its type is flipped
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
                hint="a ledger is kept where it was made, under the same SFUMATO_HOME",
            )

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Turn what SQLite raises into one sentence."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
                raise self._damaged() from error
            raise FileError(f"the ledger '{self.path}' cannot be used: {_why(error)}") from error

    def _damaged(self) -> FileError:
        return FileError(f"the ledger '{self.path}' is damaged", hint="restore a copy; it was left as it is")


def _row(entry: Entry) -> tuple[int, float, str, str, str]:
    return entry.number, entry.time, entry.kind, _text(entry.content), entry.seal


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, allow_nan=False)


def _sealed(mac: hmac.HMAC, last: Entry | None, kind: str, content: dict[str, Any]) -> Entry:
    """Return the entry that follows another, with its seal."""
    number = last.number + 1 if last else 1
    moment = max(time.time(), last.time if last else 0.0)
    return Entry(number, moment, kind, content, _seal(mac, last, number, moment, kind, _text(content)))


def _seal(mac: hmac.HMAC, last: Entry | None, *entry: Any) -> str:
    seal = mac.copy()
    seal.update(json.dumps([last.seal if last else "", *entry]).encode())
    return seal.hexdigest()


def _end_seal(mac: hmac.HMAC, last: Entry) -> str:
    """Return the seal that makes an entry the last one."""
    seal = mac.copy()
    seal.update(json.dumps(["end", last.number, last.seal]).encode())
    return seal.hexdigest()


def key_check(mac: hmac.HMAC) -> str:
    """Return what tells a ledger of another key from a damaged one.

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
        _careful(connection)
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


def _careful(connection: sqlite3.Connection) -> None:
    # EXTRA: also the end of the journal is on the disk, so that a power cut cannot undo a charge.
    connection.execute("PRAGMA synchronous = EXTRA")
    # The seals of earlier ends must not stay in the free space of the file.
    connection.execute("PRAGMA secure_delete = ON")


def _sync(folder: Path) -> None:
    """Wait until the disk has the names in a folder."""
    with suppress(OSError):  # a folder cannot be opened on Windows
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _why(error: BaseException) -> str:
    if isinstance(error, OSError):
        return why(error)
    name = getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_").lower().replace("_", " ")
    return {"full": "the disk is full", "busy": "another process holds it", "readonly": "it may not be written"}.get(
        name, f"the database says '{name or type(error).__name__}'"
    )


def _refuse_shared(path: Path) -> None:
    """Refuse a file system of the network, on which two machines could both find room for the same charge."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:  # only Linux says
        return
    kind = _file_system(path, mounts)
    if kind in _SHARED:
        raise FileError(
            f"the ledger '{path}' is on a file system of the network ({kind}): two machines could overspend it",
            hint="keep it on a disk of one machine: --ledger, or SFUMATO_HOME",
        )


def _file_system(path: Path, mounts: str) -> str:
    """Return the kind of the file system that holds a path, by the table of mounts."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        words = line.split(" ")
        if len(words) < 3:
            continue
        at = words[1].encode().decode("unicode_escape")  # a blank is written \040
        if path.is_relative_to(at) and len(at) >= best:
            best, kind = len(at), words[2]
    return kind

"""Parties as processes that exchange files in a shared folder: one machine, a network drive, or anything that syncs.

The coordinator writes ``NAME/0000000001.request``, the party of that name answers with ``0000000001.reply``, each
written to a temporary file and renamed. What is in the files is what the protocol sends: with masks and encryption,
anyone may read them. Who may read and write them is up to the permissions of the folder. Both sides remove what is
done.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sfumato.errors import FileError, OptionError, ProtocolError
from sfumato.federation.channel import Channel, Party, Replies
from sfumato.federation.wire import Message, decode, encode

__all__ = ["FolderChannel", "answer_in_folder", "check_name"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
_REQUEST = re.compile(r"(\d{10})\.request")
_MOST_BYTES = 1 << 32
_TICK = 0.02
_END = "folder/end"


def check_name(name: str) -> str:
    """Return the name of a party if it can be that of a folder.

    Examples
    --------
    >>> check_name("north")
    'north'
    """
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"the name of a party must be up to 60 letters, digits, - and _, got {name[:60]!r}", hint="such as north"
        )
    return name


class FolderChannel(Channel):
    """The coordinator's side.

    Parameters
    ----------
    folder
        The shared folder; that of each party is made in it.
    names
        The parties.
    wait
        How many seconds to wait for each reply, whatever the protocol says: parties may start later.
    """

    def __init__(self, folder: str | Path, names: Sequence[str], *, wait: float = 600.0) -> None:
        self.folder, self._names, self.wait = Path(folder), tuple(map(check_name, names)), wait
        self.sent = dict.fromkeys(self._names, 0)
        self.received = dict.fromkeys(self._names, 0)
        self._number = 0
        for name in self._names:
            own = self.folder / name
            try:
                own.mkdir(parents=True, exist_ok=True)
                for old in (*own.glob("*.request"), *own.glob("*.reply")):
                    old.unlink()
            except OSError as error:
                raise FileError(f"the folder '{own}' cannot be used: {error.strerror}") from error

    @property
    def names(self) -> tuple[str, ...]:
        """The parties."""
        return self._names

    def ask(self, requests: Mapping[str, Message], *, timeout: float = 60.0) -> Replies:
        """Write the requests, and wait for the replies."""
        self._number += 1
        waiting, answers = {}, {}
        for name, request in requests.items():
            data = encode(request)
            self.received[name] += len(data)
            _write(self.folder / name / f"{self._number:010}.request", data)
            waiting[name] = self.folder / name / f"{self._number:010}.reply"
        end = time.monotonic() + self.wait
        while waiting and time.monotonic() < end:
            for name in [name for name, path in waiting.items() if os.path.lexists(path)]:
                path = waiting.pop(name)
                data = _read(path)
                self.sent[name] += len(data)
                answers[name] = decode(data)
                path.unlink(missing_ok=True)
            time.sleep(_TICK)
        return Replies.sorted(answers)

    def end(self) -> None:
        """Tell the parties that nothing more will be asked."""
        self._number += 1
        for name in self._names:
            _write(self.folder / name / f"{self._number:010}.request", encode({"kind": _END}))


def answer_in_folder(
    party: Party,
    folder: str | Path,
    *,
    timeout: float = 600.0,
    seen: Callable[[str, int, int, str], None] | None = None,
) -> int:
    """Answer the requests for one party until the coordinator ends, and return how many there were.

    Parameters
    ----------
    party
        The party.
    folder
        The shared folder.
    timeout
        How many seconds to wait for the next request.
    seen
        Called for each request with its kind, the bytes that were read and written, and the reason of a refusal.
    """
    own, count = Path(folder) / check_name(party.name), 0
    if Path(folder).exists() and not Path(folder).is_dir():
        raise FileError(f"'{folder}' is not a folder", hint="give the folder that all parties share")
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = sorted(one for one in own.glob("*.request") if _REQUEST.fullmatch(one.name)) if own.is_dir() else []
        if not found:
            time.sleep(_TICK)
            continue
        path = found[0]
        try:
            data = _read(path)
        except FileNotFoundError:  # a new coordinator has cleared the folder
            continue
        path.unlink(missing_ok=True)
        request = decode(data)
        if request.get("kind") == _END:
            return count
        reply = party.answer(request)
        back = encode(reply)
        _write(path.with_suffix(".reply"), back)
        count += 1
        end = time.monotonic() + timeout
        if seen is not None:
            seen(str(request.get("kind"))[:40], len(data), len(back), str(reply.get("error", "")))
    raise ProtocolError(
        f"party '{party.name}' waited for {timeout:g} s, and no request came", hint="is the coordinator running?"
    )


def _write(path: Path, data: bytes) -> None:
    """Write a file as a whole; a link that somebody put in its place is replaced, not followed."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FileError(f"'{path}' cannot be written: {error.strerror or 'the system refused'}") from error


def _read(path: Path) -> bytes:
    """Read a file of the exchange; a `FileNotFoundError` if it is gone."""
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileError(f"'{path.name}' in the shared folder is not a regular file") from error
    with os.fdopen(number, "rb") as file:
        facts = os.fstat(number)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _MOST_BYTES:
            raise FileError(
                f"'{path.name}' in the shared folder is not a regular file of at most {_MOST_BYTES:,} bytes"
            )
        return file.read(_MOST_BYTES)

"""The files of the studio: private folders, safe names, uploads that are streamed, and zip archives."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import unicodedata
import zipfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from sfumato.data.io.files import atomic_path, format_of
from sfumato.errors import FileError, require_extra

__all__ = ["MOST_UPLOADED", "private_folder", "receive", "regular_file", "safe_name", "zip_folder"]

MOST_UPLOADED = 4 * 2**30
"""The most bytes of an upload; a larger file is opened by its path, and not copied."""
_SPARE = 2**30  # bytes of the disk that stay free
_OFTEN = 2**26  # bytes of an upload between two looks at the disk
_LONGEST = 100  # characters of a name


def private_folder(path: Path) -> Path:
    """Create a folder that only its owner can enter, or check that it is one.

    Examples
    --------
    >>> oct(private_folder(Path("work")).stat().st_mode & 0o777)
    '0o700'
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = path.lstat()
    except OSError as error:
        raise FileError(f"the folder '{path}' cannot be used: {error.strerror}") from error
    if not stat.S_ISDIR(facts.st_mode):
        raise FileError(f"'{path}' is a link or a file, not a folder", hint="name another folder")
    if hasattr(os, "geteuid") and facts.st_uid != os.geteuid():
        raise FileError(f"the folder '{path}' belongs to another user", hint="name another folder")
    if stat.S_IMODE(facts.st_mode) != 0o700:
        path.chmod(0o700)
    return path


def safe_name(given: str) -> str:
    """Return the name of an uploaded file without folders, control characters and leading dots.

    Examples
    --------
    >>> safe_name("../../.ssh/patients 2.csv"), safe_name(r"C:\\data\\b.parquet")
    ('patients 2.csv', 'b.parquet')
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", given))[-1]
    name = re.sub(r"[^\w .()+-]", "_", last).strip(" .")
    stem, suffix = name[: -len("".join(Path(name).suffixes[-2:]))] or name, "".join(Path(name).suffixes[-2:])
    name = stem[: _LONGEST - len(suffix)] + suffix if len(suffix) < _LONGEST else name[:_LONGEST]
    format_of(Path(name))  # refuses an unknown format
    return name


def regular_file(path: Path, folder: Path) -> Path:
    """Return a path inside a folder, or refuse it: a link, a device, or something that leads out.

    Examples
    --------
    >>> regular_file(Path("/etc/passwd"), Path("."))
    Traceback (most recent call last):
        ...
    sfumato.errors.FileError: there is no such file
    """
    base = folder.resolve()
    try:
        inside = path.resolve(strict=True).is_relative_to(base) and path.absolute().is_relative_to(base)
        steps = [path, *(one for one in path.parents if one != folder and one.is_relative_to(folder))]
        links = any(one.is_symlink() for one in steps)
        if inside and not links and path.is_file():
            return path
    except OSError:
        pass
    raise FileError("there is no such file")


class _Upload:
    """The first file of a form, written to the disk as it arrives; memory stays flat whatever its size."""

    def __init__(self, path: Path, boundary: bytes) -> None:
        multipart = require_extra("python_multipart", "studio", "an upload")
        self.given = ""
        self._header = [b"", b""]
        self._here = False
        self._disposition = multipart.multipart.parse_options_header
        self._parser = multipart.MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": lambda data, start, end: self._add(0, data[start:end]),
                "on_header_value": lambda data, start, end: self._add(1, data[start:end]),
                "on_header_end": self._end_of_header,
                "on_part_data": self._write,
            },
        )
        self.write = self._parser.write
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def _begin(self) -> None:
        self._here, self._header = False, [b"", b""]

    def _add(self, place: int, part: bytes) -> None:
        self._header[place] += part

    def _end_of_header(self) -> None:
        name, value = self._header
        if name.lower() == b"content-disposition" and not self.given:
            self.given = self._disposition(value)[1].get(b"filename", b"").decode("utf-8", "replace")
            self._here = bool(self.given)
        self._header = [b"", b""]

    def _write(self, data: bytes, start: int, end: int) -> None:
        if self._here:
            self._file.write(memoryview(data)[start:end])

    def close(self) -> None:
        self._file.close()


async def receive(
    stream: AsyncIterator[bytes], headers: Mapping[str, str], folder: Path, *, most: int = MOST_UPLOADED
) -> Path:
    """Write an uploaded file into a folder as it arrives, and return its path."""
    too_large = FileError(f"the file is larger than {most / 2**30:.3g} GB", hint="open it by its path, without a copy")
    size, boundary = headers.get("content-length", "0"), headers.get("content-type", "").partition("boundary=")[2]
    if size.isdigit() and int(size) > most:
        raise too_large
    no_room = FileError("the disk has no room for a copy of the file", hint="open it by its path")
    if size.isdigit() and int(size) > shutil.disk_usage(folder).free - _SPARE:
        raise no_room
    temporary, total, checked = folder / ".upload", 0, 0
    upload = None
    try:
        upload = _Upload(temporary, boundary.strip('"').encode("latin-1"))
        async for chunk in stream:
            total += len(chunk)
            if total > most:
                raise too_large
            if total - checked > _OFTEN:  # the browser need not have said how large it is
                checked = total
                if shutil.disk_usage(folder).free < _SPARE:
                    raise no_room
            if chunk and upload.write(chunk) != len(chunk):
                raise FileError("the upload is damaged", hint="try again")
        upload.close()
        if not upload.given:
            raise FileError("no file was chosen", hint="choose one, or give its path")
        return temporary.rename(folder / safe_name(upload.given))
    except OSError as error:
        raise no_room if error.errno == errno.ENOSPC else FileError("the upload cannot be written") from error
    except ValueError as error:  # those of the parser
        raise error if isinstance(error, FileError) else FileError("the upload is damaged", hint="try again") from error
    finally:
        if upload is not None:
            upload.close()
        temporary.unlink(missing_ok=True)


def zip_folder(folder: Path, target: Path) -> Path:
    """Write the regular files of a folder into a zip archive; links are left out."""
    with atomic_path(target, mode=0o600) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.is_symlink():
                archive.write(file, Path(folder.name) / file.relative_to(folder))
    return target

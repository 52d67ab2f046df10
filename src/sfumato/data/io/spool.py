"""Private copies of text files that Polars cannot read in place: compressed files, other encodings, standard input.

A copy is UTF-8 text in a private folder, written in chunks and removed when it is no longer needed. Its size is
bounded, because a few kilobytes of gzip can expand to gigabytes.
"""

from __future__ import annotations

import codecs
import gzip
import shutil
import weakref
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from sfumato.data.io.folders import disk_errors, private_folder
from sfumato.data.io.metadata_checks import memory
from sfumato.errors import FileError, require_extra

__all__ = ["Spool"]

_PART = 2**20


class Spool:
    """A private folder with one copy of a file, removed with this object or with the process.

    Parameters
    ----------
    shown : Path
        The file, or the name of the stream in messages.
    name : str
        The name of the copy.

    Examples
    --------
    >>> import gzip
    >>> _ = Path("t.csv.gz").write_bytes(gzip.compress("näme".encode("cp1252")))
    >>> spool = Spool(Path("t.csv.gz"))
    >>> spool.expand("gzip").read_bytes()
    b'n\\xe4me'
    >>> spool.decode("cp1252").read_text(encoding="utf-8")
    'näme'
    """

    def __init__(self, shown: Path, name: str = "rows") -> None:
        self.shown = shown
        stack = ExitStack()
        self.path = stack.enter_context(private_folder()) / name
        self._most = min(memory(), 0.9 * shutil.disk_usage(self.path.parent).free)
        self._end = weakref.finalize(self, stack.close)

    def take(self, stream: IO[bytes]) -> Path:
        """Copy a stream that is not compressed."""
        return self._copy(stream.read)

    def expand(self, compression: str) -> Path:
        """Decompress the file into the copy."""
        try:
            with self.shown.open("rb") as file, _decompressor(file, compression) as stream:
                return self._copy(stream.read)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            reason = f"it is damaged, or not compressed with {compression}"
        except OSError as error:  # pyarrow's errors of a damaged file are of this kind
            if error.errno is not None:
                raise
            reason = f"it is damaged, or not compressed with {compression}"
        raise FileError(f"'{self.shown}' cannot be read: {reason}")

    def decode(self, encoding: str, path: Path | None = None) -> Path:
        """Re-encode a file, by default the copy itself, as UTF-8."""
        decoder = codecs.getincrementaldecoder(encoding)()
        source = path or self.path.replace(self.path.with_name("encoded"))
        with source.open("rb") as file:

            def read(size: int) -> bytes:
                while part := file.read(size):
                    if text := decoder.decode(part):
                        return text.encode()
                return decoder.decode(b"", final=True).encode()

            try:
                return self._copy(read)
            except UnicodeError:  # lone surrogates, too
                raise FileError(
                    f"'{self.shown}' is not {encoding} text", hint="name another one with --encoding"
                ) from None
            finally:
                if path is None:
                    source.unlink(missing_ok=True)

    def _copy(self, read: Callable[[int], bytes]) -> Path:
        size = 0
        with disk_errors(self.path.parent), self.path.open("wb") as copy:
            while part := read(_PART):
                size += len(part)
                if size > self._most:
                    most = f"{self._most / 2**30:,.1f} GiB"
                    raise FileError(
                        f"'{self.shown}' expands to more than {most}, which this machine cannot hold",
                        hint="it is damaged or meant to exhaust this machine; if not, expand it yourself",
                    )
                copy.write(part)
        return self.path


def _decompressor(file: IO[bytes], compression: str) -> IO[bytes] | Any:
    if compression == "gzip":
        return gzip.GzipFile(fileobj=file)
    pyarrow = require_extra("pyarrow", "arrow", "reading a file compressed with zstd")
    return pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), compression)

"""The process of a job: ``python -m sfumato.studio.work FOLDER LOCK`` does the task in the folder.

It writes how far it is to ``progress.json``, and in the end ``result.json``, or ``error.json`` with one sentence.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

__all__ = ["main"]

_TICK = 0.3  # seconds between two reports


class _Reporter:
    """Writes the share that is done, not too often, and what else is known."""

    def __init__(self, folder: Path) -> None:
        self._file, self._next, self._known = folder / "progress.json", 0.0, dict[str, Any]()

    def __call__(self, share: float, **known: Any) -> None:
        fresh = any(self._known.get(name) != value for name, value in known.items())
        if not fresh and time.monotonic() < self._next:
            return
        self._known |= known
        self._next = time.monotonic() + _TICK
        _write(self._file, {"share": float(share), **self._known})


def _write(file: Path, plain: Any) -> None:
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_text(json.dumps(plain), encoding="utf-8")
    temporary.replace(file)


def main(folder: Path) -> int:
    """Do the task of a folder, and return the exit code."""
    from sfumato.errors import SfumatoError
    from sfumato.studio.tasks import task_of

    task = task_of(json.loads((folder / "task.json").read_text(encoding="utf-8")))
    try:
        import sfumato as sf

        if task.schema:
            sf.Schema.of(dict(task.schema)).save(folder / "schema.toml")
        result = task.run(folder, _Reporter(folder))
    except SfumatoError as error:
        _write(folder / "error.json", {"message": str(error)})
        return 1
    except Exception as error:  # noqa: BLE001 - the page says that it failed, and the log says where
        traceback.print_exc()
        _write(folder / "error.json", {"message": f"something unexpected went wrong ({type(error).__name__})"})
        return 1
    _write(folder / "result.json", result)
    return 0


if __name__ == "__main__":
    os.umask(0o077)
    os.set_inheritable(int(sys.argv[2]), False)  # the lock ends with this process, not with one that it starts
    sys.exit(main(Path(sys.argv[1])))

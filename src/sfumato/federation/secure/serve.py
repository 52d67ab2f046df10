"""The loop of a process that runs code of others for its parent: OpenFHE, or MPyC.

Run as ``python -I -B serve.py MODULE``, by any interpreter from 3.10 on; needs the standard library alone. MODULE is a
file with a class ``Answer``, called with the header and the parts of each request. A request and a reply are:

    length of the header (8 bytes) | header: JSON with the lengths of the parts | the parts, one after another

The process ends when its input ends, or when its parent is gone.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import time
from typing import Any, BinaryIO

_MOST_HEADER = 1 << 20
_MOST_BYTES = 4 << 30
_MOST_MEMORY = 16 << 30


def _read(source: BinaryIO, size: int) -> bytes:
    found = source.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _orphaned(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main() -> None:
    """Answer requests until the input ends."""
    threading.Thread(target=_orphaned, args=(os.getppid(),), daemon=True).start()
    try:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = _MOST_MEMORY if hard == resource.RLIM_INFINITY else min(_MOST_MEMORY, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (ImportError, ValueError, OSError):
        pass
    # What native code prints must not end up between the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answer: Any = runpy.run_path(sys.argv[1])["Answer"]()
    source = sys.stdin.buffer
    while True:
        try:
            size = int.from_bytes(_read(source, 8), "big")
            if size > _MOST_HEADER:
                return
            header = json.loads(_read(source, size))
            lengths = [int(one) for one in header["parts"]]
            if min(lengths, default=0) < 0 or sum(lengths) > _MOST_BYTES:
                return
            parts = [_read(source, one) for one in lengths]
        except EOFError:
            return
        try:
            more, found = answer(header, parts)
            reply: dict[str, Any] = {**more, "parts": [len(one) for one in found]}
        except Exception as error:  # noqa: BLE001 - its text may quote data
            found, reply = [], {"error": type(error).__name__, "parts": []}
        head = json.dumps(reply).encode()
        replies.write(len(head).to_bytes(8, "big") + head)
        for one in found:
            replies.write(one)
        replies.flush()


if __name__ == "__main__":
    main()

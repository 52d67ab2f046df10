"""One reply of a holder over real processes of Flower: how long it takes, and how much memory each process needs.

python benchmarks/large_update.py --megabytes 1024
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.federation import Party
from sfumato.federation.flower import Holder, deploy

MARK = "SFUMATO_LARGE_UPDATE"


def make(name: str, folder: Path) -> Party:
    """Make a party that sends an update of any size."""
    return Party(name, {"send": lambda request: {"update": np.ones(int(request["words"]), np.uint32)}})


def peaks() -> dict[str, float]:
    """Return the largest memory that each marked process has had so far, in GB, by its command."""
    found: dict[str, float] = {}
    for one in Path("/proc").glob("[0-9]*"):
        try:
            if MARK.encode() not in (one / "environ").read_bytes():
                continue
            command = (one / "cmdline").read_bytes().decode().split("\0")
            peak = next(line for line in (one / "status").read_text().splitlines() if line.startswith("VmHWM"))
        except (OSError, StopIteration):
            continue
        words = [Path(part).name for part in command if part and not part.startswith("-")]
        found[f"{one.name} {' '.join(words[1:3])}"[:50]] = int(peak.split()[1]) / 1e6
    return found


def main() -> None:
    """Print one line of JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=int, default=1024)
    words = options.parse_args().megabytes * 2**20 // 4
    os.environ[MARK] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    with (
        tempfile.TemporaryDirectory(prefix="l-") as folder,
        deploy({"north": Holder("benchmarks.large_update:make")}, Path(folder), seconds=300) as deployment,
    ):
        began = time.monotonic()
        replies: Any = deployment.channel.ask({"north": {"kind": "send", "words": words}}, timeout=1800)
        seconds = time.monotonic() - began
        update = replies.require(["north"], "answer")["north"]["update"]
        memory = {name: round(one, 2) for name, one in sorted(peaks().items(), key=lambda item: -item[1])[:6]}
        whole = bool(update.size == words and (update == 1).all())
    print(json.dumps({"bytes": 4 * words, "whole": whole, "seconds": round(seconds, 1), "GB": memory}))


if __name__ == "__main__":
    main()

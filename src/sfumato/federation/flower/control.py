"""Run several commands of `flwr` in one process: importing Flower takes longer than most of them.

Reads a secret (see `Guard`) and a list of command lines as JSON from the standard input, and writes what each reports
to the standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from typing import Any


def main() -> None:
    """Run the commands until one fails."""
    from flwr.cli.app import app

    from sfumato.federation.flower.guard import with_secret

    reports: list[dict[str, Any]] = []
    given = json.load(sys.stdin)
    with_secret(given["secret"])
    orders, result = given["commands"], os.dup(1)  # flwr writes its JSON to the standard output, past redirections
    for command in orders:
        with tempfile.TemporaryFile() as said:
            os.dup2(said.fileno(), 1)
            fault = ""
            try:
                app([*command, "--format", "json"], standalone_mode=False)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - reported to the process that asked
                fault = str(getattr(error, "message", None) or error)
            sys.__stdout__.flush() if sys.__stdout__ else None
            said.seek(0)
            reports.append(_report(said.read().decode(errors="replace"), fault))
        if not reports[-1].get("success"):
            break
    with os.fdopen(result, "w") as file:
        json.dump(reports, file)


def _report(said: str, fault: str) -> dict[str, Any]:
    start = said.find("{")
    if start >= 0:
        with contextlib.suppress(ValueError):
            found = json.JSONDecoder().raw_decode(said[start:])[0]
            if isinstance(found, dict):
                return found
    return {"success": False, "said": f"{said[-2000:]}\n{fault}"}


if __name__ == "__main__":
    main()

"""Run several commands of `flwr` in one process: importing Flower takes longer than most of them.

Reads a list of command lines as JSON from the standard input, and writes what each reports to the standard output.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any


def main() -> None:
    """Run the commands until one fails."""
    from flwr.cli.app import app

    reports: list[dict[str, Any]] = []
    for command in json.load(sys.stdin):
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                app([*command, "--format", "json"], standalone_mode=False)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - reported to the process that asked
            if not isinstance(error, SystemExit) or error.code:
                said.write(f"\n{getattr(error, 'message', None) or error}")
        reports.append(_report(said.getvalue()))
        if not reports[-1].get("success"):
            break
    json.dump(reports, sys.stdout)


def _report(said: str) -> dict[str, Any]:
    start = said.find("{")
    if start >= 0:
        with contextlib.suppress(ValueError):
            found = json.JSONDecoder().raw_decode(said[start:])[0]
            if isinstance(found, dict):
                return found
    return {"success": False, "said": said[-2000:]}


if __name__ == "__main__":
    main()

"""The demo from end to end, on fewer rows."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import sfumato as sf


def test_the_demo_goes_from_a_table_to_a_verified_release(sfumato: Any) -> None:
    ran = sfumato("demo", "--quick", "--quiet")
    assert ran.code == 0, ran.err
    stages = [line for line in ran.out.splitlines() if line[:2] in {f"{number}." for number in range(1, 7)}]
    assert len(stages) == 6
    assert "are the only ones with their age, education" in " ".join(ran.out.split())
    listed = [line.strip() for line in ran.out.splitlines() if line.strip().startswith("sfumato-demo/")]
    assert len(listed) == 5
    for path in listed:
        assert Path(path).is_file(), path
    commands = [line.strip() for line in ran.out.split("Try next")[1].splitlines() if line.startswith("  sfumato ")]
    assert len(commands) == 3
    for command in commands:  # as copied
        copied = sfumato(*shlex.split(command)[1:])
        assert copied.code == 0, copied.err

    found = json.loads(Path("sfumato-demo/demo.json").read_text())  # what --json prints
    assert [stage["result"] != "" for stage in found["stages"]] == [True] * 6
    assert found["attacks"]["raw"]["linkage"] > 0.5 > 0.11 > found["attacks"]["protected"]["linkage"]
    assert found["attacks"]["raw"]["membership"] > 0.15 > found["attacks"]["protected"]["membership"]
    assert found["synthetic"]["synthetic"] > 0.6
    assert found["recommended"]["reason"]
    assert found["verification"]["ok"] is True
    assert sf.verify(found["release"]).ok
    frontier = json.loads(Path("sfumato-demo/frontier/frontier.json").read_text())
    assert frontier["recommended"]["name"] == found["recommended"]["name"]
    assert not list(Path("sfumato-demo").rglob("*.tmp"))

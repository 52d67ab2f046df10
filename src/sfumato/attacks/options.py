"""Which options of an attack belong together; nothing heavy is imported, so that a mistake is refused at once."""

from __future__ import annotations

from typing import Any

from sfumato.errors import OptionError

__all__ = ["KINDS", "check_options"]

KINDS = ("table", "synthetic")
"""What a table that is not a release of ours may be."""


def check_options(is_release: bool, **given: Any) -> None:
    """Refuse options of `attack` that do not belong together, before anything is read."""
    named = {name for name, value in given.items() if value is not None}
    if "kind" in named and given["kind"] not in KINDS:
        raise OptionError(f"the kind of a table must be one of {', '.join(KINDS)}, got {given['kind']!r}")
    if "control" in named and "source" not in named:
        raise OptionError("a control without a source: the members are not known", hint="give the original as well")
    if is_release:
        if named & {"model", "protect", "kind"}:
            raise OptionError(
                "a release says itself what it is and how it was made", hint="leave the model and the protection out"
            )
        return
    if "protect" in named and "model" not in named:
        raise OptionError("a protection needs a model to protect", hint="such as --model forest")
    if "model" in named and named & {"kind", "source", "control", "population"}:
        raise OptionError(
            "a model is trained on a half of the table and compared with the other half",
            hint="leave source, control, population and kind out",
        )
    if not named & {"model", "kind"}:
        raise OptionError(
            "this is not the folder of a release, so say what to attack",
            hint="a model and what it predicts (--model forest --target Y), or a synthetic table "
            "(--synthetic --source ORIGINAL)",
        )
    if "target" in named and "model" not in named:
        raise OptionError("a target without a model: there is nothing that predicts it", hint="such as --model forest")

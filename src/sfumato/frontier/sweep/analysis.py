"""The user's own analyses: a function, a function by name, or a script that is given the path of a released table."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sfumato._repr import Discreet
from sfumato.attacks.predictions import call
from sfumato.data.io.files import why
from sfumato.errors import FileError, InputError, OptionError

__all__ = ["Analysis", "Named", "Script", "analysis_of", "numbers_of"]

_LONGEST = 3600  # seconds that a script may take

Analysis = Callable[[pl.DataFrame], Any]


@dataclass(frozen=True, repr=False)
class Script(Discreet):
    """A Python file, run in a process of its own with the path of a CSV file; it prints a number, or some by name.

    Attributes
    ----------
    path : the file
    source : its text, by which results are known again
    """

    _repr_fields = ("path",)

    path: str
    source: str

    def __call__(self, frame: pl.DataFrame) -> Any:
        """Return what the script prints about a released table."""
        with tempfile.TemporaryDirectory(prefix="sfumato-") as folder:  # for this user alone
            table = Path(folder, "table.csv")
            frame.write_csv(table)
            try:
                ended = subprocess.run(  # noqa: S603 - the user's own script
                    [sys.executable, self.path, str(table)], capture_output=True, timeout=_LONGEST, check=False
                )
            except subprocess.TimeoutExpired:
                raise InputError(f"the analysis '{self.path}' took longer than {_LONGEST} seconds") from None
        hint = f"run it yourself: python {self.path} TABLE.csv"
        if ended.returncode:
            raise InputError(f"the analysis '{self.path}' ended with exit code {ended.returncode}", hint=hint)
        try:
            return json.loads(ended.stdout)
        except ValueError:
            raise InputError(
                f"the analysis '{self.path}' must print one JSON value: a number, or numbers by name", hint=hint
            ) from None


@dataclass(frozen=True, repr=False)
class Named(Discreet):
    """A function of a module in the current folder, or of an installed one.

    Attributes
    ----------
    module, function : their names
    folder : where the module is looked for first
    source : the text of the module, by which results are known again
    """

    _repr_fields = ("module", "function")

    module: str
    function: str
    folder: str
    source: str

    def __call__(self, frame: pl.DataFrame) -> Any:
        """Return what the function gives for a released frame."""
        return _function(self.module, self.function, self.folder)(frame)


def analysis_of(text: str) -> tuple[str, Analysis]:
    """Return the name of an analysis and the analysis: ``my_analysis.py``, or ``module:function``.

    Examples
    --------
    >>> analysis_of("statistics:mean")
    ('mean', Named(module='statistics', function='mean'))
    """
    module, colon, function = text.partition(":")
    if text.endswith(".py"):
        try:
            return Path(text).stem, Script(str(Path(text).resolve()), Path(text).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"the analysis '{text}' cannot be read: {why(error)}") from error
    if not (colon and function.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise OptionError(
            f"the analysis '{text}' is neither a Python file nor module:function",
            hint="for example --analysis my_analysis.py, or --analysis my_module:mean_age",
        )
    folder = str(Path.cwd())
    _function(module, function, folder)
    file = sys.modules[module].__file__
    return function, Named(module, function, folder, Path(file).read_text(encoding="utf-8") if file else text)


def _function(module: str, function: str, folder: str) -> Analysis:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Analysis = getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise OptionError(
            f"the module '{module}' of the analysis cannot be imported", hint=type(error).__name__
        ) from None
    except AttributeError:
        raise OptionError(f"the module '{module}' has no function '{function}'") from None
    return found


def numbers_of(name: str, analysis: Analysis, frame: pl.DataFrame) -> dict[str, float]:
    """Run an analysis; return its numbers under its name.

    Examples
    --------
    >>> numbers_of("age", lambda frame: {"mean": frame["age"].mean()}, pl.DataFrame({"age": [30, 50]}))
    {'age.mean': 40.0}
    """
    answer = call(f"the analysis '{name}'", analysis, frame)
    given = answer if isinstance(answer, Mapping) else {"": answer}
    found = {}
    for key, value in given.items():
        full = f"{name}.{key}" if key else name
        try:
            found[full] = float(value)
        except (TypeError, ValueError):
            raise InputError(f"the analysis '{name}' must give numbers, and '{full}' is not one") from None
        if not math.isfinite(found[full]):
            raise InputError(f"the analysis '{name}' must give finite numbers, and '{full}' is not finite")
    return found

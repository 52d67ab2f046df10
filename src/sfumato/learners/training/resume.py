"""The folder of an unfinished sweep: its finished runs, and the checkpoint of the current one.

Only its owner may read the folder: it contains unreleased results, and the key of the split into training and test
records. It belongs to one sweep, with the same data and settings, and to one process at a time.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import sfumato
from sfumato.budget.ledger.fingerprint import content_fingerprint
from sfumato.data.io.files import why, write_owned
from sfumato.data.io.fingerprint import user_hmac
from sfumato.data.io.folders import atomic_folder, try_lock
from sfumato.data.table import Table
from sfumato.errors import FileError
from sfumato.learners.training.released_model import load_model, write_model
from sfumato.learners.training.runs import Run
from sfumato.learners.training.split import KEY_BYTES, Material

__all__ = ["checkpoint_of", "key_in", "read_run", "settings_of", "sweep_folder", "write_run"]

_RUN, _OWNER, _SETTINGS = "run.json", "owner.json", "settings.json"
_KEY = "division"
_CHECKPOINT = "checkpoint.safetensors"


def settings_of(
    material: Material,
    model: str,
    regression: bool,
    delta: float,
    seed: int,
    insecure_seed: int | None,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the settings that a resumed sweep must share."""
    if material.whole is not None:
        tested = material.test.to_polars().with_columns(material.test_target.alias(material.target))
        prints = [content_fingerprint(one)[0] for one in (material.whole, Table(tested))]
    else:
        prints = [_fingerprint(one) for one in (material.train, material.test)]
    return {
        "version": sfumato.__version__,
        "seed": seed,  # first, so an error names the cause of other differences
        "insecure seed": insecure_seed,
        "data": [material.name, material.target, material.rows, prints[0]],
        "schema": material.schema.to_dict(),
        "model": model,
        "regression": regression,
        "delta": delta,
        "test rows": [len(material.test_target), prints[1]],
        **{name.replace("_", " "): value for name, value in parameters.items()},
        _KEY: material.key.hex(),
    }


def key_in(folder: Path | None) -> bytes | None:
    """Return the key of the split of an unfinished sweep; None if there is none."""
    if folder is None or not (folder / _SETTINGS).exists():
        return None
    try:
        key = bytes.fromhex({**_plain(folder / _SETTINGS)}[_KEY])
    except OSError as error:
        raise FileError(f"'{folder / _SETTINGS}' cannot be read: {why(error)}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileError(f"'{folder / _SETTINGS}' is damaged", hint="remove the folder to begin again") from error
    return key if len(key) == KEY_BYTES else None


def _plain(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8", errors="replace"))


def _fingerprint(images: Any) -> str:
    mac = user_hmac()
    mac.update(np.ascontiguousarray(images).data)
    return mac.hexdigest()


def _open(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise a `FileError` if the folder belongs to another sweep; start a new sweep in an empty folder."""
    now = json.loads(json.dumps(settings, default=str))
    path = folder / _SETTINGS
    try:
        there = {one.name for one in folder.iterdir()}
        if not there - {_SETTINGS} or not path.exists():
            if there - {_SETTINGS}:
                raise FileError(f"'{folder}' exists, but does not hold a training", hint="choose another name")
            write_owned(path, now)
            return
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FileError(f"'{folder}' cannot be written: {why(error)}") from error
    try:
        then = {**json.loads(text)}
    except (ValueError, TypeError, RecursionError) as error:
        raise FileError(f"'{path}' is damaged", hint="remove the folder to begin again") from error
    for name in {**now, **then}:
        if now.get(name) != then.get(name):
            raise FileError(
                f"'{folder}' holds an unfinished training with another {name}",
                hint="train as before to go on, remove it to begin again, or choose another name",
            )


@contextmanager
def sweep_folder(folder: Path | None, settings: Mapping[str, Any]) -> Iterator[None]:
    """Create and lock the folder of a sweep; remove it after an error if it has no results."""
    if folder is None:
        yield
        return
    try:
        folder.mkdir(exist_ok=True, mode=0o700)  # it also contains unreleased results
    except OSError as error:
        raise FileError(f"'{folder}' cannot be written: {why(error)}") from error
    with try_lock(folder) as alone:
        if not alone:
            raise FileError(f"another process is training in '{folder}'", hint="wait for it, or choose another name")
        try:
            _open(folder, settings)
            yield
        except BaseException:
            if {one.name for one in folder.iterdir()} <= {_SETTINGS}:
                shutil.rmtree(folder, ignore_errors=True)
            raise


def checkpoint_of(place: Path) -> Path:
    """Return the checkpoint file of an unfinished run."""
    return place.with_name(f"{place.name}.{_CHECKPOINT}")


def write_run(place: Path, run: Run, model: Any) -> None:
    """Write a finished run."""
    with atomic_folder(place) as folder:
        write_model(model, folder)
        (folder / _RUN).write_text(json.dumps(run.to_dict(), allow_nan=False), encoding="utf-8")
        if run.owner is not None:
            write_owned(folder / _OWNER, run.owner)


def read_run(place: Path) -> tuple[Run, Any]:
    """Read a finished run and its model."""
    try:
        run = Run.from_dict(json.loads((place / _RUN).read_text(encoding="utf-8")))
        if (place / _OWNER).exists():
            run = replace(run, owner=json.loads((place / _OWNER).read_text(encoding="utf-8")))
    except OSError as error:
        raise FileError(f"'{place / _RUN}' cannot be read: {why(error)}") from error
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise FileError(f"'{place / _RUN}' is damaged", hint="remove the folder to train it again") from error
    return run, load_model(place)

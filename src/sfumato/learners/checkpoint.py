"""A training on disk, between two of its epochs: safetensors with a JSON header, never a pickle.

The key of the noise is never written: whoever has it could subtract the noise. A training that
continues takes a fresh one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from sfumato._errors import FileError, require_extra
from sfumato.data.files import atomic_path, why

__all__ = ["load", "save"]

_VERSION = 1


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and plain values into one file, whole or not at all.

    Examples
    --------
    >>> import torch
    >>> save(Path("run.safetensors"), {"weights": torch.ones(2)}, {"done": 3})
    >>> load(Path("run.safetensors"))
    ({'weights': tensor([1., 1.])}, {'done': 3})
    """
    files = require_extra("safetensors.torch", "torch", "saving a training")
    held = {name: one.detach().cpu().contiguous() for name, one in tensors.items()}
    with atomic_path(path) as temporary:
        try:
            files.save_file(held, temporary, metadata={"sfumato": json.dumps({"version": _VERSION, **facts})})
        except OSError as error:
            raise FileError(f"'{path}' cannot be written: {why(error)}") from error
        temporary.chmod(0o600)


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save` wrote."""
    files = require_extra("safetensors", "torch", "continuing a training")
    try:
        with files.safe_open(path, framework="pt") as held:
            facts = json.loads((held.metadata() or {})["sfumato"])
            tensors = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
        version = facts.pop("version")
    except OSError as error:
        raise FileError(f"'{path}' cannot be read: {why(error)}") from error
    except (files.SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise FileError(f"'{path}' is not a checkpoint of Sfumato, or a damaged one") from error
    if version != _VERSION:
        raise FileError(f"the checkpoint '{path}' has the version {version!r}, this Sfumato reads {_VERSION}")
    return tensors, facts

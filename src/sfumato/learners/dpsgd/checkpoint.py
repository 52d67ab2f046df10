"""Training checkpoints: safetensors with a JSON header, never a pickle.

The key of the noise is never written, because it would let its reader subtract the noise. A resumed training run
draws a fresh key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.data.io.files import atomic_path, why
from sfumato.errors import FileError, require_extra
from sfumato.learners.dpsgd.steps import Step

__all__ = ["load", "refuse_other_settings", "restore", "save", "state_of", "untrained_tensors"]

_VERSION = 1


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and plain values atomically into one file that only its owner can read.

    Examples
    --------
    >>> import torch
    >>> save(Path("run.safetensors"), {"weights": torch.ones(2)}, {"done": 3})
    >>> load(Path("run.safetensors"))
    ({'weights': tensor([1., 1.])}, {'done': 3})
    """
    files = require_extra("safetensors.torch", "torch", "saving a training")
    copies = {name: one.detach().cpu().clone().contiguous() for name, one in tensors.items()}
    text = json.dumps(facts)
    header = {"version": _VERSION, "digest": _digest(copies, text), "facts": text}
    with atomic_path(path, mode=0o600) as temporary:
        temporary.write_bytes(files.save(copies, metadata={"sfumato": json.dumps(header)}))


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file written by `save`."""
    files = require_extra("safetensors", "torch", "continuing a training")
    try:
        with files.safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["sfumato"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        version = header["version"]
        if version == _VERSION and header["digest"] != _digest(tensors, header["facts"]):
            raise ValueError("some of its bits have changed")
    except OSError as error:
        raise FileError(f"'{path}' cannot be read: {why(error)}") from error
    except (files.SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise FileError(f"'{path}' is damaged or is not a checkpoint of Sfumato") from error
    if version != _VERSION:
        raise FileError(
            f"the checkpoint '{path}' has version {version!r}, but this version of Sfumato reads {_VERSION}"
        )
    return tensors, json.loads(header["facts"])


def refuse_other_settings(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise a `FileError` if a training run would resume with settings other than those it began with.

    Examples
    --------
    >>> refuse_other_settings(Path("run.safetensors"), {"clip": 1.0}, {"clip": 0.5})
    Traceback (most recent call last):
        ...
    sfumato.errors.FileError: the checkpoint 'run.safetensors' is of a training with another clip (give another \
file, or train as before; extend adds steps)
    """
    plain = json.loads(json.dumps(now))  # as JSON reads them back
    for name, value in plain.items():
        if then.get(name) != value:
            raise FileError(
                f"the checkpoint '{path}' is of a training with another {name}",
                hint="give another file, or train as before; extend adds steps",
            )


def untrained_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the frozen weights and the buffers of a module."""
    frozen = {name: one.data for name, one in module.named_parameters() if not one.requires_grad}
    return {f"module {name}": one for name, one in (*frozen.items(), *module.named_buffers())}


def state_of(step: Step) -> dict[str, Tensor]:
    """Return everything that the next step depends on, except the noise."""
    return {**step.state, **untrained_tensors(step.module), "generator": torch.get_rng_state()}


def restore(step: Step, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state returned by `state_of`."""
    with step.running(), torch.no_grad():
        for name, one in {**step.state, **untrained_tensors(step.module)}.items():
            one.copy_(tensors[name])
    torch.set_rng_state(tensors["generator"])


def _digest(tensors: Mapping[str, Tensor], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

"""A training on disk, between two of its epochs: safetensors with a JSON header, never a pickle.

The key of the noise is never written: whoever has it could subtract the noise. A training that
continues takes a fresh one.
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

__all__ = ["fixed", "load", "put_back", "refuse_other", "save", "state_of"]

_VERSION = 1


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and plain values into one file that only its owner can read, whole or not at all.

    Examples
    --------
    >>> import torch
    >>> save(Path("run.safetensors"), {"weights": torch.ones(2)}, {"done": 3})
    >>> load(Path("run.safetensors"))
    ({'weights': tensor([1., 1.])}, {'done': 3})
    """
    files = require_extra("safetensors.torch", "torch", "saving a training")
    held = {name: one.detach().cpu().clone().contiguous() for name, one in tensors.items()}
    told = json.dumps(facts)
    header = {"version": _VERSION, "digest": _digest(held, told), "facts": told}
    with atomic_path(path, mode=0o600) as temporary:
        temporary.write_bytes(files.save(held, metadata={"sfumato": json.dumps(header)}))


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save` wrote."""
    files = require_extra("safetensors", "torch", "continuing a training")
    try:
        with files.safe_open(path, framework="pt") as held:
            header = json.loads((held.metadata() or {})["sfumato"])
            tensors = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
        version = header["version"]
        if version == _VERSION and header["digest"] != _digest(tensors, header["facts"]):
            raise ValueError("some of its bits have changed")
    except OSError as error:
        raise FileError(f"'{path}' cannot be read: {why(error)}") from error
    except (files.SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise FileError(f"'{path}' is not a checkpoint of Sfumato, or a damaged one") from error
    if version != _VERSION:
        raise FileError(f"the checkpoint '{path}' has the version {version!r}, this Sfumato reads {_VERSION}")
    return tensors, json.loads(header["facts"])


def refuse_other(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue a training under other settings than those it began with.

    Examples
    --------
    >>> refuse_other(Path("run.safetensors"), {"clip": 1.0}, {"clip": 0.5})
    Traceback (most recent call last):
        ...
    sfumato.errors.FileError: the checkpoint 'run.safetensors' is of a training with another clip (give another \
file, or train as before; extend adds steps)
    """
    plain = json.loads(json.dumps(now))  # as they come back from a file
    for name, value in plain.items():
        if then.get(name) != value:
            raise FileError(
                f"the checkpoint '{path}' is of a training with another {name}",
                hint="give another file, or train as before; extend adds steps",
            )


def fixed(module: nn.Module) -> dict[str, Tensor]:
    """Return what belongs to a module and is not trained: frozen weights and buffers."""
    frozen = {name: one.data for name, one in module.named_parameters() if not one.requires_grad}
    return {f"module {name}": one for name, one in (*frozen.items(), *module.named_buffers())}


def state_of(step: Step) -> dict[str, Tensor]:
    """Return everything that the next step depends on, but for the noise."""
    return {**step.state, **fixed(step.module), "generator": torch.get_rng_state()}


def put_back(step: Step, tensors: Mapping[str, Tensor]) -> None:
    """Let the next step be the one after `state_of`."""
    with step.running(), torch.no_grad():
        for name, one in {**step.state, **fixed(step.module)}.items():
            one.copy_(tensors[name])
    torch.set_rng_state(tensors["generator"])


def _digest(tensors: Mapping[str, Tensor], facts: str) -> str:
    found = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()

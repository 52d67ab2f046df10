"""A training that was interrupted continues as if it had not been, costs what it cost, and hides its noise."""

from __future__ import annotations

import json
import math
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import sfumato as sf
from sfumato.budget import Source
from sfumato.learners import Adam, AdaptiveClip, Sgd, Trainer
from sfumato.learners.dpsgd import checkpoint as checkpoints
from tests.learners.trainings import in_groups, killed, linear, people

ROOT = Path(__file__).parents[2]


def network(seed: int = 0) -> nn.Module:
    """With convolutions, dropout, a frozen layer and a buffer, each with other numbers for another seed."""
    torch.manual_seed(seed)
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 3), nn.Flatten(), nn.Dropout(0.3), nn.Linear(12, 8), nn.Linear(8, 2)
    )
    module[4].requires_grad_(False)
    module[4].register_buffer("noted", torch.randn(3))
    return module


def trainer_of(path: Path | None, module: nn.Module | None = None, **options: Any) -> Trainer:
    chosen: dict[str, Any] = {
        "noise_multiplier": 1.0, "delta": 1e-3, "batch_size": 10, "epochs": 3, "checkpoint": path,
        "optimizer": Sgd(learning_rate=0.1, momentum=0.9), **options,
    }  # fmt: skip
    if "epsilon" in options:
        del chosen["noise_multiplier"]
    return Trainer(linear() if module is None else module, **in_groups(**chosen))


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def jitter(some: Tensor) -> Tensor:
    return some + 0.1 * torch.randn_like(some)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.safetensors"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": Adam(learning_rate=0.01), "averaging": 0.9, "schedule": "cosine"},
        {"clip": AdaptiveClip(count_noise=0.5), "memory_format": "channels-last"},
        {"epsilon": 5.0, "noise_schedule": "linear"},
        {"epsilon": math.inf},
    ],
)
def test_a_resumed_training_is_the_uninterrupted_one_bit_by_bit(path: Path, options: dict[str, Any]) -> None:
    chosen = {"insecure_seed": 1, "seed": 2, "augment": jitter, "views": 2, **options}
    whole = trainer_of(None, network(), **{"memory_format": "contiguous", **chosen})
    whole.fit(*people(2))
    first = trainer_of(path, network(), **{"memory_format": "contiguous", **chosen})
    first.fit(*people(2), stop=lambda told: told.epoch == 2)
    torch.rand(7)
    second = trainer_of(path, network(seed=9), **{"memory_format": "contiguous", **chosen})
    second.fit(*people(2))
    assert second.done == whole.done == 18
    assert same(whole.module, second.module)
    assert second.events == whole.events
    assert [(one.epoch, one.loss) for one in second.history] == [(one.epoch, one.loss) for one in whole.history]


def test_the_layout_that_was_fastest_then_is_kept(path: Path) -> None:
    for chosen in ("contiguous", "channels-last"):
        options = {"insecure_seed": 1, "seed": 2}
        whole = trainer_of(None, network(), memory_format=chosen, **options)
        whole.fit(*people(2))
        trainer_of(path, network(), memory_format=chosen, **options).fit(*people(2), stop=lambda told: True)
        resumed = trainer_of(path, network(seed=9), memory_format="auto", **options)
        resumed.fit(*people(2))
        assert same(whole.module, resumed.module)
        path.unlink()


def test_a_resumed_private_training_does_not_repeat_its_noise(path: Path) -> None:
    def rest() -> nn.Module:
        resumed = trainer_of(path)
        resumed.fit(*people(), report=lambda _: path.write_bytes(written))
        return resumed.module

    trainer_of(path).fit(*people(), stop=lambda told: told.epoch == 2)
    written = path.read_bytes()
    assert not same(rest(), rest())


def test_no_key_of_the_noise_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []
    begin = Source._begin

    def noted(self: Source, key: bytes) -> None:
        keys.append(key)
        begin(self, key)

    monkeypatch.setattr(Source, "_begin", noted)
    trainer_of(path).fit(*people())
    written = path.read_bytes()
    assert len(keys) >= 2
    for key in keys:
        assert key not in written
        assert key.hex() not in written.decode("latin-1")


def test_a_checkpoint_is_a_file_of_its_owner_alone_and_nothing_else_is_left(path: Path) -> None:
    before = os.umask(0)
    try:
        trainer_of(path).fit(*people())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save(path, {"weights": torch.ones(2)}, {"done": 1})
    monkeypatch.setattr(Path, "replace", _no_space)
    with pytest.raises(sf.errors.FileError, match=r"cannot be written: No space left on device"):
        checkpoints.save(path, {"weights": torch.zeros(2)}, {"done": 2})
    assert checkpoints.load(path)[1] == {"done": 1}
    assert list(path.parent.iterdir()) == [path]


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_charged(path: Path, ledger: sf.Ledger) -> None:
    with pytest.raises(sf.errors.FileError, match="there is no folder"):
        trainer_of(path / "none" / "run.safetensors", ledger=ledger).fit(*people())
    assert not ledger.events


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"module": nn.Linear(3, 3)}, "another model"),
        ({"module": nn.Sequential(nn.Linear(3, 2))}, "another model"),
        ({"module": nn.Linear(3, 2, bias=False)}, "another model"),
        ({"batch_size": 20}, "another batch size"),
        ({"batch_size": None}, "another batch size"),
        ({"clip": 0.5}, "another clip"),
        ({"delta": 1e-4}, "another delta"),
        ({"optimizer": Adam()}, "another rule"),
        ({"averaging": 0.9}, "another averaging"),
        ({"clip": AdaptiveClip(count_noise=0.5)}, "another adaptive clip"),
        ({"insecure_seed": 1}, "another seed of the noise"),
        ({"views": 2, "augment": jitter}, "another number of views"),
        ({"noise_multiplier": 2.0}, "another noise multiplier"),
        ({"epsilon": 0.5}, "another (epsilon|noise multiplier)"),
        ({"epsilon": math.inf}, "another clip"),
        ({"epochs": 4}, "another number of epochs"),
        ({"epochs": None, "steps": 4}, "another number of"),
        ({"memory_format": "channels-last"}, "another layout"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(path: Path, options: dict[str, Any], message: str) -> None:
    trainer_of(path).fit(*people(), stop=lambda told: True)
    written = path.read_bytes()
    trainer = trainer_of(path, **options)
    with pytest.raises(sf.errors.FileError, match=f"is of a training with {message}") as caught:
        trainer.fit(*people())
    assert "\n" not in str(caught.value)
    assert trainer.done == 0
    assert path.read_bytes() == written


def test_a_checkpoint_of_other_samples_is_refused(path: Path) -> None:
    trainer_of(path).fit(*people(), stop=lambda told: True)
    inputs, targets = people()
    with pytest.raises(sf.errors.FileError, match="another number of samples"):
        trainer_of(path).fit(inputs[:-1], targets[:-1])


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _of_others(path: Path) -> None:
    save_file({"weights": torch.ones(2)}, path)


def _strange(path: Path) -> None:
    save_file({"weights": torch.ones(2)}, path, metadata={"sfumato": "[1]"})


def _pickled(path: Path) -> None:
    torch.save({"weights": torch.ones(2)}, path)


@pytest.mark.parametrize("harm", [_truncated, _flipped, _empty, _of_others, _strange, _pickled])
def test_a_checkpoint_that_is_damaged_or_not_ours_is_refused(path: Path, harm: Callable[[Path], None]) -> None:
    trainer_of(path).fit(*people(), stop=lambda told: True)
    harm(path)
    with pytest.raises(sf.errors.FileError, match="is damaged or is not a checkpoint of Sfumato") as caught:
        trainer_of(path).fit(*people())
    assert "\n" not in str(caught.value)


def test_a_checkpoint_that_tells_fewer_steps_than_were_made_is_refused(path: Path) -> None:
    trainer_of(path).fit(*people(), stop=lambda told: True)
    tensors, facts = checkpoints.load(path)
    with safe_open(path, framework="pt") as held:
        header = json.loads(held.metadata()["sfumato"])
    header["facts"] = json.dumps({**facts, "ran": [[1, 1.0]]})
    save_file(tensors, path, metadata={"sfumato": json.dumps(header)})
    with pytest.raises(sf.errors.FileError, match="damaged"):
        trainer_of(path).fit(*people())


def test_a_checkpoint_of_another_version_is_refused(path: Path) -> None:
    save_file({"weights": torch.ones(2)}, path, metadata={"sfumato": json.dumps({"version": 99})})
    with pytest.raises(sf.errors.FileError, match="has version 99, but this version of Sfumato reads 1"):
        trainer_of(path).fit(*people())


def test_a_folder_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(sf.errors.FileError, match="not a regular file"):
        trainer_of(tmp_path).fit(*people())


def test_tensors_that_share_memory_and_those_that_do_not_lie_in_order_are_saved(path: Path) -> None:
    one = torch.arange(6.0).reshape(2, 3)
    given = {"one": one, "turned": one.t(), "part": one[:1], "none": torch.zeros(0), "yes": torch.tensor(True)}
    checkpoints.save(path, given, {})
    found, _ = checkpoints.load(path)
    assert all(torch.equal(found[name], value) for name, value in given.items())


# --- later, elsewhere ---


def test_more_budget_can_be_given_in_another_process(path: Path, run_python: Callable[[str], str]) -> None:
    first = trainer_of(path, epsilon=2.0)
    first.fit(*people())
    other = path.with_name("other.safetensors")
    other.write_bytes(path.read_bytes())
    same_noise, more_budget = json.loads(
        run_python(
            f"""
import json, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests.learners.test_checkpoint import people, trainer_of
told = []
for path, more in ((Path({str(path)!r}), dict(steps=6)), (Path({str(other)!r}), dict(steps=6, epsilon=4.0))):
    trainer = trainer_of(path, epsilon=2.0).extend(**more)
    trainer.fit(*people())
    told.append(trainer.to_dict())
print(json.dumps(told))
"""
        )
    )
    for told in (same_noise, more_budget):
        assert told["sampling"]["steps"] == 24
        assert [one["step"] for one in told["history"]] == [6, 12, 18, 24]
    assert same_noise["noise_multiplier"] == first.noise_multiplier
    assert same_noise["epsilon"] > 2.0
    assert 3.96 < more_budget["epsilon"] <= 4.0


def test_a_finished_training_is_read_back(path: Path) -> None:
    first = trainer_of(path, averaging=0.5)
    first.fit(*people())
    again = trainer_of(path, averaging=0.5)
    assert [told.step for told in again.fit(*people())] == [6, 12, 18]
    assert same(first.module, again.module)
    assert again.spent == first.spent


def test_a_checkpoint_of_an_extended_training_is_not_taken_for_the_first_one(path: Path) -> None:
    trainer = trainer_of(path, epsilon=2.0)
    trainer.fit(*people())
    trainer.extend(epochs=3, epsilon=4.0).fit(*people())
    with pytest.raises(sf.errors.FileError, match="another epsilon"):
        trainer_of(path, epsilon=2.0).fit(*people())


# --- a ledger, and a process that dies ---


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sf.Ledger:
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    folder = tmp_path / "ledger"
    folder.mkdir()
    return sf.Ledger.grant(pl.DataFrame({"age": [1, 2]}), epsilon=50.0, delta=1e-3, path=folder / "some.ledger")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system kills otherwise")
def test_charges_survive_a_kill_and_lost_steps_are_charged_again(path: Path, ledger: sf.Ledger) -> None:
    def charged() -> int:
        return sum(event.times for event in ledger.events)  # type: ignore[attr-defined]

    program = [sys.executable, "-m", "tests.learners.trainings", "killed", ledger.path, path, "9"]
    assert subprocess.run(program, cwd=ROOT).returncode == -signal.SIGKILL, "in the middle of the second epoch"
    assert charged() == 12
    assert checkpoints.load(path)[1]["ran"] == [[6, 1.0]]
    killed(ledger.path, path, 0)  # which goes on, in another process, to the end
    assert charged() == 18, "the second epoch was charged twice"
    assert checkpoints.load(path)[1]["ran"] == [[12, 1.0]]
    assert not np.isnan(checkpoints.load(path)[0]["weights"].numpy()).any()

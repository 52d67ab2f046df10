"""Several real processes train one model: the result is that of one process, and the noise is added once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import sfumato as sf
from sfumato.learners import Trainer
from sfumato.learners.dpsgd.distributed import Distributed, SingleProcess
from tests.budget.chance import assert_variance
from tests.learners import trainings

ROOT = Path(__file__).parents[2]


class Ended(NamedTuple):
    """What a process had at its end."""

    weights: dict[str, Tensor]
    said: dict[str, Any]

    def of(self, name: str) -> list[Tensor]:
        return [one for key, one in self.weights.items() if key.startswith(f"{name} ")]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    """Let three processes train everything, one after another."""
    size, folder = 3, tmp_path_factory.mktemp("together")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SFUMATO_HOME", str(folder / "home"))
        sf.Ledger.grant(pl.DataFrame({"age": [1, 2]}), epsilon=4.0, delta=1e-3, path=folder / "some.ledger").close()
        program = [sys.executable, "-m", "tests.learners.trainings", "together", str(size), folder]
        told = subprocess.run(program, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=240)
    assert told.returncode == 0, told.stderr
    return [
        Ended(load_file(folder / f"{rank}.safetensors"), json.loads((folder / f"{rank}.json").read_text()))
        for rank in range(size)
    ]


def test_all_processes_end_with_the_same_weights_and_costs(ended: list[Ended]) -> None:
    first, *others = ended
    for other in others:
        assert first.weights.keys() == other.weights.keys()
        for name, one in first.weights.items():
            assert torch.equal(one, other.weights[name]), name
        assert first.said["poisson"] == other.said["poisson"]


@pytest.mark.parametrize("name", ["exact", "adaptive", "images"])
def test_without_noise_the_result_is_that_of_one_process_on_all_rows(ended: list[Ended], name: str) -> None:
    trainer = getattr(trainings, name)()
    trainer.fit(*trainings.people(2 if name == "images" else 0))
    for key, expected in trainer.module.state_dict().items():
        assert torch.allclose(ended[0].weights[f"{name} {key}"], expected, atol=1e-5)
    assert ended[0].said[name]["loss"] == pytest.approx(trainer.history[-1].loss, rel=0.3), "the mean of the processes"


def test_the_noise_is_added_once(ended: list[Ended]) -> None:
    (after,) = ended[0].of("noisy")
    # Noise of 2 clips of 1 on a sum over 61 rows; 6 standard errors of the variance are one false alarm in 5e8 runs.
    # If two processes added it, the variance would be twice as large.
    assert_variance(after.flatten().double().numpy(), (2 / 61) ** 2, kurtosis=3.0)


def test_an_empty_part_of_a_batch_is_a_step(ended: list[Ended]) -> None:
    assert [one.said["empty"]["done"] for one in ended] == [6] * len(ended)


def test_people_are_refused_in_all_processes(ended: list[Ended]) -> None:
    assert "another process" in ended[0].said["people"]
    assert all("several processes cannot protect people together" in one.said["people"] for one in ended[1:])


def test_a_refused_charge_ends_all_processes(ended: list[Ended]) -> None:
    assert len({one.said["refused"] for one in ended}) == 1
    assert "BudgetError: a charge of epsilon" in ended[0].said["refused"]


def test_a_process_with_wrong_samples_ends_all(ended: list[Ended]) -> None:
    assert ended[0].said["wrong"] == "OptionError: another process rejected its samples or options (see its error)"
    assert "targets must be whole numbers from 0 to 1" in ended[-1].said["wrong"]
    assert all("samples" in one.said["none"] or "another process" in one.said["none"] for one in ended)


def test_the_weights_of_the_first_process_are_the_beginning(ended: list[Ended]) -> None:
    assert all(one.said["differing"]["done"] == 6 for one in ended)


def test_a_resumed_training_is_the_uninterrupted_one_bit_by_bit(ended: list[Ended]) -> None:
    for one in ended:
        assert one.said["stopped"] == 6, "epochs of six steps"
        assert all(torch.equal(*pair) for pair in zip(one.of("whole"), one.of("resumed"), strict=True))


def test_a_damaged_checkpoint_of_the_first_process_ends_all(ended: list[Ended]) -> None:
    assert len({one.said["damaged"] for one in ended}) == 1
    assert "is not a checkpoint of Sfumato" in ended[0].said["damaged"]


def test_a_process_by_itself_is_the_first() -> None:
    alone = SingleProcess()
    assert alone.first
    assert alone.total(3) == 3
    assert alone.mean(torch.tensor(2.0)) == 2.0


def test_only_one_process_runs_a_step_as_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured step does not add up the sums of several processes."""
    monkeypatch.setattr(Trainer, "_has_kernels", True)
    trainer = Trainer(torch.nn.Linear(2, 2), epsilon=1, delta=1e-5, batch_size=4, epochs=1)
    assert trainer._is_graphed
    several = Distributed.__new__(Distributed)
    several.rank, several.size = 0, 2
    trainer.processes = several
    assert not trainer._is_graphed

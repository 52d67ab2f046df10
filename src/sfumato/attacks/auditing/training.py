"""Audit DP-SGD with canaries in the gradient, through the training engine as it is.

The module that is trained gets one more layer, a table with one weight for each canary. A canary is a record whose loss
is a large multiple of its own weight. So its gradient points in a direction that no other record has, it is clipped
like any other, and the noisy sums that every step releases show it (Steinke, Nasr and Jagielski 2023, section 5; they
call it a Dirac canary). Canaries are drawn into batches, clipped, summed and hidden by noise like all records: nothing
of the engine is replaced.

What an optimizer gets to see is what a step releases, and `Observation` judges it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.attacks.auditing.audit import AuditResult
from sfumato.attacks.auditing.canaries import coins
from sfumato.attacks.auditing.observation import Observation
from sfumato.attacks.base import Records
from sfumato.attacks.predictions import label_codes
from sfumato.attacks.statistics import CONFIDENCE
from sfumato.budget.differential_privacy import DifferentialPrivacy
from sfumato.budget.events import Composed, Event, Gaussian, PoissonSampled, Repeated
from sfumato.data.certificate import PERSON, UNIT
from sfumato.data.validate import by_name, real, whole
from sfumato.errors import OptionError
from sfumato.learners.dpsgd.module_checks import make_private
from sfumato.learners.dpsgd.optimizers import Optimizer, Sgd
from sfumato.learners.dpsgd.trainer import LOSSES, Trainer
from sfumato.learners.options import Optimization, Privacy

__all__ = ["audit_training", "observe_network", "observe_training"]

Ints = NDArray[np.int64]

_CANARIES = 1000
_STRONG = 10.0  # the gradient of a canary, in clips
_PROBED = 2  # records that tests of the module use too; their draws are not counted


def audit_training(
    module: nn.Module,
    inputs: Any,
    targets: Any,
    *,
    canaries: int = _CANARIES,
    people: Any = None,
    rows_per_person: int | None = None,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    trainer: Callable[..., Trainer] = Trainer,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> AuditResult:
    """Train a module with canaries in the gradient, and test the epsilon that the training claims.

    Parameters
    ----------
    module, inputs, targets : as for `sfumato.learners.Trainer`
        The module is trained in place.
    canaries : int
        Half of them are included, by coins.
    people, rows_per_person : optional
        As for the trainer, which then protects people: a canary is a person with as many equal rows as count. With
        ``rows_per_person`` alone, rows are trained on as usual, and tested for people with so many: that fails.
    seed : int
        Of the coins; the noise is that of the training.
    trainer : callable
        The training engine under test.
    **options
        Those of the trainer.

    Examples
    --------
    >>> samples = torch.randn(200, 3), torch.randint(0, 2, (200,))
    >>> engine = {"epsilon": 2.0, "batch_size": 100, "steps": 20, "privacy": Privacy(insecure_seed=1)}
    >>> result = audit_training(torch.nn.Linear(3, 2), *samples, canaries=200, **engine)
    >>> result.passed, [check.held for check in result.checks]
    (True, [True, True, True, True])
    """
    options |= {"people": people, "rows_per_person": rows_per_person}
    seen = observe_training(
        module, inputs, targets, canaries=canaries, seed=seed, trainer=trainer, progress=progress, **options
    )
    return seen.result("one training with canaries in the gradient", confidence=confidence, seed=seed)


def observe_training(
    module: nn.Module,
    inputs: Any,
    targets: Any,
    *,
    canaries: int,
    seed: int,
    people: Any = None,
    rows_per_person: int | None = None,
    trainer: Callable[..., Trainer] = Trainer,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Observation:
    """Train a module with canaries in the gradient, and return what was observed."""
    given, wanted = torch.as_tensor(inputs), torch.as_tensor(targets)
    included = coins(canaries, seed)
    each = 1 if rows_per_person is None else whole("the rows of a person", rows_per_person)
    owners = np.arange(len(given)) if people is None else _owners(people)
    how, privacy = options.pop("optimization", None) or Optimization(), options.pop("privacy", None) or Privacy()
    if how.augment is not None or not isinstance(options.get("clip", 1.0), int | float):
        raise OptionError("an audit with canaries in the gradient needs a fixed clip, and no augmentation")
    if (speed := options.get("speed")) is not None and speed.device != "cpu":
        raise OptionError(f"an audit with canaries in the gradient runs on the CPU, got the device {speed.device!r}")
    clip, rows = float(options.get("clip", 1.0)), int(owners.max()) + 1 + canaries // 2
    watched = _Module(module, canaries, given.shape[1:], len(given))
    optimizer = options.pop("optimizer", None) or Sgd(learning_rate=0.1, momentum=0.9)
    watching = _Watching(learning_rate=optimizer.learning_rate, inner=optimizer, module=watched)
    base = by_name("loss", how.loss, LOSSES)
    run = trainer(
        watched,
        optimizer=watching,
        privacy=replace(privacy, rows=rows),
        optimization=replace(how, loss=_Loss(base, _STRONG * clip)),
        **options,
    )
    present = np.flatnonzero(included)
    more = np.repeat(present, each)
    of_people: dict[str, Any] = {}
    if people is not None:
        whose = np.concatenate([owners, int(owners.max()) + 1 + more])
        of_people = {"people": whose, "rows_per_person": rows_per_person}
    run.fit(
        _with_numbers(given, more),
        torch.cat([wanted, wanted[:1].expand(len(more), *wanted.shape[1:])]),
        progress=progress,
        **of_people,
    )
    cost, steps = run.spent, list(_steps_of(run.events))
    sampling = run.to_dict()["sampling"]
    batches = [_counted(one, len(given) + canaries) for one in watching.batches]
    if people is not None:  # all rows that count of a person are drawn together
        batches = [np.concatenate([_most(one[: len(given)], owners), one[len(given) :] // each]) for one in batches]
    size = len(batches[0]) - canaries
    probed = {*owners[:_PROBED].tolist()}
    there = np.array([at for at in range(size) if at not in probed], dtype=np.int64)
    if people is not None or each == 1:  # the rows of a canary are drawn one by one otherwise
        there = np.concatenate([there, size + present])
    total = np.sum(batches, axis=0)[there]
    return Observation(
        values=np.stack(watching.seen) * np.float32(sampling["rate"] * sampling["rows"] / clip),
        included=included,
        rates=np.array([rate for rate, _ in steps]),
        noises=np.array([noise for _, noise in steps]),
        counts=total,
        sizes=np.array([one[there].sum() for one in batches]),
        events=run.events,
        claimed=DifferentialPrivacy(
            cost.epsilon, cost.delta, cost.relation, UNIT if rows_per_person is None else PERSON
        ),
        rows=each,
    )


def observe_network(
    model: Any,
    records: Records,
    delta: float,
    *,
    canaries: int,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> Observation | None:
    """Train the network of a released classifier again, as often and with as much noise, with canaries in the gradient.

    None if it was trained in a way that cannot be observed: on a GPU, with augmentation, an adaptive clip or a noise
    schedule.
    """
    more = dict(model.trainer_options or {})
    if model.device != "cpu" or more.keys() & {"adaptive", "augment", "noise_schedule", "views"}:
        return None
    fresh = copy.copy(model)
    columns = fresh._columns(records.rows)
    torch.manual_seed(seed)
    module, inputs = fresh._new_module(columns), fresh._inputs(columns)
    bound = getattr(model, "rows_per_person", None)
    of_people = {} if bound is None else {"people": records.owners, "rows_per_person": bound}
    rows, sampling = (len(records) if bound is None else records.persons) + canaries // 2, model.sampling_
    rate = real("the sampling rate", sampling["rate"], above=0, most=1)
    return observe_training(
        make_private(module) if more.get("replace") else module,
        inputs,
        label_codes(np.asarray(records.labels), model.classes_),
        canaries=canaries,
        seed=seed,
        progress=progress,
        clip=model.clip,
        batch_size=None if rate == 1 else max(1, round(rate * rows)),
        steps=whole("the number of steps", sampling["steps"]),
        delta=min(delta, 0.5 / rows),
        optimizer=fresh._optimizer(model.rule_["learning_rate"]),
        privacy=Privacy(noise_multiplier=model.noise_multiplier_),
        **of_people,
    )


# --- canaries in the gradient -------------------------------------------------------------------


class _Module(nn.Module):
    """A module, and a table with a weight for each canary; the last number of an input is the number of the record."""

    def __init__(self, module: nn.Module, canaries: int, shape: Iterable[int], records: int) -> None:
        super().__init__()
        self.table = nn.Embedding(canaries + 1, 1, padding_idx=0)  # its weights are the first of all
        self.module, self.shape, self.records = module, tuple(shape), records
        self.drawn: list[Ints] = []

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs, 0 for a canary, and the weight of the canary."""
        numbers = inputs[:, -1].round().long()
        if self.training:
            self.drawn.append(numbers.cpu().numpy())
        canary = (numbers - self.records + 1).clamp(0, self.table.num_embeddings - 1)
        outputs = self.module(inputs[:, :-1].reshape(-1, *self.shape))
        is_record = (canary == 0).to(outputs.dtype).reshape(-1, *[1] * (outputs.dim() - 1))
        return outputs * is_record, self.table(canary).squeeze(1)


@dataclass(frozen=True)
class _Loss:
    """The loss of records, and for canaries a multiple of their weight."""

    base: Any
    strong: float

    def __call__(self, outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
        losses: Tensor = self.base(outputs[0], targets) + self.strong * outputs[1]
        return losses


@dataclass(frozen=True, kw_only=True)
class _Watching(Optimizer):
    """An optimizer that keeps what each step releases about the canaries, and which records it has drawn."""

    inner: Optimizer
    module: _Module
    seen: list[NDArray[np.float32]] = field(default_factory=list)
    batches: list[Ints] = field(default_factory=list)

    def begin(self, weights: Tensor) -> dict[str, Tensor]:
        """Return the state of the optimizer that it wraps."""
        return self.inner.begin(weights)

    def follow(self, weights: Tensor, gradient: Tensor, memory: dict[str, Tensor], rate: float | Tensor) -> None:
        """Keep the released gradient of the canaries, and update the weights."""
        self.seen.append(gradient[1 : self.module.table.num_embeddings].detach().cpu().numpy().copy())
        self.batches.append(np.concatenate([*self.module.drawn, np.zeros(0, dtype=np.int64)]))
        self.module.drawn.clear()
        self.inner.follow(weights, gradient, memory, rate)

    def to_dict(self) -> dict[str, Any]:
        """Return the optimizer that it wraps as plain values."""
        return self.inner.to_dict()


def _with_numbers(inputs: Tensor, present: Ints) -> Tensor:
    """Return the inputs of records and canaries, each with its number; the features of canaries are 0."""
    flat = inputs.reshape(len(inputs), -1)
    flat = flat if flat.dtype in (torch.int32, torch.int64, torch.float64) else flat.float()
    more = flat.new_zeros(len(present), flat.shape[1])
    numbers = torch.cat([torch.arange(len(inputs)), len(inputs) + torch.from_numpy(present)])
    return torch.cat([torch.cat([flat, more]), numbers[:, None].to(flat.dtype)], dim=1)


def _owners(people: Any) -> Ints:
    """Return the number of the person of each row, from 0; each row of nobody is of one more."""
    code = np.asarray(people, dtype=np.int64).copy()
    nobody = code < 0
    code[nobody] = code.max(initial=-1) + 1 + np.arange(np.count_nonzero(nobody))
    return np.unique(code, return_inverse=True)[1].astype(np.int64)


def _most(counts: Ints, owners: Ints) -> Ints:
    """Return the largest count among the rows of each person."""
    found = np.zeros(int(owners.max()) + 1, dtype=np.int64)
    np.maximum.at(found, owners, counts)
    return found


def _counted(numbers: Ints, length: int) -> Ints:
    """Return how often each record is in a batch; padding repeats the first record, which is not counted."""
    return np.bincount(numbers, minlength=length)


def _steps_of(events: Iterable[Event]) -> Iterator[tuple[float, float]]:
    """Yield the sampling rate and the noise multiplier of each step."""
    for event in events:
        times, inner = (event.times, event.event) if isinstance(event, Repeated) else (1, event)
        for part in inner.events if isinstance(inner, Composed) else (inner,):
            rate, noise = (part.rate, part.event) if isinstance(part, PoissonSampled) else (1.0, part)
            if isinstance(noise, Gaussian):
                yield from [(rate, noise.noise_multiplier)] * times

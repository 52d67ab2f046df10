"""A data holder in federated training: it trains on its own records, and sends a coded update only."""

from __future__ import annotations

import hashlib
import math
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sfumato.budget.events import Event
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.budget.people import draw_rows, units_of
from sfumato.data.io.files import atomic_path
from sfumato.errors import FileError, InputError, ProtocolError
from sfumato.federation.client_noise import ClientNoise
from sfumato.federation.plan import FederationPlan
from sfumato.federation.secure.fixed_point import FixedPoint
from sfumato.federation.weights import features_of, get_weights, network_of, set_weights
from sfumato.federation.wire import Message, decode, encode
from sfumato.learners.dpsgd.account import RunAccount, events_of
from sfumato.learners.dpsgd.optimizers import Sgd
from sfumato.learners.dpsgd.sampling import Full, Poisson
from sfumato.learners.dpsgd.trainer import Trainer
from sfumato.learners.images.views import Views
from sfumato.learners.options import Privacy

__all__ = ["TrainingHolder"]

_VIEWS = Views(affine=0.5, gamma=0.3)
_STEEPEST = 1.0  # gradients are clipped to this norm: one steep batch must not ruin a model


class TrainingHolder:
    """The records of one holder, and how it trains on them.

    Parameters
    ----------
    name : its name
    plan : what all parties agree on
    inputs, targets : its samples, and their classes from 0
    parties : how many holders there are
    ledger : its own ledger, charged before the noise is used: of rows at record level, of clients at client level
    record : a file that keeps what was sent, written before an update leaves the holder. Without it, a holder that is
        started again would not know what it has spent already.
    people : whose each sample is, if the plan protects people: a number for each person, negative for nobody, which
        counts as a person of its own
    insecure_seed : makes noise and draws repeatable, for tests of the software: then nothing is private

    Notes
    -----
    With privacy a holder sends ``rounds + spare`` updates at most, repeated rounds included: the noise is for so many.

    Without privacy the coordinator learns the number of samples, by which updates are weighted. At record and client
    level all weights are equal; at record level the holder's own sampling rate depends on the number of its samples,
    or of its people, which counts as public.

    Of people with more rows than count, the rows that do are drawn once and in secret; a holder that is started again
    keeps them.
    """

    def __init__(
        self,
        name: str,
        plan: FederationPlan,
        inputs: NDArray[Any],
        targets: NDArray[Any],
        *,
        parties: int,
        ledger: Ledger | None = None,
        record: Path | None = None,
        people: NDArray[np.int64] | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        self.name, self.plan, self.parties, self.ledger = name, plan, parties, ledger
        if not len(inputs) or len(inputs) != len(targets):
            raise InputError(f"party '{name}' has no rows, or not one class for each")
        if tuple(inputs.shape[1:]) != plan.inputs:
            raise InputError(f"party '{name}' has samples of the shape {inputs.shape[1:]}, the plan {plan.inputs}")
        if int(np.min(targets)) < 0 or int(np.max(targets)) >= plan.classes:
            raise InputError(f"party '{name}' has classes that the plan does not have")
        self.inputs = features_of(plan, torch.from_numpy(np.array(inputs, dtype=np.float32)))
        self.targets = torch.from_numpy(np.array(targets, dtype=np.int64))
        self.events: tuple[Event, ...] = ()
        self.sent = 0
        self.record, self.insecure_seed = record, insecure_seed
        self.people = self._people_of(people)
        self._drawn: NDArray[np.int64] | None = None
        if record is not None and record.exists():
            self._restore(record)
        if self.people is not None:
            self._keep_drawn(self.people)
        self._noise: ClientNoise | None = None
        if plan.level == "client":
            self._noise = ClientNoise.of(plan, parties, len(get_weights(network_of(plan))))

    def _people_of(self, people: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Return whose each sample is; None where no people are protected."""
        if self.plan.rows_per_person is None:
            return None
        if people is None or len(people) != len(self.inputs):
            raise InputError(
                f"party '{self.name}' does not say whose each of its rows is, and the plan protects people"
            )
        return people

    def _keep_drawn(self, people: NDArray[np.int64]) -> None:
        """Keep the rows that count of each person: those of the record or, at the beginning, new ones."""
        most = self.plan.rows_per_person
        assert most is not None
        if self._drawn is None:
            seed = None if self.insecure_seed is None else self.insecure_seed << 32
            self._drawn = draw_rows(people, most, Source(insecure_seed=seed))
        rows = self._drawn
        self.inputs, self.targets, self.people = self.inputs[rows], self.targets[rows], people[rows]

    def describe(self, request: Message) -> Message:
        """Check the plan; report what all updates cost or, without privacy, the number of rows."""
        plan = FederationPlan.from_dict(request["plan"])
        if plan.coding != self.plan.coding:
            raise ProtocolError(f"party '{self.name}' has another schema, so its records would be coded otherwise")
        if plan != self.plan:
            raise ProtocolError(f"party '{self.name}' has agreed to another plan")
        if self.plan.level == "none":
            return {"rows": len(self.inputs)}
        return {"events": [one.to_dict() for one in self.planned]}

    @property
    def planned(self) -> tuple[Event, ...]:
        """What all updates cost together, repeated rounds included; none without privacy."""
        if self._noise is not None:
            return self._noise.events
        if self.plan.level == "none":
            return ()
        account, sampler, _ = self._account
        return tuple(events_of(sampler, account.progress.ahead))

    def contribute(self, request: Message) -> tuple[NDArray[np.unsignedinteger[Any]], Message]:
        """Train from the given weights, and return the update."""
        number, weight = int(request["round"]), float(request["weight"])
        private = self.plan.level != "none"
        if not 1 <= number <= self.plan.rounds or (private and weight != 1.0):
            raise ProtocolError(f"the plan of party '{self.name}' has no such round or weight")
        if private and self.sent >= self.plan.updates:
            raise ProtocolError(
                f"party '{self.name}' has sent {self.sent} updates, and its noise is for no more",
                hint="plan with more spare rounds if rounds are repeated",
            )
        began = time.monotonic()
        module, start = network_of(self.plan), np.asarray(request["weights"])
        set_weights(module, start)
        if self.plan.level == "record":
            self._train_privately(module, number)
        else:
            self._train(module, number)
        update = (get_weights(module) - start).astype(np.float64)
        if self._noise is not None:
            if self.ledger is not None:
                self.ledger.charge(self._noise.event, note=f"update of round {number}")
            self.events = (*self.events, self._noise.event)
            words = self._noise.protect(update, Source())
        else:
            words = FixedPoint(self.plan.bound, self.parties).encode(weight * update)
        self.sent += 1
        self._keep()
        return words, {} if private else {"seconds": time.monotonic() - began}

    def _keep(self) -> None:
        """Write down what is about to leave this holder."""
        if self.record is not None:
            content = {"plan": self.plan.to_dict(), "sent": self.sent, "events": [one.to_dict() for one in self.events]}
            content |= {} if self._drawn is None else {"drawn": self._drawn}
            with atomic_path(self.record, mode=0o600) as temporary:
                temporary.write_bytes(encode(content))

    def _restore(self, record: Path) -> None:
        try:
            plain = decode(record.read_bytes())
            planned = FederationPlan.from_dict(plain["plan"])
            self.sent = int(plain["sent"])
            self.events = tuple(Event.from_dict(one) for one in plain["events"])
            drawn = None if self.people is None else np.array(plain["drawn"], dtype=np.int64)
        except (ProtocolError, KeyError, TypeError, ValueError, OSError) as error:
            raise FileError(f"the record '{record}' of party '{self.name}' is damaged or cannot be read") from error
        if planned != self.plan:
            raise FileError(f"'{record}' is of another plan", hint="give another file")
        if drawn is not None and self.people is not None:
            if not np.array_equal(np.unique(drawn[(drawn >= 0) & (drawn < len(self.people))]), drawn) or (
                _most_of_one(self.people[drawn]) > (self.plan.rows_per_person or 0)
            ):
                raise FileError(f"'{record}' is of other records", hint="give another file")
            self._drawn = drawn

    def _train(self, module: torch.nn.Module, number: int) -> None:
        """Plain SGD, with the proximal term of FedProx."""
        plan = self.plan
        digest = hashlib.sha256(f"{plan.seed}/{number}/{self.name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7]))
        anchors = [one.detach().clone() for one in module.parameters()]
        optimizer = torch.optim.SGD(module.parameters(), lr=plan.learning_rate, momentum=0.9)
        steps, step = plan.epochs * math.ceil(len(self.inputs) / plan.batch), 0
        module.train()
        for _ in range(plan.epochs):
            for part in torch.randperm(len(self.inputs), generator=generator).split(plan.batch):
                optimizer.param_groups[0]["lr"] = plan.rate(number, step / steps)
                inputs, step = self.inputs[part], step + 1
                if plan.augment:
                    inputs = _seen(inputs, plan.scale, generator)
                if inputs.dim() == 4:  # pooling of images then takes an eighth of the time
                    inputs = inputs.to(memory_format=torch.channels_last)
                optimizer.zero_grad()
                functional.cross_entropy(module(inputs), self.targets[part]).backward()
                if plan.proximal:
                    for one, anchor in zip(module.parameters(), anchors, strict=True):
                        assert one.grad is not None
                        one.grad.add_(one.detach() - anchor, alpha=plan.proximal)
                torch.nn.utils.clip_grad_norm_(module.parameters(), _STEEPEST)
                optimizer.step()

    def _train_privately(self, module: torch.nn.Module, number: int) -> None:
        """DP-SGD with noise that is calibrated to all updates together."""
        plan = self.plan
        account, sampler, steps = self._account
        seed = None if self.insecure_seed is None else (self.insecure_seed << 32) + self.sent
        trainer = Trainer(
            module,
            delta=plan.delta,
            clip=plan.clip,
            batch_size=None if isinstance(sampler, Full) else plan.batch,
            steps=steps,
            optimizer=Sgd(learning_rate=plan.rate(number, 0.5), momentum=0.0),
            ledger=self.ledger,
            privacy=Privacy(noise_multiplier=account.progress.ahead[0].noise_multiplier, insecure_seed=seed),
        )
        try:
            trainer.fit(self.inputs, self.targets, people=self.people, rows_per_person=plan.rows_per_person)
        finally:
            self.events = (*self.events, *trainer.events)

    @property
    def units(self) -> int:
        """The number of samples or, where people are protected, of people."""
        return len(self.inputs) if self.people is None else len(np.unique(units_of(self.people)))

    @cached_property
    def _account(self) -> tuple[RunAccount, Full | Poisson, int]:
        """Return the account of all updates together, how batches are drawn, and the steps of one update."""
        plan, rows = self.plan, self.units
        full = plan.batch >= rows
        steps = plan.epochs * (1 if full else -(-rows // plan.batch))
        size = sum(one.numel() for one in network_of(plan).parameters())
        account = RunAccount(
            epsilon=plan.epsilon,
            noise_multiplier=None,
            delta=plan.delta,
            epochs=None,
            steps=steps * plan.updates,
            course=lambda way: 1.0,
        )
        more: dict[str, Any] = {"dimensions": size, "rows_per_person": plan.rows_per_person}
        sampler = Full(rows, **more) if full else Poisson(rows, plan.batch / rows, **more)
        account.open(sampler)
        return account, sampler, steps


def _most_of_one(people: NDArray[np.int64]) -> int:
    """Return the most rows that one person has."""
    return int(np.bincount(units_of(people)).max(initial=0))


def _seen(inputs: Tensor, scale: tuple[float, float] | None, generator: torch.Generator) -> Tensor:
    """Return a random view of each normalised image."""
    mean, deviation = scale or (0.0, 1.0)
    return (_VIEWS(inputs * deviation + mean, generator) - mean) / deviation

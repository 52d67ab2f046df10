"""The coordinator of a federated training: rounds over any channel, with a checkpoint after each."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.events import Event
from sfumato.data.io.files import atomic_path
from sfumato.errors import FileError, ProtocolError, SfumatoError
from sfumato.federation.channel import Channel
from sfumato.federation.client_noise import ClientNoise
from sfumato.federation.plan import FederationPlan
from sfumato.federation.secure.fixed_point import FixedPoint
from sfumato.federation.secure.sum import SecureSum
from sfumato.federation.weights import get_weights, network_of
from sfumato.federation.wire import decode, encode

__all__ = ["Round", "Share", "State", "run_rounds"]

Score = Callable[[NDArray[np.float32]], dict[str, float]]


@dataclass(frozen=True)
class Round:
    """What is known of a finished round; bytes are those that each present party sent and received on average."""

    round: int
    clients: int
    seconds: float | None
    bytes: int
    accuracy: float | None = None
    loss: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the round as plain values."""
        return asdict(self)


@dataclass
class Share:
    """What one party has done so far: rounds, bytes sent and received, and seconds of training where it reports them.

    ``events`` are what all its updates cost, also those that are still to come.
    """

    rounds: int = 0
    sent: int = 0
    received: int = 0
    seconds: float | None = None
    events: tuple[Event, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the share as plain values."""
        plain = {name: getattr(self, name) for name in ("rounds", "sent", "received", "seconds")}
        return {**plain, "events": [one.to_dict() for one in self.events]}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the share of a `to_dict`."""
        return cls(**{**plain, "events": tuple(Event.from_dict(one) for one in plain["events"])})


@dataclass
class State:
    """The model after some rounds, as a checkpoint holds it, and the share of each party."""

    weights: NDArray[np.float32]
    velocity: NDArray[np.float64]
    rounds: list[Round] = field(default_factory=list)
    parties: dict[str, Share] = field(default_factory=dict)

    def save(self, path: Path, plan: FederationPlan) -> None:
        """Write a checkpoint: a temporary file, flushed to the disk, then renamed."""
        content = encode(
            {
                "plan": json.dumps(plan.to_dict()),
                "weights": self.weights,
                "velocity": self.velocity,
                "rounds": [one.to_dict() for one in self.rounds],
                "parties": {name: one.to_dict() for name, one in self.parties.items()},
            }
        )
        with atomic_path(path, mode=0o600) as temporary, temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: Path, plan: FederationPlan) -> State:
        """Read a checkpoint of the same plan."""
        try:
            plain = decode(path.read_bytes())
            planned = json.loads(plain["plan"])
            rounds = [Round(**one) for one in plain["rounds"]]
            parties = {name: Share.from_dict(one) for name, one in plain["parties"].items()}
            state = cls(plain["weights"].copy(), plain["velocity"].copy(), rounds, parties)
        except (SfumatoError, AttributeError, KeyError, TypeError, ValueError, OSError) as error:
            raise FileError(f"the checkpoint '{path}' is damaged or cannot be read") from error
        if planned != plan.to_dict():
            raise FileError(f"'{path}' is a checkpoint of another plan", hint="give another file")
        return state


def run_rounds(
    plan: FederationPlan,
    channel: Channel,
    secure: SecureSum,
    *,
    checkpoint: Path | None = None,
    score: Score | None = None,
    progress: Callable[[Round], None] | None = None,
    keep: Callable[[int, NDArray[np.float32]], None] | None = None,
) -> State:
    """Run all rounds that are left, and return the model; ``keep`` receives the weights of each round.

    A round in which fewer than ``plan.threshold`` parties answer raises a `ProtocolError`; the checkpoint then holds
    the last finished round, with which the next call goes on.
    """
    start = get_weights(network_of(plan))
    state = State(start, np.zeros(len(start)))
    if checkpoint is not None and checkpoint.exists():
        state = State.load(checkpoint, plan)
    described = channel.ask_all({"kind": "train/describe", "plan": plan.to_dict()})
    if described.refused:
        name, reason = next(iter(described.refused.items()))
        raise ProtocolError(f"party '{name}' cannot take part", hint=reason)
    if len(described.arrived) < plan.threshold:
        raise ProtocolError(f"only {len(described.arrived)} parties are there, but {plan.threshold} are needed")
    there = {name: described.arrived[name] for name in channel.names if name in described.arrived}
    for name, one in there.items():  # in their own order, not in that of their answers
        state.parties.setdefault(name, Share()).events = _events(plan, name, one)
    rows = {name: _rows(plan, name, one) for name, one in there.items()}
    mean = sum(rows.values()) / len(rows)
    weights = {name: one / mean for name, one in rows.items()}
    for number in range(len(state.rounds) + 1, plan.rounds + 1):
        done = _round(plan, channel, secure, state, number, weights)
        found = {} if score is None else score(state.weights)
        done = Round(**{**done.to_dict(), **found})
        state.rounds.append(done)
        if keep is not None:
            keep(number, state.weights)
        if checkpoint is not None:
            state.save(checkpoint, plan)
        if progress is not None:
            progress(done)
    return state


def present_in(plan: FederationPlan, names: list[str], number: int) -> list[str]:
    """Return the parties that are asked in a round, never fewer than the threshold; it depends on the seed alone."""
    drawn = np.random.default_rng([plan.seed, number]).random(len(names))
    least = np.sort(drawn)[-min(plan.threshold, len(names))]
    return [name for name, one in zip(sorted(names), drawn, strict=True) if one >= min(plan.absence, least)]


def _events(plan: FederationPlan, name: str, described: Mapping[str, Any]) -> tuple[Event, ...]:
    if plan.level == "none":
        return ()
    try:
        found = tuple(Event.from_dict(one) for one in described["events"])
    except (SfumatoError, KeyError, TypeError) as error:
        raise ProtocolError(f"party '{name}' does not say what its updates cost") from error
    if not found or any(one.unit != plan.unit for one in found):
        raise ProtocolError(f"party '{name}' accounts for another unit than the plan, a {plan.unit}")
    return found


def _rows(plan: FederationPlan, name: str, described: Mapping[str, Any]) -> int:
    rows = 1 if plan.level != "none" else described.get("rows")
    if type(rows) is not int or rows < 1:
        raise ProtocolError(f"party '{name}' does not say how many rows it has")
    return rows


def _round(
    plan: FederationPlan, channel: Channel, secure: SecureSum, state: State, number: int, weights: dict[str, float]
) -> Round:
    began, before = time.monotonic(), _traffic(channel)
    asked = present_in(plan, list(weights), number)
    if len(asked) < plan.threshold:
        raise ProtocolError(f"round {number} has {len(asked)} parties, but {plan.threshold} are needed")
    requests = {name: {"round": number, "weights": state.weights, "weight": weights[name]} for name in asked}
    # A number that grows also over restarts: no mask of an interrupted round is used again.
    summed = secure.total(channel, time.time_ns() // 1000, requests)
    if len(summed.present) < plan.threshold:
        raise ProtocolError(f"only {len(summed.present)} parties answered, but {plan.threshold} are needed")
    parties = len(channel.names)
    if plan.level == "client":
        code = ClientNoise.of(plan, parties, len(state.weights)).code
    else:
        code = FixedPoint(plan.bound, parties)
    if summed.total.shape != state.weights.shape:
        raise ProtocolError(f"the updates of round {number} have another length than the model")
    mean = code.decode(summed.total) / sum(weights[name] for name in summed.present)
    state.velocity = plan.momentum * state.velocity + mean
    state.weights = (state.weights + state.velocity).astype(np.float32)
    if not np.isfinite(state.weights).all():
        raise ProtocolError(f"the model of round {number} is not finite", hint="use a smaller learning rate")
    total, after = 0, _traffic(channel)
    for name in after:
        share = state.parties.setdefault(name, Share())
        sent, received = (now - then for now, then in zip(after[name], before[name], strict=True))
        share.sent, share.received, total = share.sent + sent, share.received + received, total + sent + received
        if name in summed.present:
            share.rounds += 1
            seconds = summed.seen[name].get("seconds")
            if plan.level == "none" and isinstance(seconds, int | float) and 0 <= seconds < math.inf:
                share.seconds = (share.seconds or 0.0) + seconds
    return Round(number, len(summed.present), time.monotonic() - began, total // len(summed.present))


def _traffic(channel: Channel) -> dict[str, tuple[int, int]]:
    """Return the bytes that each party has sent and received, where the channel counts them."""
    sent, received = getattr(channel, "sent", {}), getattr(channel, "received", {})
    return {name: (sent.get(name, 0), received.get(name, 0)) for name in channel.names}

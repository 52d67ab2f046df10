"""The coordinator of a federated training: rounds over any channel, with a checkpoint after each."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.io.files import atomic_path
from sfumato.errors import FileError, ProtocolError
from sfumato.federation.channel import Channel
from sfumato.federation.client_noise import ClientNoise
from sfumato.federation.plan import FederationPlan
from sfumato.federation.secure.fixed_point import FixedPoint
from sfumato.federation.secure.sum import SecureSum
from sfumato.federation.weights import get_weights, network_of
from sfumato.federation.wire import decode, encode

__all__ = ["Round", "State", "run_rounds"]

Score = Callable[[NDArray[np.float32]], dict[str, float]]


@dataclass(frozen=True)
class Round:
    """What is known of a finished round; bytes are those that each present party sent and received on average."""

    round: int
    clients: int
    seconds: float
    bytes: int
    accuracy: float | None = None
    loss: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the round as plain values."""
        return asdict(self)


@dataclass
class State:
    """The model after some rounds, as a checkpoint holds it."""

    weights: NDArray[np.float32]
    velocity: NDArray[np.float64]
    rounds: list[Round] = field(default_factory=list)

    def save(self, path: Path, plan: FederationPlan) -> None:
        """Write a checkpoint: a temporary file, flushed to the disk, then renamed."""
        content = encode(
            {
                "plan": json.dumps(plan.to_dict()),
                "weights": self.weights,
                "velocity": self.velocity,
                "rounds": [one.to_dict() for one in self.rounds],
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
            state = cls(plain["weights"].copy(), plain["velocity"].copy(), [Round(**one) for one in plain["rounds"]])
        except (ProtocolError, AttributeError, KeyError, TypeError, ValueError, OSError) as error:
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
) -> State:
    """Run all rounds that are left, and return the model.

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
    rows = {name: one.get("rows", 1) for name, one in described.arrived.items()}
    mean = sum(rows.values()) / len(rows)
    weights = {name: one / mean for name, one in rows.items()}
    for number in range(len(state.rounds) + 1, plan.rounds + 1):
        done = _round(plan, channel, secure, state, number, weights)
        found = {} if score is None else score(state.weights)
        done = Round(**{**done.to_dict(), **found})
        state.rounds.append(done)
        if checkpoint is not None:
            state.save(checkpoint, plan)
        if progress is not None:
            progress(done)
    return state


def present_in(plan: FederationPlan, names: list[str], number: int) -> list[str]:
    """Return the parties that are asked in a round; it depends on the seed alone."""
    drawn = np.random.default_rng([plan.seed, number]).random(len(names))
    return [name for name, one in zip(sorted(names), drawn, strict=True) if one >= plan.absence]


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
    traffic = (_traffic(channel) - before) // len(summed.present)
    return Round(number, len(summed.present), time.monotonic() - began, int(traffic))


def _traffic(channel: Channel) -> int:
    return sum(sum(getattr(channel, name, {}).values()) for name in ("sent", "received"))

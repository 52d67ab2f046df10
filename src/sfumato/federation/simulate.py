"""A federated training in one process: the same messages and sums as between machines."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from sfumato.budget.accounting.accountant import spent
from sfumato.errors import OptionError
from sfumato.federation.channel import InProcess, Party
from sfumato.federation.client_noise import ClientNoise
from sfumato.federation.holder import TrainingHolder
from sfumato.federation.plan import FederationPlan
from sfumato.federation.rounds import Round, run_rounds
from sfumato.federation.secure.masks import Roster
from sfumato.federation.secure.sum import MaskedSum, PlainSum, SecureSum, masked_handlers, plain_handlers
from sfumato.federation.weights import network_of, set_weights

__all__ = ["Federated", "simulate"]

Samples = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Federated:
    """The model of a federated training, its rounds, and the epsilon of each holder."""

    plan: FederationPlan
    weights: NDArray[np.float32]
    rounds: tuple[Round, ...]
    epsilons: dict[str, float]

    @property
    def epsilon(self) -> float | None:
        """That of the worst holder: their records are disjoint. None without privacy."""
        return max(self.epsilons.values(), default=None)

    def probabilities(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the probability of each class."""
        module = network_of(self.plan).eval()
        set_weights(module, self.weights)
        with torch.no_grad():
            parts = [module(part).softmax(1) for part in torch.from_numpy(np.array(inputs, np.float32)).split(1024)]
        found: NDArray[np.float32] = torch.cat(parts).numpy()
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the rounds and the cost as plain values."""
        return {"rounds": [one.to_dict() for one in self.rounds], "epsilon": self.epsilon, "epsilons": self.epsilons}


def simulate(
    plan: FederationPlan,
    holders: Sequence[Samples],
    *,
    test: Samples | None = None,
    secure: str = "masks",
    checkpoint: Path | None = None,
    progress: Callable[[Round], None] | None = None,
) -> Federated:
    """Train with holders in this process.

    Parameters
    ----------
    plan : what all parties agree on
    holders : the samples and classes of each
    test : samples to score the model of each round on; the scores are exact, for the owner of these samples
    secure : "masks", or "none" for sums in clear
    checkpoint : written after every round; beside it, each holder keeps a record of what it has sent. The same call
        resumes an interrupted training.
    progress : called after every round

    Examples
    --------
    >>> make = np.random.default_rng(0)
    >>> inputs = make.normal(size=(120, 4))
    >>> data = [(part, (part[:, 0] > 0).astype(int)) for part in np.split(inputs, 3)]
    >>> plan = FederationPlan(model="logistic", inputs=(4,), classes=2, rounds=3, threshold=2)
    >>> simulate(plan, data, test=data[0]).rounds[-1].accuracy > 0.8
    True
    """
    if secure not in ("masks", "none"):
        raise OptionError(f"secure must be masks or none, got {secure!r}")
    if plan.level == "client" and secure == "none":
        raise OptionError(
            "privacy of clients needs masks: in clear, the coordinator sees each update with one share of the noise",
            hint="use secure='masks'",
        )
    names = [f"holder-{at:04}" for at in range(1, len(holders) + 1)]
    if plan.threshold > len(names):
        raise OptionError(f"the threshold is {plan.threshold}, but there are only {len(names)} holders")
    those = {}
    for name, data in zip(names, holders, strict=True):
        kept = None if checkpoint is None else checkpoint.with_name(f"{checkpoint.name}.{name}")
        those[name] = TrainingHolder(name, plan, *data, parties=len(names), record=kept)
    channel, sums = _connect(those, plan, secure)

    def score(weights: NDArray[np.float32]) -> dict[str, float]:
        assert test is not None
        chances = Federated(plan, weights, (), {}).probabilities(test[0])
        right = chances[np.arange(len(chances)), test[1]]
        return {
            "accuracy": float((chances.argmax(1) == test[1]).mean()),
            "loss": float(-np.log(np.maximum(right, 1e-12)).mean()),
        }

    state = run_rounds(
        plan, channel, sums, checkpoint=checkpoint, score=None if test is None else score, progress=progress
    )
    epsilons: dict[str, float] = {}
    if plan.level == "client":
        epsilons = dict.fromkeys(names, ClientNoise.of(plan, len(names), len(state.weights)).epsilon)
    elif plan.level == "record":
        epsilons = {name: spent(one.events, plan.delta).epsilon for name, one in those.items() if one.events}
    return Federated(plan, state.weights, tuple(state.rounds), epsilons)


def _connect(those: dict[str, TrainingHolder], plan: FederationPlan, secure: str) -> tuple[InProcess, SecureSum]:
    if secure == "none":
        handlers = {name: plain_handlers(one.contribute) for name, one in those.items()}
        sums: SecureSum = PlainSum(plan.threshold)
    else:
        keys = {name: Ed25519PrivateKey.generate() for name in those}
        public = {name: one.public_key().public_bytes_raw() for name, one in keys.items()}
        roster = Roster(secrets.token_bytes(32), public, plan.threshold)
        handlers = {name: masked_handlers(roster, name, keys[name], one.contribute) for name, one in those.items()}
        sums = MaskedSum(roster)
    parties = [Party(name, {**handlers[name], "train/describe": one.describe}) for name, one in those.items()]
    return InProcess(parties), sums

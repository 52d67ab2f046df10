"""A federated training in one process: the same messages and sums as between machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.budget.accounting.accountant import spent
from sfumato.budget.ledger.ledger import Ledger
from sfumato.errors import OptionError
from sfumato.federation.channel import Channel, InProcess, Party
from sfumato.federation.holder import TrainingHolder
from sfumato.federation.plan import FederationPlan
from sfumato.federation.rounds import Round, Share, run_rounds
from sfumato.federation.secure.connect import SECURE_TRAINING, connect, require_library
from sfumato.federation.secure.lanes import MOST_PARTIES
from sfumato.federation.secure.sum import SecureSum
from sfumato.federation.weights import features_of, network_of, set_weights

__all__ = ["Federated", "check_secure", "names_of", "simulate", "train_over"]

Samples = tuple[NDArray[Any], NDArray[Any]]
_ENCRYPTED = ("threshold", "ckks")


@dataclass(frozen=True, eq=False)
class Federated:
    """The model of a federated training, its rounds, and the epsilon of each holder."""

    plan: FederationPlan
    weights: NDArray[np.float32]
    rounds: tuple[Round, ...]
    parties: dict[str, Share] = field(default_factory=dict)

    @cached_property
    def epsilons(self) -> dict[str, float]:
        """The epsilon of each holder: of all its updates, repeated rounds included. Empty without privacy."""
        cost = cache(lambda events: spent(events, self.plan.delta).epsilon)
        return {name: cost(one.events) for name, one in self.parties.items() if one.events}

    @property
    def epsilon(self) -> float | None:
        """That of the worst holder: their records, and people, are taken to be disjoint. None without privacy."""
        return max(self.epsilons.values(), default=None)

    def probabilities(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the probability of each class."""
        module = network_of(self.plan).eval()
        set_weights(module, self.weights)
        with torch.no_grad():
            given = torch.from_numpy(np.array(inputs, np.float32)).split(1024)
            parts = [module(features_of(self.plan, part)).softmax(1) for part in given]
        found: NDArray[np.float32] = torch.cat(parts).numpy()
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the rounds and the cost as plain values."""
        return {"rounds": [one.to_dict() for one in self.rounds], "epsilon": self.epsilon, "epsilons": self.epsilons}


def simulate(
    plan: FederationPlan,
    holders: Sequence[Samples] | Mapping[str, Samples],
    *,
    test: Samples | None = None,
    secure: str = "masks",
    checkpoint: Path | None = None,
    progress: Callable[[Round], None] | None = None,
    keep: Callable[[int, NDArray[np.float32]], None] | None = None,
    ledgers: Mapping[str, Ledger] | None = None,
    people: Mapping[str, NDArray[np.int64]] | None = None,
) -> Federated:
    """Train with holders in this process.

    Parameters
    ----------
    plan
        What all parties agree on.
    holders
        The samples and classes of each; by name, if they have names.
    test
        Samples to score the model of each round on; the scores are exact, for the owner of these samples.
    secure
        "masks"; "threshold" or "ckks" for sums under encryption; or "none" for sums in clear.
    checkpoint : written after every round; beside it, each holder keeps a record of what it has sent. The same call
        resumes an interrupted training.
    progress
        Called after every round.
    keep
        Called with the number and the weights of each round.
    ledgers
        The ledger of each holder, by name: holder-0001, holder-0002 and so on.
    people
        For a plan that protects people: by the name of each holder, a number of the person of each sample (see
        `codes_of_people`), negative for nobody. The same number at two holders is not the same person.

    Examples
    --------
    >>> make = np.random.default_rng(0)
    >>> inputs = make.normal(size=(120, 4))
    >>> data = [(part, (part[:, 0] > 0).astype(int)) for part in np.split(inputs, 3)]
    >>> plan = FederationPlan(model="logistic", inputs=(4,), classes=2, rounds=3, threshold=2)
    >>> simulate(plan, data, test=data[0]).rounds[-1].accuracy > 0.8
    True
    """
    if not isinstance(holders, Mapping):
        holders = dict(zip(names_of(len(holders)), holders, strict=True))
    names = list(holders)
    check_secure(plan, secure, len(names))
    those = {}
    for name, data in holders.items():
        kept = None if checkpoint is None else checkpoint.with_name(f"{checkpoint.name}.{name}")
        ledger = (ledgers or {}).get(name)
        whose = (people or {}).get(name)
        those[name] = TrainingHolder(name, plan, *data, parties=len(names), record=kept, ledger=ledger, people=whose)
    require_library(secure)
    handlers, sums = connect(secure, {name: one.contribute for name, one in those.items()}, threshold=plan.threshold)
    channel = InProcess(
        [Party(name, {**handlers[name], "train/describe": one.describe}) for name, one in those.items()]
    )
    return train_over(channel, sums, plan, test=test, checkpoint=checkpoint, progress=progress, keep=keep)


def names_of(holders: int) -> list[str]:
    """Return the names of holders that have none.

    Examples
    --------
    >>> names_of(2)
    ['holder-0001', 'holder-0002']
    """
    return [f"holder-{at:04}" for at in range(1, holders + 1)]


def check_secure(plan: FederationPlan, secure: str, parties: int) -> None:
    """Refuse a sum that is unknown, or that the plan does not allow."""
    if secure not in SECURE_TRAINING:
        raise OptionError(f"secure must be one of {', '.join(SECURE_TRAINING)}, got {secure!r}")
    if plan.level == "client" and secure == "none":
        raise OptionError(
            "privacy of clients needs a secure sum: in clear, the coordinator sees each update with one share of the "
            "noise",
            hint="use secure='masks'",
        )
    if plan.level == "client" and secure == "ckks" and plan.shares > 1:
        raise OptionError(
            "by CKKS a coordinator that lies can have a single update opened, so the noise of one holder must do",
            hint="a plan with honest=1, or secure='masks'",
        )
    if secure in _ENCRYPTED and parties > MOST_PARTIES:
        raise OptionError(
            f"sums under encryption take at most {MOST_PARTIES} holders, got {parties}", hint="use secure='masks'"
        )
    if plan.threshold > parties:
        raise OptionError(f"the threshold is {plan.threshold}, but there are only {parties} holders")


def train_over(
    channel: Channel,
    sums: SecureSum,
    plan: FederationPlan,
    *,
    test: Samples | None = None,
    checkpoint: Path | None = None,
    progress: Callable[[Round], None] | None = None,
    keep: Callable[[int, NDArray[np.float32]], None] | None = None,
) -> Federated:
    """Run all rounds over a channel, and score each model on the test samples."""

    def score(weights: NDArray[np.float32]) -> dict[str, float]:
        assert test is not None
        chances = Federated(plan, weights, ()).probabilities(test[0])
        right = chances[np.arange(len(chances)), test[1]]
        return {
            "accuracy": float((chances.argmax(1) == test[1]).mean()),
            "loss": float(-np.log(np.maximum(right, 1e-12)).mean()),
        }

    scored = None if test is None else score
    state = run_rounds(plan, channel, sums, checkpoint=checkpoint, score=scored, progress=progress, keep=keep)
    return Federated(plan, state.weights, tuple(state.rounds), state.parties)

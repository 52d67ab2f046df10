"""What all parties of a federated training agree on beforehand: the network, the rounds, and the privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from sfumato.budget.people import BoughtRowsPerPerson, check_bound
from sfumato.data.certificate import CLIENT, PERSON, UNIT
from sfumato.data.validate import real, whole
from sfumato.errors import InputError, OptionError

__all__ = ["MODELS", "FederationPlan"]

MODELS = ("logistic", "mlp", "cnn", "resnet18", "scattering-linear")
"""The networks that can be trained together; the first two are also for tables."""

_LEVELS = ("none", "record", "client")


@dataclass(frozen=True, kw_only=True)
class FederationPlan:
    """A federated training (FedAvg: McMahan et al. 2017; FedProx: Li et al. 2020).

    Parameters
    ----------
    model
        An architecture by name: logistic, mlp, cnn, resnet18, scattering-linear.
    inputs
        The shape of a sample.
    classes
        The number of classes.
    rounds, epochs, batch
        Rounds, and local epochs and batch size in each.
    learning_rate, proximal, momentum
        The local rate, mu of FedProx, and the momentum of the coordinator. Without epsilon, the gradient of a batch is
        clipped to norm 1, so that one steep batch cannot ruin a model.
    decay
        Whether the local rate falls to zero over the rounds, by half a cosine.
    augment
        Whether holders warp and tone every image at random before each step.
    level
        "none"; "record", where each holder trains with DP-SGD; "client", where clipped updates get noise.
    epsilon, delta, clip
        For the levels "record" and "client".
    spare
        How many rounds may be repeated after a crash; with privacy, the noise is for these too.
    threshold
        How many parties must answer.
    honest
        At client level, how many shares of noise must be enough: by default those of ``threshold`` parties. 1 for sums
        by CKKS, where a coordinator that lies can have a single update opened.
    absence
        The probability that a party is left out of a round.
    bound
        The largest change of a weight in a round, by one party.
    seed
        The seed of initial weights, batches and absences, not of the noise.
    scale
        The mean and deviation by which images are normalised.
    coding
        The digest of how records become samples (`Coding.digest`), so that all holders code alike.
    person
        At the level "record": the column that says which rows are of the same person, to protect the people of each
        holder instead of rows. Someone with rows at m holders is protected by the composition of m guarantees.
    rows_per_person
        With a person column: at most so many rows of each person count, which the holder draws once and in secret.

    Examples
    --------
    >>> plan = FederationPlan(model="logistic", inputs=(4,), classes=2, rounds=3)
    >>> FederationPlan.from_dict(plan.to_dict()) == plan
    True
    """

    model: str
    inputs: tuple[int, ...]
    classes: int
    rounds: int = 10
    epochs: int = 1
    batch: int = 32
    learning_rate: float = 0.05
    proximal: float = 0.0
    momentum: float = 0.0
    decay: bool = False
    augment: bool = False
    level: str = "none"
    epsilon: float | None = None
    delta: float = 1e-5
    clip: float = 1.0
    spare: int = 1
    threshold: int = 1
    honest: int | None = None
    absence: float = 0.0
    bound: float = 16.0
    seed: int = 0
    scale: tuple[float, float] | None = None
    coding: str = ""
    person: str | None = None
    rows_per_person: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(whole("a side of a sample", one) for one in self.inputs))
        if self.scale is not None:
            mean, deviation = self.scale
            object.__setattr__(self, "scale", (float(mean), real("the deviation of images", deviation, above=0)))
        for name in ("classes", "rounds", "epochs", "batch", "threshold", "shares"):
            whole(f"'{name}' of the plan", getattr(self, name))
        if self.shares > self.threshold:
            raise OptionError(
                f"{self.shares} shares of noise cannot be relied on: only {self.threshold} holders must answer",
                hint="honest may be at most the threshold",
            )
        whole("the seed", self.seed, least=0)
        whole("the number of spare rounds", self.spare, least=0)
        for name in ("learning_rate", "clip", "bound"):
            real(f"'{name}' of the plan", getattr(self, name), above=0)
        for name, most in (("proximal", math.inf), ("momentum", 1.0), ("absence", 1.0)):
            if not 0 <= getattr(self, name) < most:
                raise OptionError(f"'{name}' must be from 0 to below {most:g}, got {getattr(self, name)!r}")
        for name in ("decay", "augment"):
            if type(getattr(self, name)) is not bool:
                raise OptionError(f"'{name}' of the plan must be true or false, got {getattr(self, name)!r}")
        fixed = self.model == "scattering-linear"
        if self.augment and (len(self.inputs) != 3 or self.level == "record" or fixed):
            what = "images" if len(self.inputs) != 3 else "trainings without privacy of records"
            what = "networks that see the images, not fixed features of them" if fixed else what
            raise OptionError(f"augment is for {what}", hint="leave it out")
        if self.level not in _LEVELS:
            raise OptionError(f"the level must be one of {', '.join(_LEVELS)}, got {self.level!r}")
        if (self.epsilon is None) != (self.level == "none"):
            raise OptionError("epsilon and a level of record or client belong together", hint="give both or neither")
        if self.epsilon is not None:
            real("epsilon", self.epsilon, above=0)
        if self.level != "record" and (self.person, self.rows_per_person) != (None, None):
            raise OptionError(
                "people are protected at the level of records alone: without an epsilon nothing is, and a client is "
                "protected with all of its people",
                hint="give rows_per_person / --rows-per-person with an epsilon and the level record, or leave it out",
            )
        bound = check_bound(self.person, self.rows_per_person)
        if isinstance(bound, BoughtRowsPerPerson):
            raise OptionError(
                "holders buy no bound on the rows of a person: steps draw people, so a large one needs no more noise",
                hint="rows_per_person / --rows-per-person N",
            )
        object.__setattr__(self, "rows_per_person", None if bound is None else bound.rows)
        if not 0 < self.delta < 1:
            raise OptionError(f"delta must be between 0 and 1, got {self.delta!r}")

    @property
    def unit(self) -> str:
        """What epsilon protects: a row, a person with all of their rows at a holder, or a client."""
        return CLIENT if self.level == "client" else UNIT if self.person is None else PERSON

    @property
    def shares(self) -> int:
        """How many shares of noise are counted at client level."""
        return self.threshold if self.honest is None else self.honest

    @property
    def updates(self) -> int:
        """How many updates a holder sends at most, repeated rounds included."""
        return self.rounds + self.spare

    def rate(self, number: int, passed: float) -> float:
        """Return the local learning rate when a share of a round has passed.

        Examples
        --------
        >>> plan = FederationPlan(model="logistic", inputs=(4,), classes=2, rounds=2, learning_rate=0.4, decay=True)
        >>> [round(plan.rate(number, 0.0), 3) for number in (1, 2)]
        [0.4, 0.2]
        """
        if not self.decay:
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * (number - 1 + passed) / self.rounds)) / 2

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        scale = None if self.scale is None else list(self.scale)
        return {**asdict(self), "inputs": list(self.inputs), "scale": scale}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Build a plan from the plain values that `to_dict` returned."""
        try:
            return cls(**plain)
        except InputError:
            raise
        except (TypeError, ValueError) as error:
            raise InputError("the plan of the federation lacks a key or has an unknown one") from error

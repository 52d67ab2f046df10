"""A model that several holders have trained, as a release: the weights, the rounds, and the cost for each holder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.accounting.accountant import Spent, spent
from sfumato.budget.accounting.pld import distinct_events
from sfumato.budget.differential_privacy import DifferentialPrivacy, bounded_epsilon
from sfumato.budget.events import Composed, Event, Gaussian, Parallel, PoissonSampled, Relation
from sfumato.data.certificate import CLIENT, PERSON, UNIT, Certificate
from sfumato.data.claim import DAMAGED, Claim, quote, reason_of, same_number
from sfumato.data.recipe import Recipe
from sfumato.data.release import Provenance, Release
from sfumato.errors import SfumatoError
from sfumato.federation.client_noise import ClientNoise
from sfumato.federation.coding import Coding
from sfumato.federation.holdings import Holdings
from sfumato.federation.plan import FederationPlan
from sfumato.federation.rounds import Round, Share
from sfumato.federation.secure.connect import SECURE_TRAINING
from sfumato.federation.simulation import Federated
from sfumato.federation.weights import get_weights, network_of, set_weights
from sfumato.learners.networks.architectures import architecture
from sfumato.learners.networks.estimators import PrivateClassifier
from sfumato.learners.training.released_model import ReleasedModel, load_model
from sfumato.learners.training.runs import Scores
from sfumato.learners.training.verify_model import verify_model

__all__ = ["AT_SEVERAL", "FederatedModel", "Outcome", "estimator_of", "federated_release"]

AT_SEVERAL = (
    "epsilon and delta are for a person with rows at one holder; for somebody with rows at m holders, those of the m "
    "holders add up"
)
"""What a certificate of people says of those who are at several holders, which nobody can see."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a federated training has reached, and what it took.

    Attributes
    ----------
    rounds : every round; of private records without scores and times
    parties : the share of every holder
    scores : the scores of the last model on records that nobody trained on
    central : the scores of the same network trained on all records together; None if that was not tried
    central_seconds : how long that took
    owner : the exact rounds and scores of private records, for their owners alone; None where all is released
    """

    rounds: tuple[Round, ...]
    parties: Mapping[str, Share]
    scores: Scores = field(default_factory=Scores.none)
    central: Scores | None = None
    central_seconds: float | None = None
    owner: dict[str, Any] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class FederatedModel(ReleasedModel):
    """A model trained by several holders who kept their records.

    Attributes
    ----------
    model : the fitted `PrivateClassifier`
    outcome : the rounds, the scores and the share of each holder; None if the release was read from a folder
    """

    kind = "federated-model"

    outcome: Outcome | None = None

    @property
    def certified_loss(self) -> dict[str, Any]:
        """The scores, and those of the same network trained on all records together."""
        if self.outcome is None:
            return self.stated_scores
        plain = self.outcome.scores.to_dict()
        found: dict[str, Any] = {"scores": self.outcome.scores.how}
        found |= {name: plain[name] for name in ("accuracy", "auc", "loss", "margin", "events")}
        return {**found, "centralised": _central(self.outcome)}

    @classmethod
    def read(cls, folder: Path, certificate: Certificate) -> FederatedModel:
        """Read the model of a release, ready to predict."""
        return cls(load_model(folder), certificate.schema, certificate.claims, None, certificate.loss)

    @classmethod
    def verify(
        cls, folder: Path, certificate: Certificate, progress: Callable[[float], None] | None
    ) -> Iterator[Claim]:
        """Derive epsilon again from the events of every holder, and the events from the plan."""
        yield from verify_model(folder, certificate, command="federate", steps=_steps)
        yield from _of_plan(certificate)

    def to_dict(self) -> dict[str, Any]:
        """Return the result under the names of the command-line contract."""
        if self.outcome is None:
            return {}
        one = self.outcome
        return {
            "rounds": [each.to_dict() for each in one.rounds],
            "final": {"accuracy": one.scores.accuracy, "auc": one.scores.auc},
            "centralised": _central(one),
            "epsilon": self.cost.get("epsilon"),
            "clients": {
                name: {key: value for key, value in share.to_dict().items() if key != "events"}
                for name, share in one.parties.items()
            },
        }


def _central(outcome: Outcome) -> dict[str, Any] | None:
    if outcome.central is None:
        return None
    return {"accuracy": outcome.central.accuracy, "auc": outcome.central.auc, "seconds": outcome.central_seconds}


def federated_release(
    found: Federated,
    holdings: Holdings,
    recipe: Recipe,
    *,
    secure: str,
    seconds: float,
    central: Federated | None = None,
    central_seconds: float | None = None,
    secret: bool = True,
) -> Release:
    """Return a federated training as a release."""
    plan, coding = found.plan, holdings.coding
    private = plan.level != "none"
    events = events_of(found.parties) if private else ()
    model = estimator_of(plan, coding, found.weights, events)
    outcome = _outcome(found, holdings, central, central_seconds)
    cost = {name: value for name, value in model.to_dict().items() if name != "history"}
    claims, promises = dict[str, Any](), tuple[DifferentialPrivacy, ...]()
    if private:
        assert plan.epsilon is not None
        promises = (DifferentialPrivacy(plan.epsilon, plan.delta, Relation.ADD_REMOVE, plan.unit),)
        claims = {"epsilon": model.spent_.epsilon, "delta": plan.delta, "relation": Relation.ADD_REMOVE.value}
    parameters = {
        **{name: value for name, value in cost.items() if name != "epsilon"},
        "plan": plan.to_dict(),
        "secure": secure,
        "holders": list(found.parties),
        "epsilons": found.epsilons,
        "history": [one.to_dict() for one in outcome.rounds],
    }
    if plan.rows_per_person is not None:
        parameters |= {"rows_per_person": plan.rows_per_person, "people": AT_SEVERAL}
    rows = None if (private and not holdings.public) or not holdings.parts else holdings.rows
    return Release(
        artifact=FederatedModel(model, holdings.schema, claims, outcome=outcome),
        method=plan.model,
        parameters=parameters,
        guarantees=promises,
        events=events,
        recipe=recipe,
        provenance=Provenance(holdings.name, rows, holdings.origin, {"public": holdings.public}),
        seconds=seconds,
    )


def events_of(parties: Mapping[str, Share]) -> tuple[Event, ...]:
    """Return the events of all holders: at record level those of separate records, at client level those of any client.

    Examples
    --------
    >>> events_of({"north": Share(events=(Gaussian(2.0),)), "south": Share(events=(Gaussian(3.0),))})[0].kind
    'parallel'
    """
    each = [one.events for one in parties.values()]
    if all(event.unit == CLIENT for one in each for event in one):
        return max(each, key=len)
    return (Parallel(tuple(one[0] if len(one) == 1 else Composed(one) for one in each)),)


def estimator_of(
    plan: FederationPlan, coding: Coding, weights: NDArray[np.float32], events: tuple[Event, ...] = ()
) -> PrivateClassifier:
    """Return the weights of a federated training as an estimator that predicts."""
    module = network_of(plan)
    set_weights(module, weights)
    epsilon = math.inf if plan.epsilon is None else plan.epsilon
    model = PrivateClassifier(
        model=plan.model,
        epsilon=epsilon,
        delta=plan.delta,
        clip=plan.clip,
        batch_size=plan.batch,
        epochs=plan.epochs,
        learning_rate=plan.learning_rate,
        momentum=plan.momentum,
        knots=coding.knots,
        scale=coding.scale,
        classes=coding.classes,
        seed=plan.seed,
        rows_per_person=plan.rows_per_person,
    )
    sampling: dict[str, Any] = {"kind": "federated", "rounds": plan.rounds, "updates": plan.updates}
    sampling |= {} if plan.rows_per_person is None else {"unit": plan.unit, "rows_per_person": plan.rows_per_person}
    facts: dict[str, Any] = {
        "inputs": list(plan.inputs),
        "knots": coding.knots,
        "classes": list(coding.classes),
        "training": {"noise_multiplier": None, "sampling": sampling, "rule": None},
        "history": [],
        "architecture": architecture(plan.model, plan.inputs, plan.classes).to_dict(),
    }
    if coding.features is not None:
        facts["features"] = coding.features.to_dict()
    else:
        model.features_ = None  # type: ignore[assignment]
    model.restore({name: one.numpy() for name, one in module.state_dict().items()}, facts)
    model.events_ = events
    model.spent_ = spent(events, plan.delta) if events else Spent(math.inf, plan.delta, Relation.ADD_REMOVE, "pld", ())
    return model


def _outcome(found: Federated, holdings: Holdings, central: Federated | None, central_seconds: float | None) -> Outcome:
    classes = holdings.coding.classes

    def scored(one: Federated) -> Scores:
        if holdings.test is None:
            return Scores.none()
        return Scores.of(holdings.test[1], one.probabilities(holdings.test[0]), classes)

    scores, rounds = scored(found), found.rounds
    if found.plan.level != "none" and not holdings.public:
        owner = {"scores": scores.to_dict(), "rounds": [one.to_dict() for one in rounds]}
        rounds = tuple(replace(one, accuracy=None, loss=None, seconds=None) for one in rounds)
        return Outcome(rounds, found.parties, owner=owner)
    if not holdings.public:
        rounds = tuple(replace(one, seconds=None) for one in rounds)
    return Outcome(rounds, found.parties, scores, None if central is None else scored(central), central_seconds)


# --- verify -----------------------------------------------------------------------------------------


def _steps(certificate: Certificate, events: tuple[Event, ...], model: Mapping[str, Any]) -> Iterator[Claim]:
    """Compare the events with the plan: every step of every update, for each holder."""
    claim = "its events hold every update with the noise of the plan"
    try:
        plan = FederationPlan.from_dict(certificate.parameters["plan"])
        lacking = _lacking(plan, events, len(certificate.parameters["holders"]))
    except (SfumatoError, *DAMAGED) as error:
        yield Claim(claim, False, reason_of(error))
        return
    yield Claim(claim, not lacking, lacking or f"all {plan.updates} of each holder")


def _lacking(plan: FederationPlan, events: tuple[Event, ...], holders: int) -> str:
    """Say what the events lack; nothing if they are those of the plan."""
    if plan.level == "client":
        weights = len(get_weights(network_of(plan)))
        return "" if events == ClientNoise.of(plan, holders, weights).events else "the plan has other noise"
    parts = events[0].events if len(events) == 1 and isinstance(events[0], Parallel) else ()
    if plan.level != "record" or len(parts) != holders:
        return f"the plan has {holders} holders at the level of records"
    for part in {*parts}:
        times = distinct_events([part])
        steps = sum(count for one, count in times.items() if isinstance(one, Gaussian))
        passes = 1
        for one, count in times.items():
            if isinstance(one, PoissonSampled) and isinstance(one.event, Gaussian):
                steps, passes = steps + count, max(passes, math.ceil(1 / one.rate - 1e-9))
        if steps < plan.epochs * passes * plan.updates:
            return f"a holder has {steps} steps, and the plan {plan.epochs * passes * plan.updates}"
    return ""


def _of_plan(certificate: Certificate) -> Iterator[Claim]:
    """Check what the certificate says of the plan, of every round and of every holder."""
    stated, claim = certificate.parameters, "its rounds and holders are those of the plan"
    try:
        plan = FederationPlan.from_dict(stated["plan"])
        asked = {"epsilon": plan.epsilon, "delta": plan.delta, "unit": plan.unit}
        others = [
            name for one in certificate.guarantees for name, value in asked.items() if one.get(name, UNIT) != value
        ]
        others += ["clip"] if plan.level != "none" and stated["clip"] != plan.clip else []
        others += ["level"] if (plan.level == "none") == bool(certificate.guarantees) else []
        others += ["model"] if plan.model != certificate.method else []
        others += ["person"] if plan.person not in (None, certificate.schema.person) else []
        others += ["rows_per_person"] if plan.rows_per_person != stated.get("rows_per_person") else []
        others += ["people"] if stated.get("people", AT_SEVERAL) != AT_SEVERAL else []
        others += ["secure"] if plan.level == "client" and stated["secure"] not in SECURE_TRAINING[1:] else []
        others += ["honest"] if plan.level == "client" and stated["secure"] == "ckks" and plan.shares > 1 else []
        rounds = [Round(**one) for one in stated["history"]]
        numbers = [one.round for one in rounds]
        if numbers != list(range(1, plan.rounds + 1)) or any(one.clients < plan.threshold for one in rounds):
            others.append("history")
        if plan.level != "none" and certificate.source.get("public") is not True:
            others += ["history.accuracy"] if any((one.accuracy, one.loss) != (None, None) for one in rounds) else []
        yield Claim(claim, not others, f"other {quote(', '.join(dict.fromkeys(others)))}" if others else "the same")
        if plan.unit == PERSON:
            yield Claim.unchecked("nobody has rows at two holders", AT_SEVERAL)
        yield from _of_holders(certificate, plan)
    except (SfumatoError, *DAMAGED) as error:
        yield Claim(claim, False, reason_of(error))


def _of_holders(certificate: Certificate, plan: FederationPlan) -> Iterator[Claim]:
    """Derive the epsilon of every holder again, from its own events."""
    stated = certificate.parameters["epsilons"]
    if plan.level == "none":
        if stated:
            yield Claim("no holder has an epsilon", False, quote(", ".join(stated)))
        return
    names = certificate.parameters["holders"]
    events = [Event.from_dict(one) for one in certificate.parameters["events"]]
    parts = [[one] for one in events[0].events] if isinstance(events[0], Parallel) else [events] * len(names)
    promise, found = DifferentialPrivacy.from_plain(certificate.guarantees[0]), dict[Any, Any]()
    wrong = [] if stated.keys() == {*names} and len(parts) == len(names) else ["the names"]
    for name, part in zip(names, parts, strict=False):
        key = tuple(part)
        if key not in found:
            found[key] = bounded_epsilon(part, promise)
        bound = found[key]
        if not bound.exact:
            yield Claim.unchecked(f"the epsilon of {quote(name)}", bound.why)
        elif not same_number(stated.get(name), bound.epsilon, precision=1e-6):
            wrong.append(str(name))
    yield Claim("the epsilon of every holder follows from its events", not wrong, quote(", ".join(wrong)) or "it does")


def write_round(folder: Path, number: int, weights: NDArray[np.float32], plan: FederationPlan) -> Path:
    """Write the weights of a round as a safetensors file that torch can load, and return its path."""
    from safetensors.numpy import save

    from sfumato.data.io.files import atomic_path

    module = network_of(plan)
    set_weights(module, weights)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"round-{number:04}.safetensors"
    with atomic_path(path, mode=0o600) as temporary:
        temporary.write_bytes(save({name: one.numpy() for name, one in module.state_dict().items()}))
    return path

"""A released model: its weights and training facts, as files that contain no code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from sfumato._repr import Discreet
from sfumato.budget.differential_privacy import DifferentialPrivacy
from sfumato.budget.events import Event
from sfumato.data.certificate import Certificate
from sfumato.data.claim import Claim
from sfumato.data.guarantee import Guarantee
from sfumato.data.recipe import Recipe
from sfumato.data.release import Artifact, Layout, Provenance, Release
from sfumato.data.schema import Column, Role, Schema
from sfumato.learners.training.runs import Run, Training
from sfumato.learners.training.stored import FACTS, WEIGHTS, load_model, write_model

__all__ = ["ReleasedModel", "options_of", "release_of", "schema_of"]


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedModel(Artifact, Discreet):
    """A trained model, and the schema of the columns it was trained on.

    Attributes
    ----------
    model : the fitted estimator
    declared : the declared schema
    cost : the epsilon spent, delta and the relation; empty without privacy
    training : how the model was trained, and its scores; None if it was read from a folder
    stated_scores : the scores that the certificate states, if it was read from a folder
    """

    kind = "model"
    layout = Layout((WEIGHTS,), (FACTS, "recipe.toml"), ("report.html",))
    facts = ("public",)
    _repr_fields: ClassVar[tuple[str, ...]] = ("model",)

    model: Any
    declared: Schema
    cost: dict[str, Any]
    training: Training | None = None
    stated_scores: dict[str, Any] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """The declared schema."""
        return self.declared

    @property
    def claims(self) -> dict[str, Any]:
        """The epsilon spent, delta and the relation."""
        return self.cost

    @property
    def certified_loss(self) -> dict[str, Any]:
        """The scores: exact or noisy, and the events of noisy ones."""
        if self.training is None:
            return self.stated_scores
        scores = self.training.runs[0].scores
        plain = scores.to_dict()
        return {"scores": scores.how, **{name: plain[name] for name in ("accuracy", "auc", "loss", "margin", "events")}}

    def write_into(self, folder: Path, guarantees: tuple[Guarantee, ...], **options: Any) -> tuple[str, Self]:
        """Write all files that `load_model` needs, and return the name of the weights file."""
        write_model(self.model, folder)
        return WEIGHTS, self

    @classmethod
    def read(cls, folder: Path, certificate: Certificate) -> ReleasedModel:
        """Read the model of a release, ready to predict."""
        return ReleasedModel(load_model(folder), certificate.schema, certificate.claims, None, certificate.loss)

    @classmethod
    def verify(
        cls, folder: Path, certificate: Certificate, progress: Callable[[float], None] | None
    ) -> Iterator[Claim]:
        """Check epsilon against the recorded events, and the events against the stated training."""
        from sfumato.learners.training.verify_model import verify_model

        return verify_model(folder, certificate)

    def predict(self, data: Any) -> Any:
        """Predict for a table, a frame or images."""
        return self.model.predict(data)

    def to_dict(self) -> dict[str, Any]:
        """Return the training facts as plain values."""
        return {} if self.training is None else self.training.to_dict()


def release_of(training: Training, run: Run, *, alone: bool) -> Release:
    """Return one model of a training as a release; its recipe trains that model alone."""
    facts, private = run.facts, run.epsilon != math.inf
    options = training.options or options_of(training)
    if not alone:
        options = {name: value for name, value in options.items() if name not in ("epsilon", "noise_multiplier")}
        options |= _requested(run)
    schema = schema_of(training)
    origin = None if training.material is None or training.material.whole is None else training.material.whole.origin
    claims = {"epsilon": facts["spent"], "delta": facts["delta"], "relation": facts["relation"]} if private else {}
    promise = DifferentialPrivacy(run.epsilon, facts["delta"], facts["relation"]) if private else None
    return Release(
        artifact=ReleasedModel(training.models[run.name], schema, claims, replace(training, runs=(run,))),
        method=training.model,
        parameters={**{name: value for name, value in facts.items() if name != "spent"}, **training.settings},
        guarantees=() if promise is None else (promise,),
        events=tuple(Event.from_dict(one) for one in facts.get("events", ())),
        recipe=Recipe("train", options, schema),
        provenance=Provenance(
            training.data,
            facts["sampling"].get("rows", training.rows),  # that of a network is public: declared or estimated
            origin,
            {"public": training.is_public},
        ),
        seconds=run.seconds,
    )


def options_of(training: Training) -> dict[str, Any]:
    """Return the options of a training, as far as they can be derived from it."""
    requests = [_requested(run) for run in training.runs]
    epsilons = [one for each in requests for one in each.get("epsilon", [])]
    noises = [one for each in requests for one in each.get("noise_multiplier", [])]
    settings = {name: value for name, value in training.settings.items() if name != "tested on"}
    target = {} if training.material is None or training.material.are_images else {"target": training.target}
    stated = {"data": training.data, "model": training.model, **target, "epsilon": epsilons, "noise_multiplier": noises}
    return {name: value for name, value in {**stated, **settings}.items() if value not in ([], None)}


def _requested(run: Run) -> dict[str, Any]:
    if run.name.startswith("noise-"):
        return {"noise_multiplier": [run.facts["noise_multiplier"]]}
    return {"epsilon": ["none" if run.epsilon == math.inf else run.epsilon]}


def schema_of(training: Training) -> Schema:
    """Return the declared schema without hierarchies, and with no roles but identifiers and the target."""
    if training.material is None:
        return Schema([])
    columns = training.material.schema.columns
    return Schema(
        Column(
            name=one.name,
            kind=one.kind,
            domain=one.domain,
            bounds=one.bounds,
            role=Role.IDENTIFIER if one.role is Role.IDENTIFIER else Role.OTHER,
        )
        for one in columns
    ).with_roles(target=training.target if columns else None)

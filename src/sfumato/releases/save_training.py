"""Save what was trained as a folder: every model with its certificate, and one report of all."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from sfumato.budget.differential_privacy import DifferentialPrivacy
from sfumato.data.certificate import Certificate, FileFacts
from sfumato.data.io.files import refuse_unwritable
from sfumato.data.io.fingerprint import fingerprint
from sfumato.data.io.folders import atomic_folder
from sfumato.data.recipe import RECIPE, Recipe
from sfumato.data.schema import Column, Role, Schema
from sfumato.errors import OptionError
from sfumato.learners.training.resume import write_owned
from sfumato.learners.training.runs import Run, Scores, Training
from sfumato.learners.training.stored import FACTS, WEIGHTS, write_model
from sfumato.report.training.training import render_training

__all__ = ["TRAINING", "owner_file", "save_training"]

REPORT, TRAINING = "report.html", "training.json"


def save_training(
    training: Training, path: str | Path, *, recipe: dict[str, Any] | None = None, replace: bool = False
) -> None:
    """Write trained models into a new folder, all of it or nothing.

    One model: the folder holds ``model.safetensors``, ``model.json``, ``certificate.json``, ``recipe.toml`` and
    ``report.html``. Several: a folder like that for each, beside the report of all and ``training.json``; so that a
    private model can be handed out without those that are not. Of data that is not public, exact scores and losses are
    written to a file beside the folder, ``PATH.owner.json``, that only you can read: it must not be published.

    Parameters
    ----------
    training : Training
    path : path
        A folder that does not exist, or is empty.
    recipe : dict, optional
        The options of the command, to be written as the recipe.
    replace : bool
        Whether a release that is there already is replaced.

    Examples
    --------
    >>> import sfumato as sf
    >>> training = sf.train("adult", "naive-bayes", target="income", epsilon=1)
    >>> sf.save(training, "model")
    >>> sorted(file.name for file in Path("model").iterdir())
    ['certificate.json', 'model.json', 'model.safetensors', 'recipe.toml', 'report.html']
    >>> sf.verify("model").ok
    True
    """
    if not isinstance(training, Training):
        raise OptionError(
            f"a release or what was trained can be saved, got {type(training).__name__}",
            hint="sf.anonymize and sf.train return them",
        )
    options = recipe or _options(training)
    if not training.is_public:
        refuse_unwritable(owner_file(path))
    page = render_training(training, title=f"{training.model} on {training.data}")
    _release_all(training, path, page, options, replace)
    if not training.is_public:
        write_owned(owner_file(path), _owned(training))


def owner_file(path: str | Path) -> Path:
    """Return the file for the owner of the data that belongs to the folder of a training.

    Examples
    --------
    >>> owner_file("models/adult").name
    'adult.owner.json'
    """
    folder = Path(path).resolve()
    return folder.with_name(f"{folder.name}.owner.json")


def _owned(training: Training) -> dict[str, Any]:
    runs = [{"name": run.name, "seconds": run.seconds, **(run.owner or {})} for run in training.runs]
    return {"note": "exact numbers about private records: for the owner of the data, not for publication", "runs": runs}


def _release_all(training: Training, path: str | Path, page: str, options: dict[str, Any], replace: bool) -> None:
    with atomic_folder(path, replace=replace) as folder:
        (folder / REPORT).write_text(page, encoding="utf-8")
        if len(training.runs) == 1:
            _release(training, training.runs[0], folder, options)
            return
        for run in training.runs:
            (folder / run.name).mkdir()
            own = {name: value for name, value in options.items() if name not in ("epsilon", "noise_multiplier")}
            _release(training, run, folder / run.name, own | _alone(run))
        plain = json.dumps(_published(training), indent=2, allow_nan=False)
        (folder / TRAINING).write_text(plain + "\n", encoding="utf-8")
        (folder / RECIPE).write_text(Recipe("train", options, _schema(training)).to_toml(), encoding="utf-8")


def _published(training: Training) -> dict[str, Any]:
    """Return the training as plain values; how long private records took is nobody's business."""
    plain = training.to_dict()
    for run in plain["runs"] if not training.is_public else ():
        del run["seconds"]
    return plain


def _release(training: Training, run: Run, folder: Path, options: dict[str, Any]) -> None:
    """Write one model with its certificate into a folder, which may hold a report already."""
    write_model(training.models[run.name], folder)
    (folder / RECIPE).write_text(Recipe("train", options, _schema(training)).to_toml(), encoding="utf-8")
    facts, private = run.facts, run.epsilon != math.inf
    promise = DifferentialPrivacy(run.epsilon, facts["delta"], facts["relation"]) if private else None
    origin = None if training.material is None or training.material.whole is None else training.material.whole.origin
    names = [WEIGHTS, FACTS, RECIPE, *([REPORT] if (folder / REPORT).exists() else [])]
    Certificate(
        kind="model",
        data=WEIGHTS,
        guarantees=(promise.to_dict(),) if promise else (),
        claims={"epsilon": facts["spent"], "delta": facts["delta"], "relation": facts["relation"]} if private else {},
        schema=_schema(training),
        method=training.model,
        parameters={**{name: value for name, value in facts.items() if name != "spent"}, **training.settings},
        loss=_certified(run.scores),
        source={
            "name": training.data,
            "rows": facts["sampling"].get("rows", training.rows),  # a network's own is public: declared or bought
            "public": training.is_public,
            "fingerprint": fingerprint(origin) if origin else None,
        },
        files={name: FileFacts.of(folder / name) for name in names},
    ).write(folder)


def _certified(scores: Scores) -> dict[str, Any]:
    """Return the scores that a certificate tells: how they were made, and which events of the training made them."""
    plain = scores.to_dict()
    told = {name: plain[name] for name in ("accuracy", "auc", "loss", "margin", "events")}
    return {"scores": scores.how, **told}


def _alone(run: Run) -> dict[str, Any]:
    if run.name.startswith("noise-"):
        return {"noise_multiplier": [run.facts["noise_multiplier"]]}
    return {"epsilon": ["none" if run.epsilon == math.inf else run.epsilon]}


def _options(training: Training) -> dict[str, Any]:
    """Return what a training was asked, as far as it knows itself."""
    epsilons = [one for run in training.runs for one in _alone(run).get("epsilon", [])]
    noises = [one for run in training.runs for one in _alone(run).get("noise_multiplier", [])]
    settings = {name: value for name, value in training.settings.items() if name != "tested on"}
    target = {} if training.material is None or training.material.are_images else {"target": training.target}
    asked = {"data": training.data, "model": training.model, **target, "epsilon": epsilons, "noise_multiplier": noises}
    return {name: value for name, value in {**asked, **settings}.items() if value not in ([], None)}


def _schema(training: Training) -> Schema:
    """Return what was declared of the columns: no hierarchies, and of the roles only what is left out or predicted."""
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

"""Train one model with several holders who keep their records: `federate`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sfumato.budget.ledger.ledger import Ledger
from sfumato.data.certificate import CLIENT
from sfumato.data.io.files import atomic_path
from sfumato.data.io.images import image_table
from sfumato.data.recipe import Recipe
from sfumato.data.release import Release
from sfumato.data.schema import Schema
from sfumato.data.table import Table
from sfumato.data.validate import real
from sfumato.errors import OptionError
from sfumato.federation.coding import Coding
from sfumato.federation.holdings import Holdings, holdings_of
from sfumato.federation.plan import MODELS, FederationPlan
from sfumato.federation.released import federated_release, write_round
from sfumato.federation.rounds import Round
from sfumato.federation.secure.connect import require_library
from sfumato.federation.secure.masks import default_threshold
from sfumato.federation.simulation import Federated, check_secure, simulate
from sfumato.learners.training.split import new_key

__all__ = ["CHECKPOINT", "defaults_of", "federate", "forget", "ledgers_of", "open_ledger", "plan_of", "run_recipe"]

CHECKPOINT, ROUNDS, LEDGERS = "checkpoint", "rounds", "ledgers"
"""The files and folders in the working folder of a training."""
_KEY = "split.key"
_IMAGES = {"rounds": 60, "batch": 32, "learning_rate": 0.05, "momentum": 0.5, "decay": True, "augment": True}
_IMAGES_ALONE = {"rounds": 30, "batch": 64, "learning_rate": 0.02}
"""Settings for images without an epsilon, and with all of them in one place, where a pass has many more steps and no
update is averaged. They were chosen on the validation images of the chest X-rays."""
_ABLE = {"tables": MODELS[:2], "images": MODELS}
_PLAN = (
    *("epochs", "batch", "learning_rate", "proximal", "momentum", "decay", "augment"),
    *("clip", "delta", "spare", "bound"),
)


def federate(
    data: Any,
    *,
    clients: int | None = None,
    rounds: int | None = None,
    model: str | None = None,
    target: str | None = None,
    secure: str = "masks",
    absent: float = 0.0,
    epsilon: float | None = None,
    level: str | None = None,
    threshold: int | None = None,
    schema: Schema | None = None,
    test: Any = None,
    holdout: float = 0.2,
    samples: int | None = None,
    classes: int | None = None,
    seed: int = 0,
    centralised: bool = True,
    processes: bool = False,
    timeout: float | None = None,
    folder: str | Path | None = None,
    ledgers: str | Path | None = None,
    person: str | None = None,
    rows_per_person: int | None = None,
    progress: Callable[[Round], None] | None = None,
    say: Callable[[str], object] = lambda _: None,
    **options: Any,
) -> Release:
    """Train one model with several holders; nobody but a holder itself sees its records or its update.

    Parameters
    ----------
    data : str, path, Table, frame, Images or mapping
        "pneumonia", "mnist", "adult" or "nursery", a table with a target, or images: split at random among ``clients``.
        A folder with one file per holder, or a mapping from names to data, is not split.
    clients : int, optional
        How many holders there are; 3 by default.
    rounds : int, optional
        In each, every present holder trains on its records and sends a coded change of the weights. 10 by default; 60
        for images without an epsilon.
    model : str, optional
        For tables logistic (the default) or mlp; for images also cnn (the default), resnet18 and scattering-linear.
    target : str, optional
        The column of a table to predict. All other columns must be declared in the schema, and so must its classes:
        all holders code their records alike, without looking at each other's.
    secure : {"masks", "threshold", "ckks", "none"}
        With masks, the coordinator learns the sum of the updates alone. So it does with threshold encryption, where a
        sum opens only with the share of every holder of the round, and with CKKS, where the first holder has the key.
        With none, it sees each update.
    absent : float
        The probability that a holder misses a round; a threshold of them is always there.
    epsilon : float, optional
        The privacy loss. By default there is no differential privacy.
    level : {"record", "client"}, optional
        What epsilon protects. "record", the default: each record, by DP-SGD at every holder. "client": all that one
        holder contributes, by clipped updates with noise on their sum; for hundreds of holders.
    threshold : int, optional
        How many holders must answer in a round: more than two thirds of them or, with absences, more than half.
    schema : Schema, optional
        The public description of the columns.
    test : path, Table or frame, optional
        Rows to score the model on. By default the test part of a built-in set, else a ``holdout`` of the rows.
    samples : int, optional
        Use only so many training records of a built-in set.
    classes : int, optional
        The number of classes of images.
    seed : int
        The seed of the split, the weights and the absences, not of the noise.
    centralised : bool
        Whether the same network is also trained on all records together, for comparison. Never done for private
        records with an epsilon.
    processes : bool
        Whether each holder is a real process of this machine, connected over TLS, instead of an object in this process.
    timeout : float, optional
        With ``processes``: after so many seconds without an answer of a holder, the round goes on without it. By
        default five minutes, and ten for its update.
    folder : path, optional
        A working folder: the checkpoint of every round, the model of each round in ``rounds``, and what every holder
        keeps. The same call goes on after a crash. With ``processes`` it must be given.
    ledgers : path, optional
        A folder with the ledger NAME.ledger of each holder. One that is missing is created with the budget of this
        training. By default they are in the working folder, or at record level the ledgers of the holders' own tables.
    person : str, optional
        The column that says which rows are of the same person, by default that of the schema; it is left out. At record
        level, epsilon then protects the people of each holder with all of their rows there. Someone with rows at m
        holders is protected by the composition of m guarantees. A row without a person counts as a person of its own.
    rows_per_person : int, optional
        With a person column, at record level: how many rows of a person count; each holder draws them once, in secret.
    progress : callable, optional
        Called after every round with a `Round`; its scores are exact, for the owners of the data.
    say : callable, optional
        Called with a line on each step of starting processes.
    **options
        ``epochs``, ``batch``, ``learning_rate``, ``proximal``, ``momentum``, ``decay``, ``augment``, ``clip``,
        ``delta``, ``spare`` and ``bound`` of `sfumato.federation.FederationPlan`. Images without an epsilon have
        defaults of their own: ``batch=32, learning_rate=0.05, momentum=0.5, decay=True, augment=True``; the same
        network on all records together has 30 rounds, batches of 64 and a rate of 0.02.

    Examples
    --------
    >>> import sfumato as sf
    >>> release = sf.federate("nursery", target="class", clients=3, rounds=2, learning_rate=0.2)
    >>> release.kind, release.outcome.scores.accuracy > 0.7
    ('federated-model', True)
    >>> sf.save(release, "federated")
    >>> sf.verify("federated").failed
    (Claim(claim='something is guaranteed', held=False, measured='it was trained without privacy'),)
    """
    began = time.monotonic()
    asked = {name: value for name, value in options.items() if value is not None}
    if unknown := sorted(asked.keys() - {*_PLAN}):
        raise OptionError(f"federate has no option '{unknown[0]}'", hint=f"options of the plan are {', '.join(_PLAN)}")
    if timeout is not None:
        real("the timeout", timeout, above=0)
        if not processes:
            raise OptionError("a timeout is for holders that are processes", hint="processes=True, or leave it out")
    work = None if folder is None else Path(folder)
    key = new_key() if work is None or not (work / _KEY).exists() else (work / _KEY).read_bytes()
    holdings = holdings_of(
        data,
        clients=clients,
        target=target,
        schema=schema,
        test=test,
        holdout=holdout,
        samples=samples,
        classes=classes,
        seed=seed,
        key=key,
        person=person,
    )
    defaults = defaults_of(holdings.coding, model, epsilon)
    given = {*asked, *(() if rounds is None else ("rounds",))}
    alone = {name: value for name, value in _IMAGES_ALONE.items() if name not in given} if "batch" in defaults else {}
    usual = defaults.pop("rounds")
    rounds, asked = usual if rounds is None else rounds, {**defaults, **asked}
    plan = plan_of(
        holdings,
        rounds=rounds,
        model=model,
        absent=absent,
        epsilon=epsilon,
        level=level,
        threshold=threshold,
        secure=secure,
        seed=seed,
        rows_per_person=rows_per_person,
        **asked,
    )
    check_secure(plan, secure, len(holdings.parts))
    require_library(secure)
    if work is not None:
        _keep_key(work, key)
    with ledgers_of(plan, holdings, None if ledgers is None else Path(ledgers), work) as books:
        found = _train(plan, holdings, secure, work, books, processes, timeout, progress, say)
    central, taken = None, None
    if centralised and (holdings.public or plan.level == "none"):
        say("training the same network on all records together, for comparison")
        central, taken = _central(plan, holdings, alone)
    stated = {"model": plan.model, "rounds": rounds, "secure": secure, "absent": absent or None}
    stated |= {"clients": len(holdings.parts), "target": None if holdings.coding.features is None else target}
    stated |= {"data": data if isinstance(data, str) and holdings.public else None, "seed": seed, "samples": samples}
    stated |= {
        "epsilon": "none" if epsilon is None else epsilon,
        "level": plan.level if epsilon is not None else None,
        "threshold": plan.threshold,
        "classes": classes if holdings.coding.features is not None else len(holdings.coding.classes),
    }
    stated |= {"person": person, "rows_per_person": rows_per_person}
    stated |= {"holdout": None if holdings.public else holdout, **asked}
    return federated_release(
        found,
        holdings,
        Recipe("federate", stated, holdings.schema),
        secure=secure,
        seconds=time.monotonic() - began,
        central=central,
        central_seconds=taken,
    )


def run_recipe(recipe: Recipe, data: Any, **options: Any) -> Release:
    """Train by a recipe, on the data set that it names unless other data is given."""
    asked = dict(recipe.options)
    named = asked.pop("data", None)
    asked["epsilon"] = None if asked.get("epsilon") == "none" else asked.get("epsilon")
    given = named if data is None else data
    if given is None:
        raise OptionError("the recipe does not name its data", hint="give the data of the holders")
    if isinstance(given, Mapping) or (isinstance(given, str | Path) and Path(given).is_dir()):
        asked.pop("clients", None)
    elif recipe.schema.columns and not (isinstance(given, str) and given == named):
        asked["schema"] = recipe.schema
    return federate(given, **{**asked, **options})


def plan_of(
    holdings: Holdings,
    *,
    rounds: int,
    model: str | None = None,
    absent: float = 0.0,
    epsilon: float | None = None,
    level: str | None = None,
    threshold: int | None = None,
    secure: str = "masks",
    seed: int = 0,
    rows_per_person: int | None = None,
    **options: Any,
) -> FederationPlan:
    """Return the plan of a training on these holdings."""
    coding, count = holdings.coding, len(holdings.parts)
    kind = "tables" if coding.features is not None else "images"
    chosen = model or ("logistic" if kind == "tables" else "cnn")
    if chosen not in _ABLE[kind]:
        raise OptionError(f"the model for {kind} must be one of {', '.join(_ABLE[kind])}, got {chosen!r}")
    if level is not None and epsilon is None:
        raise OptionError(f"the level '{level}' needs an epsilon", hint="--epsilon E")
    least = threshold
    if least is None:
        least = 1 if count == 1 else count // 2 + 1 if absent else default_threshold(count)
    own = "none" if epsilon is None else level or "record"
    return FederationPlan(
        model=chosen,
        inputs=coding.inputs,
        classes=len(coding.classes),
        rounds=rounds,
        absence=absent,
        epsilon=epsilon,
        level=own,
        threshold=least,
        honest=1 if secure == "ckks" and level == "client" else None,
        seed=seed,
        scale=coding.scale,
        coding=coding.digest,
        person=holdings.schema.person if own == "record" else None,
        rows_per_person=rows_per_person,
        **options,
    )


def defaults_of(coding: Coding, model: str | None, epsilon: float | None) -> dict[str, Any]:
    """Return the settings of a training that are not those of a `FederationPlan`, unless they are given.

    Examples
    --------
    >>> images = Coding((0, 1), (1, 28, 28), scale=(0.5, 0.25))
    >>> defaults_of(images, "cnn", None)["augment"], defaults_of(images, "cnn", 3.0)
    (True, {'rounds': 10})
    """
    if coding.features is not None or epsilon is not None:
        return {"rounds": 10}
    return {**_IMAGES, "augment": model != "scattering-linear"}


def forget(folder: str | Path) -> None:
    """Remove the checkpoint and what the holders keep from a working folder; another training can begin there.

    The models of the rounds stay, and so do the ledgers: what was spent is spent.
    """
    for one in (*Path(folder).glob(f"{CHECKPOINT}*"), *Path(folder).glob("parties/*/record")):
        one.unlink()


def _keep_key(work: Path, key: bytes) -> None:
    """Keep the secret key by which test rows are held out: a training that goes on holds out the same ones."""
    work.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (work / _KEY).exists():
        with atomic_path(work / _KEY, mode=0o600) as temporary:
            temporary.write_bytes(key)


@contextlib.contextmanager
def ledgers_of(
    plan: FederationPlan, holdings: Holdings, folder: Path | None, work: Path | None
) -> Iterator[dict[str, Ledger]]:
    """Open the ledger of every holder; one that is missing is created with the budget of the plan."""
    with contextlib.ExitStack() as stack:
        found = dict[str, Ledger]()
        if plan.level != "none" and (folder is not None or work is not None):
            for name in holdings.parts:
                found[name] = stack.enter_context(_ledger(plan, holdings, name, folder, work))
        yield found


def _ledger(plan: FederationPlan, holdings: Holdings, name: str, folder: Path | None, work: Path | None) -> Ledger:
    place = folder if folder is not None else (work or Path()) / LEDGERS
    owned = folder is None and holdings.tables is not None and name in holdings.tables
    return open_ledger(plan, _records(holdings, name), place / f"{name}.ledger", search=owned)


def open_ledger(plan: FederationPlan, records: Table, path: Path, *, search: bool) -> Ledger:
    """Open the ledger of a holder; one that is missing is created with the budget of the plan.

    With ``search``, the ledger that was granted for these records is used if there is one, unless it is clients that
    are protected. It must protect what the training does.
    """
    unit = plan.unit
    if search and unit != CLIENT and (own := Ledger.find(records)) is not None:
        return _of_unit(own, unit)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        assert plan.epsilon is not None
        note = "the budget of a federated training"
        return Ledger.grant(records, epsilon=plan.epsilon, delta=plan.delta, note=note, path=path, unit=unit)
    return _of_unit(Ledger.of(records, path, person=plan.person), unit)


def _of_unit(ledger: Ledger, unit: str) -> Ledger:
    if ledger.unit != unit:
        raise OptionError(
            f"the ledger '{ledger.path}' protects a {ledger.unit}, and this training a {unit}",
            hint=f"sfumato budget grant ... --unit {unit} --ledger FILE",
        )
    return ledger


def _records(holdings: Holdings, name: str) -> Table:
    """Return the records of a holder in the form by which a ledger knows them again."""
    from sfumato.data.images import Images

    if holdings.tables is not None and name in holdings.tables:
        return holdings.tables[name]
    inputs, targets = holdings.parts[name]
    return image_table(Images(inputs, targets, inputs[:0], targets[:0]))  # type: ignore[arg-type]


def _train(
    plan: FederationPlan,
    holdings: Holdings,
    secure: str,
    work: Path | None,
    books: Mapping[str, Ledger],
    processes: bool,
    timeout: float | None,
    progress: Callable[[Round], None] | None,
    say: Callable[[str], object],
) -> Federated:
    if work is not None:
        work.mkdir(parents=True, exist_ok=True, mode=0o700)
    more: dict[str, Any] = {"test": holdings.test, "progress": progress}
    if work is not None:
        more["checkpoint"] = work / CHECKPOINT
        more["keep"] = lambda number, weights: write_round(work / ROUNDS, number, weights, plan)
    if not processes:
        return simulate(plan, holdings.parts, secure=secure, ledgers=books, people=holdings.people, **more)
    if work is None:
        raise OptionError("training with processes needs a working folder", hint="give folder=")
    from sfumato.federation.flower.training import train_with_processes

    return train_with_processes(plan, holdings, work, secure=secure, ledgers=books, say=say, timeout=timeout, **more)


def _central(plan: FederationPlan, holdings: Holdings, settings: Mapping[str, Any]) -> tuple[Federated, float]:
    """Train the same network on all records together."""
    began = time.monotonic()
    alone = replace(plan, level="none", epsilon=None, threshold=1, absence=0.0, bound=1e4, proximal=0.0, momentum=0.0)
    found = simulate(replace(alone, **settings), {"all": holdings.pooled}, secure="none")
    return found, time.monotonic() - began

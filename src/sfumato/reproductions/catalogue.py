"""All experiments by name, and the function that runs one."""

from __future__ import annotations

import importlib
import resource
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from sfumato.errors import OptionError, did_you_mean, require_extra
from sfumato.reproductions.values import NOT_RUN, Experiment, Figure, Reproduction, Row

__all__ = ["EXPERIMENTS", "experiment", "experiments", "reproduce"]

EXPERIMENTS = {
    "epsilon-sweep": "epsilon_sweep",
    "private-cnn": "private_cnn",
    "guided-models": "guided_models",
    "membership": "membership",
    "attributes": "attributes",
    "nine-measures": "nine_measures",
    "techniques": "techniques",
    "federated-xrays": "federated_xrays",
    "encrypted": "encrypted",
    "private-auto-encoder": "auto_encoder",
}
"""The module of each experiment; a new one is a module and a line here."""

_MODULES = {"torch": "torch", "federation": "tenseal"}


def experiment(name: str) -> Experiment:
    """Return an experiment by name.

    Examples
    --------
    >>> experiment("membership").facts["adult-rf"].what
    'Adult, random forest'
    """
    if name not in EXPERIMENTS:
        raise OptionError(f"there is no experiment '{name}'", hint=did_you_mean(name, EXPERIMENTS))
    found: Experiment = importlib.import_module(f"sfumato.reproductions.{EXPERIMENTS[name]}").EXPERIMENT
    return found


def experiments() -> tuple[Experiment, ...]:
    """Return all experiments.

    Examples
    --------
    >>> "private-cnn" in [one.name for one in experiments()]
    True
    """
    return tuple(experiment(name) for name in EXPERIMENTS)


def reproduce(
    name: str, *, quick: bool = False, progress: Callable[[float], None] | None = None, **changes: Any
) -> Reproduction:
    """Run a published experiment again, and put our figures beside the printed ones.

    Every figure of ours is computed in this call. A full run may need ``SFUMATO_DATA`` and hours; with ``quick`` it
    takes about a minute on the data in the package, and judges only what does not depend on the size of the run.

    Parameters
    ----------
    name : str
        See `sfumato.reproductions.experiments`.
    quick : bool
        Run the short form.
    progress : callable, optional
        Called with the share of the rows that is done.
    **changes
        Settings of the experiment that are different in this run.

    Examples
    --------
    >>> import sfumato as sf
    >>> found = sf.reproduce("nine-measures", quick=True, ks=(3,))
    >>> [row.ours for row in found.rows if row.key == "adult-k3"]
    [3.0]
    """
    chosen = experiment(name)
    settings = chosen.quick if quick else chosen.full
    known = [one.name for one in fields(settings)]
    for one in changes:
        if one not in known:
            raise OptionError(f"the experiment '{name}' has no setting '{one}'", hint=did_you_mean(one, known))
    settings = replace(settings, **changes)
    if extra := chosen.extra or ("" if quick else chosen.full_extra):
        require_extra(_MODULES[extra], extra, f"the experiment '{name}'")
    rows, figures, began = dict[str, Row](), list[Figure](), _cpu()
    for found in chosen.run(settings):
        if isinstance(found, Row):
            rows[found.key] = found
        else:
            figures.append(found)
        if progress is not None:
            progress(min(1.0, len(rows) / len(chosen.facts)))
    left = {key: chosen.row(key, None, "not judged", NOT_RUN) for key in chosen.facts if key not in rows}
    every = {**rows, **left}
    return Reproduction(
        name,
        chosen.title,
        chosen.source,
        quick,
        {one: _plain(getattr(settings, one)) for one in known},
        tuple(every[key] for key in chosen.facts),
        tuple(figures),
        _cpu() - began,
    )


def _cpu() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value

"""Attack a release, a table, or a model that is trained for the purpose, with every attack that fits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sfumato.attacks.base import Attack
from sfumato.attacks.cases import Case, Work, model_case, release_case, table_case
from sfumato.attacks.catalogue import attacks_of
from sfumato.attacks.membership.references import ReferenceAttack
from sfumato.attacks.options import check_options
from sfumato.attacks.report import AttackReport, run_attacks
from sfumato.attacks.tables.shadow import Shadow
from sfumato.data.certificate import CERTIFICATE
from sfumato.data.release import Release, Releases
from sfumato.data.validate import whole
from sfumato.errors import FileError, OptionError

__all__ = ["attack", "release_of"]

_MOST_FOLDERS = 5  # named in a message


def attack(
    data: Any,
    source: Any = None,
    *,
    control: Any = None,
    population: Any = None,
    target: str | None = None,
    model: Any = None,
    protect: Any = None,
    kind: str | None = None,
    qi: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    identifiers: Sequence[str] = (),
    person: str | None = None,
    attacks: Sequence[str] | None = None,
    references: int = 16,
    repeats: int = 1,
    seed: int = 0,
    processes: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> AttackReport:
    """Measure what an attacker can learn from a release, or from a model.

    There are three ways to name what is attacked:

    - a `Release` or its folder, with its original (``source``). With a ``control``, the release itself is attacked.
      Without one, its recipe is run again on a random half of the original rows and the result is attacked; the other
      half is the control. Without a source, only attacks that need neither are run.
    - a table with a ``model`` that predicts its ``target``: the model is trained on a random half of the rows and
      attacked; the other half is the control.
    - a table of any origin with its ``kind``: "synthetic", or "table" for an anonymized one.

    To attack a fitted model of your own, see `sfumato.attacks.run_attacks`.

    Parameters
    ----------
    data : Release, path, Table, frame or name of a built-in data set
        What is attacked.
    source : Table, frame, path or name, optional
        The original rows, that the release was made from.
    control : Table, frame or path, optional
        Rows like those of the source that the release has never seen.
    population : Table, frame or path, optional
        A table of people by the quasi-identifiers of the release, for linkage.
    target : str, optional
        The column that the model predicts.
    model : str or estimator, optional
        "forest", "tree", "mlp", "boosting", or an estimator with scikit-learn's interface.
    protect : str, optional
        How the training is protected: ``"guided:k=100"``, ``"mondrian:k=10"``, ``"dp:epsilon=1"``,
        ``"synthetic:epsilon=1"``.
    kind : {"synthetic", "table"}, optional
        What a frame or file holds: synthetic rows, or anonymized ones.
    qi, sensitive, identifiers : sequence of str
        The roles of the columns, see `Table.of`; those of a release are added to its own. Without quasi-identifiers,
        a protection anonymizes all columns that a model learns from.
    person : str, optional
        The column that says which rows are of the same person. People are then attacked: members and non-members are
        different people with all of their rows, and every figure counts people. By default that of the release or of
        the source, if it protects people.
    attacks : sequence of str, optional
        The names of the attacks, see `sfumato.attacks.ATTACKS`; all that fit the target by default.
    references : int
        The number of reference models that attacks with references train.
    repeats : int
        With several, each attack is run with as many seeds, and the result says how often they agree about a record.
    seed : int
        Decides the halves, the reference models, and what attacks draw.
    processes : int, optional
        The number of processes that train reference models; as many as cores by default.
    progress : callable, optional
        Called with the share of the work that is done.

    Examples
    --------
    >>> import sfumato as sf
    >>> import numpy as np, polars as pl
    >>> rng = np.random.default_rng(0)
    >>> people = pl.DataFrame({"age": rng.integers(18, 90, 400), "ill": rng.choice(["no", "yes"], 400)})
    >>> report = sf.attack(people, target="ill", model="tree", attacks=["loss", "gap"])
    >>> report.verdict
    '2 of 2 attacks found leakage: loss, gap'
    >>> protected = sf.attack(people, target="ill", model="tree", protect="guided:k=50", attacks=["loss", "gap"])
    >>> protected.verdict
    'no leakage found by 2 attacks, which does not prove that there is none'
    """
    chosen, repeats = attacks_of(attacks), whole("the number of repeats", repeats, most=100)
    whole("the seed", seed, least=0, most=2**31 - 1)
    whole("the number of reference models", references, least=2, most=10_000)
    roles = {"qi": qi, "sensitive": sensitive, "identifiers": identifiers, "person": person}
    options = {"source": source, "control": control, "population": population, "target": target}
    release = release_of(data)
    check_options(release is not None, model=model, protect=protect, kind=kind, **options)
    steps = _Progress(progress, repeats)
    work = Work(seed, references, processes, steps.trained)
    if release is not None:
        named = Path(data).resolve().name if isinstance(data, str | Path) else release.provenance.name or "the release"
        case = release_case(release, named, source, control, population, target, roles, work)
    elif model is not None:
        case = model_case(data, target, model, protect, roles, work)
    else:
        case = table_case(data, str(kind), source, control, population, roles)
    able = _fitting(chosen, case, everything=attacks is None)
    steps.expect(able, case)
    return run_attacks(
        able,
        case.target,
        case.members,
        case.nonmembers,
        seed=seed,
        repeats=repeats,
        facts=case.facts,
        progress=steps.attacked,
    )


def _fitting(attacks: Sequence[Attack], case: Case, *, everything: bool) -> list[Attack]:
    """Return the attacks for a kind of target; those that were named are all kept, and the report says why not."""
    return [one for one in attacks if not everything or case.target.kind in one.targets]


def release_of(data: Any) -> Release | None:
    """Return the release that is meant, or None if it is data."""
    if isinstance(data, Release):
        return data
    if isinstance(data, Releases):
        if len(data) != 1:
            raise OptionError(f"there are {len(data)} releases: attack them one by one", hint=_some(list(data)))
        return next(iter(data.values()))
    if not isinstance(data, str | Path) or not Path(data).is_dir():
        return None
    if not Path(data, CERTIFICATE).exists():
        several = sorted(one.parent.name for one in Path(data).glob(f"*/{CERTIFICATE}"))
        if several:
            raise FileError(f"'{data}' holds {len(several)} releases: attack one of its folders", hint=_some(several))
    return Release.read(data)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_FOLDERS]) + (", ..." if len(names) > _MOST_FOLDERS else "")


class _Progress:
    """The share of the work: training reference models takes most of it, and happens once for each repeat."""

    def __init__(self, show: Callable[[float], None] | None, repeats: int) -> None:
        self.show, self.repeats = show, repeats
        self.weight, self.finished, self.now, self.done = 0.0, 0, 0.0, 0.0

    def expect(self, attacks: Sequence[Attack], case: Case) -> None:
        """Prepare for attacks that train reference models, if any can be run."""
        able = (one for one in attacks if isinstance(one, ReferenceAttack | Shadow))
        if any(one.obstacle(case.target, case.members, case.nonmembers) is None for one in able):
            self.weight = 0.9

    def trained(self, share: float) -> None:
        """Show the share of the reference models of this repeat."""
        if share < self.now:
            self.finished += 1
        self.now = share
        self._draw()

    def attacked(self, share: float) -> None:
        """Show the share of the attacks."""
        self.done = share
        self._draw()

    def _draw(self) -> None:
        if self.show is not None:
            trained = min((self.finished + self.now) / self.repeats, 1.0)
            self.show(self.weight * trained + (1 - self.weight) * self.done)

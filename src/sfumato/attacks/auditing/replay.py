"""Replay: run a private function on neighbouring tables with the same noise, and compare all that it does.

A function is run once, and every value that it passes to a noise mechanism is recorded, with what the mechanism gave
back. Then it runs on tables that differ by one record, and each mechanism gives back what it gave before. So whatever
the function computes from noisy values is the same, and three things show (after Cebere et al. 2026, arXiv 2602.17454):

- the mechanisms must be the same, in the same order, with the same parameters: otherwise control flow, bounds or scales
  depend on the data;
- a value may differ by no more than the sensitivity that was declared for it;
- what the function returns must be equal: anything else has reached the output around the noise.

Unlike an audit, a replay needs no statistics: it finds a wrong sensitivity of one percent at any epsilon. But it trusts
the mechanisms, which audits test, and it tries some neighbours, not all.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato._repr import Discreet
from sfumato.attacks.auditing.neighbours import neighbours_of, neighbours_of_people
from sfumato.attacks.predictions import call
from sfumato.budget.events import Relation
from sfumato.budget.mechanisms.additive import AddedNoise
from sfumato.budget.mechanisms.selection import ExponentialMechanism, NoisyMax, SparseVector
from sfumato.budget.noise import Source
from sfumato.budget.query.discovery import SelectCategories
from sfumato.data.validate import by_name, real, whole
from sfumato.errors import OptionError, one_of
from sfumato.learners.estimators.noisy_sums import NoisySums

__all__ = ["Finding", "ReplayReport", "declare", "replay"]

Floats = NDArray[np.float64]
Change = Callable[[Any, Any], float]
"""By how much a value has changed, in sensitivities."""

_SLACK = 1e-9  # a last digit of a sensitivity
_DEEPEST = 12  # levels of values that are compared
_NOISE = ("discrete_laplace", "discrete_gaussian", "geometric", "bernoulli", "bernoulli_exp", "below", "permutation")
_BEGIN = "__post_init__"  # where a sparse vector draws the noise on its threshold
NORMS: dict[str, Callable[[Floats], float]] = {
    "l1": lambda difference: float(np.abs(difference).sum()),
    "l2": lambda difference: float(np.sqrt(np.square(difference).sum())),
    "max": lambda difference: float(np.abs(difference).max(initial=0.0)),
}


@dataclass(frozen=True)
class Finding:
    """What depends on a record and must not.

    Attributes
    ----------
    neighbour : how the other table differs
    what : what was found
    call : the place of the noise mechanism among all that were called, from 1; None for what is returned
    change : the change of a value, in sensitivities, if that was measured
    """

    neighbour: str
    what: str
    call: int | None = None
    change: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values; an unbounded change is the text "inf"."""
        change = "inf" if self.change == np.inf else self.change
        return {"neighbour": self.neighbour, "what": self.what, "call": self.call, "change": change}


@dataclass(frozen=True, repr=False)
class ReplayReport(Discreet):
    """What replays of a function on neighbouring tables found.

    Attributes
    ----------
    findings : everything that depends on a record and must not
    neighbours : how each of the other tables differs
    calls : the number of noise mechanisms that the function called
    largest : the largest change of a value, in its declared sensitivities; up to 1 is allowed, or as many as a person
        has rows
    who : how neighbours differ: by a record, or by a person
    """

    _repr_fields = ("passed", "calls")

    findings: tuple[Finding, ...]
    neighbours: tuple[str, ...]
    calls: int
    largest: float
    who: str = "record"

    @property
    def passed(self) -> bool:
        """Whether nothing was found; that does not prove that other neighbours find nothing."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """What the replays say, in one sentence."""
        tried = f"{_counted(len(self.neighbours), 'neighbour')}, {_counted(self.calls, 'noise call')}"
        if self.findings:
            first = self.findings[0]
            where = "" if first.call is None else f" (noise call {first.call})"
            found = _counted(len(self.findings), "finding")
            return f"fails: with {first.neighbour}, {first.what}{where}; {found}, {tried}"
        if not self.calls:
            return f"passes, but adds no noise at all: what it returns did not depend on a {self.who}; {tried}"
        return f"passes: a {self.who} changed a value by at most {self.largest:.3g} of its sensitivity; {tried}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "passed": self.passed,
            "verdict": self.verdict,
            "findings": [one.to_dict() for one in self.findings],
            "neighbours": list(self.neighbours),
            "calls": self.calls,
            "largest": "inf" if self.largest == np.inf else self.largest,
        }


def replay(
    function: Callable[[Any], Any],
    table: Any,
    neighbours: Mapping[str, Any] | None = None,
    *,
    relation: Relation | str = Relation.ADD_REMOVE,
    person: str | None = None,
    rows_per_person: int = 1,
    seed: int = 0,
) -> ReplayReport:
    """Run a private function on a table and on its neighbours with the same noise, and compare.

    The function must take its noise from Sfumato's mechanisms (`AddedNoise`, `NoisyMax`, the statistics and estimators
    that are made of them, ...), or from a sampler of its own inside `declare`. While it runs, the mechanisms of this
    process are recorded, so nothing else may use them. Private training of networks draws its batches at random, and
    cannot be replayed: `audit_training` is for that.

    Parameters
    ----------
    function : callable
        Takes the table and returns what would be released.
    table : Table, frame or array
        The records that the function is run on.
    neighbours : mapping, optional
        Other tables by a description, such as ``{"a newborn": frame}``. By default tables with a record less, and with
        one more: a copy, missing values, infinities, outliers, unseen categories, at the top and at the end. Under
        replace-one, a record is replaced by each of them.
    relation : Relation or str
        Which tables are neighbours by default.
    person : str, optional
        For a function that protects people: the column that says which rows are of the same person. Neighbours then
        lack a person, or have one more with one row or with fifty. Nobody in the table itself should have more rows
        than count, because which of them count is drawn anew in every run.
    rows_per_person : int
        How many rows of a person count: a value may change by as many sensitivities of a row. That the noise is made
        for so many is a question for `audit_function`.
    seed : int
        Of the records that are left out, copied or replaced.

    Examples
    --------
    >>> from sfumato.budget import AddedNoise
    >>> ages = pl.DataFrame({"age": [30.0, 40.0, 50.0]})
    >>> def private(people):
    ...     noise = AddedNoise(sensitivity=100, epsilon=1.0)
    ...     return noise.release(people["age"].fill_nan(None).fill_null(0).clip(0, 100).sum())
    >>> replay(private, ages).passed
    True
    >>> def careless(people):
    ...     noise = AddedNoise(sensitivity=people["age"].max(), epsilon=1.0)  # bounds read from the data
    ...     return noise.release(people["age"].sum())
    >>> report = replay(careless, ages)
    >>> report.passed, report.findings[0].what
    (False, 'the parameters of AddedNoise depend on the data')
    """
    under = one_of(Relation, relation, "the relation")
    if neighbours is not None:
        others = dict(neighbours)
    elif person is None:
        others = neighbours_of(table, under, seed)
    elif under is Relation.ADD_REMOVE:
        others = neighbours_of_people(table, person, seed)
    else:
        raise OptionError("people who are replaced are not tried by themselves", hint="give neighbours of your own")
    recorded, allowed = _Tape(), whole("the rows of a person", rows_per_person)
    if allowed > 1 and person is None:
        raise OptionError("rows_per_person is for functions that protect people", hint="name the person column")
    who = "record" if person is None else "person"
    with _recording(recorded):
        returned = call("the function", function, table)
    findings, largest = list[Finding](), 0.0
    for name, other in others.items():
        tape = _Tape(recorded.calls, neighbour=name, allowed=allowed)
        answer: Any = None
        with _recording(tape):
            try:
                answer = function(other)
            except _Divergence:
                pass
            except Exception as error:  # noqa: BLE001 - any error that one record causes is a finding
                tape.find(f"the function raises a {type(error).__name__}, and without the {who} it does not")
            else:
                if tape.at < len(recorded.calls):
                    tape.find("fewer noise mechanisms are called: their number depends on the data")
                elif not _same(returned, answer):
                    tape.find("what is returned differs, although all noisy values are the same")
        findings += tape.findings
        largest = max(largest, tape.largest)
    return ReplayReport(tuple(findings), tuple(others), len(recorded.calls), largest, who)


def declare(
    value: Any, add_noise: Callable[[Any], Any], *, sensitivity: float, norm: str = "l2", name: str = "noise"
) -> Any:
    """Add noise of your own to a value, and declare how much one record can change it, for `replay` to check.

    Parameters
    ----------
    value : number or array
        The exact value that gets the noise.
    add_noise : callable
        Takes the value and returns it with noise.
    sensitivity : float
        The largest change of the value by one record.
    norm : {"l1", "l2", "max"}
        How the change of an array is measured.
    name : str
        For findings.

    Examples
    --------
    >>> rng = np.random.default_rng()
    >>> def total(people):
    ...     return declare(people.sum(), lambda exact: exact + rng.laplace(0, 100), sensitivity=100)
    >>> report = replay(total, np.array([30.0, 40.0]), {"an old man": np.array([30.0, 40.0, 250.0])})
    >>> print(report.verdict)
    fails: with an old man, noise gets a value that changes by 2.5 sensitivities (noise call 1); 1 finding, \
1 neighbour, 1 noise call
    """
    measure = by_name("norm", norm, NORMS)
    most = real("the sensitivity", sensitivity, above=0)
    if _tapes:
        return _tapes[-1].meet(name, (most, norm), value, _by(measure, most), lambda: add_noise(value))
    return add_noise(value)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


# --- the tape -----------------------------------------------------------------------------------


class _Divergence(BaseException):
    """The replay cannot go on: the function does something else than before. No `except Exception` may catch it."""


@dataclass(frozen=True)
class _Call:
    kind: str
    parameters: tuple[Any, ...]
    value: Any
    output: Any


@dataclass
class _Tape:
    """The noise calls of one run: recorded, or played back if there are some to play."""

    played: Sequence[_Call] | None = None
    neighbour: str = ""
    calls: list[_Call] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    at: int = 0
    largest: float = 0.0
    allowed: int = 1
    inside: bool = False

    def find(self, what: str, change: float | None = None, *, in_call: bool = False) -> None:
        """Keep a finding, once."""
        if all(one.what != what for one in self.findings):
            self.findings.append(Finding(self.neighbour, what, self.at if in_call else None, change))

    def meet(self, kind: str, parameters: tuple[Any, ...], value: Any, change: Change, run: Callable[[], Any]) -> Any:
        """Record a noise call, or compare it with the recorded one and return what that returned."""
        if self.inside:  # a mechanism that is made of others
            return run()
        if self.played is None:
            self.inside = True
            try:
                output = run()
            finally:
                self.inside = False
            self.calls.append(_Call(kind, parameters, copy.deepcopy(value), copy.deepcopy(output)))
            return output
        self.at += 1
        if self.at > len(self.played):
            self._stop("more noise mechanisms are called: their number depends on the data")
        before = self.played[self.at - 1]
        if before.kind != kind:
            self._stop(f"{kind} is called instead of {before.kind}: control flow depends on the data")
        if before.parameters != parameters:
            self._stop(f"the parameters of {kind} depend on the data")
        moved = change(before.value, value)
        self.largest = max(self.largest, moved)
        if moved == np.inf:
            self._stop(f"{kind} gets a value of another shape, or one that is not finite")
        if moved > self.allowed + _SLACK:
            self.find(f"{kind} gets a value that changes by {moved:.4g} sensitivities", moved, in_call=True)
        return copy.deepcopy(before.output)

    def _stop(self, what: str) -> None:
        self.find(what, in_call=True)
        raise _Divergence


_tapes: list[_Tape] = []


def _by(measure: Callable[[Floats], float], most: float) -> Change:
    """Return the change of numbers in a norm, in sensitivities."""

    def change(before: Any, now: Any) -> float:
        one, other = (np.asarray(value, dtype=np.float64) for value in (before, now))
        if one.shape != other.shape:
            return float(np.inf)
        with np.errstate(invalid="ignore", over="ignore"):
            moved = measure(other - one) / most
        return moved if np.isfinite(moved) else float(np.inf)

    return change


def _added_noise(mechanism: AddedNoise, steps: Any, source: Any = None) -> tuple[tuple[Any, ...], Any, Change]:
    def change(before: list[int], now: list[int]) -> float:
        if len(before) != len(now):
            return float(np.inf)
        moved = [abs(one - other) for one, other in zip(before, now, strict=True)]
        most = max(moved, default=0) / mechanism.units
        changed = sum(one > 0 for one in moved) / mechanism.changes
        return max(most, changed) if changed > 1 else most

    return (repr(mechanism),), [int(step) for step in steps], change


def _noisy_sums(sums: NoisySums, name: str, exact: Any, norm: float) -> tuple[tuple[Any, ...], Any, Change]:
    return (name, float(norm), sums.multiplier), np.array(exact, dtype=np.float64), _by(NORMS["l2"], float(norm))


def _choice(mechanism: Any, scores: Any, source: Any = None) -> tuple[tuple[Any, ...], Any, Change]:
    return (repr(mechanism),), np.array(scores, dtype=np.float64), _by(NORMS["max"], mechanism.sensitivity)


def _threshold(mechanism: SparseVector, count: Any) -> tuple[tuple[Any, ...], Any, Change]:
    return (repr(mechanism),), int(count), _by(NORMS["max"], mechanism.sensitivity)


def _categories(mechanism: SelectCategories, values: Any, source: Any = None) -> tuple[tuple[Any, ...], Any, Change]:
    def change(before: Counter[Any], now: Counter[Any]) -> float:
        return float(max((now - before).total(), (before - now).total()))

    there = (value for value in values if value is not None and value == value)
    return (repr(mechanism),), Counter(there), change


_PRIMITIVES: tuple[tuple[type, str, Callable[..., Any]], ...] = (
    (AddedNoise, "release_steps", _added_noise),
    (NoisySums, "__call__", _noisy_sums),
    (ExponentialMechanism, "choose", _choice),
    (NoisyMax, "choose", _choice),
    (SparseVector, "above", _threshold),
    (SelectCategories, "answer", _categories),
)


@contextmanager
def _recording(tape: _Tape) -> Iterator[None]:
    """Let all mechanisms meet a tape, and give every run the same random numbers of other kinds."""
    before = [(kind, name, kind.__dict__[name]) for kind, name, _ in _PRIMITIVES]
    before += [(Source, name, Source.__dict__[name]) for name in _NOISE]
    before.append((SparseVector, _BEGIN, SparseVector.__dict__[_BEGIN]))
    states = random.getstate(), np.random.get_state()  # functions of users may use them
    _tapes.append(tape)
    try:
        for kind, name, describe in _PRIMITIVES:
            setattr(kind, name, _met(kind, kind.__dict__[name], describe))
        for name in _NOISE:
            setattr(Source, name, _undeclared(name, Source.__dict__[name]))
        setattr(SparseVector, _BEGIN, _as_part(SparseVector.__dict__[_BEGIN]))
        random.seed(0)
        np.random.seed(0)
        yield
    finally:
        _tapes.pop()
        for kind, name, method in before:
            setattr(kind, name, method)
        random.setstate(states[0])
        np.random.set_state(states[1])


def _met(kind: type, method: Callable[..., Any], describe: Callable[..., Any]) -> Callable[..., Any]:
    def meeting(mechanism: Any, *given: Any, **named: Any) -> Any:
        parameters, value, change = describe(mechanism, *given, **named)
        if isinstance(value, Counter):  # the values may be an iterator, which is spent now
            given = (list(value.elements()), *given[1:])
        return _tapes[-1].meet(kind.__name__, parameters, value, change, lambda: method(mechanism, *given, **named))

    return meeting


def _as_part(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method whose noise belongs to a mechanism."""

    def running(mechanism: Any) -> Any:
        tape = _tapes[-1]
        inside, tape.inside = tape.inside, True
        try:
            return method(mechanism)
        finally:
            tape.inside = inside

    return running


def _undeclared(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of `Source` that repeats its numbers, and reports that nothing declares what they hide."""

    def meeting(source: Source, *given: Any, **named: Any) -> Any:
        tape = _tapes[-1]
        if tape.inside:
            return method(source, *given, **named)
        plain = tuple(one for one in given if isinstance(one, int | float))
        if tape.played is not None:
            what = f"{name} of a Source is used without a declared sensitivity: use a mechanism, or declare()"
            tape.at += 1
            tape.find(what, in_call=True)
            tape.at -= 1
        return tape.meet(f"Source.{name}", plain, 0, lambda before, now: 0.0, lambda: method(source, *given, **named))

    return meeting


# --- what is returned ---------------------------------------------------------------------------


def _same(one: Any, other: Any, depth: int = 0) -> bool:
    """Return whether two results are equal: numbers to the last digit, missing ones included."""
    if depth > _DEEPEST:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, pl.DataFrame | pl.Series):
        return one.equals(other, null_equal=True)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
    if isinstance(one, float):
        return one == other or (one != one and other != other)
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(_same(one[key], other[key], depth + 1) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_same(a, b, depth + 1) for a, b in zip(one, other, strict=True))
    if is_dataclass(one) and not isinstance(one, type):
        return all(_same(getattr(one, f.name), getattr(other, f.name), depth + 1) for f in fields(one))
    compares = any("__eq__" in vars(kind) for kind in type(one).__mro__[:-1])
    if not compares and hasattr(one, "__dict__"):
        return _same(vars(one), vars(other), depth + 1)
    return bool(one == other)

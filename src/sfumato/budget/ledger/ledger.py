"""What was granted for a data set and what was spent of it, across programs, days and crashes.

A ledger protects one data set, which it knows by the fingerprint of its content. Its limit is an epsilon and a
delta together. A release is charged before it is made: `Ledger.charge` returns when the charge is on
the disk, and refuses one that would exceed the limit. What was spent is never the sum of epsilons but
that of all events composed, so that a budget spent in many instalments is counted as exactly as in one.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sfumato.budget.accounting.accountant import check_delta, spent
from sfumato.budget.accounting.composition import replace_one
from sfumato.budget.events import Event, Relation, Repeated
from sfumato.budget.ledger.store import Entry, Store, key_check
from sfumato.budget.mechanisms.additive import positive
from sfumato.data.certificate import UNIT
from sfumato.data.io.files import why
from sfumato.data.io.fingerprint import home, user_hmac
from sfumato.data.table import Table
from sfumato.errors import BudgetError, FileError, OptionError, one_of

__all__ = ["Budget", "Ledger", "Reservation", "ledger_path"]

_VERSION = 2
_ROUNDING = 1e-12  # sums of epsilons are compared to so many digits: three times 0.1 is 0.3
_GRAIN = 1e-3  # by how much the accountant may round up what one more event costs
_NO_PRIVACY = 300.0  # an epsilon beyond which nothing is hidden
_LEAST_DELTA = 1e-12  # the accountant can tell no smaller one from 0


@dataclass(frozen=True)
class Budget:
    """An epsilon and a delta, which only mean something together.

    Examples
    --------
    >>> print(Budget(1.0, 1e-6))
    epsilon 1, delta 1e-06
    """

    epsilon: float
    delta: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return both as plain values; an unbounded epsilon is the text "inf"."""
        return {"epsilon": "inf" if self.epsilon == math.inf else self.epsilon, "delta": self.delta}

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:.6g}, delta {self.delta:g}"


class Ledger:
    """What was granted for a data set and what was spent of it.

    A ledger is made by `grant` and found again by `of`, by the content of the data: the same rows in
    another file, format or order have the same ledger, and changed rows have none until one is granted.
    It is a SQLite file that only its owner can read, in the folder ``ledgers`` of ``$SFUMATO_HOME`` or
    ``~/.config/sfumato``, unless a path is given.

    Parameters
    ----------
    path : str or Path
        The file of a ledger; whose data it protects is not asked.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.budget import Laplace
    >>> with sf.Ledger.grant("patients.csv", epsilon=1.0) as ledger:
    ...     entry = ledger.charge(Laplace(4.0), note="how many have the flu")
    >>> with sf.Ledger.of("patients.csv") as ledger:
    ...     print(ledger.spent, "of", ledger.limit)
    epsilon 0.25, delta 0 of epsilon 1, delta 0
    >>> ledger.charge(Laplace(1.0))
    Traceback (most recent call last):
        ...
    sfumato.errors.BudgetError: a charge of epsilon 1 would exceed the limit, epsilon 1, delta 0 (epsilon 0.75 is left)
    """

    def __init__(self, path: str | Path) -> None:
        self._store = Store(path)
        self._lock = threading.RLock()
        self._charged: Counter[str] = Counter()
        self._held: dict[int, _Held] = {}
        self._limit = Budget(0.0)
        self._history: list[Entry] = []
        self._fitting: tuple[Budget, frozenset[tuple[str, int]]] | None = None
        self._follow()
        made = self._history[0]
        if made.kind != "made" or made.content.get("version") != _VERSION:
            raise FileError(f"the ledger '{path}' has another version than {_VERSION}")
        self._relation = Relation(made.content["relation"])

    @classmethod
    def grant(
        cls,
        data: Any,
        *,
        epsilon: float,
        delta: float = 0.0,
        relation: Relation | str | None = None,
        note: str = "",
        path: str | Path | None = None,
    ) -> Ledger:
        """Grant a data set a limit, and make its ledger if it has none; the last limit granted holds.

        Parameters
        ----------
        data
            A table, a frame or a file.
        epsilon : float
        delta : float
            0, or below one over the number of rows: a delta of 1/n allows to publish somebody's row.
        relation : Relation or str, optional
            ``"add-remove"`` (the default of a new ledger) or ``"replace-one"``: what the limit protects.
        note : str
            Why, for whoever reads the history.
        path : str or Path, optional
            The file of the ledger.

        Examples
        --------
        >>> import sfumato as sf
        >>> print(sf.Ledger.grant("patients.csv", epsilon=2.0, delta=1e-6, note="approved by the board").limit)
        epsilon 2, delta 1e-06
        """
        asked = None if relation is None else one_of(Relation, relation, "the relation")
        _refuse_note(note)
        table = Table.of(data)
        fingerprint, rows = _identity(table)
        limit = _limit(epsilon, delta, rows)
        target = Path(path) if path is not None else ledger_path(fingerprint)
        _make_folder(target, of_ours=path is None)
        terms: dict[str, Any] = {**limit.to_dict(), "note": note, "origin": sorted(_marks(table))}
        made = {"version": _VERSION, "data": fingerprint, "relation": (asked or Relation.ADD_REMOVE).value}
        made["unit"] = UNIT
        if not target.exists() and Store.create(target, [("made", made), ("grant", terms)]):
            return cls(target)
        ledger = cls(target)
        ledger._refuse_other(fingerprint)
        if asked not in (None, ledger.relation):
            raise OptionError(
                f"the ledger counts under {ledger.relation.value}, and that cannot be changed, got {asked.value}"
            )
        with ledger._writing():
            ledger._store.append("grant", terms)
        return ledger

    @classmethod
    def of(cls, data: Any, path: str | Path | Ledger | None = None) -> Ledger:
        """Open the ledger of a data set; a ledger of another data set is refused.

        The file may be named by a ledger that is open already.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Ledger.of("patients.csv", "nowhere.ledger")
        Traceback (most recent call last):
            ...
        sfumato.errors.FileError: there is no ledger 'nowhere.ledger' (sfumato budget grant makes one)
        """
        if isinstance(path, Ledger):
            path = path.path
        if path is not None and not isinstance(path, str | Path):
            raise OptionError(f"the ledger must be a Ledger or the path of one, got {type(path).__name__}")
        if path is None:
            found = cls.find(data)
            if found is None:
                raise BudgetError("no budget was granted for this data", hint="sfumato budget grant, or Ledger.grant")
            return found
        if not Path(path).exists():
            raise FileError(f"there is no ledger '{path}'", hint="sfumato budget grant makes one")
        ledger = cls(path)
        ledger._refuse_other(_identity(Table.of(data))[0])
        return ledger

    @classmethod
    def find(cls, data: Any) -> Ledger | None:
        """Open the ledger of a data set; None if no budget was granted for it.

        A file, or a table in a database, for which one was granted while it read differently (with other options,
        another header, other rows) is refused: the people in it are the same.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Ledger.find(sf.Table(sf.datasets.nursery().frame.head(5))) is None
        True
        """
        table = Table.of(data)
        fingerprint, _ = _identity(table)
        target = ledger_path(fingerprint)
        if target.exists():
            found = cls(target)
            found._refuse_other(fingerprint)
            return found
        marks, (key, _, _) = _marks(table), target.name.partition("-")
        for other in sorted(target.parent.glob(f"{key}-*.ledger")) if marks else ():
            with cls(other) as ledger:
                if any(marks & {*entry.content.get("origin", ())} for entry in ledger._history):
                    raise BudgetError(
                        "a budget was granted for this file, but not for what it holds as it is read now",
                        hint="read it as it was at the grant; sfumato budget grant gives changed data its own",
                    )
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __deepcopy__(self, seen: dict[int, Any]) -> Self:
        return self  # what is spent is spent: the copy of an estimator charges the same ledger

    def __reduce__(self) -> tuple[type[Ledger], tuple[Path]]:
        return Ledger, (self.path,)  # another process opens the same file

    def close(self) -> None:
        """Close the file; it is opened again when it is used again."""
        with self._lock:
            self._store.close()

    @property
    def path(self) -> Path:
        """The file."""
        return self._store.path

    @property
    def relation(self) -> Relation:
        """Which tables count as neighbours: what the limit protects."""
        return self._relation

    @property
    def limit(self) -> Budget:
        """What was granted last."""
        self._follow()
        return self._limit

    @property
    def spent(self) -> Budget:
        """What all charges cost together, at the delta of the limit."""
        self._follow()
        return self._total(self._charged)

    @property
    def left(self) -> float:
        """The epsilon that can still be spent, by whatever event; what is spent or reserved is not left."""
        self._follow()
        return self._left()

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event that was charged, in order; one charged several times at once is a repeated one."""
        self._follow()
        charges = (entry.content for entry in self._history if entry.kind == "charge")
        return tuple(_times(Event.from_dict(one["event"]), one["times"]) for one in charges)

    def charge(self, event: Event, *, times: int = 1, note: str = "", private: bool = True) -> dict[str, Any]:
        """Charge an event before it is run, or refuse; return what was written.

        When this returns, the charge is on the disk and stays, whatever happens to the release.

        Parameters
        ----------
        event : Event
        times : int
            How often the event will be run.
        note : str
            What for. Notes are kept in the clear: write nothing into them that is private.
        private : bool
            False if the noise comes from a given seed. The history marks such a charge: anyone with the seed can
            remove the noise, so the release is not private, whatever it was charged.
        """
        content: dict[str, Any] = {
            "event": self._plain(event),
            "unit": UNIT,
            "times": _whole(times),
            "note": _refuse_note(note),
            "private": bool(private),
        }
        with self._writing():
            self._admit(content["event"], content["times"])
            return _told(self._store.append("charge", content))

    def refuse(self, event: Event) -> None:
        """Refuse an event that does not fit, as `charge` would, without charging it."""
        plain = self._plain(event)
        with self._lock:
            self._follow()
            self._admit(plain, 1)

    def reserve(self, event: Event, *, times: int = 1, seconds: float = 3600.0, note: str = "") -> Reservation:
        """Hold what an event would cost, so that nobody else can spend it; see `Reservation`.

        Examples
        --------
        >>> import sfumato as sf
        >>> from sfumato.budget import PureEvent
        >>> ledger = sf.Ledger.grant("patients.csv", epsilon=1.0, path="patients.ledger")
        >>> with ledger.reserve(PureEvent(0.1), times=5) as reservation:
        ...     entry = reservation.charge(note="first instalment")
        ...     print(round(ledger.left, 6))
        0.5
        >>> print(round(ledger.left, 6))
        0.9
        """
        positive("the seconds that a reservation holds", seconds)
        content: dict[str, Any] = {"event": self._plain(event), "times": _whole(times), "note": _refuse_note(note)}
        with self._writing():
            self._admit(content["event"], content["times"])
            content["expires"] = self._store.now() + float(seconds)
            return Reservation(self, self._store.append("reserve", content).number)

    def history(self) -> list[dict[str, Any]]:
        """Return everything that happened, as plain values: grants, charges, reservations."""
        self._follow()
        return [_told(entry) for entry in self._history]

    def to_dict(self) -> dict[str, Any]:
        """Return the limit, what was spent of it and the events, as plain values."""
        self._follow()
        return {
            "limit": self._limit.to_dict(),
            "spent": self._total(self._charged).to_dict(),
            "left": self._left(),
            "relation": self._relation.value,
            "unit": UNIT,
            "events": [one for one in map(_told, self._history) if one["kind"] == "charge"],
            "reservations": [held.to_dict(number) for number, held in self._live().items()],
        }

    def export(self) -> dict[str, Any]:
        """Return the whole ledger with its seals as plain values, for an auditor."""
        entries = [{**told, "seal": entry.seal} for told, entry in zip(self.history(), self._history, strict=True)]
        return {**self.to_dict(), "data": self._history[0].content["data"], "entries": entries}

    # --- what the entries mean ---

    def _follow(self) -> None:
        """Take account of what was written since, by this process and by others."""
        with self._lock:
            for entry in self._store.fresh():
                self._take(entry)

    def _take(self, entry: Entry) -> None:
        content = entry.content
        self._history.append(entry)
        if entry.kind == "grant":
            self._limit = Budget(float(content["epsilon"]), float(content["delta"]))
        elif entry.kind == "charge":
            self._charged[_key(content["event"])] += content["times"]
            held = self._held.get(content.get("reservation", 0))
            if held:
                held.times = max(held.times - content["times"], 0)
        elif entry.kind == "reserve":
            self._held[entry.number] = _Held(_key(content["event"]), content["times"], content["expires"])
        elif entry.kind == "release":
            self._held.pop(content["reservation"], None)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            with self._store.writing():
                self._follow()
                yield
            self._follow()

    def _live(self) -> dict[int, _Held]:
        now = self._store.now()
        return {number: held for number, held in self._held.items() if held.times and held.expires > now}

    def _taken(self) -> Counter[str]:
        """Return what is charged or reserved."""
        taken = Counter(self._charged)
        for held in self._live().values():
            taken[held.event] += held.times
        return taken

    def _left(self) -> float:
        taken, limit = self._taken(), self._limit.epsilon
        rest = max(limit - self._cost(taken, 0.0), limit - self._total(taken).epsilon - _GRAIN)
        return rest if rest > _ROUNDING * limit else 0.0

    def _admit(self, event: dict[str, Any], times: int, reserved: int = 0) -> None:
        """Refuse an event that does not fit beside what is charged and reserved; some of it may be reserved itself."""
        wanted = self._taken()
        wanted[_key(event)] += max(times - reserved, 0)
        if self._fits(wanted):
            return
        alone = self._total(Counter({_key(event): times}))
        rest = self._left()
        if alone.epsilon == math.inf:
            message = f"a charge has no bound at the delta of the limit, {self._limit.delta:g}"
        else:
            message = f"a charge of epsilon {alone.epsilon:.6g} would exceed the limit, {self._limit}"
        held = ", some of it reserved" if self._live() else ""
        raise BudgetError(message, hint=f"epsilon {rest:.6g} is left{held}" if rest else f"nothing is left{held}")

    def _fits(self, wanted: Counter[str]) -> bool:
        asked = (self._limit, frozenset(wanted.items()))
        if asked == self._fitting:  # as it is from charge to charge of a reservation
            return True
        most = self._limit.epsilon * (1 + _ROUNDING)
        # What fits without any delta fits, and is quickly told.
        fits = self._cost(wanted, 0.0) <= most or self._cost(wanted, self._limit.delta) <= most
        self._fitting = asked if fits else None
        return fits

    def _total(self, counts: Counter[str]) -> Budget:
        return Budget(self._cost(counts, self._limit.delta), self._limit.delta)

    def _cost(self, counts: Counter[str], delta: float) -> float:
        events = [_times(Event.from_dict(json.loads(key)), times) for key, times in counts.items() if times]
        added = spent(events, 0.0, relation=self._relation).epsilon
        # Where epsilons add up to so much, no delta makes a difference worth its computation.
        return added if _NO_PRIVACY < added < math.inf else spent(events, delta, relation=self._relation).epsilon

    def _plain(self, event: Event) -> dict[str, Any]:
        """Return an event as it is stored: under the relation of the ledger."""
        if not isinstance(event, Event):
            raise OptionError(f"what is charged must be an event, got {type(event).__name__}")
        if event.relation is not self._relation and self._relation is Relation.REPLACE_ONE:
            event = replace_one(event)
        if event.relation is not self._relation:
            raise OptionError(
                f"the event holds under {event.relation.value}, and the ledger counts under {self._relation.value}",
                hint="a ledger of its own relation can be granted with --ledger and --relation",
            )
        return event.to_dict()

    def _refuse_other(self, fingerprint: str) -> None:
        if self._history[0].content["data"] != fingerprint:
            raise FileError(
                f"the ledger '{self.path}' is that of another data set",
                hint="data that has changed is another data set, and so is data read with other options",
            )

    def _charge_held(self, number: int, times: int, note: str, private: bool) -> Entry:
        with self._writing():
            made = self._history[number - 1].content
            content = {
                "event": made["event"],
                "times": times,
                "note": note,
                "private": bool(private),
                "reservation": number,
            }
            held = self._live().get(number)  # one that has expired, or is used up, has no precedence
            self._admit(made["event"], times, held.times if held else 0)
            return self._store.append("charge", content)

    def _release(self, number: int) -> None:
        with self._writing():
            if number in self._held:
                self._store.append("release", {"reservation": number})


class Reservation:
    """A part of a budget that is held for a while, to be charged in instalments.

    What is charged from it fits, and quickly, unless the limit was lowered meanwhile. It ends when it is
    released, when the block of ``with`` ends, or when its time is over; what was charged stays charged. A
    charge after that is checked like any other. Should the clock of the machine be put back, a
    reservation that has ended does not come to life again.

    See `Ledger.reserve`.
    """

    def __init__(self, ledger: Ledger, number: int) -> None:
        self._ledger = ledger
        self.number = number

    def charge(self, times: int = 1, *, note: str = "", private: bool = True) -> dict[str, Any]:
        """Charge the event some times, before it is run; return what was written."""
        return _told(self._ledger._charge_held(self.number, _whole(times), _refuse_note(note), private))

    def release(self) -> None:
        """Give back what was not charged."""
        self._ledger._release(self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


@dataclass
class _Held:
    """What a reservation still holds."""

    event: str
    times: int
    expires: float

    def to_dict(self, number: int) -> dict[str, Any]:
        event = Event.from_dict(json.loads(self.event))
        return {"number": number, "event": str(event), "times": self.times, "expires": _moment(self.expires)}


def ledger_path(fingerprint: str) -> Path:
    """Return where the ledger of a data set is, by its fingerprint.

    Examples
    --------
    >>> ledger_path("hmac-sha256:0f").name.endswith("-0f.ledger")
    True
    """
    # The key is a part of the name, so that one that was lost is noticed.
    return home() / "ledgers" / f"{key_check(user_hmac())}-{fingerprint.rpartition(':')[2]}.ledger"


def _identity(table: Table) -> tuple[str, int]:
    from sfumato.budget.ledger.fingerprint import content_fingerprint

    return content_fingerprint(table)


def _marks(table: Table) -> frozenset[str]:
    from sfumato.budget.ledger.fingerprint import origin_marks

    return origin_marks(table)


def _limit(epsilon: Any, delta: Any, rows: int) -> Budget:
    positive("the limit of epsilon", epsilon)
    if 0 < check_delta(delta, rows or None, allow_zero=True) < _LEAST_DELTA:
        raise OptionError(f"the limit of delta must be 0 or at least {_LEAST_DELTA:g}, got {delta!r}")
    return Budget(float(epsilon), float(delta))


def _make_folder(target: Path, *, of_ours: bool) -> None:
    try:
        if of_ours:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _refuse_lost_key(target)
        elif not target.resolve().parent.is_dir():
            raise FileError(f"the ledger '{target}' cannot be made: there is no folder '{target.parent}'")
    except OSError as error:
        raise FileError(f"the folder of ledgers, '{target.parent}', cannot be used: {why(error)}") from error


def _refuse_lost_key(target: Path) -> None:
    """Refuse to begin anew where ledgers are that nobody finds any more: under a new key, all data looks new."""
    key, _, _ = target.name.partition("-")
    if any(not other.name.startswith(f"{key}-") for other in target.parent.glob("*.ledger")):
        raise FileError(
            f"there are ledgers in '{target.parent}' of another key than '{home() / 'fingerprint.key'}'",
            hint="restore the key, or their data would get a second budget; if they have served, move them away",
        )


def _times(event: Event, times: int) -> Event:
    return event if times == 1 else Repeated(event, times)


def _whole(times: Any) -> int:
    if isinstance(times, bool) or not isinstance(times, Integral) or times < 1:
        raise OptionError(f"how often an event is charged must be a whole number of at least 1, got {times!r}")
    return int(times)


def _refuse_note(note: Any) -> str:
    if not isinstance(note, str):
        raise OptionError(f"a note must be a text, got {type(note).__name__}")
    return note


def _key(event: dict[str, Any]) -> str:
    return json.dumps(event, sort_keys=True)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _told(entry: Entry) -> dict[str, Any]:
    """Return an entry as plain values for a reader."""
    told = {"number": entry.number, "time": _moment(entry.time), "kind": entry.kind}
    content = {name: value for name, value in entry.content.items() if name not in ("key", "origin", "version")}
    if "event" in content:
        told["what"] = str(_times(Event.from_dict(content["event"]), content["times"]))
    if "expires" in content:
        content["expires"] = _moment(content["expires"])
    return {**told, **content}

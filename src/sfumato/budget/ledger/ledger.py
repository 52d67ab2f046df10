"""The privacy budget of a data set and the charges against it, across processes and crashes.

A ledger protects one data set, or several tables of the same people, identified by fingerprints of their content.
Its limit is an epsilon and a delta. A release is charged before it is made: `Ledger.charge` returns once the charge
is on disk, and raises a `BudgetError` if the charge would exceed the limit. The spent epsilon is that of all events
composed, not the sum of their epsilons, so many small charges are accounted for as tightly as one large charge.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sfumato.budget.accounting.accountant import check_delta, quick_bound, spent
from sfumato.budget.accounting.composition import replace_one
from sfumato.budget.events import Event, Relation, Repeated
from sfumato.budget.ledger.store import Entry, Store, key_check
from sfumato.data.certificate import PERSON, UNIT, UNITS
from sfumato.data.io.files import why
from sfumato.data.io.fingerprint import home, user_hmac
from sfumato.data.table import Table
from sfumato.data.validate import real, whole
from sfumato.errors import BudgetError, ColumnError, FileError, OptionError, did_you_mean, one_of

__all__ = ["Account", "Budget", "Ledger", "Reservation", "ledger_path"]

_VERSION = 2
_TIMES = "the number of times that an event is charged"
_ROUNDING = 1e-12  # relative tolerance for sums of epsilons: three times 0.1 is 0.3
_GRAIN = 1e-3  # the most that the accountant rounds up the cost of one more event
_NO_PRIVACY = 300.0  # an epsilon that offers no protection
_LEAST_DELTA = 1e-12  # the smallest delta that the accountant distinguishes from 0


@dataclass(frozen=True)
class Budget:
    """An epsilon together with a delta.

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


@dataclass(frozen=True, eq=False)
class Account:
    """What a ledger holds at one moment; the exact costs are computed when they are asked for.

    Attributes
    ----------
    limit : Budget
    relation : which tables count as neighbours
    charged, taken : how often each event is charged, and how often it is charged or reserved
    """

    limit: Budget
    relation: Relation
    charged: Counter[str]
    taken: Counter[str]

    @cached_property
    def spent(self) -> Budget:
        """The total cost of all charges at the delta of the limit."""
        return self.total(self.charged)

    @cached_property
    def left(self) -> float:
        """The epsilon that any event can still spend, without the reserved part."""
        limit = self.limit.epsilon
        rest = max(limit - self._cost(self.taken, 0.0), limit - self.total(self.taken).epsilon - _GRAIN)
        return rest if rest > _ROUNDING * limit else 0.0

    @property
    def quick(self) -> tuple[float, float] | None:
        """The most that is spent and the least that is left, where the exact numbers take a second; else None."""
        most, is_exact = quick_bound(_events(self.charged), self.limit.delta, self.relation)
        taken, _ = quick_bound(_events(self.taken), self.limit.delta, self.relation)
        return None if is_exact or taken > min(self.limit.epsilon, _NO_PRIVACY) else (most, self.limit.epsilon - taken)

    def total(self, counts: Counter[str]) -> Budget:
        """Return the cost of some events at the delta of the limit."""
        return Budget(self._cost(counts, self.limit.delta), self.limit.delta)

    def fits(self) -> bool:
        """Return whether all that is charged and reserved is within the limit."""
        most = self.limit.epsilon * (1 + _ROUNDING)
        # The cheap check first: loss distributions can only lower the sum of the epsilons.
        quick, _ = quick_bound(_events(self.taken), self.limit.delta, self.relation)
        return quick <= most or self._cost(self.taken, self.limit.delta) <= most

    def _cost(self, counts: Counter[str], delta: float) -> float:
        events = _events(counts)
        added, _ = quick_bound(events, 0.0, self.relation)
        # For such a large epsilon, the exact accounting is not worth its time.
        return added if _NO_PRIVACY < added < math.inf else spent(events, delta, relation=self.relation).epsilon


class Ledger:
    """The privacy budget of a data set and all charges against it.

    `grant` creates a ledger and `of` finds it by the content of the data: the same rows in another file,
    format or order have the same ledger, and changed rows have none until one is granted. A ledger is a SQLite
    file that only its owner can read, by default in the folder ``ledgers`` of ``$SFUMATO_HOME`` or
    ``~/.config/sfumato``.

    Parameters
    ----------
    path : str or Path
        The ledger file. It is opened without a check that it belongs to particular data; `of` does that check.

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
        self._held: dict[int, _Reserved] = {}
        self._limit = Budget(0.0)
        self._history: list[Entry] = []
        self._fitting: tuple[Budget, frozenset[tuple[str, int]]] | None = None
        self._refresh()
        made = self._history[0]
        if made.kind != "made" or made.content.get("version") != _VERSION:
            raise FileError(f"the ledger '{path}' does not have version {_VERSION}")
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
        unit: str = UNIT,
        person: str | None = None,
    ) -> Ledger:
        """Set the limit of a data set, and create its ledger if it has none; the latest limit applies.

        Parameters
        ----------
        data
            A table, a frame, a file, or images. A list of tables of the same people, which have one person column, for
            the unit "person": what is released about any of them is charged to the one limit.
        epsilon : float
        delta : float
            0, or below one over the number of rows: a delta of 1/n would allow publishing one person's row.
        relation : Relation or str, optional
            ``"add-remove"`` (the default of a new ledger) or ``"replace-one"``: which tables are neighbours.
        note : str
            A reason, kept in the history.
        path : str or Path, optional
            The ledger file.
        unit : str
            What the limit is for: each "row", a "person" with all of their rows, or all of the data as one "client" of
            federated trainings. A ledger of people or clients needs a path of its own; none takes an event of another
            unit. Two ledgers of the same data know nothing of each other: what is spent adds up.
        person : str, optional
            The person column of a ledger of people, by default that of the tables' schemas. Charges for people of
            another column are then refused.

        Examples
        --------
        >>> import sfumato as sf
        >>> print(sf.Ledger.grant("patients.csv", epsilon=2.0, delta=1e-6, note="approved by the board").limit)
        epsilon 2, delta 1e-06
        """
        asked = None if relation is None else one_of(Relation, relation, "the relation")
        _check_note(note)
        if unit not in UNITS:
            raise OptionError(f"the unit of a ledger must be one of {', '.join(UNITS)}, got {unit!r}")
        if unit != UNIT and path is None:
            raise OptionError(f"a ledger of the unit {unit} needs a file of its own", hint="give path / --ledger")
        tables = [_table(one) for one in data] if isinstance(data, list) else [_table(data)]
        person = _person_of(tables, unit, person)
        prints, rows = zip(*map(_identity, tables), strict=True)
        limit = _limit(epsilon, delta, sum(rows))
        target = Path(path) if path is not None else ledger_path(prints[0])
        _make_folder(target, default=path is None)
        origin = frozenset[str]().union(*map(_marks, tables))
        terms: dict[str, Any] = {**limit.to_dict(), "note": note, "origin": sorted(origin)}
        made: dict[str, Any] = {"version": _VERSION, "data": prints[0] if len(prints) == 1 else sorted({*prints})}
        made |= {"relation": (asked or Relation.ADD_REMOVE).value, "unit": unit}
        made |= {} if person is None else {"person": person}
        if not target.exists() and Store.create(target, [("made", made), ("grant", terms)]):
            return cls(target)
        ledger = cls(target)
        for one in prints:
            ledger._refuse_other(one)
        if unit != ledger.unit:
            raise OptionError(f"the ledger '{target}' protects a {ledger.unit}, and this grant is for a {unit}")
        ledger._refuse_others(person)
        if asked not in (None, ledger.relation):
            raise OptionError(
                f"the relation of the ledger is {ledger.relation.value} and cannot be changed, got {asked.value}"
            )
        with ledger._writing():
            ledger._store.append("grant", terms)
        return ledger

    @classmethod
    def of(cls, data: Any, path: str | Path | Ledger | None = None, *, person: str | None = None) -> Ledger:
        """Open the ledger of a data set, or raise an error if it has none or `path` belongs to other data.

        `path` may also be an open ledger. `person` is the person column of what will be charged, by default that of
        the table's schema; a ledger for people of another column is refused.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Ledger.of("patients.csv", "nowhere.ledger")
        Traceback (most recent call last):
            ...
        sfumato.errors.FileError: there is no ledger 'nowhere.ledger' (create one with sfumato budget grant)
        """
        if isinstance(path, Ledger):
            path = path.path
        if path is not None and not isinstance(path, str | Path):
            raise OptionError(f"the ledger must be a Ledger or the path of one, got {type(path).__name__}")
        if path is None:
            ledger = cls.find(data)
            if ledger is None:
                raise BudgetError("no budget was granted for this data", hint="sfumato budget grant, or Ledger.grant")
            return ledger
        if not Path(path).exists():
            raise FileError(f"there is no ledger '{path}'", hint="create one with sfumato budget grant")
        ledger, table = cls(path), _table(data)
        ledger._refuse_other(_identity(table)[0])
        ledger._refuse_others(person or table.schema.person)
        return ledger

    @classmethod
    def find(cls, data: Any) -> Ledger | None:
        """Open the ledger of a data set, or return None if no budget was granted for it.

        A `BudgetError` is raised if a budget was granted for the same file or database table with different
        content (read with other options, another header, other rows), because the people in it are the same.

        Examples
        --------
        >>> import sfumato as sf
        >>> sf.Ledger.find(sf.Table(sf.datasets.nursery().frame.head(5))) is None
        True
        """
        if not _has_ledgers():
            return None  # no row needs to be read to know it
        table = _table(data)
        fingerprint, _ = _identity(table)
        target = ledger_path(fingerprint)
        if target.exists():
            ledger = cls(target)
            ledger._refuse_other(fingerprint)
            return ledger
        marks, (key, _, _) = _marks(table), target.name.partition("-")
        for other in sorted(target.parent.glob(f"{key}-*.ledger")) if marks else ():
            with cls(other) as ledger:
                if any(marks & {*entry.content.get("origin", ())} for entry in ledger._history):
                    raise BudgetError(
                        "a budget was granted for this file, but its content now reads differently",
                        hint="read it with the same options as at the grant, or grant the changed data its own budget",
                    )
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __deepcopy__(self, seen: dict[int, Any]) -> Self:
        return self  # the copy of an estimator charges the same ledger

    def __reduce__(self) -> tuple[type[Ledger], tuple[Path]]:
        return Ledger, (self.path,)  # another process opens the same file

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            self._store.close()

    @property
    def path(self) -> Path:
        """The ledger file."""
        return self._store.path

    @property
    def relation(self) -> Relation:
        """Which tables count as neighbours."""
        return self._relation

    @property
    def unit(self) -> str:
        """What the limit is for: a row, a person, or a client of federated trainings."""
        return str(self._history[0].content.get("unit", UNIT))

    @property
    def person(self) -> str | None:
        """The person column of a ledger of people, if it was named at the grant."""
        named: str | None = self._history[0].content.get("person")
        return named

    @property
    def limit(self) -> Budget:
        """The latest limit that was granted."""
        self._refresh()
        return self._limit

    @property
    def spent(self) -> Budget:
        """The total cost of all charges at the delta of the limit."""
        return self.account.spent

    @property
    def left(self) -> float:
        """The epsilon that any event can still spend, without the reserved part."""
        return self.account.left

    @property
    def account(self) -> Account:
        """What the ledger holds now."""
        self._refresh()
        return self._account()

    @property
    def events(self) -> tuple[Event, ...]:
        """All charged events in order; several charges at once are one `Repeated` event."""
        self._refresh()
        charges = (entry.content for entry in self._history if entry.kind == "charge")
        return tuple(_times(Event.from_dict(one["event"]), one["times"]) for one in charges)

    def charge(self, event: Event, *, times: int = 1, note: str = "", private: bool = True) -> dict[str, Any]:
        """Charge an event before it runs, and return the new entry; raise a `BudgetError` if it does not fit.

        Once this returns, the charge is on disk and stays there, whatever happens to the release.

        Parameters
        ----------
        event : Event
            What is about to be run.
        times : int
            How often the event will run.
        note : str
            The purpose. Notes are stored unencrypted, so they must not contain private data.
        private : bool
            False if the noise comes from a given seed. The history marks such a charge: anyone with the seed can
            remove the noise, so the release is not private.
        """
        content: dict[str, Any] = {
            "event": self._plain(event),
            "unit": self.unit,
            "times": whole(_TIMES, times),
            "note": _check_note(note),
            "private": bool(private),
        }
        with self._writing():
            self._admit(content["event"], content["times"])
            return _entry_dict(self._store.append("charge", content))

    def check(self, event: Event) -> None:
        """Raise a `BudgetError` if `charge` would reject the event; charge nothing."""
        plain = self._plain(event)
        with self._lock:
            self._refresh()
            self._admit(plain, 1)

    def reserve(self, event: Event, *, times: int = 1, seconds: float = 3600.0, note: str = "") -> Reservation:
        """Reserve the cost of an event, so that no other process can spend it; see `Reservation`.

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
        seconds = real("the duration of a reservation in seconds", seconds, above=0)
        content: dict[str, Any] = {
            "event": self._plain(event),
            "times": whole(_TIMES, times),
            "note": _check_note(note),
        }
        with self._writing():
            self._admit(content["event"], content["times"])
            content["expires"] = self._store.now() + seconds
            return Reservation(self, self._store.append("reserve", content).number)

    def history(self) -> list[dict[str, Any]]:
        """Return all entries (grants, charges, reservations) as plain values."""
        self._refresh()
        return [_entry_dict(entry) for entry in self._history]

    def to_dict(self) -> dict[str, Any]:
        """Return the limit, the spent budget, the charges and the open reservations as plain values."""
        account = self.account
        return {
            "limit": account.limit.to_dict(),
            "spent": account.spent.to_dict(),
            "left": account.left,
            "relation": self._relation.value,
            "unit": self.unit,
            "events": [_entry_dict(entry) for entry in self._history if entry.kind == "charge"],
            "reservations": [held.to_dict(number) for number, held in self._live().items()],
        }

    def export(self) -> dict[str, Any]:
        """Return the whole ledger including its seals as plain values, for an audit."""
        entries = [{**plain, "seal": entry.seal} for plain, entry in zip(self.history(), self._history, strict=True)]
        return {**self.to_dict(), "person": self.person, "data": self._history[0].content["data"], "entries": entries}

    # --- the state that follows from the entries ---

    def _refresh(self) -> None:
        """Apply the entries that this or another process has added since the last call."""
        with self._lock:
            for entry in self._store.read_new():
                self._apply(entry)

    def _apply(self, entry: Entry) -> None:
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
            self._held[entry.number] = _Reserved(_key(content["event"]), content["times"], content["expires"])
        elif entry.kind == "release":
            self._held.pop(content["reservation"], None)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            with self._store.transaction():
                self._refresh()
                yield
            self._refresh()

    def _live(self) -> dict[int, _Reserved]:
        now = self._store.now()
        return {number: held for number, held in self._held.items() if held.times and held.expires > now}

    def _account(self) -> Account:
        taken = Counter(self._charged)
        for held in self._live().values():
            taken[held.event] += held.times
        return Account(self._limit, self._relation, Counter(self._charged), taken)

    def _admit(self, event: dict[str, Any], times: int, reserved: int = 0) -> None:
        """Raise a `BudgetError` if an event, less its own reservation, does not fit into the remaining budget."""
        account = self._account()
        wanted = account.taken + Counter({_key(event): max(times - reserved, 0)})
        asked = (self._limit, frozenset(wanted.items()))
        if asked == self._fitting or replace(account, taken=wanted).fits():
            self._fitting = asked  # unchanged between the charges of a reservation
            return
        alone = account.total(Counter({_key(event): times}))
        rest = account.left
        if alone.epsilon == math.inf:
            message = f"a charge has no finite epsilon at the delta of the limit, {self._limit.delta:g}"
        else:
            message = f"a charge of epsilon {alone.epsilon:.6g} would exceed the limit, {self._limit}"
        held = ", some of it reserved" if self._live() else ""
        raise BudgetError(message, hint=f"epsilon {rest:.6g} is left{held}" if rest else f"nothing is left{held}")

    def _plain(self, event: Event) -> dict[str, Any]:
        """Return an event as plain values, converted to the relation of the ledger."""
        if not isinstance(event, Event):
            raise OptionError(f"only an event can be charged, got {type(event).__name__}")
        if event.unit != self.unit:
            raise OptionError(f"the event protects a {event.unit}, and the ledger '{self.path}' a {self.unit}")
        if event.relation is not self._relation and self._relation is Relation.REPLACE_ONE:
            event = replace_one(event)
        if event.relation is not self._relation:
            raise OptionError(
                f"the event has the relation {event.relation.value}, but the ledger has {self._relation.value}",
                hint="grant a second ledger with --ledger and --relation",
            )
        return event.to_dict()

    def _refuse_other(self, fingerprint: str) -> None:
        data = self._history[0].content["data"]
        if fingerprint not in (data if isinstance(data, list) else [data]):
            raise FileError(
                f"the ledger '{self.path}' belongs to another data set",
                hint="changed data is another data set, and so is data read with other options",
            )

    def _refuse_others(self, person: str | None) -> None:
        if None not in (person, self.person) and person != self.person:
            raise OptionError(
                f"the ledger '{self.path}' protects the people of column '{self.person}', not those of '{person}'"
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
            held = self._live().get(number)  # None if it has expired or is used up
            self._admit(made["event"], times, held.times if held else 0)
            return self._store.append("charge", content)

    def _release(self, number: int) -> None:
        with self._writing():
            if number in self._held:
                self._store.append("release", {"reservation": number})


class Reservation:
    """A part of a budget that is reserved for a limited time, to be charged in parts; see `Ledger.reserve`.

    A charge from a reservation always fits unless the limit was lowered, and it is fast. The reservation ends when
    it is released, when its ``with`` block ends, or when it expires; its charges stay. Later charges are checked like
    any other. Setting the clock back does not revive an expired reservation.
    """

    def __init__(self, ledger: Ledger, number: int) -> None:
        self._ledger = ledger
        self.number = number

    def charge(self, times: int = 1, *, note: str = "", private: bool = True) -> dict[str, Any]:
        """Charge the event one or more times before it runs, and return the new entry."""
        return _entry_dict(self._ledger._charge_held(self.number, whole(_TIMES, times), _check_note(note), private))

    def release(self) -> None:
        """Return the uncharged part to the budget."""
        self._ledger._release(self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


@dataclass
class _Reserved:
    """The uncharged part of a reservation."""

    event: str
    times: int
    expires: float

    def to_dict(self, number: int) -> dict[str, Any]:
        event = Event.from_dict(json.loads(self.event))
        return {"number": number, "event": str(event), "times": self.times, "expires": _moment(self.expires)}


def ledger_path(fingerprint: str) -> Path:
    """Return the default path of the ledger for a content fingerprint.

    Examples
    --------
    >>> ledger_path("hmac-sha256:0f").name.endswith("-0f.ledger")
    True
    """
    # The name includes a check value of the key, so that a lost key is noticed.
    return home() / "ledgers" / f"{key_check(user_hmac())}-{fingerprint.rpartition(':')[2]}.ledger"


def _has_ledgers() -> bool:
    """Return whether this user has any ledger."""
    try:
        return any(one.suffix == ".ledger" for one in (home() / "ledgers").iterdir())
    except FileNotFoundError:
        return False
    except OSError:  # reported when the ledger is opened
        return True


def _table(data: Any) -> Table:
    """Return the records as a table; of images, a row for each."""
    from sfumato.data.io.images import are_images, image_table, read_images

    if not are_images(data):
        return Table.of(data)
    return image_table(read_images(data) if isinstance(data, str | Path) else data)


def _person_of(tables: Sequence[Table], unit: str, person: str | None) -> str | None:
    """Return the one person column of all tables, if it is named; several tables need one."""
    if not tables:
        raise OptionError("no table is given to grant a budget")
    if unit != PERSON:
        if len(tables) > 1:
            raise OptionError(
                f"several tables can share a ledger of people only, got the unit {unit}", hint="unit / --unit person"
            )
        if person is not None:
            raise OptionError(f"a ledger of the unit {unit} has no person column", hint="unit / --unit person")
        return None
    found = []
    for number, table in enumerate(tables, 1):
        name = person or table.schema.person
        if name is None and len(tables) > 1:
            raise OptionError(f"table {number} has no person column", hint="name it with person / --person")
        if name is not None and name not in table.schema.names:
            which = f"table {number}" if len(tables) > 1 else "the table"
            hint = did_you_mean(name, table.schema.names)
            raise ColumnError(f"{which} lacks the person column '{name}'", hint=hint)
        found.append(name)
    if len({*found}) > 1:
        raise OptionError(
            f"the tables have different person columns, {', '.join(dict.fromkeys(map(str, found)))}",
            hint="rename them to one, if they name the same people",
        )
    return found[0]


def _identity(table: Table) -> tuple[str, int]:
    from sfumato.budget.ledger.fingerprint import content_fingerprint

    return content_fingerprint(table)


def _marks(table: Table) -> frozenset[str]:
    from sfumato.budget.ledger.fingerprint import origin_marks

    return origin_marks(table)


def _limit(epsilon: Any, delta: Any, rows: int) -> Budget:
    epsilon = real("the limit of epsilon", epsilon, above=0)
    if 0 < check_delta(delta, rows or None, allow_zero=True) < _LEAST_DELTA:
        raise OptionError(f"the limit of delta must be 0 or at least {_LEAST_DELTA:g}, got {delta!r}")
    return Budget(epsilon, float(delta))


def _make_folder(target: Path, *, default: bool) -> None:
    try:
        if default:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _refuse_lost_key(target)
        elif not target.resolve().parent.is_dir():
            raise FileError(f"the ledger '{target}' cannot be created: there is no folder '{target.parent}'")
    except OSError as error:
        raise FileError(f"the ledger folder '{target.parent}' cannot be used: {why(error)}") from error


def _refuse_lost_key(target: Path) -> None:
    """Reject a new key in a folder with ledgers of another key: under a new key, all data would look new."""
    key, _, _ = target.name.partition("-")
    if any(not other.name.startswith(f"{key}-") for other in target.parent.glob("*.ledger")):
        raise FileError(
            f"the ledgers in '{target.parent}' were made with another key than '{home() / 'fingerprint.key'}'",
            hint="restore that key, or their data would get a second budget; archive ledgers you no longer need",
        )


def _times(event: Event, times: int) -> Event:
    return event if times == 1 else Repeated(event, times)


def _events(counts: Counter[str]) -> list[Event]:
    return [_times(Event.from_dict(json.loads(key)), times) for key, times in counts.items() if times]


def _check_note(note: Any) -> str:
    if not isinstance(note, str):
        raise OptionError(f"a note must be a text, got {type(note).__name__}")
    return note


def _key(event: dict[str, Any]) -> str:
    return json.dumps(event, sort_keys=True)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _entry_dict(entry: Entry) -> dict[str, Any]:
    """Return an entry as plain values, with times in ISO format and its event in words."""
    plain = {"number": entry.number, "time": _moment(entry.time), "kind": entry.kind}
    content = {name: value for name, value in entry.content.items() if name not in ("key", "origin", "version")}
    if "event" in content:
        plain["what"] = str(_times(Event.from_dict(content["event"]), content["times"]))
    if "expires" in content:
        content["expires"] = _moment(content["expires"])
    return {**plain, **content}

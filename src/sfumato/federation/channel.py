"""How a coordinator reaches data holders: a request to each, and the replies of those that answer in time.

Everything in this package is written against `Channel` and `Party`: a protocol neither knows nor cares whether the
parties are objects in this process (`InProcess`) or processes of Flower on other machines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sfumato.errors import ProtocolError, SfumatoError
from sfumato.federation.wire import Message, decode, encode

__all__ = ["Channel", "Handler", "InProcess", "Party", "Replies"]

Handler = Callable[[Message], Message]
"""Answers the requests of one kind."""


class Party:
    """A data holder: it answers requests, each by the handler of its kind.

    A reply never holds a Python error: what Sfumato refuses deliberately comes back as its one sentence, anything else
    as the name of the error alone, since its text may quote data.

    Examples
    --------
    >>> party = Party("north", {"double": lambda request: {"value": 2 * request["value"]}})
    >>> party.answer({"kind": "double", "value": 4})
    {'value': 8}
    >>> party.answer({"kind": "halve"})
    {'error': "party 'north' cannot answer a request of kind 'halve'"}
    """

    def __init__(self, name: str, handlers: Mapping[str, Handler]) -> None:
        self.name, self.handlers = name, dict(handlers)

    def __repr__(self) -> str:
        return f"Party({self.name!r})"

    def answer(self, request: Message) -> Message:
        """Return the reply to a request; ``{"error": sentence}`` if there is none."""
        kind = request.get("kind")
        try:
            if not isinstance(kind, str) or kind not in self.handlers:
                raise ProtocolError(f"party '{self.name}' cannot answer a request of kind {str(kind)[:40]!r}")
            return self.handlers[kind](request)
        except SfumatoError as error:
            return {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - one party's fault must not end the others' run
            return {"error": f"party '{self.name}' failed with {type(error).__name__}"}


@dataclass(frozen=True)
class Replies:
    """What came back: the replies by party, and for those that refused the reason. All others were silent."""

    arrived: dict[str, Message] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @classmethod
    def sorted(cls, answers: Mapping[str, Message]) -> Replies:
        """Tell replies from refusals."""
        return cls(
            {name: one for name, one in answers.items() if "error" not in one},
            {name: str(one["error"])[:500] for name, one in answers.items() if "error" in one},
        )

    def require(self, names: Iterable[str], what: str) -> dict[str, Message]:
        """Return all replies, or raise an error that names the first party without one, and its reason."""
        for name in names:
            if name not in self.arrived:
                raise ProtocolError(f"party '{name}' did not {what}", hint=self.refused.get(name, "it did not answer"))
        return self.arrived


class Channel(ABC):
    """The coordinator's connection to all parties."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The parties that are known, whether they answer or not."""

    @abstractmethod
    def ask(self, requests: Mapping[str, Message], *, timeout: float = 60.0) -> Replies:
        """Send each party its own request, and wait until all have answered or the time in seconds is over."""

    def ask_all(self, request: Message, *, timeout: float = 60.0) -> Replies:
        """Send the same request to every party."""
        return self.ask(dict.fromkeys(self.names, request), timeout=timeout)


class InProcess(Channel):
    """Parties in this process, for tests, simulations and a first look. Messages pass through bytes, as elsewhere.

    Examples
    --------
    >>> parties = [Party(name, {"hello": lambda request, name=name: {"from": name}}) for name in ("north", "south")]
    >>> InProcess(parties).ask_all({"kind": "hello"}).arrived["south"]
    {'from': 'south'}
    """

    def __init__(self, parties: Iterable[Party]) -> None:
        self.parties = {one.name: one for one in parties}
        self.sent = dict.fromkeys(self.parties, 0)
        self.received = dict.fromkeys(self.parties, 0)

    @property
    def names(self) -> tuple[str, ...]:
        """The parties."""
        return tuple(self.parties)

    def ask(self, requests: Mapping[str, Message], *, timeout: float = 60.0) -> Replies:
        """Ask one party after another; the time is not limited."""
        answers = {}
        for name, request in requests.items():
            there = encode(request)
            back = encode(self.parties[name].answer(decode(there)))
            self.received[name] += len(there)
            self.sent[name] += len(back)
            answers[name] = decode(back)
        return Replies.sorted(answers)

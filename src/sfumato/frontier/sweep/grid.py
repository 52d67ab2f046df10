"""Protections with open parameters, and the grid of candidates that they stand for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.anonymizers.anonymize import METHODS
from sfumato.attacks.protections import protection
from sfumato.errors import OptionError, did_you_mean

__all__ = ["DEFAULTS", "Candidate", "candidates_of"]

KS = (2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
DEFAULTS = ("raw", "mondrian", "lattice:k=5,20,100", "guided:k=5,20,100,500", "dp", "synthetic", "hilbert:k=5,20,100")
"""The protections that are compared by default."""

_PRIVATE = ("dp", "synthetic")


@dataclass(frozen=True)
class Candidate:
    """A protection with all its parameters.

    Attributes
    ----------
    name : "raw", a method of anonymization, "dp", "synthetic", or a method and then dp, such as "guided+dp"
    parameters : by name, such as ``(("k", "10"),)``
    """

    name: str
    parameters: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return "+".join(
            ":".join(filter(None, (name, ",".join(f"{key}={value}" for key, value in parameters))))
            for name, parameters in self.parts
        )

    @property
    def parts(self) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
        """The protections that are combined, each with its parameters; mostly a single one."""
        first, _, second = self.name.partition("+")
        if not second:
            return [(self.name, self.parameters)]
        private = tuple(pair for pair in self.parameters if pair[0] in ("epsilon", "delta"))
        return [(first, tuple(pair for pair in self.parameters if pair not in private)), (second, private)]

    @property
    def publishes_rows(self) -> bool:
        """Whether rows are released, and not only a model."""
        return self.parts[-1][0] != "dp"

    def number(self, key: str) -> float | None:
        """Return a parameter as a number; None if it is not given."""
        found = dict(self.parameters).get(key)
        return None if found is None else float(found)

    @property
    def strength(self) -> float:
        """A number that grows with the protection, within protections of one name."""
        epsilon = self.number("epsilon")
        return self.number("k") or 0.0 if epsilon is None else 1 / epsilon

    @property
    def guarantee(self) -> str:
        """What is guaranteed, in words."""
        if self.name == "raw":
            return "none"
        (_, parameters), *then = self.parts
        if self.name in _PRIVATE:
            return f"differential privacy, epsilon {self.number('epsilon'):g} for each row"
        kept = ", ".join(f"{key}={value}" for key, value in parameters)
        if not then:
            return f"{kept} (anonymity of the released rows)"
        return (
            f"{kept} (anonymity of the rows that the model has learned from); not differential privacy: "
            f"epsilon {self.number('epsilon'):g} of the training does not cover how the rows were recoded"
        )

    @property
    def words(self) -> str:
        """What is published, in plain words."""
        epsilon, k = self.number("epsilon"), self.number("k")
        alike = f"groups of at least {k:g} people who look alike" if k else "anonymous groups"
        if self.name == "raw":
            return "the rows as they are"
        if self.name == "dp":
            return f"only a model, trained with differential privacy (epsilon {epsilon:g})"
        if self.name == "synthetic":
            return f"made-up rows, drawn with differential privacy (epsilon {epsilon:g})"
        if not self.publishes_rows:
            return f"only a model, trained with noise (epsilon {epsilon:g}) on {alike}"
        return f"the table in {alike}"


def candidates_of(protections: Sequence[str] = DEFAULTS) -> tuple[Candidate, ...]:
    """Expand protections with open parameters into candidates.

    A parameter may be a value, several (``k=2,10,50``), or a range (``k=2..1000``); one that is left out gets a default
    grid. ``guided:k=50+dp:epsilon=1`` is a private training on anonymous rows.

    Examples
    --------
    >>> [str(one) for one in candidates_of(["raw", "mondrian:k=5..20", "dp:epsilon=0.5,2"])]
    ['raw', 'mondrian:k=5', 'mondrian:k=10', 'mondrian:k=20', 'dp:epsilon=0.5', 'dp:epsilon=2']
    >>> candidates_of(["mondrain"])
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: there is no protection 'mondrain' (did you mean 'mondrian'?)
    """
    found = dict.fromkeys(one for text in protections for one in _expand(str(text)))
    if not found:
        raise OptionError("no protection is named", hint=f"for example {', '.join(DEFAULTS[:3])}")
    return tuple(found)


def _expand(text: str) -> list[Candidate]:
    parts = [part.strip() for part in text.split("+")]
    if len(parts) > 1:
        names = [part.partition(":")[0].strip() for part in parts]
        if len(parts) > 2 or names[0] not in METHODS or names[1] != "dp":
            raise OptionError(
                f"'{text}' must be a method of anonymization and then dp", hint="for example guided:k=50+dp:epsilon=1"
            )
        both = itertools.product(*(_expand(part) for part in parts))
        made = [Candidate("+".join(c.name for c in one), sum((c.parameters for c in one), ())) for one in both]
        return made
    name, _, rest = (part.strip() for part in text.partition(":"))
    known = ("raw", *METHODS, *_PRIVATE)
    if name not in known:
        raise OptionError(f"there is no protection '{name}'", hint=did_you_mean(name, known))
    if name == "raw":
        if rest:
            raise OptionError(f"the protection 'raw' has no parameters, got '{rest}'")
        return [Candidate("raw")]
    values = _values(name, rest)
    opened = "epsilon" if name in _PRIVATE else "k"
    if opened not in values and (name in _PRIVATE or not values):
        values = {opened: [f"{one:g}" for one in (EPSILONS if name in _PRIVATE else KS)], **values}
    made = [Candidate(name, tuple(zip(values, one, strict=True))) for one in itertools.product(*values.values())]
    for one in made:
        protection(str(one))  # refuses wrong parameters
    return made


def _values(name: str, rest: str) -> dict[str, list[str]]:
    """Return the values of each parameter; a part without a name is another value of the parameter before it."""
    values: dict[str, list[str]] = {}
    last = ""
    for part in filter(None, (one.strip() for one in rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if equals and key in values:
            raise OptionError(f"the protection '{name}' has {key} twice")
        last, value = (key, value) if equals else (last, key)
        if not last:
            raise OptionError(f"'{part}' of the protection '{name}' has no name", hint=f"for example {name}:k=2..100")
        values.setdefault(last, []).extend(_range(name, last, value))
    return values


def _range(name: str, key: str, value: str) -> list[str]:
    """Return the values of a default grid within a range, with its ends; a plain value is itself."""
    if ".." not in value:
        return [value]
    try:
        low, high = map(float, value.split("..", 1))
    except ValueError:
        low, high = 1.0, 0.0
    if not 0 < low <= high:
        raise OptionError(f"the range {key}={value} of '{name}' must be like {key}=2..100, the smaller number first")
    grid = EPSILONS if key == "epsilon" else KS
    return [f"{one:g}" for one in sorted({low, high, *(one for one in grid if low <= one <= high)})]

"""Protections with open parameters, and the grid of candidates that they stand for."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sfumato.anonymizers.anonymize import METHODS
from sfumato.attacks.procedures import RunRecipe
from sfumato.attacks.protections import protection
from sfumato.data.guarantee import Guarantee
from sfumato.data.recipe import Recipe
from sfumato.errors import OptionError, did_you_mean
from sfumato.synthesizers.tables.methods.catalogue import METHODS as SYNTHESIZERS

__all__ = ["DEFAULTS", "Candidate", "candidates_of", "plain"]

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
    name : "raw", a method of anonymization, "dp", "synthetic", or a method and then dp, such as "guided+dp"; or the
        path of a recipe
    parameters : by name, such as ``(("k", "10"),)``
    recipe : the text of the recipe; empty if the name says what is done
    """

    name: str
    parameters: tuple[tuple[str, str], ...] = ()
    recipe: str = ""

    def __str__(self) -> str:
        return "+".join(
            ":".join(filter(None, (name, ",".join(f"{key}={value}" for key, value in parameters))))
            for name, parameters in self.parts
        )

    @property
    def parts(self) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
        """The protections that are combined, each with its parameters; mostly a single one."""
        first, _, second = self.name.partition("+")
        if not second or self.recipe:
            return [(self.name, self.parameters)]
        private = tuple(pair for pair in self.parameters if pair[0] in ("epsilon", "delta"))
        return [(first, tuple(pair for pair in self.parameters if pair not in private)), (second, private)]

    @cached_property
    def plan(self) -> Recipe | None:
        """The recipe with the parameters; None if the name says what is done."""
        if not self.recipe:
            return None
        return Recipe.from_toml(self.recipe).with_values(**{key: plain(value) for key, value in self.parameters})

    @property
    def family(self) -> str:
        """What protections with other values of their parameters share: the name, or the method of synthetic rows."""
        return dict(self.parameters).get("method", self.name)

    @property
    def publishes_rows(self) -> bool:
        """Whether rows are released, and not only a model."""
        return self.plan.command != "train" if self.plan else self.parts[-1][0] != "dp"

    @property
    def anonymizes(self) -> bool:
        """Whether the rows are recoded in groups."""
        return self.plan.command == "anonymize" if self.plan else self.parts[0][0] in METHODS

    @property
    def makes_up(self) -> bool:
        """Whether a released row is not the row of a person: it is made up, or replaced by a noisy one."""
        return self.plan.command in ("synthesize", "perturb") if self.plan else self.name == "synthetic"

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
        if self.plan is not None:
            return _guarantee_of(self.plan)
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
        if self.plan is not None:
            return _RESULTS[self.plan.command].format(name=Path(self.name).name)
        if self.name == "raw":
            return "the rows as they are"
        if self.name == "dp":
            return f"only a model, trained with differential privacy (epsilon {epsilon:g})"
        if self.name == "synthetic":
            return f"synthetic rows, drawn with differential privacy (epsilon {epsilon:g})"
        if not self.publishes_rows:
            return f"only a model, trained with noise (epsilon {epsilon:g}) on {alike}"
        return f"the table in {alike}"


_RESULTS = {
    "anonymize": "the table in the groups of {name}",
    "mask": "the masked table of {name}",
    "perturb": "the noisy rows of {name}",
    "synthesize": "the synthetic rows of {name}",
    "train": "only the model of {name}",
}


def _guarantee_of(plan: Recipe) -> str:
    """Return what a recipe promises, in words."""
    options = plan.options
    if (epsilon := options.get("epsilon")) is not None:
        level = "local differential privacy" if plan.command == "perturb" else "differential privacy"
        return f"{level}, epsilon {epsilon} for each row" if epsilon != "none" else "none"
    given = options.get("guarantees") or []
    asked = [Guarantee.from_dict(one) for one in given] if isinstance(given, list) else []
    return f"{', '.join(map(str, asked))} (anonymity of the released rows)" if asked else "none"


def plain(text: str) -> float | int | str:
    """Return a value as a number, if it is one.

    Examples
    --------
    >>> plain("0.5"), plain("5"), plain("tree")
    (0.5, 5, 'tree')
    """
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


def candidates_of(protections: Sequence[str] = DEFAULTS) -> tuple[Candidate, ...]:
    """Expand protections with open parameters into candidates.

    A parameter may be a value, several (``k=2,10,50``), or a range (``k=2..1000``); one that is left out gets a default
    grid. ``guided:k=50+dp:epsilon=1`` is a private training on anonymous rows. A method of `sf.synthesize` is named
    like any other (``aim:epsilon=1``). Anything else that has a recipe is named by the recipe's file, with values for
    its options: ``masked/recipe.toml:scale=0.1,1``.

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
    if (file := re.fullmatch(r"(.+?\.toml)(?::(.*))?", text.strip())) is not None:
        return _of_recipe(file[1], file[2] or "")
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
    known = ("raw", *METHODS, *_PRIVATE, *SYNTHESIZERS)
    if name in SYNTHESIZERS:
        name, rest = "synthetic", f"method={name},{rest}"
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


def _of_recipe(path: str, rest: str) -> list[Candidate]:
    """Return a candidate for each combination of values of a recipe's options."""
    recipe = Recipe.load(path)
    RunRecipe(recipe)  # refuses commands that cannot be run on other rows
    values = _values(path, rest)
    text = recipe.to_toml()
    found = [Candidate(path, tuple(zip(values, one, strict=True)), text) for one in itertools.product(*values.values())]
    for one in found:
        _ = one.guarantee  # refuses options that the recipe lacks
    return found


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

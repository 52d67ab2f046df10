"""The file that all parties of an analysis have: who takes part, with which keys, and what is computed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sfumato.data.certificate import read_plain
from sfumato.data.io.files import atomic_path
from sfumato.errors import FileError, InputError, SfumatoError
from sfumato.federation.analysis.plan import AnalysisPlan
from sfumato.federation.folder import check_name
from sfumato.federation.secure.masks import Roster

__all__ = ["Agreement"]

_FORMAT = "sfumato joint analysis 1"


@dataclass(frozen=True)
class Agreement:
    """A plan, and the parties by their public keys. All parties must have the same file.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.federation import Moments
    >>> schema = sf.Schema([sf.Column(name="age", bounds=(0, 120))])
    >>> plan = AnalysisPlan(analysis=Moments(("age",)), schema=schema, parties=2)
    >>> Agreement.of(plan, {"north": bytes(32), "south": bytes([1] * 32)}).roster.names
    ('north', 'south')
    """

    plan: AnalysisPlan
    roster: Roster

    @classmethod
    def of(cls, plan: AnalysisPlan, keys: Mapping[str, bytes]) -> Agreement:
        """Make a new agreement, with a fresh name of the run."""
        return cls._checked(plan, keys, secrets.token_bytes(32))

    @classmethod
    def _checked(cls, plan: AnalysisPlan, keys: Mapping[str, bytes], run: bytes) -> Self:
        if len(keys) != plan.parties:
            raise InputError(f"the plan is for {plan.parties} parties, and {len(keys)} keys are given")
        assert plan.threshold is not None
        return cls(plan, Roster(run, {check_name(name): keys[name] for name in sorted(keys)}, plan.threshold))

    def describe(self) -> str:
        """Return what the plan says in one sentence.

        Examples
        --------
        >>> import sfumato as sf
        >>> from sfumato.federation import Moments
        >>> schema = sf.Schema([sf.Column(name="age", bounds=(0, 120))])
        >>> plan = AnalysisPlan(analysis=Moments(("age",)), schema=schema, parties=2)
        >>> Agreement.of(plan, {"north": bytes(32), "south": bytes([1] * 32)}).describe()
        'mean of age by masks, over the rows of north, south, all of which must take part; exact, without noise'
        """
        plan, count = self.plan, self.roster.threshold
        needed = "all of which must" if count == plan.parties else f"{count} of which must"
        privacy = "exact, without noise"
        if plan.epsilon is not None:
            privacy = f"epsilon {plan.epsilon:g}, delta {plan.delta:g}, if {plan.honest} of them add their noise"
        return (
            f"{plan.analysis.kind} of {', '.join(plan.columns)} by {plan.secure}, over the rows of "
            f"{', '.join(self.roster.names)}, {needed} take part; {privacy}"
        )

    def check_keys(self, name: str, known: Mapping[str, bytes]) -> None:
        """Raise an error unless every other party has the key that it handed to this party.

        Whoever writes a plan could put keys of its own in the place of the others': all other vectors would be its own,
        and the sum would show that of this party.
        """
        for other, key in self.roster.keys.items():
            if other != name and other not in known:
                raise InputError(
                    f"the key of party '{other}' in the plan is not checked",
                    hint=f"put {other}.pub, as they handed it to you, beside your key, or give it with --party",
                )
            if other != name and known[other] != key:
                raise InputError(
                    f"the key of party '{other}' in the plan is not the one that they handed to you",
                    hint="somebody has exchanged it: do not join",
                )

    def save(self, path: str | Path) -> None:
        """Write the file."""
        plain = {
            "format": _FORMAT,
            "run": self.roster.run.hex(),
            "parties": {name: key.hex() for name, key in self.roster.keys.items()},
            "plan": self.plan.to_dict(),
        }
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(plain, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Agreement:
        """Read the file."""
        try:
            plain = read_plain(Path(path))
            if plain["format"] != _FORMAT:
                raise FileError("its format is another one")
            keys = {name: bytes.fromhex(key) for name, key in plain["parties"].items()}
            return cls._checked(AnalysisPlan.from_dict(plain["plan"]), keys, bytes.fromhex(plain["run"]))
        except (SfumatoError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            reason = str(error) if isinstance(error, SfumatoError) else "it is damaged or missing"
            raise FileError(f"'{path}' is not a plan of an analysis: {reason}") from error

"""A table that has been counted already is not counted again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sfumato._repr import Discreet
from sfumato.data.table import Table
from sfumato.engines.engine import Engine, Progress, Recoding
from sfumato.engines.tuples import Tuples
from sfumato.errors import OptionError

__all__ = ["Counted"]


@dataclass(frozen=True, eq=False, repr=False)
class Counted(Discreet, Engine):
    """What another engine has counted, for whoever asks for the same columns.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.engines import reduce
    >>> table = sf.read("patients.csv")
    >>> sf.assess(table, qi=["sex"], engine=Counted(reduce(table, ["sex"]))).k
    3
    """

    tuples: Tuples

    name: ClassVar[str] = "counted"

    def joint_count(self, table: Table, names: Sequence[str], progress: Progress | None = None) -> Tuples:
        """Return the tuples; refuse other columns than theirs."""
        if list(names) != [domain.name for domain in self.tuples.domains]:
            raise OptionError("other columns were counted than are asked for")
        return self.tuples

    def recode(
        self, table: Table, recoding: Recoding, to: str | Path | None = None, progress: Progress | None = None
    ) -> Table:
        """Refuse: here are no rows."""
        raise OptionError("a table that was counted elsewhere is recoded there")

"""Both halves of an analysis: a holder's sums over its rows, and the coordinator's result of the totals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.errors import InputError, ProtocolError
from sfumato.federation.analysis.analyses import GRID
from sfumato.federation.analysis.columns import read_columns
from sfumato.federation.analysis.plan import AnalysisPlan
from sfumato.federation.channel import Channel, InProcess, Party
from sfumato.federation.secure.connect import connect
from sfumato.federation.secure.sum import SecureSum
from sfumato.federation.wire import Message

__all__ = ["AnalysisHolder", "JointResult", "analyse", "analyse_together"]


class AnalysisHolder:
    """The rows of one holder, and what it adds up.

    Parameters
    ----------
    name
        Its name.
    plan
        What all holders agree on; a request for another plan is rejected.
    rows
        Its table.
    ledger
        Its own ledger, charged before the first sum leaves the holder. Without one, nothing remembers the cost.
    once : called before the first sum leaves the holder, with an error if this plan has been answered before; see
        `Answered`. Without it, a holder that is started again answers the plan again.
    """

    def __init__(
        self,
        name: str,
        plan: AnalysisPlan,
        rows: Any,
        *,
        ledger: Ledger | None = None,
        once: Callable[[], None] | None = None,
    ) -> None:
        self.name, self.plan, self.ledger, self._once = name, plan, ledger, once
        private = plan.epsilon is not None
        self._columns = read_columns(
            rows, plan.schema, plan.analysis.numbers, plan.analysis.categories, private=private
        )
        if len(self._columns.numbers) > plan.rows:
            raise InputError(f"party '{name}' has more than the {plan.rows:,} rows that the plan allows")
        plan.analysis.check(self._columns)
        if plan.event is not None and ledger is not None:
            ledger.check(plan.event)
        self._sent = 0
        self._state: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        return f"AnalysisHolder({self.name!r})"

    def contribute(self, request: Message) -> tuple[NDArray[np.uint64], Message]:
        """Return the sums over the rows, with this holder's share of the noise."""
        plan = self.plan
        if request.get("plan") != plan.digest:
            raise ProtocolError(f"party '{self.name}' has agreed to another plan")
        if self._sent >= plan.analysis.sums:
            raise ProtocolError(
                f"party '{self.name}' has sent the {plan.analysis.sums} sum(s) of this plan already",
                hint="begin again, which costs epsilon again" if plan.epsilon is not None else "begin again",
            )
        state = np.asarray(request.get("state"), np.float64)
        if not plan.analysis.follows(plan.schema, self._state, state):
            raise ProtocolError(f"the coordinator asks party '{self.name}' for another sum than the plan has")
        if self._once is not None and not self._sent:
            self._once()
        self._state = state.copy()
        if plan.event is not None and self.ledger is not None and not self._sent:
            self.ledger.charge(plan.event, note=f"a joint analysis: {plan.analysis.kind}")
        self._sent += 1
        total = plan.analysis.add(plan.schema, self._columns, state)
        if not plan.opens_sums and plan.analysis.kind != "function":
            total = total >> GRID  # counts
        if plan.noise:
            total = total + Source().discrete_gaussian(float(plan.noise), len(total))
        return total.astype(np.uint64), {}


@dataclass(frozen=True, eq=False)
class JointResult:
    """The result of an analysis.

    Attributes
    ----------
    plan : what was agreed on
    present : the holders whose rows it is about
    values : the result as plain values
    noise : the standard deviation of each sum of scaled numbers, if all holders keep to the plan; 0 without privacy
    """

    plan: AnalysisPlan
    present: tuple[str, ...]
    values: dict[str, Any]
    noise: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        plan = self.plan
        return {
            "analysis": plan.analysis.kind,
            "result": self.values,
            "holders": list(self.present),
            "secure": plan.secure,
            "epsilon": plan.epsilon,
            "delta": None if plan.epsilon is None else plan.delta,
            "noise": self.noise,
        }


def analyse(plan: AnalysisPlan, channel: Channel, secure: SecureSum) -> JointResult:
    """Ask the holders for their sums, and return the result."""
    state, present, noise = plan.analysis.start(plan.schema), tuple[str, ...](), 0.0
    for _ in range(plan.analysis.sums):
        requests = {name: {"plan": plan.digest, "state": state} for name in channel.names}
        # A number that grows also over restarts: no mask or key of an interrupted sum is used again.
        summed = secure.total(channel, time.time_ns() // 1000, requests, bits=64)
        assert plan.threshold is not None
        if len(summed.present) < plan.threshold:
            raise ProtocolError(f"only {len(summed.present)} holders took part, but {plan.threshold} are needed")
        if not plan.opens_sums:
            return JointResult(
                plan, summed.present, plan.analysis.opened(plan.schema, summed.total.view(np.int64)), 0.0
            )
        if summed.total.shape != (plan.length,):
            raise ProtocolError("the sums of the holders have another length than the plan")
        if present not in ((), summed.present):
            raise ProtocolError("a holder fell silent during the analysis, so its parts do not belong together")
        present = summed.present
        noise = plan.noise * float(np.sqrt(len(present))) / 2**GRID
        state = plan.analysis.step(plan.schema, state, summed.total.view(np.int64) / 2.0**GRID, noise)
    return JointResult(plan, present, plan.analysis.result(plan.schema, state, noise), noise)


def analyse_together(
    plan: AnalysisPlan, holders: Mapping[str, Any], *, ledgers: Mapping[str, Ledger] | None = None
) -> JointResult:
    """Run an analysis with holders in this process: the same messages and sums as between machines.

    Examples
    --------
    >>> import polars as pl
    >>> import sfumato as sf
    >>> from sfumato.federation import AnalysisPlan, Moments
    >>> schema = sf.Schema([sf.Column(name="age", bounds=(0, 120))])
    >>> rows = {"north": pl.DataFrame({"age": [30, 50]}), "south": pl.DataFrame({"age": [40]})}
    >>> plan = AnalysisPlan(analysis=Moments(("age",)), schema=schema, parties=2, secure="masks")
    >>> found = analyse_together(plan, rows).values["age"]
    >>> found["count"], round(found["mean"], 4), round(found["variance"], 3)
    (3, 40.0, 100.0)
    """
    if len(holders) != plan.parties:
        raise InputError(f"the plan is for {plan.parties} holders, and {len(holders)} are given")
    those = {name: AnalysisHolder(name, plan, rows, ledger=(ledgers or {}).get(name)) for name, rows in holders.items()}
    assert plan.threshold is not None
    contribute = {name: one.contribute for name, one in those.items()}
    handlers, secure = connect(plan.secure, contribute, threshold=plan.threshold, function=plan.function)
    return analyse(plan, InProcess([Party(name, one) for name, one in handlers.items()]), secure)

"""Learn and count together without pooling: federated training, secure sums, anonymity of a union of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.federation.anonymity.assess import assess_union as assess_union
    from sfumato.federation.anonymity.assess import contribution as contribution
    from sfumato.federation.channel import Channel as Channel
    from sfumato.federation.channel import InProcess as InProcess
    from sfumato.federation.channel import Party as Party
    from sfumato.federation.encrypted.circuit import Circuit as Circuit
    from sfumato.federation.encrypted.circuit import Square as Square
    from sfumato.federation.encrypted.circuit import inputs_of as inputs_of
    from sfumato.federation.encrypted.circuit import to_circuit as to_circuit
    from sfumato.federation.encrypted.prediction import Client as Client
    from sfumato.federation.encrypted.prediction import Question as Question
    from sfumato.federation.encrypted.prediction import Server as Server
    from sfumato.federation.plan import FederationPlan as FederationPlan
    from sfumato.federation.released import FederatedModel as FederatedModel
    from sfumato.federation.released import Outcome as Outcome
    from sfumato.federation.rounds import Round as Round
    from sfumato.federation.secure.masks import Roster as Roster
    from sfumato.federation.secure.sum import MaskedSum as MaskedSum
    from sfumato.federation.secure.sum import PlainSum as PlainSum
    from sfumato.federation.secure.sum import masked_handlers as masked_handlers
    from sfumato.federation.secure.sum import plain_handlers as plain_handlers
    from sfumato.federation.simulation import Federated as Federated
    from sfumato.federation.simulation import simulate as simulate

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "anonymity.assess": "assess_union contribution",
        "channel": "Channel InProcess Party",
        "encrypted.circuit": "Circuit Square inputs_of to_circuit",
        "encrypted.prediction": "Client Question Server",
        "plan": "FederationPlan",
        "released": "FederatedModel Outcome",
        "rounds": "Round",
        "secure.masks": "Roster",
        "secure.sum": "MaskedSum PlainSum masked_handlers plain_handlers",
        "simulation": "Federated simulate",
    },
    needs={"torch": ("encrypted", "released", "rounds", "simulation")},
)

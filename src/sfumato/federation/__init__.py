"""Learn and count together without pooling: federated training, secure sums, anonymity of a union of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.federation.analysis.agreement import Agreement as Agreement
    from sfumato.federation.analysis.analyse import AnalysisHolder as AnalysisHolder
    from sfumato.federation.analysis.analyse import JointResult as JointResult
    from sfumato.federation.analysis.analyse import analyse as analyse
    from sfumato.federation.analysis.analyse import analyse_together as analyse_together
    from sfumato.federation.analysis.analyses import CrossTable as CrossTable
    from sfumato.federation.analysis.analyses import ElementSum as ElementSum
    from sfumato.federation.analysis.analyses import Histogram as Histogram
    from sfumato.federation.analysis.analyses import JointFunction as JointFunction
    from sfumato.federation.analysis.analyses import LinearRegression as LinearRegression
    from sfumato.federation.analysis.analyses import LogisticRegression as LogisticRegression
    from sfumato.federation.analysis.analyses import Moments as Moments
    from sfumato.federation.analysis.analyses import Quantiles as Quantiles
    from sfumato.federation.analysis.answered import Answered as Answered
    from sfumato.federation.analysis.plan import AnalysisPlan as AnalysisPlan
    from sfumato.federation.anonymity.anonymize import anonymize_union as anonymize_union
    from sfumato.federation.anonymity.assess import assess_union as assess_union
    from sfumato.federation.anonymity.assess import contribution as contribution
    from sfumato.federation.anonymity.holder import UnionHolder as UnionHolder
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
    from sfumato.federation.folder import FolderChannel as FolderChannel
    from sfumato.federation.folder import answer_in_folder as answer_in_folder
    from sfumato.federation.plan import FederationPlan as FederationPlan
    from sfumato.federation.released import FederatedModel as FederatedModel
    from sfumato.federation.released import Outcome as Outcome
    from sfumato.federation.rounds import Round as Round
    from sfumato.federation.secure.ckks_sum import CkksSum as CkksSum
    from sfumato.federation.secure.ckks_sum import ckks_handlers as ckks_handlers
    from sfumato.federation.secure.connect import check_sum as check_sum
    from sfumato.federation.secure.connect import connect as connect
    from sfumato.federation.secure.connect import handlers_of as handlers_of
    from sfumato.federation.secure.connect import sum_of as sum_of
    from sfumato.federation.secure.identity import load_identity as load_identity
    from sfumato.federation.secure.identity import load_public as load_public
    from sfumato.federation.secure.identity import new_identity as new_identity
    from sfumato.federation.secure.masks import Roster as Roster
    from sfumato.federation.secure.sum import MaskedSum as MaskedSum
    from sfumato.federation.secure.sum import PlainSum as PlainSum
    from sfumato.federation.secure.sum import masked_handlers as masked_handlers
    from sfumato.federation.secure.sum import plain_handlers as plain_handlers
    from sfumato.federation.secure.threshold_sum import ThresholdSum as ThresholdSum
    from sfumato.federation.secure.threshold_sum import threshold_handlers as threshold_handlers
    from sfumato.federation.simulation import Federated as Federated
    from sfumato.federation.simulation import simulate as simulate

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "anonymity.anonymize": "anonymize_union",
        "analysis.agreement": "Agreement",
        "analysis.analyse": "AnalysisHolder JointResult analyse analyse_together",
        "analysis.analyses": (
            "CrossTable ElementSum Histogram JointFunction LinearRegression LogisticRegression Moments Quantiles"
        ),
        "analysis.answered": "Answered",
        "analysis.plan": "AnalysisPlan",
        "anonymity.assess": "assess_union contribution",
        "anonymity.holder": "UnionHolder",
        "channel": "Channel InProcess Party",
        "encrypted.circuit": "Circuit Square inputs_of to_circuit",
        "encrypted.prediction": "Client Question Server",
        "folder": "FolderChannel answer_in_folder",
        "plan": "FederationPlan",
        "secure.ckks_sum": "CkksSum ckks_handlers",
        "secure.connect": "check_sum connect handlers_of sum_of",
        "secure.identity": "load_identity load_public new_identity",
        "released": "FederatedModel Outcome",
        "rounds": "Round",
        "secure.masks": "Roster",
        "secure.sum": "MaskedSum PlainSum masked_handlers plain_handlers",
        "secure.threshold_sum": "ThresholdSum threshold_handlers",
        "simulation": "Federated simulate",
    },
    needs={"torch": ("encrypted", "released", "rounds", "simulation")},
)

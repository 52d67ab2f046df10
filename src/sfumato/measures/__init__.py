"""Measure how anonymous a table is: equivalence classes, the nine privacy models, risks, and information loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.measures.assess import Classes as Classes
    from sfumato.measures.assessment import Assessment as Assessment
    from sfumato.measures.assessment import Verdict as Verdict
    from sfumato.measures.classes import ClassCounts as ClassCounts
    from sfumato.measures.classes import Missing as Missing
    from sfumato.measures.classes import class_counts as class_counts
    from sfumato.measures.distance import Distance as Distance
    from sfumato.measures.guarantee import Check as Check
    from sfumato.measures.guarantee import ClassGuarantee as ClassGuarantee
    from sfumato.measures.guarantee import Measured as Measured
    from sfumato.measures.guarantee import Witness as Witness
    from sfumato.measures.loss.information_loss import Loss as Loss
    from sfumato.measures.loss.information_loss import ncp as ncp
    from sfumato.measures.loss.marginals import Distances as Distances
    from sfumato.measures.loss.marginals import distances as distances
    from sfumato.measures.loss.propensity import Propensity as Propensity
    from sfumato.measures.loss.propensity import propensity as propensity
    from sfumato.measures.loss.transfer import ModelTransfer as ModelTransfer
    from sfumato.measures.loss.utility import ModelAccuracy as ModelAccuracy
    from sfumato.measures.loss.utility import QueryError as QueryError
    from sfumato.measures.loss.utility import model_accuracy as model_accuracy
    from sfumato.measures.loss.utility import query_error as query_error
    from sfumato.measures.models import Absent as Absent
    from sfumato.measures.models import AlphaK as AlphaK
    from sfumato.measures.models import BetaLikeness as BetaLikeness
    from sfumato.measures.models import DeltaDisclosure as DeltaDisclosure
    from sfumato.measures.models import EnhancedBeta as EnhancedBeta
    from sfumato.measures.models import EntropyL as EntropyL
    from sfumato.measures.models import KAnonymity as KAnonymity
    from sfumato.measures.models import LDiversity as LDiversity
    from sfumato.measures.models import RecursiveCL as RecursiveCL
    from sfumato.measures.models import TCloseness as TCloseness
    from sfumato.measures.risk.journalist import delta_presence as delta_presence
    from sfumato.measures.risk.journalist import journalist_risk as journalist_risk
    from sfumato.measures.risk.population import PopulationUniques as PopulationUniques
    from sfumato.measures.risk.population import population_uniques as population_uniques
    from sfumato.measures.risk.reidentification import Preset as Preset
    from sfumato.measures.risk.reidentification import Risk as Risk
    from sfumato.measures.risk.reidentification import column_risks as column_risks
    from sfumato.measures.risk.reidentification import preset as preset
    from sfumato.measures.risk.reidentification import reidentification_risk as reidentification_risk
    from sfumato.measures.risk.reidentification import subset_risks as subset_risks

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "assess": "Classes",
        "assessment": "Assessment Verdict",
        "classes": "ClassCounts Missing class_counts",
        "distance": "Distance",
        "guarantee": "Check ClassGuarantee Measured Witness",
        "loss.information_loss": "Loss ncp",
        "loss.marginals": "Distances distances",
        "loss.propensity": "Propensity propensity",
        "loss.transfer": "ModelTransfer",
        "loss.utility": "ModelAccuracy QueryError model_accuracy query_error",
        "models": (
            "Absent AlphaK BetaLikeness DeltaDisclosure EnhancedBeta EntropyL KAnonymity LDiversity "
            "RecursiveCL TCloseness"
        ),
        "risk.journalist": "delta_presence journalist_risk",
        "risk.population": "PopulationUniques population_uniques",
        "risk.reidentification": "Preset Risk column_risks preset reidentification_risk subset_risks",
    },
)

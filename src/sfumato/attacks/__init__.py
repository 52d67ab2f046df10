"""Attack releases: measure what an attacker can learn from a table, a model, a synthetic set or its procedure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.attacks.attributes import AttributeInference as AttributeInference
    from sfumato.attacks.auditing.audit import AuditResult as AuditResult
    from sfumato.attacks.auditing.audit import audit as audit
    from sfumato.attacks.auditing.audit import audit_function as audit_function
    from sfumato.attacks.auditing.bounds import Calls as Calls
    from sfumato.attacks.auditing.bounds import Curve as Curve
    from sfumato.attacks.auditing.bounds import GaussianCurve as GaussianCurve
    from sfumato.attacks.auditing.bounds import Guesses as Guesses
    from sfumato.attacks.auditing.bounds import curve_of as curve_of
    from sfumato.attacks.auditing.bounds import fdp_epsilon as fdp_epsilon
    from sfumato.attacks.auditing.bounds import fdp_gaussian_epsilon as fdp_gaussian_epsilon
    from sfumato.attacks.auditing.bounds import one_run_epsilon as one_run_epsilon
    from sfumato.attacks.auditing.bounds import refutes as refutes
    from sfumato.attacks.auditing.observation import Observation as Observation
    from sfumato.attacks.auditing.replay import ReplayReport as ReplayReport
    from sfumato.attacks.auditing.replay import declare as declare
    from sfumato.attacks.auditing.replay import replay as replay
    from sfumato.attacks.auditing.sums import audit_sums as audit_sums
    from sfumato.attacks.auditing.training import audit_training as audit_training
    from sfumato.attacks.auditing.training import observe_training as observe_training
    from sfumato.attacks.base import Attack as Attack
    from sfumato.attacks.base import AttackResult as AttackResult
    from sfumato.attacks.base import Baseline as Baseline
    from sfumato.attacks.base import Records as Records
    from sfumato.attacks.base import Scores as Scores
    from sfumato.attacks.base import result_of as result_of
    from sfumato.attacks.catalogue import ATTACKS as ATTACKS
    from sfumato.attacks.catalogue import SHOWN_BY as SHOWN_BY
    from sfumato.attacks.catalogue import attacks_of as attacks_of
    from sfumato.attacks.inversion import Inversion as Inversion
    from sfumato.attacks.inversion import ModelInversion as ModelInversion
    from sfumato.attacks.inversion import invert as invert
    from sfumato.attacks.membership.stacked import StackedNetworks as StackedNetworks
    from sfumato.attacks.procedures import FitEstimator as FitEstimator
    from sfumato.attacks.procedures import RunRecipe as RunRecipe
    from sfumato.attacks.procedures import records_of as records_of
    from sfumato.attacks.protections import Protection as Protection
    from sfumato.attacks.protections import procedure_of as procedure_of
    from sfumato.attacks.protections import protection as protection
    from sfumato.attacks.report import AttackReport as AttackReport
    from sfumato.attacks.report import run_attacks as run_attacks
    from sfumato.attacks.statistics import Roc as Roc
    from sfumato.attacks.tables.background_knowledge import BackgroundKnowledge as BackgroundKnowledge
    from sfumato.attacks.tables.closest_record import ClosestRecord as ClosestRecord
    from sfumato.attacks.tables.homogeneity import Homogeneity as Homogeneity
    from sfumato.attacks.tables.inference import Inference as Inference
    from sfumato.attacks.tables.linkability import Linkability as Linkability
    from sfumato.attacks.tables.linkage import Linkage as Linkage
    from sfumato.attacks.tables.shadow import Shadow as Shadow
    from sfumato.attacks.tables.similarity import Similarity as Similarity
    from sfumato.attacks.tables.singling_out import SinglingOut as SinglingOut
    from sfumato.attacks.tables.singling_out import SinglingOutUnivariate as SinglingOutUnivariate
    from sfumato.attacks.tables.skewness import Skewness as Skewness
    from sfumato.attacks.targets import ModelTarget as ModelTarget
    from sfumato.attacks.targets import SyntheticTarget as SyntheticTarget
    from sfumato.attacks.targets import TableTarget as TableTarget

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "attributes": "AttributeInference",
        "auditing.audit": "AuditResult audit audit_function",
        "auditing.bounds": "Calls Curve GaussianCurve Guesses curve_of fdp_epsilon fdp_gaussian_epsilon "
        "one_run_epsilon refutes",
        "auditing.observation": "Observation",
        "auditing.replay": "ReplayReport declare replay",
        "auditing.sums": "audit_sums",
        "auditing.training": "audit_training observe_training",
        "base": "Attack AttackResult Baseline Records Scores result_of",
        "catalogue": "ATTACKS SHOWN_BY attacks_of",
        "inversion": "Inversion ModelInversion invert",
        "membership.stacked": "StackedNetworks",
        "procedures": "FitEstimator RunRecipe records_of",
        "protections": "Protection procedure_of protection",
        "report": "AttackReport run_attacks",
        "statistics": "Roc",
        "tables.background_knowledge": "BackgroundKnowledge",
        "tables.closest_record": "ClosestRecord",
        "tables.homogeneity": "Homogeneity",
        "tables.inference": "Inference",
        "tables.linkability": "Linkability",
        "tables.linkage": "Linkage",
        "tables.shadow": "Shadow",
        "tables.similarity": "Similarity",
        "tables.singling_out": "SinglingOut SinglingOutUnivariate",
        "tables.skewness": "Skewness",
        "targets": "ModelTarget SyntheticTarget TableTarget",
    },
)

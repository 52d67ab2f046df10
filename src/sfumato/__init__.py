"""Sfumato: release data and models about people without exposing the people.

Keep the picture, blur the person. The public names below are loaded on first use, so
``import sfumato`` is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato._errors import (
        BudgetError,
        ColumnError,
        FileError,
        InputError,
        MissingExtra,
        ModelError,
        OptionError,
        SchemaError,
        SfumatoError,
    )
    from sfumato.anonymizers.anonymize import Release, anonymize
    from sfumato.anonymizers.guided import Guided
    from sfumato.anonymizers.hilbert import Hilbert
    from sfumato.anonymizers.keys import Key
    from sfumato.anonymizers.lattice import Lattice
    from sfumato.anonymizers.local_suppression import LocalSuppression
    from sfumato.anonymizers.masking import Noise, Pram, RankSwap, TopBottomCode, mask
    from sfumato.anonymizers.microaggregate import Microaggregate
    from sfumato.anonymizers.model import AnonymizedModel, anonymize_model
    from sfumato.anonymizers.mondrian import Mondrian
    from sfumato.anonymizers.pseudonymize import pseudonymize, reidentify
    from sfumato.anonymizers.rplus import RPlus
    from sfumato.anonymizers.tokens import EncryptedTokens, KeyedTokens, RandomTokens
    from sfumato.budget.ledger import Ledger
    from sfumato.budget.perturb import Perturbed, perturb
    from sfumato.budget.preview import preview
    from sfumato.budget.promise import DifferentialPrivacy
    from sfumato.budget.query import query
    from sfumato.data import datasets
    from sfumato.data.hierarchy import Hierarchy
    from sfumato.data.schema import Column, Kind, Role, Schema
    from sfumato.data.table import Table, read, write
    from sfumato.learners.runs import Training
    from sfumato.learners.stored import load_model
    from sfumato.learners.sweep import train
    from sfumato.measures.assess import assess, check
    from sfumato.measures.assessment import Assessment, Verdict
    from sfumato.measures.guarantee import Guarantee
    from sfumato.measures.loss import loss
    from sfumato.measures.marginals import distances
    from sfumato.measures.models import (
        AlphaK,
        BetaLikeness,
        DeltaDisclosure,
        EnhancedBeta,
        EntropyL,
        KAnonymity,
        LDiversity,
        RecursiveCL,
        TCloseness,
    )
    from sfumato.measures.safe_harbor import safe_harbor
    from sfumato.measures.utility import model_accuracy, query_error
    from sfumato.measures.verify import Verification, verify
    from sfumato.report.page import write_report
    from sfumato.report.save import save

__version__ = "0.1.0"

# Where each public name lives; it is imported on first use.
_HOMES = {
    "_errors": "BudgetError ColumnError FileError InputError MissingExtra ModelError OptionError SchemaError "
    "SfumatoError",
    "anonymizers.anonymize": "Release anonymize",
    "anonymizers.guided": "Guided",
    "anonymizers.hilbert": "Hilbert",
    "anonymizers.keys": "Key",
    "anonymizers.lattice": "Lattice",
    "anonymizers.local_suppression": "LocalSuppression",
    "anonymizers.masking": "Noise Pram RankSwap TopBottomCode mask",
    "anonymizers.microaggregate": "Microaggregate",
    "anonymizers.model": "AnonymizedModel anonymize_model",
    "anonymizers.mondrian": "Mondrian",
    "anonymizers.pseudonymize": "pseudonymize reidentify",
    "anonymizers.rplus": "RPlus",
    "anonymizers.tokens": "EncryptedTokens KeyedTokens RandomTokens",
    "budget.ledger": "Ledger",
    "budget.perturb": "Perturbed perturb",
    "budget.promise": "DifferentialPrivacy",
    "budget.preview": "preview",
    "budget.query": "query",
    "data.hierarchy": "Hierarchy",
    "data.schema": "Column Kind Role Schema",
    "data.table": "Table read write",
    "learners.runs": "Training",
    "learners.stored": "load_model",
    "learners.sweep": "train",
    "measures.assess": "assess check",
    "measures.assessment": "Assessment Verdict",
    "measures.guarantee": "Guarantee",
    "measures.loss": "loss",
    "measures.marginals": "distances",
    "measures.models": (
        "AlphaK BetaLikeness DeltaDisclosure EnhancedBeta EntropyL KAnonymity LDiversity RecursiveCL TCloseness"
    ),
    "measures.safe_harbor": "safe_harbor",
    "measures.utility": "model_accuracy query_error",
    "measures.verify": "Verification verify",
    "report.page": "write_report",
    "report.save": "save",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "AlphaK",
    "AnonymizedModel",
    "Assessment",
    "BetaLikeness",
    "BudgetError",
    "Column",
    "ColumnError",
    "DeltaDisclosure",
    "DifferentialPrivacy",
    "EncryptedTokens",
    "EnhancedBeta",
    "EntropyL",
    "FileError",
    "Guarantee",
    "Guided",
    "Hierarchy",
    "Hilbert",
    "InputError",
    "KAnonymity",
    "Key",
    "KeyedTokens",
    "Kind",
    "LDiversity",
    "Lattice",
    "Ledger",
    "LocalSuppression",
    "Microaggregate",
    "MissingExtra",
    "ModelError",
    "Mondrian",
    "Noise",
    "OptionError",
    "Perturbed",
    "Pram",
    "RPlus",
    "RandomTokens",
    "RankSwap",
    "RecursiveCL",
    "Release",
    "Role",
    "Schema",
    "SchemaError",
    "SfumatoError",
    "TCloseness",
    "Table",
    "TopBottomCode",
    "Training",
    "Verdict",
    "Verification",
    "anonymize",
    "anonymize_model",
    "assess",
    "check",
    "datasets",
    "distances",
    "load_model",
    "loss",
    "mask",
    "model_accuracy",
    "perturb",
    "preview",
    "pseudonymize",
    "query",
    "query_error",
    "read",
    "reidentify",
    "safe_harbor",
    "save",
    "train",
    "verify",
    "write",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "datasets":
        return importlib.import_module("sfumato.data.datasets")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sfumato' has no attribute '{name}'")
    return getattr(importlib.import_module(f"sfumato.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

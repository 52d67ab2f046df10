"""Sfumato: release data and models about people without exposing the people.

Keep the picture, blur the person. The names below are loaded on first use, so ``import sfumato`` is cheap. The packages
beside them (``sfumato.measures``, ``sfumato.learners`` ...) export the rest; modules inside a package are private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato import anonymizers as anonymizers
    from sfumato import attacks as attacks
    from sfumato import budget as budget
    from sfumato import data as data
    from sfumato import engines as engines
    from sfumato import errors as errors
    from sfumato import federation as federation
    from sfumato import frontier as frontier
    from sfumato import learners as learners
    from sfumato import masking as masking
    from sfumato import measures as measures
    from sfumato import pseudonyms as pseudonyms
    from sfumato import releases as releases
    from sfumato import reproductions as reproductions
    from sfumato import studio as studio
    from sfumato import synthesizers as synthesizers
    from sfumato.anonymizers.anonymize import anonymize as anonymize
    from sfumato.anonymizers.guided.guided import Guided as Guided
    from sfumato.anonymizers.guided.model import anonymize_model as anonymize_model
    from sfumato.anonymizers.hilbert.hilbert import Hilbert as Hilbert
    from sfumato.anonymizers.lattice.lattice import Lattice as Lattice
    from sfumato.anonymizers.local_suppression import LocalSuppression as LocalSuppression
    from sfumato.anonymizers.microaggregation.microaggregate import Microaggregate as Microaggregate
    from sfumato.anonymizers.mondrian.mondrian import Mondrian as Mondrian
    from sfumato.anonymizers.mondrian.mondrian import RPlus as RPlus
    from sfumato.attacks.attack import attack as attack
    from sfumato.budget.differential_privacy import DifferentialPrivacy as DifferentialPrivacy
    from sfumato.budget.ledger.ledger import Ledger as Ledger
    from sfumato.budget.query.preview import preview as preview
    from sfumato.budget.query.query import query as query
    from sfumato.data import datasets as datasets
    from sfumato.data.guarantee import Guarantee as Guarantee
    from sfumato.data.hierarchies.hierarchy import Hierarchy as Hierarchy
    from sfumato.data.release import Release as Release
    from sfumato.data.schema import Column as Column
    from sfumato.data.schema import Kind as Kind
    from sfumato.data.schema import Role as Role
    from sfumato.data.schema import Schema as Schema
    from sfumato.data.table import Table as Table
    from sfumato.data.table import read as read
    from sfumato.data.table import write as write
    from sfumato.errors import SfumatoError as SfumatoError
    from sfumato.federation.federate import federate as federate
    from sfumato.frontier.sweep.explore import explore as explore
    from sfumato.frontier.tables.evaluate import evaluate as evaluate
    from sfumato.learners.training.sweep import train as train
    from sfumato.masking.masking import mask as mask
    from sfumato.masking.perturb import perturb as perturb
    from sfumato.measures.assess import assess as assess
    from sfumato.measures.assess import check as check
    from sfumato.measures.assessment import Assessment as Assessment
    from sfumato.measures.loss.information_loss import loss as loss
    from sfumato.measures.models import KAnonymity as KAnonymity
    from sfumato.measures.models import LDiversity as LDiversity
    from sfumato.measures.models import TCloseness as TCloseness
    from sfumato.measures.risk.safe_harbor import safe_harbor as safe_harbor
    from sfumato.pseudonyms.keys import Key as Key
    from sfumato.pseudonyms.pseudonymize import pseudonymize as pseudonymize
    from sfumato.pseudonyms.pseudonymize import reidentify as reidentify
    from sfumato.releases.load import load as load
    from sfumato.releases.load import run as run
    from sfumato.releases.save import save as save
    from sfumato.releases.verify import Verification as Verification
    from sfumato.releases.verify import verify as verify
    from sfumato.report.page import write_report as write_report
    from sfumato.reproductions.catalogue import reproduce as reproduce
    from sfumato.synthesizers.synthesis import synthesize as synthesize

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "anonymizers.anonymize": "anonymize",
        "anonymizers.guided.guided": "Guided",
        "anonymizers.guided.model": "anonymize_model",
        "anonymizers.hilbert.hilbert": "Hilbert",
        "anonymizers.lattice.lattice": "Lattice",
        "anonymizers.microaggregation.microaggregate": "Microaggregate",
        "anonymizers.mondrian.mondrian": "Mondrian RPlus",
        "anonymizers.local_suppression": "LocalSuppression",
        "attacks.attack": "attack",
        "budget.differential_privacy": "DifferentialPrivacy",
        "budget.ledger.ledger": "Ledger",
        "masking.perturb": "perturb",
        "budget.query.preview": "preview",
        "budget.query.query": "query",
        "data.hierarchies.hierarchy": "Hierarchy",
        "data.release": "Release",
        "data.schema": "Column Kind Role Schema",
        "data.table": "Table read write",
        "errors": "SfumatoError",
        "federation.federate": "federate",
        "frontier.sweep.explore": "explore",
        "frontier.tables.evaluate": "evaluate",
        "learners.training.sweep": "train",
        "masking.masking": "mask",
        "measures.assess": "assess check",
        "measures.assessment": "Assessment",
        "data.guarantee": "Guarantee",
        "measures.loss.information_loss": "loss",
        "measures.models": "KAnonymity LDiversity TCloseness",
        "measures.risk.safe_harbor": "safe_harbor",
        "pseudonyms.keys": "Key",
        "pseudonyms.pseudonymize": "pseudonymize reidentify",
        "releases.load": "load run",
        "releases.save": "save",
        "releases.verify": "Verification verify",
        "report.page": "write_report",
        "reproductions.catalogue": "reproduce",
        "synthesizers.synthesis": "synthesize",
    },
    modules={"datasets": "data.datasets", "errors": "errors"},
    packages=(
        "anonymizers",
        "attacks",
        "budget",
        "data",
        "engines",
        "federation",
        "frontier",
        "learners",
        "masking",
        "measures",
        "pseudonyms",
        "releases",
        "reproductions",
        "studio",
        "synthesizers",
    ),
)

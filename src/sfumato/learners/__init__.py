"""Private learning: models that cannot tell who they were trained on.

The names below are loaded when they are used: networks with torch, which is an extra, and the other estimators with
scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sfumato._errors import require_extra

if TYPE_CHECKING:
    from sfumato.learners.additive import PrivateAdditiveClassifier, PrivateAdditiveRegressor
    from sfumato.learners.apart import OneByOne
    from sfumato.learners.architectures import Architecture, architecture
    from sfumato.learners.clipping import Clipper, private_step
    from sfumato.learners.descent import Adam, Sgd
    from sfumato.learners.forest import PrivateRandomForest
    from sfumato.learners.kmeans import PrivateKMeans
    from sfumato.learners.linear import PrivateLinearRegression
    from sfumato.learners.logistic import PrivateLogisticRegression
    from sfumato.learners.mixture import PrivateGaussianMixture
    from sfumato.learners.naive_bayes import PrivateNaiveBayes
    from sfumato.learners.network import PrivateClassifier, PrivateRegressor
    from sfumato.learners.pca import PrivatePCA
    from sfumato.learners.scattering import normalized_scattering
    from sfumato.learners.search import PrivateSearch
    from sfumato.learners.steps import AdaptiveClip
    from sfumato.learners.stored import load_model, write_model
    from sfumato.learners.trainer import Report, Trainer
    from sfumato.learners.vetting import check, make_private, obstacles

_WITH_TORCH = {
    "apart": "OneByOne",
    "architectures": "Architecture architecture",
    "vetting": "check make_private obstacles",
    "clipping": "Clipper private_step",
    "descent": "Adam Sgd",
    "network": "PrivateClassifier PrivateRegressor",
    "scattering": "normalized_scattering",
    "steps": "AdaptiveClip",
    "trainer": "Report Trainer",
}
_HOMES = _WITH_TORCH | {
    "additive": "PrivateAdditiveClassifier PrivateAdditiveRegressor",
    "forest": "PrivateRandomForest",
    "kmeans": "PrivateKMeans",
    "linear": "PrivateLinearRegression",
    "logistic": "PrivateLogisticRegression",
    "mixture": "PrivateGaussianMixture",
    "naive_bayes": "PrivateNaiveBayes",
    "pca": "PrivatePCA",
    "search": "PrivateSearch",
    "stored": "load_model write_model",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Adam",
    "AdaptiveClip",
    "Architecture",
    "Clipper",
    "OneByOne",
    "PrivateAdditiveClassifier",
    "PrivateAdditiveRegressor",
    "PrivateClassifier",
    "PrivateGaussianMixture",
    "PrivateKMeans",
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
    "PrivateNaiveBayes",
    "PrivatePCA",
    "PrivateRandomForest",
    "PrivateRegressor",
    "PrivateSearch",
    "Report",
    "Sgd",
    "Trainer",
    "architecture",
    "check",
    "load_model",
    "make_private",
    "normalized_scattering",
    "obstacles",
    "private_step",
    "write_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sfumato.learners' has no attribute {name!r}")
    if _HOME_OF[name] in _WITH_TORCH:
        require_extra("torch", "torch", "private training")
    return getattr(importlib.import_module(f"sfumato.learners.{_HOME_OF[name]}"), name)

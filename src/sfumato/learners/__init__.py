"""Train models that do not reveal whether a person was in their training data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.learners.dpsgd.module_checks import check as check
    from sfumato.learners.dpsgd.module_checks import make_private as make_private
    from sfumato.learners.dpsgd.module_checks import obstacles as obstacles
    from sfumato.learners.dpsgd.optimizers import Adam as Adam
    from sfumato.learners.dpsgd.optimizers import Sgd as Sgd
    from sfumato.learners.dpsgd.progress import PublicReport as PublicReport
    from sfumato.learners.dpsgd.sample_independence import OneByOne as OneByOne
    from sfumato.learners.dpsgd.steps import AdaptiveClip as AdaptiveClip
    from sfumato.learners.dpsgd.trainer import Report as Report
    from sfumato.learners.dpsgd.trainer import Trainer as Trainer
    from sfumato.learners.estimators.additive import PrivateAdditiveClassifier as PrivateAdditiveClassifier
    from sfumato.learners.estimators.additive import PrivateAdditiveRegressor as PrivateAdditiveRegressor
    from sfumato.learners.estimators.clustering import PrivateGaussianMixture as PrivateGaussianMixture
    from sfumato.learners.estimators.clustering import PrivateKMeans as PrivateKMeans
    from sfumato.learners.estimators.counts import PrivateNaiveBayes as PrivateNaiveBayes
    from sfumato.learners.estimators.counts import PrivateRandomForest as PrivateRandomForest
    from sfumato.learners.estimators.estimator import PrivateEstimator as PrivateEstimator
    from sfumato.learners.estimators.linear import PrivateLinearRegression as PrivateLinearRegression
    from sfumato.learners.estimators.linear import PrivateLogisticRegression as PrivateLogisticRegression
    from sfumato.learners.estimators.moments import PrivatePCA as PrivatePCA
    from sfumato.learners.gradients.clipping import Clipper as Clipper
    from sfumato.learners.gradients.clipping import private_step as private_step
    from sfumato.learners.images.estimator import PrivateScatteringClassifier as PrivateScatteringClassifier
    from sfumato.learners.networks.architectures import Architecture as Architecture
    from sfumato.learners.networks.architectures import architecture as architecture
    from sfumato.learners.networks.estimators import PrivateClassifier as PrivateClassifier
    from sfumato.learners.networks.estimators import PrivateRegressor as PrivateRegressor
    from sfumato.learners.networks.scattering import normalized_scattering as normalized_scattering
    from sfumato.learners.networks.scattering import scattering as scattering
    from sfumato.learners.options import Optimization as Optimization
    from sfumato.learners.options import Privacy as Privacy
    from sfumato.learners.options import Speed as Speed
    from sfumato.learners.options import Split as Split
    from sfumato.learners.training.released_model import load_model as load_model
    from sfumato.learners.training.released_model import write_model as write_model
    from sfumato.learners.training.runs import Run as Run
    from sfumato.learners.training.runs import Scores as Scores
    from sfumato.learners.training.runs import Training as Training
    from sfumato.learners.training.search import PrivateSearch as PrivateSearch

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "dpsgd.module_checks": "check make_private obstacles",
        "dpsgd.optimizers": "Adam Sgd",
        "dpsgd.progress": "PublicReport",
        "dpsgd.sample_independence": "OneByOne",
        "dpsgd.steps": "AdaptiveClip",
        "dpsgd.trainer": "Report Trainer",
        "estimators.additive": "PrivateAdditiveClassifier PrivateAdditiveRegressor",
        "estimators.estimator": "PrivateEstimator",
        "estimators.linear": "PrivateLinearRegression PrivateLogisticRegression",
        "estimators.clustering": "PrivateGaussianMixture PrivateKMeans",
        "estimators.counts": "PrivateNaiveBayes PrivateRandomForest",
        "estimators.moments": "PrivatePCA",
        "gradients.clipping": "Clipper private_step",
        "images.estimator": "PrivateScatteringClassifier",
        "networks.architectures": "Architecture architecture",
        "networks.estimators": "PrivateClassifier PrivateRegressor",
        "networks.scattering": "normalized_scattering scattering",
        "options": "Optimization Privacy Speed Split",
        "training.runs": "Run Scores Training",
        "training.search": "PrivateSearch",
        "training.released_model": "load_model write_model",
    },
    needs={"torch": ("dpsgd", "gradients", "images", "networks")},
)

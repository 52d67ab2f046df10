"""The Fréchet distance of two samples of features, as if both were Gaussian.

With the features of an image network this is the FID (M. Heusel, H. Ramsauer, T. Unterthiner, B. Nessler and S.
Hochreiter,
*GANs trained by a two time-scale update rule converge to a local Nash equilibrium*, NeurIPS 2017).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError

__all__ = ["frechet_distance"]

Floats = NDArray[np.float64]


def frechet_distance(first: Any, second: Any) -> float:
    r"""Return the squared Fréchet distance of two samples of features, each with a row per record.

    With the means m and the covariances C it is
    :math:`|m_1 - m_2|^2 + \operatorname{tr}(C_1 + C_2 - 2 (C_1^{1/2} C_2 C_1^{1/2})^{1/2})`. It is 0 for equal means
    and covariances. Small samples look further apart than they are, so compare samples of one size.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> near, far = rng.normal(0, 1, (2000, 3)), rng.normal(5, 2, (2000, 3))
    >>> round(frechet_distance(near, near), 6), round(frechet_distance(near, far), -1)
    (0.0, 80.0)
    """
    one, other = (_features(name, given) for name, given in (("first", first), ("second", second)))
    if one.shape[1] != other.shape[1]:
        raise InputError(f"both samples must have the same features, got {one.shape[1]} and {other.shape[1]}")
    ours, theirs = _covariance(one), _covariance(other)
    values, vectors = np.linalg.eigh(ours)
    root = vectors * np.sqrt(values.clip(min=0)) @ vectors.T
    shared = np.sqrt(np.linalg.eigvalsh(root @ theirs @ root).clip(min=0)).sum()
    apart = np.square(one.mean(axis=0) - other.mean(axis=0)).sum()
    return max(0.0, float(apart + np.trace(ours) + np.trace(theirs) - 2 * shared))


def _features(name: str, given: Any) -> Floats:
    features = np.asarray(given, dtype=np.float64)
    if features.ndim != 2 or len(features) < 2 or not np.isfinite(features).all():
        raise InputError(f"the {name} sample must have two rows of finite features or more")
    return features


def _covariance(features: Floats) -> Floats:
    centred = features - features.mean(axis=0)
    return np.asarray(centred.T @ centred / (len(features) - 1))

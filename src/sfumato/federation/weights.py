"""The weights of a network as one vector of numbers."""

from __future__ import annotations

import copy
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.errors import ProtocolError
from sfumato.federation.plan import FederationPlan
from sfumato.learners.networks.architectures import Architecture, architecture

__all__ = ["features_of", "get_weights", "network_of", "set_weights"]


def network_of(plan: FederationPlan) -> nn.Module:
    """Build the network of a plan, with initial weights from its seed."""
    return copy.deepcopy(_initial(plan).module)


def features_of(plan: FederationPlan, samples: Tensor) -> Tensor:
    """Return the input of the network of a plan: the samples, or fixed and public features of them."""
    features = _initial(plan).features
    return samples if features is None else features(samples)


@lru_cache(maxsize=8)  # each of many simulated holders asks in every round
def _initial(plan: FederationPlan) -> Architecture:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)
        return architecture(plan.model, plan.inputs, plan.classes)


def get_weights(module: nn.Module) -> NDArray[np.float32]:
    """Return all trained weights."""
    found: NDArray[np.float32] = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy().copy()
    return found


def set_weights(module: nn.Module, weights: NDArray[np.float32]) -> None:
    """Replace all trained weights; an error if their number or values are wrong."""
    count = sum(one.numel() for one in module.parameters())
    if weights.shape != (count,) or not np.isfinite(weights).all():
        raise ProtocolError(f"the weights must be {count:,} finite numbers, got the shape {weights.shape}")
    vector = torch.from_numpy(np.array(weights, dtype=np.float32))
    torch.nn.utils.vector_to_parameters(vector, module.parameters())

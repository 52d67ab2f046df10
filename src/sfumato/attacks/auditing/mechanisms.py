"""Check the mechanism of a released model directly: the training engine or the noisy sums, with its own noise."""

from __future__ import annotations

from typing import Any

from sfumato.data.claim import Claim
from sfumato.data.validate import real

__all__ = ["mechanism_checks"]

_CANARIES, _RECORDS, _STEPS = 400, 800, 60
_IN_SUMS = 10_000  # canaries in noisy sums, which cost nothing


def mechanism_checks(model: Any) -> tuple[Claim, ...]:
    """Return the checks of the mechanism that a private model learns with; none if it is not known.

    For a network, DP-SGD runs a few steps with the model's noise, clip and sampling rate, on made-up records with
    canaries in the gradient. For other estimators, all their sums get their noise, with canaries in each.

    Examples
    --------
    >>> import sfumato as sf
    >>> training = sf.train("nursery", "naive-bayes", target="class", epsilon=1)
    >>> for check in mechanism_checks(training["epsilon-1"].model):
    ...     print(check.claim, check.held)
    the noise is as large as declared True
    the noise is fresh in every step True
    a record moves a sum by at most its sensitivity True
    """
    noise = getattr(model, "noise_multiplier_", None)
    if not noise or not getattr(model, "is_private", False):
        return ()
    real("the noise multiplier", noise, above=0)
    if hasattr(model, "module_"):
        return _of_training(model, float(noise))
    return _of_sums(model, float(noise))


def _of_training(model: Any, noise: float) -> tuple[Claim, ...]:
    import torch

    from sfumato.attacks.auditing.training import observe_training
    from sfumato.learners.options import Privacy

    rate = real("the sampling rate", model.sampling_["rate"], above=0, most=1)
    size = None if rate == 1 else max(1, round(rate * (_RECORDS + _CANARIES // 2)))
    return observe_training(
        torch.nn.Linear(1, 2),
        torch.zeros(_RECORDS, 1),
        torch.arange(_RECORDS) % 2,
        canaries=_CANARIES,
        seed=0,
        clip=model.clip,
        batch_size=size,
        steps=min(_STEPS, int(model.sampling_["steps"])),
        delta=1e-5,
        privacy=Privacy(noise_multiplier=noise),
    ).checks


def _of_sums(model: Any, noise: float) -> tuple[Claim, ...]:
    from sfumato.attacks.auditing.sums import observe_sums
    from sfumato.budget.noise import Source
    from sfumato.learners.estimators.noisy_sums import NoisySums, Share

    shares = {
        name: Share(min(share.times, _STEPS), share.worth * min(share.times, _STEPS) / share.times)
        for name, share in model._shares(len(model.features_.features) if model.features_ else 0).items()
    }
    sums = NoisySums(shares, noise, Source(), rows_per_person=getattr(model, "rows_that_count", None))
    return observe_sums(sums, delta=1e-5, canaries=_IN_SUMS, seed=0).checks

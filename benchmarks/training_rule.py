"""Find the steps and the distance of a linear model on scattering features: where the constants of `pace` are from.

On training images alone: 1,750 or 7,000 of the 10,000 that are built in, scored on the other 3,000; three divisions,
six draws of the noise. All settings are trained at once, as columns of one matrix; on a GPU that takes half a minute.
The noise is torch's: this is a study, and nothing of it is private.

Run ``python training_rule.py``: it prints, for each signal and number of steps, the accuracy by distance.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.nn import functional

import sfumato as sf
from sfumato.learners import normalized_scattering

CLIP, MOMENTUM, AT_ONCE = 0.1, 0.9, 1750
STRENGTHS = (0.03, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)  # mu: sqrt(steps) over the noise multiplier
PARTS = (50, 75, 100, 150, 200, 300)  # rate x clip x steps is the signal over one of these; `pace` takes 157
STEPS = (20, 40, 80, 120, 160, 240, 320, 480)
DRAWS, DIVISIONS, CLASSES = 6, 3, 10


def scores(inputs: Tensor, labels: Tensor, rows: int, steps: int) -> dict[tuple[float, int], float]:
    """Train all settings on the first rows, and score them on what comes after the first 7,000."""
    settings = list(itertools.product(STRENGTHS, PARTS, range(DRAWS)))
    strength, part, _ = torch.tensor(settings, device=inputs.device).T
    rate = rows * strength / part / CLIP / steps
    noise = (math.sqrt(steps) / strength * CLIP).repeat_interleave(CLASSES)
    weights = torch.zeros(inputs.shape[1], len(settings) * CLASSES, device=inputs.device)
    velocity = torch.zeros_like(weights)
    norms, hot = inputs.float().norm(dim=1), functional.one_hot(labels, CLASSES).to(inputs)[:, None]
    for _ in range(steps):
        total = torch.randn_like(weights) * noise
        for at in range(0, rows, AT_ONCE):
            some = slice(at, at + AT_ONCE)
            error = (inputs[some] @ weights.to(inputs)).view(-1, len(settings), CLASSES).softmax(-1) - hot[some]
            length = error.float().norm(dim=-1) * norms[some, None]
            error *= (CLIP / length.clamp(min=1e-12)).clamp(max=1)[..., None]
            total += inputs[some].T @ error.view(-1, len(settings) * CLASSES)
        velocity.mul_(MOMENTUM).add_(total, alpha=1 / rows)
        weights -= velocity * rate.repeat_interleave(CLASSES)
    answers = (inputs[7000:] @ weights.to(inputs)).view(-1, len(settings), CLASSES).argmax(-1)
    right = (answers == labels[7000:, None]).float().mean(0).view(-1, DRAWS).mean(1).tolist()
    return dict(zip(itertools.product(STRENGTHS, PARTS), right, strict=True))


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    digits = sf.datasets.mnist()
    features = normalized_scattering(torch.from_numpy(digits.train_images).to(device))
    inputs = functional.pad(functional.pad(features, (0, 1), value=1.0), (0, 6)).bfloat16()  # the bias, and alignment
    labels = torch.from_numpy(digits.train_labels).long().to(device)
    for rows, steps in itertools.product((1750, 7000), STEPS):
        found = []
        for seed in range(DIVISIONS):
            order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).to(device)
            found.append(scores(inputs[order], labels[order], rows, steps))
        for strength in STRENGTHS:
            means = {part: sum(one[strength, part] for one in found) / DIVISIONS for part in PARTS}
            by_part = "  ".join(f"{part}: {mean:.2%}" for part, mean in means.items())
            print(f"signal {rows * strength:6.0f}, {steps:3} steps  {by_part}", flush=True)


if __name__ == "__main__":
    main()

"""Rules follow gradients as torch's own optimisers do, and refuse what makes no sense."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import sfumato as sf
from sfumato.learners import Adam, Sgd
from sfumato.learners.dpsgd.optimizers import SCHEDULES, Optimizer, schedule_of

Made = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

PAIRS: dict[str, tuple[Optimizer, Made]] = {
    "plain": (Sgd(learning_rate=0.3), lambda p: torch.optim.SGD(p, 0.3)),
    "decay": (Sgd(learning_rate=0.3, weight_decay=0.1), lambda p: torch.optim.SGD(p, 0.3, weight_decay=0.1)),
    "momentum": (
        Sgd(learning_rate=0.3, momentum=0.8, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.3, 0.8, weight_decay=0.1),
    ),
    "nesterov": (
        Sgd(learning_rate=0.3, momentum=0.8, nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.3, 0.8, weight_decay=0.1, nesterov=True),
    ),
    "adam": (Adam(learning_rate=0.02), lambda p: torch.optim.Adam(p, 0.02)),
    "adam with decay": (
        Adam(learning_rate=0.02, first=0.7, second=0.95, small=1e-3, weight_decay=0.3),
        lambda p: torch.optim.AdamW(p, 0.02, (0.7, 0.95), 1e-3, 0.3),
    ),
}


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_a_rule_follows_as_torch_does(name: str, as_tensor: bool) -> None:
    rule, make = PAIRS[name]
    torch.manual_seed(0)
    weights = torch.randn(20, dtype=torch.float64)
    parameter = nn.Parameter(weights.clone())
    optimiser, memory = make([parameter]), rule.begin(weights)
    for at in range(12):
        gradient = torch.randn(20, dtype=torch.float64)
        rate = rule.learning_rate * (1 + at % 3)  # as a schedule changes it
        optimiser.param_groups[0]["lr"], parameter.grad = rate, gradient.clone()
        optimiser.step()
        rule.follow(weights, gradient, memory, torch.tensor(rate, dtype=torch.float64) if as_tensor else rate)
        torch.testing.assert_close(weights, parameter.detach(), rtol=1e-6, atol=1e-8)


def test_a_schedule_begins_and_ends_where_its_name_says() -> None:
    ends = {name: (round(course(0.0), 6), round(course(1.0), 6)) for name, course in SCHEDULES.items()}
    assert ends == {"constant": (1, 1), "linear": (1, 0), "cosine": (1, 0), "warm-cosine": (0, 0)}
    assert SCHEDULES["warm-cosine"](0.1) == SCHEDULES["cosine"](0.1)
    own = lambda way: 3.0  # noqa: E731
    assert schedule_of(own) is own


def test_a_schedule_that_does_not_exist_is_refused() -> None:
    with pytest.raises(sf.errors.OptionError) as caught:
        schedule_of("cosin")
    assert caught.value.message == "there is no schedule 'cosin'"
    assert "cosine" in caught.value.hint


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sgd(learning_rate=0), "the learning rate must be a finite number above 0, got 0"),
        (lambda: Sgd(learning_rate=math.nan), "the learning rate must be a finite number above 0, got nan"),
        (lambda: Adam(learning_rate=math.inf), "the learning rate must be a finite number above 0, got inf"),
        (
            lambda: Adam(weight_decay=-1),
            "the weight decay must be a finite number of at least 0, got -1",
        ),
        (lambda: Sgd(learning_rate=1, momentum=1), "the momentum must be a number of at least 0 and below 1, got 1"),
        (lambda: Adam(second=1), "Adam's second must be a number of at least 0 and below 1, got 1"),
        (lambda: Adam(small=0), "Adam's small must be a finite number above 0, got 0"),
        (
            lambda: Sgd(learning_rate=1, nesterov=True),
            "Nesterov momentum needs a momentum above 0",
        ),
    ],
)
def test_bad_options_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(sf.errors.OptionError) as caught:
        make()
    assert caught.value.message == message

"""All weights are one vector: parts of it, in the order that they have in memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sfumato.learners.dpsgd.steps import ParameterVector


def model(layout: torch.memory_format) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 5), nn.Flatten(), nn.Linear(4, 2)).to(memory_format=layout)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_weights_keep_their_values_and_their_layout(layout: torch.memory_format) -> None:
    module, expected = model(layout), model(layout)
    flat = ParameterVector(module.parameters())
    for one, other in zip(module.parameters(), expected.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
        assert one.untyped_storage().data_ptr() == flat.values.untyped_storage().data_ptr()
    assert module[0].weight.is_contiguous(memory_format=layout)
    assert flat.values.shape == (sum(one.numel() for one in expected.parameters()),)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradients_of_either_layout_meet_their_weights(layout: torch.memory_format) -> None:
    module = model(layout)
    flat = ParameterVector(module.parameters())
    before = [one.detach().clone() for one in module.parameters()]
    given = [torch.randn(one.shape) for one in before]
    given[0] = given[0].contiguous(memory_format=torch.channels_last)
    flat.values.add_(flat.join(given))
    for one, was, change in zip(module.parameters(), before, given, strict=True):
        torch.testing.assert_close(one.detach(), was + change)
    other = [one.contiguous() for one in given]
    assert torch.equal(flat.join(given), flat.join(other))


def test_weights_that_were_released_are_as_any_others_until_they_are_attached() -> None:
    module = model(torch.channels_last)
    flat = ParameterVector(module.parameters())
    flat.release()
    assert module[0].weight.is_contiguous(memory_format=torch.channels_last)
    flat.values.zero_()
    assert float(module[0].weight.abs().min().detach()) > 0
    assert len({one.untyped_storage().data_ptr() for one in module.parameters()}) == 4
    with torch.no_grad():
        module[2].bias.fill_(7)
    flat.attach()  # what was changed meanwhile counts
    assert torch.equal(flat.values[-2:], torch.tensor([7.0, 7.0]))
    flat.values.fill_(1)
    assert all(bool((one == 1).all()) for one in module.parameters())


def test_a_loss_still_finds_its_way_to_the_parts() -> None:
    module = model(torch.contiguous_format)
    ParameterVector(module.parameters())
    module(torch.randn(2, 3, 5, 5)).sum().backward()
    assert all(one.grad is not None for one in module.parameters())

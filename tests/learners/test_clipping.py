"""The clipped sum equals its definition, a loop over the samples, on every path."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import sfumato as sf
from sfumato.learners import Clipper, private_step
from sfumato.learners.gradients.clipping import ClippedSum, Loss, cross_entropy, squared_error
from sfumato.learners.gradients.gradients import Call
from sfumato.learners.gradients.layers import layer_of
from sfumato.learners.gradients.matrix import Convolution


def by_definition(
    module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, weights: Tensor, clip: float
) -> Tensor:
    """Clip each sample's gradient of all trained weights together, and add."""
    trained = [one for one in module.parameters() if one.requires_grad]
    total = torch.zeros(sum(one.numel() for one in trained), dtype=trained[0].dtype)
    for at in range(len(weights)):
        views = len(inputs) // len(weights)
        mine = slice(at * views, (at + 1) * views)
        value = loss(module(inputs[mine]), targets[mine]).mean()
        found = torch.autograd.grad(value, trained, allow_unused=True)
        flat = torch.cat(
            [(torch.zeros_like(one) if g is None else g).reshape(-1) for one, g in zip(trained, found, strict=True)]
        )
        total += weights[at] * flat * min(1.0, clip / max(float(flat.norm()), 1e-300))
    return total


def joined(found: ClippedSum) -> Tensor:
    return torch.cat([one.reshape(-1) for one in found.gradients])


class Residual(nn.Module):
    """Adds in place to what a layer gave, as published networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.second(functional.relu(self.first(inputs), inplace=True))
        outputs += inputs
        return functional.relu(outputs, inplace=True)


class Twice(nn.Module):
    """Uses one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(torch.tanh(self.layer(torch.tanh(self.layer(inputs)))))


class Tied(nn.Module):
    """Uses the table of its words for its answers too."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.out.weight = self.words.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.out(self.words(inputs).mean(1))


class Loose(nn.Module):
    """Has a weight of its own beside a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.5, -0.5, 2.0]))
        self.layer, self.unused = nn.Linear(3, 3), nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs * self.scale)


class Attention(nn.Module):
    """Attention within a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(9, 8, padding_idx=0), nn.RMSNorm(8)
        self.attend, self.out = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        words = self.norm(self.words(inputs))
        return self.out(self.attend(words, words, words)[0].mean(1))


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU()),
        *(nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


def odd() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(4, 8, 3, padding="same", groups=2, dilation=2), nn.GroupNorm(2, 8), nn.ReLU()),
        *(nn.Conv2d(8, 6, 3, padding=1, padding_mode="circular", bias=False), nn.InstanceNorm2d(6, affine=True)),
        *(nn.Flatten(1, 2), nn.LayerNorm((48, 8)), nn.Linear(8, 5), nn.Flatten(), nn.Linear(240, 3)),
    )


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)
    model[4].bias.requires_grad_(False)
    return model


def numbers(*shape: int) -> Callable[[int], Tensor]:
    return lambda count: torch.randn(count, *shape)


def words(count: int) -> Tensor:
    return torch.randint(0, 7, (count, 6))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "cnn": (cnn, numbers(1, 28, 28)),
    "odd convolutions and norms": (odd, numbers(4, 8, 8)),
    "residual": (lambda: nn.Sequential(Residual(), Residual(), nn.Flatten(), nn.Linear(64, 3)), numbers(4, 4, 4)),
    "signal": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3)),
        numbers(2, 9),
    ),
    "volume": (lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.Flatten(), nn.Linear(16, 3)), numbers(1, 3, 3, 3)),
    "places": (lambda: nn.Sequential(nn.Linear(3, 40), nn.Flatten(), nn.Linear(160, 3)), numbers(4, 3)),
    "frozen parts": (frozen, numbers(6)),
    "one layer twice": (Twice, numbers(5)),
    "tied weights": (Tied, words),
    "attention": (Attention, words),
    "a loose weight": (Loose, numbers(3)),
    "unknown layers": (
        lambda: nn.Sequential(
            *(nn.ConvTranspose1d(2, 3, 2), nn.PReLU(3), nn.Flatten()),
            nn.utils.parametrizations.weight_norm(nn.Linear(15, 3)),
        ),
        numbers(2, 4),
    ),
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_the_clipped_sum_equals_a_loop_over_the_samples(name: str, views: int, layout: torch.memory_format) -> None:
    make, data = MODELS[name]
    torch.manual_seed(5)
    samples = 7
    module, inputs = make().double(), data(samples * views)
    if inputs.is_floating_point():
        inputs = inputs.double()
    if layout == torch.channels_last and inputs.dim() == 4:
        module, inputs = module.to(memory_format=layout), inputs.contiguous(memory_format=layout)
    targets = torch.randint(0, 3, (samples,)).repeat_interleave(views)
    weights = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.25, 1.0, 1.0], dtype=torch.float64)
    with Clipper(module, cross_entropy, views=views) as clipper:
        clip = float(clipper(inputs, targets).norms.median())
        found = clipper(inputs, targets, weights, clip)
    expected = by_definition(module, cross_entropy, inputs, targets, weights, clip)
    assert (found.norms > clip).any()
    assert (found.norms < clip).any()
    torch.testing.assert_close(joined(found), expected, rtol=1e-10, atol=1e-13)
    assert found.losses.shape == (samples,)


@settings(max_examples=30, deadline=None)
@given(
    places=st.integers(1, 12),
    wide=st.integers(1, 8),
    high=st.integers(1, 8),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_both_ways_to_a_norm_agree(places: int, wide: int, high: int, bias: bool, seed: int) -> None:
    torch.manual_seed(seed)
    module = nn.Linear(wide, high, bias=bias).double()
    inputs, targets = torch.randn(4, places, wide).double(), torch.randn(4, places, high).double()
    with Clipper(module, squared_error) as clipper:
        found = clipper(inputs, targets, clip=0.1)
    expected = by_definition(module, squared_error, inputs, targets, torch.ones(4), 0.1)
    torch.testing.assert_close(joined(found), expected)


@pytest.mark.parametrize("size", [1, 3], ids=["one place", "nine places"])
def test_what_short_numbers_can_add_raises_every_norm(size: int) -> None:
    class Short(Convolution):
        """A convolution whose sum is off by as much as that of a GPU."""

        margin = 2.0**-9

    torch.manual_seed(7)
    module = nn.Conv2d(64, 512, 3, padding=1, bias=False)
    inputs, back = torch.randn(4, 64, size, size), torch.randn(4, 512, size, size)
    call = Call(inputs=(inputs,), options={}, edges=(), shapes=(back.shape,), gradients=(back,))
    (exact,), (raised,) = Convolution(module).norms(call), Short(module).norms(call)
    assert (raised >= exact * (1 + 2.0**-9) * (1 - 1e-6)).all()


def test_no_sample_counts_for_more_than_the_clip() -> None:
    torch.manual_seed(1)
    module, inputs, targets = cnn(), torch.randn(20, 1, 28, 28) * 100, torch.randint(0, 10, (20,))
    with Clipper(module, cross_entropy) as clipper:
        with_all = joined(clipper(inputs, targets, clip=0.5))
        for left_out in range(20):
            kept = torch.arange(20) != left_out
            without = joined(clipper(inputs[kept], targets[kept], clip=0.5))
            assert float((with_all - without).norm()) <= 0.5 * (1 + 1e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
@pytest.mark.parametrize("name", ["cnn", "odd convolutions and norms", "one layer twice", "places", "a loose weight"])
def test_a_gradient_that_is_not_finite_counts_for_nothing(name: str, bad: float) -> None:
    make, data = MODELS[name]
    torch.manual_seed(2)
    module, inputs, targets = make(), data(6), torch.randint(0, 3, (6,))
    spoilt = inputs.clone()
    spoilt[3] = bad
    with Clipper(module, cross_entropy) as clipper:
        kept = torch.tensor([0, 1, 2, 4, 5])
        expected = joined(clipper(inputs[kept], targets[kept], clip=0.3))
        found = clipper(spoilt, targets, clip=0.3)
    finite_norm = bool(found.norms[3].isfinite())
    if finite_norm:  # a layer that normalises makes any number small
        assert bad == 3e38
    else:
        torch.testing.assert_close(joined(found), expected, rtol=1e-4, atol=1e-6)


def test_samples_of_weight_0_and_an_empty_sum_are_nothing() -> None:
    module = nn.Linear(3, 2)
    found = private_step(module, cross_entropy, torch.randn(4, 3), torch.tensor([0, 1, 1, 0]), torch.zeros(4))
    assert {name: float(one.abs().sum()) for name, one in found.items()} == {"weight": 0.0, "bias": 0.0}


def test_half_precision_passes_are_clipped_in_full_precision() -> None:
    torch.manual_seed(3)
    module, inputs, targets = cnn(), torch.randn(8, 1, 28, 28), torch.randint(0, 10, (8,))

    def halved(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs.float(), targets)

    with Clipper(module, halved) as clipper, torch.autocast("cpu", dtype=torch.float16):
        found = clipper(inputs, targets, clip=0.2)
        assert joined(found).dtype == torch.float32
        alone = [joined(clipper(inputs[at : at + 1], targets[at : at + 1], clip=0.2)).norm() for at in range(8)]
    assert max(float(one) for one in alone) <= 0.2 * (1 + 1e-5)


def test_the_layers_of_a_module_are_known_by_their_exact_type() -> None:
    class Mine(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs).square()

    assert type(layer_of(Mine(2, 2))).__name__ == "OtherModule"
    module, inputs, targets = Mine(4, 3).double(), torch.randn(5, 4).double(), torch.tensor([0, 1, 2, 1, 0])
    with Clipper(module, cross_entropy) as clipper:
        found = joined(clipper(inputs, targets, clip=0.1))
    torch.testing.assert_close(found, by_definition(module, cross_entropy, inputs, targets, torch.ones(5), 0.1))


def test_a_loss_that_is_averaged_already_is_refused() -> None:
    with pytest.raises(sf.errors.OptionError, match=r"one number per sample, got the shape \(\)"):
        private_step(nn.Linear(3, 2), functional.cross_entropy, torch.randn(4, 3), torch.tensor([0, 1, 1, 0]))


def test_a_model_without_weights_is_refused() -> None:
    with pytest.raises(sf.errors.OptionError, match="no weights to train"):
        Clipper(nn.ReLU(), cross_entropy)


def test_nothing_listens_after_the_step() -> None:
    module = nn.Linear(3, 2)
    private_step(module, cross_entropy, torch.randn(4, 3), torch.tensor([0, 1, 1, 0]))
    assert not module._forward_hooks

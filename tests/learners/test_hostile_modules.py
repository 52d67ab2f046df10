"""Unusual models have the gradients of the definition, or are refused in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import sfumato as sf
from sfumato.learners import Clipper, private_step
from sfumato.learners.dpsgd import module_checks
from sfumato.learners.gradients.clipping import cross_entropy, squared_error
from tests.effort import effort
from tests.learners.test_clipping import by_definition, joined


class Written(nn.Module):
    """A model whose forward is a function of its parts and the inputs."""

    def __init__(self, run: Callable[[Any, Tensor], Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.run = run

    def forward(self, inputs: Tensor) -> Any:
        return self.run(self, inputs)


class Scaled(nn.Module):
    """A layer with a weight of its own around another."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.scale = inner, nn.Parameter(torch.linspace(0.5, 2, 5))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.inner(inputs) * self.scale


class Answers(nn.Module):
    """Gives its numbers among other things."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 4))

    def forward(self, given: dict[str, Tensor], *, beside: Tensor) -> dict[str, Any]:
        return {"words": ["a"], "mask": beside > 0, "numbers": (given["x"] @ self.weight, beside)}


def ends(run: Callable[[Any, Tensor], Tensor], **parts: Any) -> nn.Module:
    """A model that runs what is given, then tanh and a linear layer."""
    return Written(lambda own, inputs: own.last(torch.tanh(run(own, inputs))), last=nn.Linear(4, 3), **parts)


def without_gradient(own: Any, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return own.first(inputs)


def in_two_parents() -> nn.Module:
    layer = nn.Linear(5, 5)
    return nn.Sequential(nn.Sequential(layer), nn.Tanh(), nn.Sequential(layer), nn.Linear(5, 3))


def inside_and_outside() -> nn.Module:
    layer = nn.Linear(5, 5)
    return nn.Sequential(Scaled(layer), nn.Tanh(), layer, nn.Tanh(), nn.Linear(5, 3))


def in_a_list() -> nn.Module:
    layer = nn.Linear(5, 5)
    return Written(
        lambda own, inputs: own.last(own.layers[1](torch.tanh(own.layers[0](inputs)))),
        layers=nn.ModuleList([layer, layer]),
        last=nn.Linear(5, 3),
    )


def masked(own: Any, inputs: Tensor) -> Tensor:
    words = inputs.unsqueeze(2).expand(-1, -1, 4)
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    ignored = torch.cat([torch.zeros(len(inputs), 1, dtype=torch.bool), inputs[:, 1:] > 0.5], 1)
    return own.attend(words, words, words, attn_mask=causal, key_padding_mask=ignored)[0].sum(1)


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    module[0].register_forward_pre_hook(lambda _, given: (given[0].sin(),))
    module[0].register_forward_hook(lambda _, given, output: output * 3)
    return module


class Choosing(nn.Module):
    """Does one thing or the other, by what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(5, 4))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ (self.weight if inputs.sum() > 0 else -self.weight)


HANDLED: dict[str, Callable[[], nn.Module]] = {
    "a layer under no_grad": lambda: ends(without_gradient, first=nn.Linear(5, 4)),
    "checkpoints": lambda: ends(
        lambda own, x: checkpoint(lambda y: own.first(y).sin(), x, use_reentrant=False), first=nn.Linear(5, 4)
    ),
    "an argument by name": lambda: ends(lambda own, x: own.first(input=x), first=nn.Linear(5, 4)),
    "arguments of an unknown layer by name": lambda: ends(
        lambda own, x: own.first(input1=x, input2=x.sin()), first=nn.Bilinear(5, 5, 4)
    ),
    "dictionaries in and out": lambda: ends(
        lambda own, x: own.first({"x": x}, beside=x)["numbers"][0], first=Answers()
    ),
    "an output changed in place": lambda: ends(lambda own, x: own.first(x).relu_(), first=nn.Linear(5, 4)),
    "an unknown output changed in place": lambda: nn.Sequential(
        Scaled(nn.Linear(5, 5)), nn.ReLU(True), nn.Linear(5, 3)
    ),
    "an output that is a view": lambda: ends(lambda own, x: own.first(x).view(-1, 2, 4)[:, 1], first=nn.Linear(5, 8)),
    "a layer in two parents": in_two_parents,
    "a layer twice in a list": in_a_list,
    "a layer inside an unknown one and outside": inside_and_outside,
    "an unknown layer in an unknown one": lambda: nn.Sequential(Scaled(Scaled(nn.Linear(5, 5))), nn.Linear(5, 3)),
    "masks of attention": lambda: ends(masked, attend=nn.MultiheadAttention(4, 2, batch_first=True)),
    "several processors": lambda: nn.DataParallel(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))),
    "a parametrization": lambda: nn.Sequential(
        nn.utils.parametrizations.orthogonal(nn.Linear(5, 5, bias=False)), nn.Linear(5, 3)
    ),
    "a hook that changes what comes out": hooked,
    "a weight that has no part": lambda: ends(lambda own, x: own.first(x), first=nn.Linear(5, 4), more=nn.Linear(2, 2)),
    "one vector for all": lambda: ends(
        lambda own, x: own.first(x) + own.places(torch.zeros(len(x), dtype=torch.int64)),
        first=nn.Linear(5, 4),
        places=nn.Embedding(3, 4),
    ),
}


@pytest.mark.parametrize("samples", [1, 5, 7])  # 5 is the length of other things too
@pytest.mark.parametrize("name", HANDLED)
def test_unusual_models_have_the_gradients_of_the_definition(name: str, samples: int) -> None:
    torch.manual_seed(4)
    module, inputs = HANDLED[name]().double(), torch.randn(samples, 5).double()
    targets = torch.randint(0, 3, (samples,))
    with Clipper(module, cross_entropy) as clipper:
        clip = float(clipper(inputs, targets).norms.median()) * 0.99
        found = joined(clipper(inputs, targets, None, clip))
    expected = by_definition(module, cross_entropy, inputs, targets, torch.ones(samples), clip)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # dynamo reads it of what it compiles
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_part_is_listened_to_as_well(backend: str, warm: bool) -> None:
    torch.manual_seed(4)
    part = torch.compile(nn.Sequential(nn.Linear(5, 4), nn.Tanh()), backend=backend)
    module, inputs, targets = nn.Sequential(part, nn.Linear(4, 3)), torch.randn(7, 5), torch.randint(0, 3, (7,))
    if warm:
        module(inputs)
    with Clipper(module, cross_entropy) as clipper:
        found = joined(clipper(inputs, targets, None, 0.5))
    expected = by_definition(module, cross_entropy, inputs, targets, torch.ones(7), 0.5)
    torch.testing.assert_close(found, expected)


def changed_later(own: Any, inputs: Tensor) -> Tensor:
    copied = inputs.clone()
    found = own.first(copied)
    copied.zero_()
    return found


def folded(own: Any, inputs: Tensor) -> Tensor:
    return own.first(inputs.reshape(-1, 1)).view(-1, 5, 4).sum(1)


def transposed(own: Any, inputs: Tensor) -> Tensor:
    return own.first(inputs.unsqueeze(2).transpose(0, 1)).sum(0)


def by_place(own: Any, inputs: Tensor) -> Tensor:
    return (own.first(inputs).unsqueeze(1) + own.places(torch.arange(5))).sum(1)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a weight used past its layer": (
        lambda: ends(lambda own, x: functional.linear(x, own.first.weight, own.first.bias), first=nn.Linear(5, 4)),
        "the gradient of weight 'first.weight' cannot be computed per sample",
    ),
    "a weight used past its layer too": (
        lambda: ends(lambda own, x: own.first(x) + functional.linear(x, own.first.weight), first=nn.Linear(5, 4)),
        "the gradient of weight 'first.weight' cannot be computed per sample",
    ),
    "a penalty on a weight": (
        lambda: ends(lambda own, x: own.first(x) * own.first.weight.square().sum(), first=nn.Linear(5, 4)),
        "the gradient of weight 'first.weight' cannot be computed per sample",
    ),
    "the inside of an unknown layer": (
        lambda: ends(lambda own, x: own.part.inner(x), part=Scaled(nn.Linear(5, 4))),
        "the gradient of weight 'part.inner.weight' cannot be computed per sample",
    ),
    "reentrant checkpoints": (
        lambda: ends(
            lambda own, x: checkpoint(own.second, own.first(x), use_reentrant=True),
            first=nn.Linear(5, 4),
            second=nn.Linear(4, 4),
        ),
        "the model uses torch's checkpoint with use_reentrant=True",
    ),
    "an input changed later": (
        lambda: ends(changed_later, first=nn.Linear(5, 4)),
        "the input of layer 'first' is changed in place after the layer has read it",
    ),
    "places as samples": (
        lambda: ends(folded, first=nn.Linear(1, 4)),
        "layer 'first' must have one row per sample, 2, got outputs of the shape (10, 4)",
    ),
    "places before samples": (
        lambda: ends(transposed, first=nn.Linear(1, 4)),
        "layer 'first' must have one row per sample, 2, got outputs of the shape (5, 2, 4)",
    ),
    "vectors of places for all samples": (
        lambda: ends(by_place, first=nn.Linear(5, 4), places=nn.Embedding(5, 4)),
        "layer 'places' must have one row per sample, 2, got outputs of the shape (5, 4)",
    ),
    "a mean of the batch": (
        lambda: ends(lambda own, x: own.first(x) - own.first(x).mean(0), first=nn.Linear(5, 4)),
        "the gradient of weight 'first.weight' cannot be computed per sample",
    ),
    "no row per sample": (
        lambda: Written(lambda own, x: own.first(x).sum(), first=nn.Linear(5, 4)),
        "the model must return a tensor with one row per sample, got Tensor",
    ),
    "a layer that chooses by the numbers": (
        lambda: ends(lambda own, x: own.first(x), first=Choosing()),
        "a layer Choosing cannot be run per sample with torch.func.vmap",
    ),
    "half precision": (
        lambda: nn.Linear(5, 3).half(),
        "the trained weights must all be float32 or all be float64, got float16",
    ),
    "two precisions": (
        lambda: nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3).double()),
        "the trained weights must all be float32 or all be float64, got float32, float64",
    ),
}


@pytest.mark.parametrize("samples", [5, 7])
@pytest.mark.parametrize("name", REFUSED)
def test_a_model_whose_gradients_would_be_wrong_is_refused(name: str, samples: int) -> None:
    torch.manual_seed(4)
    make, message = REFUSED[name]
    with pytest.raises(sf.errors.ModelError) as caught:
        private_step(make(), cross_entropy, torch.randn(samples, 5), torch.randint(0, 3, (samples,)))
    assert caught.value.message == message


def test_two_places_that_are_folded_into_the_batch_are_clipped_as_one_sample_or_not_at_all() -> None:
    """Two rows per sample, once clipped each for itself, would let a sample count twice."""
    module = ends(lambda own, x: own.first(x.reshape(-1, 1)).view(-1, 5, 4).sum(1), first=nn.Linear(1, 4))
    with Clipper(module, cross_entropy) as clipper:
        clipper._checked = True  # as if the first batch had shown nothing
        with pytest.raises(sf.errors.ModelError, match="one row per sample, 7"):
            clipper(torch.randn(7, 5), torch.randint(0, 3, (7,)))


@pytest.mark.parametrize(("wide", "places"), [(256, 16), (256, 100), (4096, 8), (2000, 40)])
@pytest.mark.parametrize("kind", ["linear", "convolution", "words"])
def test_places_that_cancel_each_other_do_not_escape_the_clip(kind: str, wide: int, places: int) -> None:
    """The products of places are large and their sum is small: rounding must not make a norm too small."""
    high = 256
    for seed in range(effort(2, 5)):
        torch.manual_seed(seed)
        inputs = 1000 * torch.randn(1, 1, wide).expand(1, places, wide)
        module: nn.Module = nn.Linear(wide, high, bias=False)
        if kind == "convolution":
            module = nn.Conv1d(wide, high, 1, bias=False)
            inputs = inputs.transpose(1, 2)
        if kind == "words":
            module, inputs = nn.Embedding(3, high), torch.ones(1, places, dtype=torch.int64)
        back = torch.randn(places, high) * (1e4 if kind == "words" else 1)
        back = back - back.mean(0) + 3e-5 * torch.randn(high) / places
        back = back.t() if kind == "convolution" else back

        def loss(outputs: Tensor, _: Tensor, back: Tensor = back) -> Tensor:
            return (outputs * back).flatten(1).sum(1)

        with Clipper(module, loss) as clipper:
            found = clipper(inputs, torch.zeros(1), None, 0.5)
        assert float(joined(found).norm()) <= 0.5 * (1 + 1e-4)


class Noisy(nn.Module):
    """Drops at random within a layer that has a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.attend = nn.Parameter(torch.ones(4)), nn.MultiheadAttention(4, 2, 0.4, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        words = functional.dropout(inputs.unsqueeze(2) * self.weight, 0.3, self.training)
        return self.attend(words, words, words)[0].mean(1)


def test_dropout_in_an_unknown_layer_drops_the_same_for_the_gradient() -> None:
    torch.manual_seed(1)
    module = nn.Sequential(Noisy(), nn.Linear(4, 3)).double()
    inputs, targets = torch.randn(6, 5).double(), torch.randint(0, 3, (6,))
    with Clipper(module, cross_entropy) as clipper:
        clipper(inputs, targets)
        torch.manual_seed(9)
        found = clipper(inputs, targets, None, 1e6)
    torch.manual_seed(9)
    losses = cross_entropy(module(inputs), targets)
    torch.testing.assert_close(found.losses, losses.detach())
    own = torch.autograd.grad(losses.sum(), list(module.parameters()))
    torch.testing.assert_close(joined(found), torch.cat([one.reshape(-1) for one in own]))


def test_the_state_of_spectral_norm_is_found_from_the_weights_alone() -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4)), nn.Linear(4, 3))
    before = {name: one.clone() for name, one in module.named_buffers()}
    module_checks.refuse_mixing(module, torch.randn(2, 5))
    assert all(torch.equal(one, before[name]) for name, one in module.named_buffers())
    found = private_step(module, cross_entropy, torch.randn(6, 5) * 100, torch.randint(0, 3, (6,)), clip=0.1)
    assert float(torch.cat([one.reshape(-1) for one in found.values()]).norm()) <= 0.6


def test_comparing_gradients_leaves_the_model_and_random_numbers_as_they_were() -> None:
    module = nn.Sequential(Noisy(), nn.Dropout(0.5), nn.Linear(4, 3))
    module[1].eval()
    torch.manual_seed(3)
    expected = torch.rand(4)
    with Clipper(module, cross_entropy) as clipper:
        clipper._checked = False
        torch.manual_seed(3)
        module_checks.refuse_wrong_gradients(clipper, torch.zeros(6, 5))
        assert torch.equal(torch.rand(4), expected)
    assert [one.training for one in module] == [True, False, True]
    assert all(one.grad is None for one in module.parameters())


def test_a_loss_that_does_not_depend_on_the_weights_counts_for_nothing() -> None:
    torch.manual_seed(2)
    module, inputs, targets = nn.Linear(5, 3), torch.randn(6, 5), torch.randint(0, 3, (6,))
    held = (targets == 2).float()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.where(targets == 2, 7.0, cross_entropy(outputs, targets))

    found, expected = (
        private_step(module, loss, inputs, targets),
        private_step(module, cross_entropy, inputs, targets, 1 - held),
    )
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_counts_for_nothing(bad: float) -> None:
    torch.manual_seed(2)
    module, inputs, targets = nn.Linear(5, 3), torch.randn(6, 5), torch.randint(0, 3, (6,))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets) * torch.where(targets == 2, bad, 1.0)

    found = private_step(module, loss, inputs, targets)
    expected = private_step(module, cross_entropy, inputs, targets, (targets != 2).float())
    for name in expected:
        torch.testing.assert_close(found[name], expected[name])


def test_an_empty_batch_is_nothing() -> None:
    found = private_step(nn.Linear(5, 3), cross_entropy, torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64))
    assert {name: float(one.abs().sum()) for name, one in found.items()} == {"weight": 0.0, "bias": 0.0}


@pytest.mark.parametrize("bad", [0, -1.0, math.inf, math.nan])
def test_a_clip_must_be_a_finite_number_above_0(bad: float) -> None:
    with pytest.raises(sf.errors.OptionError, match=r"the clip must be a finite number above 0, got"):
        private_step(nn.Linear(5, 3), cross_entropy, torch.zeros(2, 5), torch.tensor([0, 1]), clip=bad)


@pytest.mark.parametrize("bad", [1.5, -0.1, math.nan])
def test_weights_of_samples_beyond_0_and_1_are_refused(bad: float) -> None:
    with pytest.raises(sf.errors.OptionError, match="the weights of samples must be numbers from 0 to 1"):
        private_step(nn.Linear(5, 3), cross_entropy, torch.zeros(2, 5), torch.tensor([0, 1]), torch.tensor([1, bad]))


def test_a_model_that_got_another_layer_is_refused() -> None:
    module = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    clipper = Clipper(module, cross_entropy)
    module[0] = nn.Linear(5, 4)
    with pytest.raises(sf.errors.ModelError, match="the trained weights of the model have changed"):
        clipper.listen()


def test_a_model_of_which_other_weights_are_trained_now_is_refused() -> None:
    module = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    module[0].requires_grad_(False)
    clipper = Clipper(module, cross_entropy)
    module[0].requires_grad_(True)
    with pytest.raises(sf.errors.ModelError, match="the trained weights of the model have changed"):
        clipper.listen()


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch says it once in a process
@settings(max_examples=effort(30, 300))
@given(st.data())
def test_convolutions_of_all_options_have_the_gradients_of_the_definition(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3), "dimensions")
    each = st.tuples(*[st.integers(1, 3)] * rank)
    groups = data.draw(st.sampled_from([1, 2]), "groups")
    size, dilation = data.draw(each, "kernel"), data.draw(st.tuples(*[st.integers(1, 2)] * rank), "dilation")
    mode = data.draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"]), "mode")
    padding = data.draw(st.sampled_from(["valid", "same", *[(pad,) * rank for pad in range(3)]]), "padding")
    stride = (1,) * rank if padding == "same" else data.draw(each, "stride")
    torch.manual_seed(data.draw(st.integers(0, 99), "seed"))
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    bias = data.draw(st.booleans(), "bias")
    module = kind(2 * groups, 2 * groups, size, stride, padding, dilation, groups, bias, mode).double()
    views = data.draw(st.integers(1, 2), "views")
    inputs = torch.randn(3 * views, 2 * groups, *[7] * rank).double()
    if rank == 2 and data.draw(st.booleans(), "channels last"):
        module, inputs = (
            module.to(memory_format=torch.channels_last),
            inputs.contiguous(memory_format=torch.channels_last),
        )
    targets = torch.randn_like(module(inputs))
    with Clipper(module, squared_error, views=views) as clipper:
        clipper.layers[0].small = data.draw(st.sampled_from([0, 16_384]), "small")
        clip = float(clipper(inputs, targets).norms.median())
        found = joined(clipper(inputs, targets, None, clip))
    expected = by_definition(module, squared_error, inputs, targets, torch.ones(3), clip)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)

"""Each named network is the published one and never mixes samples."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

import sfumato as sf
from sfumato.learners import Architecture, architecture
from sfumato.learners.networks.architectures import ARCHITECTURES

GREY = (28, 28)


def batch(made: Architecture, count: int = 3) -> torch.Tensor:
    images = torch.rand(count, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    return made.features(images) if made.features else images


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("cnn", 26_010),
        ("resnet18", 11_175_370),  # torchvision's, with one input channel and ten classes
        ("mlp", 79_510),
        ("logistic", 7_850),
        ("scattering-linear", 39_700),
    ],
)
def test_a_network_has_its_number_of_parameters_and_one_output_per_class(name: str, parameters: int) -> None:
    made = architecture(name, GREY, 10)
    assert sum(part.numel() for part in made.module.parameters()) == parameters
    assert made.module(batch(made)).shape == (3, 10)


def test_every_network_has_been_counted() -> None:
    assert list(ARCHITECTURES) == ["cnn", "resnet18", "mlp", "logistic", "scattering-linear"]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_output_of_a_sample_depends_on_that_sample_alone(name: str) -> None:
    torch.manual_seed(0)
    made = architecture(name, GREY, 10)
    for parameter in made.module.parameters():
        nn.init.normal_(parameter, std=0.05)
    samples = batch(made).requires_grad_()
    (gradient,) = torch.autograd.grad(made.module(samples)[0].square().sum(), samples)
    assert gradient[0].abs().max() > 0
    assert torch.equal(gradient[1:], torch.zeros_like(gradient[1:]))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_no_part_mixes_samples_or_overwrites_what_went_in(name: str) -> None:
    for part in architecture(name, GREY, 10).module.modules():
        assert not isinstance(part, nn.modules.batchnorm._BatchNorm)
        assert not getattr(part, "inplace", False)


@pytest.mark.parametrize("name", ["logistic", "scattering-linear"])
def test_a_linear_model_starts_at_zero(name: str) -> None:
    assert all(part.count_nonzero() == 0 for part in architecture(name, GREY, 10).module.parameters())


def test_the_residual_network_begins_as_published() -> None:
    first, norm, *_ = architecture("resnet18", GREY, 10).module
    assert (first.in_channels, first.out_channels, first.kernel_size) == (1, 64, (7, 7))
    assert (first.stride, first.padding, first.bias) == ((2, 2), (3, 3), None)
    assert (norm.num_groups, norm.num_channels) == (32, 64)
    # fan out: 64 channels of 7 x 7
    assert float(first.weight.detach().std()) == pytest.approx((2 / (64 * 49)) ** 0.5, rel=0.1)


def test_the_residual_network_shrinks_an_image_32_times() -> None:
    *convolutions, _, _, _ = architecture("resnet18", (3, 64, 96), 5).module
    assert nn.Sequential(*convolutions)(torch.zeros(2, 3, 64, 96)).shape == (2, 512, 2, 3)


def test_a_seed_gives_the_same_weights() -> None:
    def weights() -> torch.Tensor:
        torch.manual_seed(5)
        return nn.utils.parameters_to_vector(architecture("cnn", GREY, 10).module.parameters())

    assert torch.equal(weights(), weights())


def test_the_hidden_layers_are_chosen() -> None:
    widths = [part.out_features for part in architecture("mlp", 14, 2, hidden=[32, 16]).module if hasattr(part, "bias")]
    assert widths == [32, 16, 2]
    assert architecture("mlp", 14, 2, hidden=()).module(torch.zeros(3, 14)).shape == (3, 2)


def test_only_the_scattering_network_has_features() -> None:
    assert [name for name in ARCHITECTURES if architecture(name, GREY, 10).features] == ["scattering-linear"]


def test_features_have_the_options_of_their_network() -> None:
    made = architecture("scattering-linear", (1, 32, 20), 4, scales=1, angles=4, groups=5)
    assert made.features is not None
    told: list[float] = []
    features = made.features(torch.rand(2, 32, 20), progress=told.append)
    assert features.shape == (2, 5 * 16 * 10)
    assert told == [1]
    assert made.module(features).shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in ARCHITECTURES), ("mlp", {"hidden": [7, 5]}), ("resnet18", {"groups": 8})],
)
def test_the_plain_form_makes_the_same_network(name: str, options: dict[str, Any]) -> None:
    made = architecture(name, GREY, 10, **options)
    again = architecture(**json.loads(json.dumps(made.to_dict())))
    assert again.to_dict() == made.to_dict()
    again.module.load_state_dict(made.module.state_dict())
    assert torch.equal(again.module(batch(made)), made.module(batch(made)))


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "options", "message", "hint"),
    [
        (
            "resnet",
            GREY,
            10,
            {},
            "an architecture must be one of cnn, resnet18, mlp, logistic, scattering-linear, got 'resnet'",
            "did you mean 'resnet18'?",
        ),
        ("mlp", GREY, 10, {"hiden": (5,)}, "the architecture 'mlp' has no option 'hiden'", "did you mean 'hidden'?"),
        ("cnn", GREY, 10, {"hidden": (5,)}, "the architecture 'cnn' has no option 'hidden'", "leave it out"),
        ("cnn", GREY, 0, {}, "the number of outputs must be a whole number of at least 1, got 0", ""),
        ("mlp", (28, -1), 2, {}, "the number of inputs must be a whole number of at least 1, got -1", ""),
        ("mlp", (), 2, {}, "the inputs must have at least one dimension, got none", ""),
        ("mlp", 5, 2, {"hidden": 100}, "the hidden layers must be a list of widths, got 100", ""),
        ("mlp", 5, 2, {"hidden": (0,)}, "the width of a hidden layer must be a whole number of at least 1, got 0", ""),
        (
            "cnn",
            14,
            2,
            {},
            "the architecture 'cnn' is for images, got samples of the shape (14,)",
            "use 'mlp' or 'logistic' for a table",
        ),
        ("cnn", (13, 28), 2, {}, "the images for 'cnn' must have at least 14 pixels a side, got 13 x 28", ""),
        ("resnet18", GREY, 2, {"groups": 27}, "the number of groups of 'resnet18' must divide 64, got 27", ""),
        ("scattering-linear", (3, 9, 9), 2, {}, "the images for 'scattering-linear' must be grey, got 3 channels", ""),
        ("scattering-linear", GREY, 2, {"groups": 2}, "the number of groups must divide the 81 channels, got 2", ""),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    name: str, inputs: Any, outputs: int, options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(sf.errors.InputError) as caught:
        architecture(name, inputs, outputs, **options)
    assert (caught.value.message, caught.value.hint) == (message, hint)

"""A model that cannot be trained privately is named with its replacement; one that can passes."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import sfumato as sf
from sfumato.learners import check, make_private, obstacles, private_step
from sfumato.learners.dpsgd.module_checks import refuse_mixing
from sfumato.learners.gradients.clipping import cross_entropy

BAD: list[tuple[Callable[[], nn.Module], str]] = [
    (lambda: nn.BatchNorm1d(6), "BatchNorm1d mixes the samples of a batch; put GroupNorm(1, 6) in its place"),
    (lambda: nn.BatchNorm2d(64), "BatchNorm2d mixes the samples of a batch; put GroupNorm(32, 64) in its place"),
    (lambda: nn.BatchNorm3d(7), "BatchNorm3d mixes the samples of a batch; put GroupNorm(1, 7) in its place"),
    (lambda: nn.SyncBatchNorm(48), "SyncBatchNorm mixes the samples of a batch; put GroupNorm(24, 48) in its place"),
    (lambda: nn.LazyBatchNorm2d(), "LazyBatchNorm2d mixes the samples of a batch"),
    (
        lambda: nn.InstanceNorm2d(4, track_running_stats=True),
        "InstanceNorm2d keeps means of the data; set track_running_stats=False",
    ),
    (
        lambda: nn.MultiheadAttention(4, 2),
        "MultiheadAttention expects the sequence, not the batch, in the first dimension; set batch_first=True",
    ),
    (lambda: nn.RNN(3, 4), "RNN has no per-sample gradients yet; use attention or convolutions"),
    (
        lambda: nn.LSTM(3, 4, batch_first=True),
        "LSTM has no per-sample gradients yet; use attention or convolutions",
    ),
    (lambda: nn.GRU(3, 4), "GRU has no per-sample gradients yet; use attention or convolutions"),
    (lambda: nn.EmbeddingBag(5, 2), "EmbeddingBag has no per-sample gradients yet; use Embedding and a mean"),
    (
        lambda: nn.Embedding(5, 2, max_norm=1.0),
        "Embedding with max_norm changes its weights in the forward pass; set max_norm=None",
    ),
    (
        lambda: nn.Embedding(5, 2, scale_grad_by_freq=True),
        "Embedding counts words over the whole batch; set scale_grad_by_freq=False",
    ),
    (
        lambda: nn.EmbeddingBag(5, 2, max_norm=1.0),
        "EmbeddingBag with max_norm changes its weights in the forward pass; set max_norm=None",
    ),
    (lambda: nn.LazyLinear(3), "LazyLinear has no shape before its first batch; give its sizes"),
]


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(
    ("make", "told"), BAD, ids=[told.partition(" ")[0] + str(at) for at, (_, told) in enumerate(BAD)]
)
def test_every_bad_layer_is_named_with_its_replacement(make: Callable[[], nn.Module], told: str) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.ModuleDict({"inner": make()}))
    assert [str(one) for one in obstacles(module)] == [f"layer '1.inner': {told}"]
    with pytest.raises(sf.errors.ModelError) as caught:
        check(module)
    assert caught.value.message == f"layer '1.inner': {told}"
    assert caught.value.hint == ("make_private does it" if "put GroupNorm" in told or "running_stats" in told else "")


def test_a_transformer_that_takes_places_first_is_refused() -> None:
    assert [one.name for one in obstacles(nn.TransformerEncoderLayer(4, 2))] == ["self_attn"]
    check(nn.TransformerEncoderLayer(4, 2, batch_first=True))


def test_several_bad_layers_are_counted() -> None:
    with pytest.raises(sf.errors.ModelError, match="and 2 more layers"):
        check(nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3), nn.LSTM(3, 3)))
    with pytest.raises(sf.errors.ModelError, match="and 1 more like it"):
        check(nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3)))


def published() -> nn.Sequential:
    """As networks are published: normalised over the batch, one layer used twice, in double precision."""
    shared = nn.BatchNorm2d(8)
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), shared, nn.ReLU(), nn.Sequential(nn.Conv2d(8, 8, 3), shared)),
        *(nn.InstanceNorm2d(8, affine=True, track_running_stats=True), nn.Flatten(), nn.Linear(128, 4)),
        *(nn.BatchNorm1d(4), nn.Linear(4, 3)),
    ).double()
    for one in model.parameters():
        nn.init.uniform_(one, 0.5, 1.5)
    model[7].weight.requires_grad_(False)
    return model


def test_make_private_keeps_the_original_and_its_result_can_be_trained() -> None:
    model = published()
    before = copy.deepcopy(model.state_dict())
    changed = make_private(model.eval())
    assert isinstance(changed, nn.Sequential)
    assert isinstance(model[1], nn.BatchNorm2d)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    check(changed)
    assert isinstance(changed[1], nn.GroupNorm)
    assert changed[3][1] is changed[1]
    assert torch.equal(changed[1].weight, model[1].weight)
    assert torch.equal(changed[1].bias, model[1].bias)
    assert not changed[7].weight.requires_grad
    assert not any(one.training for one in changed.modules())
    assert {one.dtype for one in changed.state_dict().values()} == {torch.float64}
    assert not list(changed.buffers())  # what was read off data is gone
    with torch.no_grad():
        changed[1].weight.fill_(0)
    assert float(model[1].weight.detach().min()) >= 0.5
    inputs = torch.randn(5, 1, 8, 8).double()
    refuse_mixing(changed, inputs)
    found = private_step(changed, cross_entropy, inputs, torch.randint(0, 3, (5,)))
    assert all(bool(one.isfinite().all()) for one in found.values())


def test_a_model_that_is_one_bad_layer_is_replaced() -> None:
    assert isinstance(make_private(nn.BatchNorm2d(4, affine=False)), nn.GroupNorm)


def test_make_private_refuses_what_it_cannot_replace() -> None:
    with pytest.raises(sf.errors.ModelError, match="layer '1': LSTM has no per-sample gradients yet"):
        make_private(nn.Sequential(nn.BatchNorm1d(3), nn.LSTM(3, 3)))


class Centred(nn.Module):
    """Subtracts the mean of the batch; ``stops`` hides it from the gradient."""

    def __init__(self, *, stops: bool, ends: nn.Module | None = None) -> None:
        super().__init__()
        self.layer, self.stops, self.ends = nn.Linear(4, 3), stops, ends or nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        mean = inputs.mean(0)
        return self.ends(self.layer(inputs - (mean.detach() if self.stops else mean)))


class Across(nn.Module):
    """Attends from sample to sample."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        row = inputs.unsqueeze(0)
        return self.attend(row, row, row)[0].squeeze(0)


class Words(nn.Module):
    def __init__(self, *, across: bool) -> None:
        super().__init__()
        self.words, self.across = nn.Embedding(9, 4), across

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.words(inputs).mean(1)
        return found + found.mean(0) if self.across else found


class Remembering(nn.Module):
    """Keeps a mean of what it reads, and gives it back when it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, inputs: Tensor) -> Tensor:
        self.mean += inputs.detach().mean(0)
        return self.layer(inputs)


class Usual(nn.Module):
    """Dropout, attention within a sample, a constant buffer, a dictionary as the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=True)
        self.drop, self.out = nn.Dropout(0.5), nn.Linear(4, 3)
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        self.calls += 1
        return {"logits": self.out(self.drop(self.attend(inputs).mean(1) * self.scale))}


@pytest.mark.parametrize(
    "module",
    [
        Centred(stops=False),
        Centred(stops=True),
        Centred(stops=False, ends=nn.Softmax(1)),  # of which the sum is always 1
        Centred(stops=False, ends=nn.LayerNorm(3)),  # and of this always 0
        Across(),
        nn.Sequential(nn.Linear(4, 3), nn.Softmax(0)),
        nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)),
    ],
)
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_a_model_that_mixes_samples_is_refused(module: nn.Module, precision: torch.dtype) -> None:
    with pytest.raises(sf.errors.ModelError, match="mixes the samples of a batch"):
        refuse_mixing(copy.deepcopy(module).to(precision), torch.zeros(5, 4, dtype=precision))


def test_a_model_that_mixes_words_of_samples_is_refused() -> None:
    with pytest.raises(sf.errors.ModelError, match="mixes the samples of a batch"):
        refuse_mixing(Words(across=True), torch.zeros(5, 6, dtype=torch.int64))
    refuse_mixing(Words(across=False), torch.zeros(5, 6, dtype=torch.int64))


@pytest.mark.parametrize("module", [Remembering(), nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))])
def test_a_model_that_keeps_what_it_reads_is_refused(module: nn.Module) -> None:
    with pytest.raises(sf.errors.ModelError, match="from the data, and no noise protects it"):
        refuse_mixing(module, torch.zeros(5, 4))


def test_dropout_and_attention_within_a_sample_pass_and_nothing_changes() -> None:
    module = Usual()
    torch.manual_seed(8)
    expected = torch.rand(3)
    torch.manual_seed(8)
    refuse_mixing(module, torch.zeros(5, 6, 4))
    assert torch.equal(torch.rand(3), expected)
    assert int(module.calls) == 0
    assert all(one.training for one in module.modules())
    assert all(one.grad is None for one in module.parameters())


def test_columns_of_codes_among_numbers_pass() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes, self.out = nn.Embedding(3, 2), nn.Linear(4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.out(torch.cat([inputs[:, :2], self.codes(inputs[:, 2].long())], 1))

    refuse_mixing(Table(), torch.zeros(5, 3))
    found = private_step(Table(), cross_entropy, torch.ones(5, 3), torch.randint(0, 3, (5,)))
    assert set(found) == {"codes.weight", "out.weight", "out.bias"}


def test_yes_or_no_as_inputs_pass() -> None:
    class Mask(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(3, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.out(inputs.float())

    refuse_mixing(Mask(), torch.zeros(5, 3, dtype=torch.bool))


def test_a_model_that_gives_no_row_per_sample_is_refused() -> None:
    class Summed(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return functional.linear(inputs, self.weight).sum()

    with pytest.raises(sf.errors.ModelError, match="must return a tensor with one row per sample, got Tensor"):
        refuse_mixing(Summed(4, 3), torch.zeros(5, 4))

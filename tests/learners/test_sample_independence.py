"""A loss and an augmentation take every sample for itself, or are refused; allowed ones move the sum by one clip."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import sfumato as sf
from sfumato.learners import OneByOne, PrivateClassifier, Trainer, private_step
from sfumato.learners.dpsgd.sample_independence import refuse_mixing_augment, refuse_mixing_loss
from sfumato.learners.gradients.clipping import cross_entropy, squared_error
from tests.learners.trainings import in_groups

CLIP = 0.7


def contrastive(outputs: Tensor, targets: Tensor) -> Tensor:
    """Khosla et al. 2020: samples of one class attract each other."""
    near = functional.normalize(outputs, dim=1) @ functional.normalize(outputs, dim=1).T / 0.1
    near = near - 1e9 * torch.eye(len(near))
    same = (targets[:, None] == targets[None]).float() - torch.eye(len(near))
    return -(near.log_softmax(1) * same).sum(1) / same.sum(1).clamp(min=1)


def attracting_equals(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mixes only samples whose targets are equal."""
    same = (targets[:, None] == targets[None]).float()
    return cross_entropy(outputs, targets) + (same @ outputs.detach() / same.sum(1, keepdim=True) - outputs).norm(dim=1)


def balanced(outputs: Tensor, targets: Tensor) -> Tensor:
    counts = torch.bincount(targets, minlength=outputs.shape[1]).clamp(min=1)
    return cross_entropy(outputs, targets) / counts[targets]


def hardest(outputs: Tensor, targets: Tensor) -> Tensor:
    each = cross_entropy(outputs, targets)
    return each * (each >= each.detach().quantile(0.75))


class RunningMean:
    """Subtracts what it has seen before."""

    def __init__(self) -> None:
        self.mean = 0.0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        each = cross_entropy(outputs, targets)
        self.mean = 0.9 * self.mean + 0.1 * float(each.detach().mean())
        return (each - self.mean).square()


def mixed_target(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.7 * cross_entropy(outputs, targets) + 0.3 * cross_entropy(outputs, targets.flip(0))


def only_if_many(outputs: Tensor, targets: Tensor) -> Tensor:
    each = cross_entropy(outputs, targets)
    return each - each.mean() if len(each) > 1 else each


class Straight(torch.autograd.Function):
    """A loss whose numbers are each sample's own, and whose gradients are not."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor) -> Tensor:
        ctx.save_for_backward(outputs)
        return outputs.square().sum(1)

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> Tensor:
        (outputs,) = ctx.saved_tensors
        return 2 * given[:, None] * (outputs - outputs.mean(0))


def unforeseeable(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets) * float(np.random.default_rng().random())


MIXING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "contrastive": contrastive,
    "attracting equal targets": attracting_equals,
    "less the mean": lambda o, t: cross_entropy(o, t) - cross_entropy(o, t).mean(),
    "less the mean, detached": lambda o, t: (cross_entropy(o, t) - cross_entropy(o, t).mean().detach()).square(),
    "normalised outputs": lambda o, t: cross_entropy((o - o.mean(0)) / (o.std(0) + 1e-3), t),
    "weighted by the batch's counts": balanced,
    "the hardest samples": hardest,
    "a part of the mean": lambda o, t: cross_entropy(o, t) / len(o),
    "listwise": lambda o, t: -o[:, 0].log_softmax(0) * t,
    "targets of others": mixed_target,
    "a memory": RunningMean(),
    "only in company": only_if_many,
    "gradients alone": lambda o, _: Straight.apply(o),
    "by position": lambda o, t: cross_entropy(o, t) * torch.arange(len(t)),
    "shuffled targets": lambda o, t: cross_entropy(o, t[torch.randperm(len(t))]),
    "a chance that nobody can repeat": unforeseeable,
}

APART: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": cross_entropy,
    "smoothed": lambda o, t: functional.cross_entropy(o, t, reduction="none", label_smoothing=0.1),
    "weighted by public numbers": lambda o, t: functional.cross_entropy(
        o, t, weight=torch.tensor([1.0, 2.0, 5.0]), reduction="none"
    ),
    "focal": lambda o, t: cross_entropy(o, t) * (1 - (-cross_entropy(o, t)).exp()) ** 2,
    "margin": lambda o, t: functional.multi_margin_loss(o, t, reduction="none"),
    "distance": lambda o, t: squared_error(o, functional.one_hot(t, 3).float()),
    "noisy labels": lambda o, t: cross_entropy(o, t) * torch.rand(len(t)),
    "noisy labels of numpy": lambda o, t: cross_entropy(o, t) * float(np.random.rand()),
    "noisy outputs": lambda o, t: cross_entropy(o + 0.1 * torch.randn_like(o), t),
}


def people(rows: int = 40) -> tuple[Tensor, Tensor]:
    random_ = torch.Generator().manual_seed(rows)
    return torch.randn(rows, 4, generator=random_), torch.randint(0, 3, (rows,), generator=random_)


def trainer_of(module: nn.Module | None = None, **options: Any) -> Trainer:
    chosen = {"noise_multiplier": 1.0, "delta": 1e-3, "steps": 2, "batch_size": 10, "clip": CLIP, **options}
    return Trainer(module or nn.Linear(4, 3), **in_groups(**chosen))


@pytest.mark.parametrize("name", MIXING)
@pytest.mark.parametrize("zero", [False, True])
def test_a_loss_that_mixes_samples_is_refused_before_anything_is_charged(name: str, zero: bool) -> None:
    module = nn.Linear(4, 3)
    if zero:  # all outputs are the same at first
        nn.init.zeros_(module.weight)
        nn.init.zeros_(module.bias)
    trainer = trainer_of(module, loss=MIXING[name])
    with pytest.raises(sf.errors.OptionError, match=r"^the loss (mixes|returns different numbers)"):
        trainer.fit(*people())
    assert trainer.done == 0
    with pytest.raises(sf.errors.OptionError, match=r"^the loss (mixes|returns different numbers)"):
        private_step(module, MIXING[name], *people(5))


@pytest.mark.parametrize("name", APART)
def test_a_loss_of_single_samples_is_taken_and_moves_the_sum_by_one_clip(name: str) -> None:
    torch.manual_seed(3)
    module, (inputs, targets) = nn.Linear(4, 3), people(12)
    assert trainer_of(loss=APART[name]).fit(inputs, targets)[-1].step == 2

    def step(weights: Tensor) -> Tensor:
        torch.manual_seed(1)
        np.random.seed(1)
        found = private_step(module, APART[name], 100 * inputs, targets, weights, clip=CLIP)
        return torch.cat([one.flatten() for one in found.values()])

    everybody = step(torch.ones(12))
    moved = [float((step((torch.arange(12) != left).float()) - everybody).norm()) for left in range(0, 12, 2)]
    assert max(moved) <= CLIP * (1 + 1e-4)
    assert max(moved) > 0


def test_what_a_mixing_loss_would_have_cost_is_more_than_a_clip() -> None:
    """The reason for the check: the clipped sum without it, of neighbours, by the very engine."""
    from sfumato.learners import Clipper

    torch.manual_seed(0)
    module, (inputs, targets) = nn.Linear(4, 3), people(16)

    def clipped_sum(rows: slice) -> Tensor:
        with Clipper(module, contrastive) as clipper:
            clipper._checked = True  # as if it had been found harmless
            found = clipper(10 * inputs[rows], targets[rows], None, CLIP).gradients
        return torch.cat([one.flatten() for one in found])

    assert float((clipped_sum(slice(0, 16)) - clipped_sum(slice(1, 16))).norm()) > 1.5 * CLIP


@pytest.mark.parametrize(
    ("module", "loss", "targets"),
    [
        (
            nn.Linear(4, 1),
            lambda o, t: functional.binary_cross_entropy(o.sigmoid()[:, 0], t, reduction="none"),
            "share",
        ),
        (
            nn.Sequential(nn.Linear(4, 1), nn.Sigmoid(), nn.Flatten(0)),
            lambda o, t: functional.binary_cross_entropy(o, t, reduction="none"),
            "share",
        ),
        (nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(1)), lambda o, t: -o[torch.arange(len(t)), t], "class"),
        (nn.Linear(4, 1), lambda o, t: (o.squeeze() - t).abs(), "share"),  # of one sample alone it has no row
        (nn.Linear(4, 1), lambda o, t: functional.poisson_nll_loss(o[:, 0], t, reduction="none"), "share"),
        (
            nn.Linear(4, 2),
            lambda o, t: functional.gaussian_nll_loss(o[:, 0], t, o[:, 1].exp(), reduction="none"),
            "share",
        ),
        (
            nn.Linear(4, 6),
            lambda o, t: functional.cross_entropy(o.view(-1, 3, 2), torch.stack([t, t], 1), reduction="none").mean(1),
            "class",
        ),
        (
            nn.Linear(4, 3),
            lambda o, t: functional.cosine_embedding_loss(
                o, t[:, :3], t[:, 3].sign() + (t[:, 3] == 0), reduction="none"
            ),
            "several",
        ),
        (nn.Linear(4, 3), lambda o, t: functional.cross_entropy(o, t.softmax(1), reduction="none"), "soft"),
    ],
)
def test_ordinary_losses_on_outputs_of_any_form_are_taken(module: nn.Module, loss: Any, targets: str) -> None:
    inputs, classes = people(20)
    wanted = {
        "class": classes,
        "share": classes.float() / 2,
        "several": torch.cat([inputs, inputs], 1)[:, :4],
        "soft": inputs[:, :3],
    }[targets]
    trainer = trainer_of(module, loss=loss)
    assert trainer.fit(inputs, wanted)[-1].step == 2


class Both(nn.Module):
    """Gives a dictionary, as models of texts do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> dict[str, Any]:
        return {"classes": self.first(inputs), "place": (self.second(inputs), "metres")}


def test_outputs_in_a_dictionary_are_checked_all() -> None:
    def fair(outputs: Any, targets: Tensor) -> Tensor:
        return cross_entropy(outputs["classes"], targets) + outputs["place"][0].square().sum(1)

    def unfair(outputs: Any, targets: Tensor) -> Tensor:
        place = outputs["place"][0]
        return cross_entropy(outputs["classes"], targets) + (place - place.mean(0)).square().sum(1)

    assert trainer_of(Both(), loss=fair).fit(*people())[-1].step == 2
    with pytest.raises(sf.errors.OptionError, match="the loss mixes the samples"):
        trainer_of(Both(), loss=unfair).fit(*people())


def test_a_loss_without_privacy_may_mix_samples() -> None:
    trainer = trainer_of(noise_multiplier=None, epsilon=float("inf"), loss=contrastive)
    assert trainer.fit(*people())[-1].step == 2


def test_the_check_of_a_loss_sees_no_data_and_leaves_chance_as_it_was() -> None:
    seen: list[Tensor] = []

    def watching(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(targets)
        return squared_error(outputs, targets)

    module, inputs = nn.Linear(4, 1), torch.full((9, 4), 1234.0)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    refuse_mixing_loss(module, watching, inputs, torch.full((9,), 1234.0))
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (np.random.get_state()[1].tolist(), random.getstate())
    assert seen
    assert all(float(one.abs().max()) < 100 for one in seen)


def test_a_loss_that_cannot_be_tried_is_refused_in_one_sentence() -> None:
    def picky(outputs: Tensor, targets: Tensor) -> Tensor:
        if float(targets.min()) < 7:
            raise ValueError("below 7")
        return squared_error(outputs, targets)

    with pytest.raises(sf.errors.OptionError, match="the loss fails on random samples"):
        private_step(nn.Linear(4, 1), picky, torch.ones(3, 4), torch.full((3,), 8.0))


# --- augmentation ---


def mixup(some: Tensor) -> Tensor:
    share = float(torch.distributions.Beta(0.2, 0.2).sample())
    return share * some + (1 - share) * some[torch.randperm(len(some))]


def cutmix(some: Tensor) -> Tensor:
    seen, at = some.clone(), int(torch.randint(0, 5, ()))
    seen[:, :, at : at + 3] = some.roll(1, 0)[:, :, at : at + 3]
    return seen


class WithTheLast:
    """Mixes in a sample of the batch before."""

    def __init__(self) -> None:
        self.last = torch.zeros(1)

    def __call__(self, some: Tensor) -> Tensor:
        seen, self.last = 0.8 * some + 0.2 * self.last, some[:1]
        return seen


def now_and_then(some: Tensor) -> Tensor:
    return mixup(some) if float(torch.rand(())) < 0.25 else some


def in_place(some: Tensor) -> Tensor:
    return some.add_(1)


MIXUPS: dict[str, Callable[[Tensor], Tensor]] = {
    "mixup": mixup,
    "mixup, now and then": now_and_then,
    "cutmix": cutmix,
    "the batch's mean": lambda some: some - some.mean(0),
    "the batch's range": lambda some: (some - some.min()) / (some.max() - some.min()),
    "the batch before": WithTheLast(),
    "every other one": lambda some: some * (torch.arange(len(some)) % 2).view(-1, 1, 1, 1),
    "by the number": lambda some: some / len(some),
    "shuffled": lambda some: some[torch.randperm(len(some))],
}


def flip(some: Tensor) -> Tensor:
    return torch.where(torch.rand(len(some), 1, 1, 1) < 0.5, some.flip(-1), some)


def crop(some: Tensor) -> Tensor:
    padded = functional.pad(some, (2, 2, 2, 2), mode="reflect")
    places = torch.randint(0, 5, (len(some), 2)).tolist()
    return torch.stack([one[:, y : y + 8, x : x + 8] for one, (y, x) in zip(padded, places, strict=True)])


def crop_all_alike(some: Tensor) -> Tensor:
    y, x = torch.randint(0, 5, (2,)).tolist()
    return functional.pad(some, (2, 2, 2, 2))[:, :, y : y + 8, x : x + 8]


def erase(some: Tensor) -> Tensor:
    seen = some.clone()
    for one in seen:
        y, x = random.randrange(6), random.randrange(6)
        one[:, y : y + 3, x : x + 3] = 0
    return seen


def elastic(some: Tensor) -> Tensor:
    moved = functional.avg_pool2d(torch.randn(len(some), 2, 8, 8), 3, 1, 1).permute(0, 2, 3, 1) * 0.1
    still = functional.affine_grid(torch.eye(2, 3).expand(len(some), 2, 3), list(some.shape), align_corners=False)
    return functional.grid_sample(some, still + moved, align_corners=False)


def affine(some: Tensor) -> Tensor:
    turned = torch.eye(2, 3) + 0.1 * torch.randn(len(some), 2, 3)
    return functional.grid_sample(
        some, functional.affine_grid(turned, list(some.shape), align_corners=False), align_corners=False
    )


def jitter_of_numpy(some: Tensor) -> Tensor:
    return some + torch.from_numpy(np.random.normal(size=some.shape)).float()


def standardised(some: Tensor) -> Tensor:
    return (some - some.mean((1, 2, 3), keepdim=True)) / some.std((1, 2, 3), keepdim=True)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "flip": flip,
    "crop": crop,
    "one crop for all": crop_all_alike,
    "noise": lambda some: some + 0.1 * torch.randn_like(some),
    "noise of numpy": jitter_of_numpy,
    "erasing, by Python's chance": erase,
    "elastic": elastic,
    "affine": affine,
    "brightness": lambda some: (some * (0.8 + 0.4 * torch.rand(len(some), 1, 1, 1))).clamp(0, 1),
    "each standardised": standardised,
    "blurred": lambda some: functional.avg_pool2d(some, 3, 1, 1),
}


def images(rows: int = 24) -> tuple[Tensor, Tensor]:
    random_ = torch.Generator().manual_seed(rows)
    return torch.rand(rows, 1, 8, 8, generator=random_), torch.randint(0, 3, (rows,), generator=random_)


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))


@pytest.mark.parametrize("name", MIXUPS)
@pytest.mark.parametrize("views", [1, 3])
def test_an_augmentation_that_mixes_samples_is_refused_before_anything_is_charged(name: str, views: int) -> None:
    trainer = trainer_of(network(), augment=MIXUPS[name], views=views)
    with pytest.raises(sf.errors.OptionError, match=r"^augment (mixes|returns different)"):
        trainer.fit(*images())
    assert trainer.done == 0


@pytest.mark.parametrize("name", VIEWS)
def test_ordinary_augmentations_are_taken_and_move_the_sum_by_one_clip(name: str) -> None:
    from sfumato.learners import Clipper
    from sfumato.learners.dpsgd.samples import Batch

    module, (inputs, targets) = network(), images(8)
    assert trainer_of(module, augment=VIEWS[name], views=2, batch_size=8).fit(*images())[-1].step == 2

    def step(some: Tensor, weights: Tensor) -> Tensor:
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)
        seen = Batch(some, targets, weights).augmented(VIEWS[name], 2)
        with Clipper(module, cross_entropy, views=2) as clipper:
            found = clipper(seen.inputs, seen.targets, seen.weights, CLIP).gradients
        return torch.cat([one.flatten() for one in found])

    inputs, other = 30 * inputs, 30 * inputs.clone()
    other[2] = -5  # another person, who is left out again
    without = torch.ones(8)
    without[2] = 0
    both = step(inputs, torch.ones(8)), step(other, without)
    assert float((both[0] - both[1]).norm()) <= CLIP * (1 + 1e-4)


def test_chance_that_cannot_be_repeated_is_refused_unless_samples_are_augmented_one_by_one() -> None:
    def shaken(some: Tensor) -> Tensor:
        return some + torch.from_numpy(np.random.default_rng().normal(size=some.shape)).float()

    with pytest.raises(sf.errors.OptionError, match=r"^augment returns different views of the same samples .*OneByOne"):
        trainer_of(network(), augment=shaken).fit(*images())
    trainer = trainer_of(network(), augment=OneByOne(shaken), views=2)
    assert trainer.fit(*images())[-1].step == 2


def test_one_by_one_no_sample_meets_another() -> None:
    inputs, _ = images(5)
    assert torch.equal(OneByOne(lambda some: some - some.mean(0))(inputs), torch.zeros_like(inputs))
    assert torch.equal(OneByOne(lambda some: some * 2)(inputs), 2 * inputs)
    for wrong in (lambda some: some[:0], lambda some: torch.cat([some, some]), lambda some: some[0, 0, 0, 0]):
        with pytest.raises(sf.errors.OptionError, match="augment must return as many samples as it gets"):
            OneByOne(wrong)(inputs)


@pytest.mark.parametrize(
    ("augment", "said"),
    [
        (lambda some: some[:1], "augment must return as many samples as it gets"),
        (lambda some: some.sum(), "augment must return as many samples as it gets"),
        (lambda some: some.numpy(), "augment must return a tensor, got ndarray"),
        (lambda some: some / 0, "augment returns missing or infinite numbers"),
        (in_place, "augment changes the batch"),
        (lambda some: some.view(7, 7), "augment fails on random samples"),
    ],
)
@pytest.mark.parametrize("alone", [False, True])
def test_what_augment_gives_is_checked(augment: Any, said: str, alone: bool) -> None:
    if alone and said == "augment must return as many samples as it gets" and augment(torch.ones(1)).dim():
        return  # of one sample, the first is all
    with pytest.raises(sf.errors.OptionError, match=said):
        trainer_of(network(), augment=OneByOne(augment) if alone else augment).fit(*images())


def test_words_are_augmented_too() -> None:
    words = torch.randint(0, 5, (20, 6))

    def masked(some: Tensor) -> Tensor:
        return torch.where(torch.rand(some.shape) < 0.2, 0, some)

    refuse_mixing_augment(masked, words)
    with pytest.raises(sf.errors.OptionError, match="augment mixes the samples"):
        refuse_mixing_augment(lambda some: some.roll(1, 0), words)


def test_the_estimators_refuse_what_the_trainer_refuses() -> None:
    inputs, targets = images(40)
    options: dict[str, Any] = {"model": "logistic", "classes": range(3), "epochs": 1, "batch_size": 10}
    for augment, views in ((mixup, 1), (mixup, 2)):
        model = PrivateClassifier(trainer_options={"augment": augment, "views": views}, **options)
        with pytest.raises(sf.errors.OptionError, match="augment mixes the samples of a batch"):
            model.fit(inputs.numpy(), targets.numpy())
    fine = PrivateClassifier(trainer_options={"augment": flip, "views": 2}, **options)
    assert fine.fit(inputs.numpy(), targets.numpy()).predict(inputs.numpy()).shape == (40,)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.02, 0.3, 1.0]), st.booleans())
def test_any_share_of_another_sample_in_a_loss_is_found(seed: int, share: float, detached: bool) -> None:
    order = torch.Generator().manual_seed(seed)

    def mixing(outputs: Tensor, targets: Tensor) -> Tensor:
        each = squared_error(outputs, targets)
        others = each[torch.randperm(len(each), generator=order.manual_seed(seed))]
        if len(each) == 1:
            return each
        others = each.flip(0) if torch.equal(others, each) else others
        return each * (1 + share * (others.detach() if detached else others))

    with pytest.raises(sf.errors.OptionError, match="the loss mixes the samples"):
        refuse_mixing_loss(nn.Linear(3, 1), mixing, torch.ones(2, 3), torch.ones(2))

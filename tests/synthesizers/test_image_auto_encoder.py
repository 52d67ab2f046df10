"""Synthetic images by auto-encoders: what one record can change, what is learned, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sfumato.budget.accounting.accountant import spent
from sfumato.budget.events import Composed, Gaussian
from sfumato.budget.noise import Source
from sfumato.errors import InputError, MissingExtra, OptionError
from sfumato.learners.dpsgd.steps import HostNoise
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.synthesizers import auto_encoder
from sfumato.synthesizers.auto_encoder import Training, VariationalAutoEncoder, train
from sfumato.synthesizers.dense import Dense
from sfumato.synthesizers.images.auto_encoder import AutoEncoderImages, VariationalImages
from sfumato.synthesizers.images.base import Canvas, ImageRecords
from sfumato.synthesizers.images.catalogue import image_method_of
from sfumato.synthesizers.images.clusters import Clustering
from sfumato.synthesizers.images.noisy_weights import NoisyWeights, train_openly
from sfumato.synthesizers.images.study import run_study
from sfumato.synthesizers.state import State
from sfumato.synthesizers.steps import Steps

CANVAS = Canvas(8, 8, 1, 2)
SIZE = {"width": 2, "hidden": 6, "components": 2, "rounds": 1, "steps": 4, "rate": 0.5}
TINY = AutoEncoderImages(**SIZE)
KINDS = [
    TINY,
    AutoEncoderImages(shared=True, **SIZE),
    AutoEncoderImages(groups="clusters", clusters=3, **SIZE),
    VariationalImages(**SIZE),
    VariationalImages(latent="prior", shared=True, **SIZE),
    NoisyWeights(width=3, epochs=1),
]


def halves(count: int = 200, canvas: Canvas = CANVAS, seed: int = 0) -> ImageRecords:
    """Return images with a bright upper half (label 0) or a bright lower half (label 1), and a little noise."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    images = rng.integers(0, 40, (count, *canvas.shape))
    middle = canvas.height // 2
    images[labels == 0, :middle] += 200
    images[labels == 1, middle:] += 200
    return ImageRecords(images.astype(np.uint8), labels, canvas)


def learned(method: Any, records: ImageRecords, noise: float = 2.0, seed: int = 1) -> Any:
    source = Source(insecure_seed=seed)
    sums = NoisySums(method.shares(records.canvas), noise if method.private else 0.0, source)
    return method.learn(records, sums, np.random.default_rng(seed))


class Watched(HostNoise):
    """Noise that keeps the sums it is added to, and their scales."""

    sums: list[Tensor]
    scales: list[float]

    def add(self, values: Tensor, scale: Tensor) -> None:
        Watched.sums.append(values.clone())
        Watched.scales.append(float(scale))
        super().add(values, scale)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    Watched.sums, Watched.scales = [], []
    monkeypatch.setattr(auto_encoder, "HostNoise", Watched)
    return Watched


def first_sums(method: AutoEncoderImages, records: ImageRecords) -> list[Tensor]:
    """Return the gradient sums of one step in which every record takes part, a sum for each auto-encoder."""
    Watched.sums, Watched.scales = [], []
    groups = len(method._groups(records, NoisySums(method.shares(records.canvas), 3.0, Source(insecure_seed=1)))[1])
    sums = NoisySums(method.shares(records.canvas), 3.0, Source(insecure_seed=1))
    sizes = np.full(groups, 20.0)
    rng = np.random.default_rng(0)
    inputs = method._inputs(records, records.labels)
    method._train(records, inputs, records.labels, sizes, sums, rng, lambda share: None)
    return Watched.sums


@pytest.mark.parametrize("shared", [False, True])
def test_one_image_moves_one_auto_encoder_by_at_most_the_clip_and_no_other(
    watched: type[Watched], shared: bool
) -> None:
    method = AutoEncoderImages(**{**SIZE, "steps": 1, "rate": 1.0, "jitter": 0.0, "shared": shared, "clip": 0.01})
    records = halves(30)
    whole = first_sums(method, records)
    assert len(whole) == (1 if shared else 2)
    assert min(watched.scales) >= 0.01 * NoisySums(method.shares(CANVAS), 3.0, Source()).multiplier_of("training")
    for gone in (0, 29):
        kept = np.arange(30) != gone
        fewer = first_sums(method, ImageRecords(records.images[kept], records.labels[kept], CANVAS))
        moved = [float((one - other).norm()) for one, other in zip(whole, fewer, strict=True)]
        assert 0.99 * 0.01 < max(moved) <= 0.01 * (1 + 1e-4)
        assert shared or min(moved) == 0


@pytest.mark.parametrize("variational", [False, True])
def test_the_noise_on_codes_is_secret(watched: type[Watched], variational: bool) -> None:
    """A known one would be that of a position in the batch, and a record more would move it to the next record."""
    points = torch.rand(20, 4, generator=torch.Generator().manual_seed(0))
    for source in (Source(insecure_seed=1), Source(insecure_seed=2), Source(insecure_seed=1)):
        train(
            [4, 2],
            [2, 4],
            lambda out, to: (out - to).square().sum(1),
            lambda at: (points[at], points[at], None),
            records=20,
            rows=20,
            steps=Steps(2, 1.0, rate=1.0, dimensions=100),
            noise=1e-6,
            source=source,
            seed=0,
            how=Training(variational=variational, jitter=0.5),
        )
    # The last layer begins at 0, so codes matter to its weights from the first step on.
    first, other, again = watched.sums[::2]
    assert (first - other).norm() > 1e-3
    assert (first - again).norm() == 0


def test_a_code_does_not_depend_on_other_images_in_its_last_digit() -> None:
    rng = np.random.default_rng(0)
    sizes = [64, 50, 7]
    encoder = Dense(
        tuple(rng.normal(size=shape).astype(np.float32) for shape in Dense.shapes(sizes)),
        tuple(rng.normal(size=size).astype(np.float32) for size in sizes[1:]),
    )
    pixels = rng.integers(0, 256, (201, 64)) / 255
    codes = encoder.exactly(pixels)
    assert codes == pytest.approx(encoder(pixels), rel=1e-2, abs=0.05)
    for kept in (slice(0, 200), slice(1, 201), slice(7, 8)):
        assert (encoder.exactly(pixels[kept]) == codes[kept]).all()


def test_the_divergence_is_that_of_two_normal_distributions() -> None:
    model = VariationalAutoEncoder([3, 2], [2, 3]).eval()
    inputs = torch.rand(5, 3)
    with torch.no_grad():
        outputs, (_, logs) = model(inputs), model.encoder(inputs).chunk(2, dim=1)
        own = torch.distributions.Normal(model.encode(inputs), model.prior * torch.exp(logs / 2))
        prior = torch.distributions.Normal(torch.zeros(2), torch.full((2,), model.prior))
        wanted = torch.distributions.kl_divergence(own, prior).sum(1)
    assert outputs[:, -1].tolist() == pytest.approx(wanted.tolist(), rel=1e-5)
    assert model.prior == pytest.approx(0.5 / 2**0.5)


def test_the_sums_of_clustering_cost_as_much_as_one_sum() -> None:
    share = Clustering(1, 1.0, canvas=CANVAS, clusters=3, rounds=4)
    alone, together = (spent(one, 1e-5).epsilon for one in (Gaussian(3.0), share.event(3.0)))
    assert together == pytest.approx(alone, rel=1e-3)
    event = share.event(3.0)
    assert isinstance(event, Composed)
    assert len(event.events) == 4  # norms, counts, means and variances


@pytest.mark.parametrize("kind", [AutoEncoderImages, VariationalImages])
@pytest.mark.parametrize("groups", ["labels", "clusters"])
def test_without_noise_images_of_a_label_look_like_it(kind: type[AutoEncoderImages], groups: str) -> None:
    method = kind(
        groups=groups, clusters=2, width=2, hidden=8, components=1, rounds=2, steps=60, rate=0.5, learning_rate=0.1
    )
    model = learned(method, halves(), noise=0.0)
    images, labels = model.sample(100, np.random.default_rng(2))
    bright = images[:, :4].mean(axis=(1, 2, 3)) - images[:, 4:].mean(axis=(1, 2, 3))
    assert set(labels.tolist()) == {0, 1}
    assert ((bright > 100) == (labels == 0)).all()
    assert ((bright < -100) == (labels == 1)).all()


@pytest.mark.parametrize("method", KINDS, ids=lambda one: f"{one.name}-{one.__dict__.get('groups', '')}")
def test_a_model_is_stored_and_draws_the_same_again_without_torch(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = learned(method, halves(60))
    images, labels = model.sample(70, np.random.default_rng(3))
    assert images.shape == (70, 8, 8, 1)
    assert images.dtype == np.uint8
    assert set(labels.tolist()) <= {0, 1}
    assert model.total == pytest.approx(60, abs=120)
    monkeypatch.setitem(sys.modules, "torch", None)
    again = type(model).from_state(CANVAS, model.to_state())
    for one, other in zip(again.sample(70, np.random.default_rng(3)), (images, labels), strict=True):
        assert (one == other).all()
    with pytest.raises(MissingExtra, match=r"sfumato\[torch\]"):
        method.prepare(CANVAS)
    with pytest.raises(OptionError, match="there is no style 'vivid'"):
        model.sample(1, np.random.default_rng(0), style="vivid")


@pytest.mark.parametrize("method", KINDS[:5], ids=lambda one: f"{one.name}-{one.groups}-{one.shared}")
@pytest.mark.parametrize("count", [0, 1, 7])
def test_few_images_and_an_empty_class_are_learned_like_any_others(method: AutoEncoderImages, count: int) -> None:
    canvas = Canvas(5, 7, 3, 4)  # colour, not square
    records = ImageRecords(np.full((count, 5, 7, 3), 9, np.uint8), np.zeros(count, np.int64), canvas)
    images, labels = learned(method, records).sample(20, np.random.default_rng(2))
    assert images.shape == (20, 5, 7, 3)
    assert set(labels.tolist()) <= {0, 1, 2, 3}


def test_the_images_of_noisy_weights_are_copies_of_the_training_images() -> None:
    records = halves(100)
    networks = train_openly(records.images, width=8, epochs=100)
    copies = networks.through(records.images)
    assert np.abs(copies.astype(int) - records.images).mean() < 20
    noise = networks.with_noise(0.5, np.random.default_rng(0)).decoder.weights[0] - networks.decoder.weights[0]
    assert noise.std() == pytest.approx(0.5, rel=0.2)  # 512 numbers: a deviation of 6 standard errors, and a fixed seed
    model = learned(NoisyWeights(width=8, epochs=1), records)
    _, labels = model.sample(200, np.random.default_rng(0))
    assert np.bincount(labels).tolist() == [100, 100]  # each image twice
    assert model.total == 100
    assert not NoisyWeights.private
    assert not NoisyWeights().shares(CANVAS)


def test_a_stored_model_of_other_sizes_is_refused() -> None:
    model = learned(TINY, halves(40))
    state = model.to_state()
    for name, value, message in (
        ("layers", [300, 6], "at most 256 dimensions"),
        ("groups", 0, "'groups' must be a number from 1"),
        ("decoders", 3, "'decoders' must be a number"),
        ("components", 5, "'mixture_weights' must have the shape"),
    ):
        with pytest.raises(InputError, match=message):
            type(model).from_state(CANVAS, State({**state.settings, name: value}, state.arrays))
    for name in state.arrays:
        bad = {**state.arrays, name: state.arrays[name][:1] * 0 - 7}
        with pytest.raises(InputError, match=f"'{name}'"):
            type(model).from_state(CANVAS, State(state.settings, bad))
    noisy = learned(NoisyWeights(width=3, epochs=1), halves(20))
    for name in noisy.to_state().arrays:
        bad = {**noisy.to_state().arrays, name: np.full(3, np.nan)}
        with pytest.raises(InputError, match=f"'{name}'"):
            type(noisy).from_state(CANVAS, State(noisy.to_state().settings, bad))


@pytest.mark.parametrize(
    "bad",
    [
        {"groups": "people"},
        {"clusters": 0},
        {"width": 257},
        {"hidden": 1.5},
        {"rate": 0.0},
        {"steps": 0},
        {"clip": -1},
        {"jitter": -1},
        {"learning_rate": 0},
    ],
)
def test_bad_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        replace(TINY, **bad)


def test_other_bad_settings_are_refused() -> None:
    with pytest.raises(OptionError, match="'mixture' or 'prior'"):
        VariationalImages(latent="normal")
    with pytest.raises(OptionError, match="deviation"):
        NoisyWeights(deviation=-1)


def test_the_methods_have_names() -> None:
    names = {"auto-encoder": AutoEncoderImages, "variational": VariationalImages, "noisy-weights": NoisyWeights}
    for name, kind in names.items():
        assert type(image_method_of(name)) is kind
        assert kind.name == name


def test_the_study_has_a_row_for_everything_it_compares() -> None:
    small = {name: {**SIZE, "steps": 1} for name in ("auto-encoder", "variational")}
    seen: list[float] = []
    study = run_study(
        epochs=1,
        samples=300,
        epsilon=[5],
        parameters=small,
        published={"title": "A study", "before": 93.6, "after": 76.27},
        progress=seen.append,
    )
    rows = [(one.trained_on, one.epsilon, one.published) for one in study.outcomes]
    assert rows == [
        ("real images", None, None),
        ("real images", None, None),
        ("an auto-encoder, before noise", None, pytest.approx(0.936)),
        ("an auto-encoder, noise of 0.1 in its weights", None, pytest.approx(0.7627)),
        ("an auto-encoder, noise of 0.1 in its weights", None, None),
        ("auto-encoder", 5.0, None),
        ("variational", 5.0, None),
    ]
    assert all(0 <= one.accuracy <= 1 for one in study.outcomes)
    assert study.outcomes[0].accuracy > 0.2
    assert seen[-1] == 1.0
    assert study.to_dict()["settings"]["images for training"] == 300


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"data": "adult"}, "runs on mnist"),
        ({"methods": ["gan"]}, "no method 'gan'"),
        ({"epochs": 0}, "epochs"),
        ({"epsilon": [0]}, "epsilon"),
        ({"published": {"before": 200}}, "published accuracy 'before'"),
    ],
)
def test_a_study_of_other_data_or_methods_is_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        run_study(**{"samples": 50, **bad})

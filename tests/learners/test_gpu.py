"""The kernels and the graph of a GPU; they are skipped where there is none."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from sfumato.learners import Adam, AdaptiveClip, Clipper, Optimization, Sgd, Speed
from sfumato.learners.dpsgd.sampling import FixedPoisson
from sfumato.learners.dpsgd.steps import Step
from sfumato.learners.gradients.clipping import cross_entropy

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, 3), nn.GroupNorm(4, 16), nn.ReLU(inplace=True), nn.Conv2d(16, 64, 3, 2), nn.ReLU()),
        *(nn.GroupNorm(32, 64), nn.Conv2d(64, 64, 3, padding=1), nn.MaxPool2d(2, 1), nn.Flatten()),
        *(nn.Linear(1600, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


def data(count: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(count, 1, 28, 28), torch.randint(0, 10, (count,))


def joined(gradients: list[Tensor]) -> Tensor:
    return torch.cat([one.reshape(-1) for one in gradients]).cpu().double()


def test_the_stream_is_chacha20() -> None:
    from sfumato.learners.gpu.chacha import DeviceNoise

    noise = DeviceNoise(torch.device("cuda"), bytes(range(32)))  # RFC 8439, section 2.3.2
    noise._tick.copy_(torch.tensor([0x09000000, 0x4A000000, 0], dtype=torch.int64).to(torch.int32))
    block = noise.words(2).cpu().view(2, 16)[1]
    assert [f"{int(word) & 0xFFFFFFFF:08x}" for word in block[:4]] == ["e4e7f110", "15593bd1", "1fdd0f50", "c47120a3"]


def test_noise_is_normal_and_new_each_time() -> None:
    from sfumato.learners.gpu.chacha import DeviceNoise

    noise, count = DeviceNoise(torch.device("cuda")), 10_000_003
    first, second = (torch.zeros(count, device="cuda") for _ in range(2))
    scale = torch.tensor(2.0, device="cuda")
    noise.add(first, scale)
    noise.add(second, scale)
    drawn = first.double() / 2
    # Each of the four is beyond 6 deviations once in 5 * 10^8 runs.
    assert abs(float(drawn.mean())) < 6 / math.sqrt(count)
    assert abs(float(drawn.var()) - 1) < 6 * math.sqrt(2 / count)
    assert abs(float((drawn**4).mean()) - 3) < 6 * math.sqrt(96 / count)
    assert abs(float((drawn * second.double() / 2).mean())) < 6 / math.sqrt(count)


@pytest.mark.parametrize("scale", [1.3, 2.0, 1e-3])
def test_noise_is_on_the_grid_and_that_of_its_words(scale: float) -> None:
    """The same as numpy makes of the words of the cipher: to the last cell, in 64 bits."""
    import numpy as np

    from sfumato.budget.noise import grid_of
    from sfumato.learners.gpu.chacha import DeviceNoise

    count, key = 600_001, bytes(range(32))
    below = torch.linspace(-5000, 5000, count, device="cuda") * scale
    held, deviation = below.clone(), torch.tensor(scale, device="cuda")
    DeviceNoise(torch.device("cuda"), key).add(held, deviation)
    grid = grid_of(float(deviation))
    assert bool((held.double() % grid == 0).all())
    blocks = math.ceil(count / 6)
    words = DeviceNoise(torch.device("cuda"), key).words(blocks).cpu().numpy().view(np.uint32).reshape(blocks, 16)
    words = words.astype(np.uint64)
    expected = []
    for pair in range(3):
        high, low, more, one, two = (words[:, 5 * pair + at] for at in range(5))
        rest = ((low & 1) << 42) | (more << 10) | ((words[:, 15] >> (10 * pair)) & 1023)
        uniform = ((high << 31) | (low >> 1)).astype(np.float64) * 2.0**-63 + (rest + 0.5) * 2.0**-106
        radius = np.sqrt(-2 * np.log(uniform)) * float(deviation) / grid
        angle = ((one << 32) | two).view(np.int64) * (np.pi * 2.0**-63)
        expected += [radius * np.cos(angle), radius * np.sin(angle)]
    cells = below.double().cpu().numpy() / grid
    exact = cells + np.concatenate(expected)[:count]
    found = held.double().cpu().numpy() / grid
    sure = np.abs(exact - np.floor(exact) - 0.5) > 1e-6
    large = np.abs(exact) >= 2**24  # not a number of 32 bits
    assert (found == np.round(exact))[sure & ~large].all()
    assert sure.mean() > 0.999


def test_noise_of_no_scale_changes_nothing() -> None:
    from sfumato.learners.gpu.chacha import DeviceNoise

    held = torch.linspace(0, 1, 100, device="cuda")
    DeviceNoise(torch.device("cuda")).add(held, torch.zeros((), device="cuda"))
    assert torch.equal(held, torch.linspace(0, 1, 100, device="cuda"))


def test_samples_are_poisson() -> None:
    from sfumato.learners.gpu.chacha import DeviceNoise

    noise, rows, rate, draws, size = DeviceNoise(torch.device("cuda")), 6000, 0.05, 4000, 512
    taken, weights = torch.zeros(size, dtype=torch.int64, device="cuda"), torch.zeros(size, device="cuda")
    rest = torch.full((), math.log1p(-rate), dtype=torch.float64, device="cuda")
    hits, sizes = torch.zeros(rows, device="cuda"), []
    for _ in range(draws):
        noise.draw(taken, weights, rest, rows)
        hits.index_add_(0, taken, weights)
        sizes.append(weights.sum())
        kept = taken[weights > 0]
        assert bool((kept[1:] > kept[:-1]).all())
    found = torch.stack(sizes).double()
    variance = rows * rate * (1 - rate)
    assert abs(float(found.mean()) - rows * rate) < 6 * math.sqrt(variance / draws)
    assert abs(float(found.var()) / variance - 1) < 6 * math.sqrt(2 / draws)
    each = (hits.double() - draws * rate) / math.sqrt(draws * rate * (1 - rate))
    assert float(each.abs().max()) < 7  # of 6,000 rows, once in 6 * 10^7 runs
    assert abs(float(each.var()) - 1) < 6 * math.sqrt(2 / rows)


def test_the_clipped_sum_is_that_of_the_cpu_in_64_bits() -> None:
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        inputs, targets = data(12)
        with Clipper(cnn().double(), cross_entropy) as clipper:
            expected = joined(clipper(inputs.double(), targets, clip=0.5).gradients)
        for layout in (torch.contiguous_format, torch.channels_last):
            module = cnn().cuda().to(memory_format=layout)
            with Clipper(module, cross_entropy) as clipper:
                found = clipper(inputs.cuda().contiguous(memory_format=layout), targets.cuda(), clip=0.5)
            # The clip is a little smaller where norms are rounded, in 32 bits more than in 64.
            assert float((joined(found.gradients) - expected).norm() / expected.norm()) < 5e-3
    finally:
        torch.backends.cudnn.allow_tf32 = before


def test_what_a_convolution_loses_by_short_numbers_never_exceeds_the_clip() -> None:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv2d(8, 64, 3, padding=1), nn.Flatten(), nn.Linear(64 * 256, 2)).cuda()
    inputs = torch.rand(64, 8, 16, 16, device="cuda") + 100  # large values that nearly cancel out
    targets = torch.randint(0, 2, (64,), device="cuda")
    with Clipper(module, cross_entropy) as clipper:
        for at in range(64):
            found = clipper(inputs[at : at + 1], targets[at : at + 1], clip=0.1)
            assert float(joined(found.gradients).norm()) <= 0.1 * (1 + 1e-5)


def test_a_gradient_that_is_not_finite_counts_for_nothing() -> None:
    inputs, targets = (one.cuda() for one in data(8))
    module = cnn().cuda()
    for bad in (math.nan, math.inf):
        spoilt = inputs.clone()
        spoilt[3] = bad
        kept = torch.tensor([0, 1, 2, 4, 5, 6, 7], device="cuda")
        with Clipper(module, cross_entropy) as clipper:
            expected = joined(clipper(inputs[kept], targets[kept], clip=0.3).gradients)
            found = joined(clipper(spoilt, targets, clip=0.3).gradients)
        assert float((found - expected).norm() / expected.norm()) < 1e-2


def test_a_graph_makes_the_steps_that_are_made_without_it() -> None:
    from sfumato.learners.gpu.chacha import DeviceNoise
    from sfumato.learners.gpu.cuda_graph import GraphedStep

    inputs, targets = (one.cuda() for one in data(400))
    for rule in (Sgd(learning_rate=0.1, momentum=0.9), Adam(learning_rate=0.01)):
        results = []
        for graphed in (True, False):
            module = copy.deepcopy(cnn()).cuda()
            noise = DeviceNoise(torch.device("cuda"), bytes(32))
            step = Step(
                module, cross_entropy, rule, noise, clip=0.5, expected=40.0, averaging=0.9, adaptive=AdaptiveClip()
            )
            with step.running():
                run = GraphedStep(step, inputs, targets, FixedPoisson(400, 0.1, 96, 20, 400))
                noise._tick.zero_()
                for _ in range(5):
                    if graphed:
                        run(0.1, 0.5)
                    else:
                        run._rate.fill_(0.1)
                        run._multiplier.fill_(0.5)
                        run._sample_and_step()
                results.append({name: one.clone() for name, one in step.state.items()})
        for name, one in results[0].items():
            torch.testing.assert_close(one, results[1][name], rtol=2e-2, atol=2e-2, msg=name)
        assert float(results[0]["weights"].std()) > 0


def test_a_trainer_on_a_gpu_keeps_to_its_epsilon_and_learns() -> None:
    from sfumato.learners import Trainer

    torch.manual_seed(4)
    inputs = torch.randn(2000, 8)
    targets = (inputs[:, 0] > 0).long()
    trainer = Trainer(
        nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)),
        **{"epsilon": 3.0, "delta": 1e-4, "batch_size": 200, "epochs": 20},
        optimizer=Sgd(learning_rate=0.5, momentum=0.9),
        optimization=Optimization(averaging=0.9),
        speed=Speed(device="cuda"),
    )
    reports = trainer.fit(inputs, targets, validation=(inputs, targets))
    assert isinstance(trainer._account.sampler, FixedPoisson)
    assert 2.9 < trainer.spent.epsilon <= 3.0
    assert (reports[-1].score or 0) > 0.9
    trainer.extend(epochs=2, epsilon=4.0).fit(inputs, targets)
    assert trainer.spent.epsilon <= 4.0
    assert trainer.score(inputs, targets) > 0.9


@pytest.mark.parametrize("epsilon", [3.0, math.inf])
def test_an_estimator_trains_and_answers_on_a_gpu(epsilon: float) -> None:
    import numpy as np

    from sfumato.learners import PrivateClassifier

    generator = np.random.default_rng(0)
    labels = np.arange(1000) % 10
    images = generator.integers(0, 60, (1000, 28, 28)).astype(np.uint8)
    images[np.arange(1000), labels * 2 + 2] += 190  # a bright line whose height is the class
    model = PrivateClassifier(
        model="cnn",
        epsilon=epsilon,
        delta=1e-4,
        classes=range(10),
        batch_size=100,
        epochs=8,
        learning_rate=0.5 if epsilon < math.inf else 0.05,
        momentum=0.9 if epsilon == math.inf else 0.0,
        device="cuda",
    ).fit(images, labels)
    assert model.score(images, labels) > 0.3
    assert model.spent_.epsilon <= epsilon
    assert all(one.device.type == "cpu" for one in map(torch.from_numpy, model.state()[0].values()))

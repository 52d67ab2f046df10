"""Synthetic images: what a small network learns from them, and how good the private teacher is.

A small convolutional network (the same for all rows, 4 epochs, by default) is trained on synthetic images and
tested on the real test images. All settings are the defaults of `Distillation`. They were chosen on the training images
of MNIST alone (the first 50,000 for learning, the other 10,000 for scoring); the test images were then used for this
table only. Delta is 1e-5. Every run has noise of its own.

    python synthetic_images.py --data mnist pneumonia --epsilon 1 10 --seeds 5 --device cuda --jobs 5
    python synthetic_images.py --data FOLDER --images 60000 --seeds 1                 others of 10 classes, IDX or .npz
    python synthetic_images.py --teacher --epsilon 0.79 3 --seeds 5 --device cuda     the teacher as a classifier
    python synthetic_images.py --small --epsilon 1 --seeds 1                          the smaller form, `--quick`
    python synthetic_images.py --light --distilled --seeds 1                          for a processor: a lighter network
    python synthetic_images.py --print                                                the table of all runs kept

Images are read from the folder that ``SFUMATO_DATA`` names, or from any folder or file that `sfumato synthesize` reads
and that has test images. ``--models FOLDER`` keeps what was learned, and uses it again where it is there: then other
images can be drawn without learning again. The network is trained in lower precision (TF32 on a GPU, bfloat16 on a
processor); nothing that is private is. The lighter network (``--light``) halves the images after its first layer, and
has half of the channels in its last: it takes .45 ms of a processor for an image and epoch, the other one 1.1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.budget.accounting.accountant import calibrate
from sfumato.budget.events import Gaussian
from sfumato.budget.noise import Source
from sfumato.data.io.images import read_images
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.learners.images.teacher import as_tensor, features_of
from sfumato.synthesizers.images.base import Canvas, ImageRecords
from sfumato.synthesizers.images.distillation import Distillation, DistillationModel
from sfumato.synthesizers.state import State

KEPT = Path(__file__).with_suffix(".jsonl")
DELTA = 1e-5
IMAGES = 200_000
EPOCHS = 4
OWN = {"mnist": ("mnist", 10), "pneumonia": ("pneumoniamnist/pneumoniamnist.npz", 2)}
Part = tuple[NDArray[np.uint8], NDArray[np.int64]]


def load(data: str) -> tuple[Part, Part, int]:
    """Return training images, test images, and the number of classes."""
    place, classes = Path(data), 10
    if data in OWN:
        place, classes = Path(os.environ["SFUMATO_DATA"], OWN[data][0]), OWN[data][1]
    found = read_images(place, classes)

    def part(images: NDArray[np.uint8], labels: NDArray[Any]) -> Part:
        return images.reshape(*images.shape[:3], -1), labels.astype(np.int64)

    return part(found.train_images, found.train_labels), part(found.test_images, found.test_labels), classes


def layers(shape: Sequence[int], classes: int, *, light: bool) -> list[nn.Module]:
    """Return the layers of the network. Pooling before ReLU gives the same numbers as after it, and is faster."""
    channels, height, width = shape
    if light:
        last, seeing = 64, [
            nn.Conv2d(channels, 32, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        ]  # fmt: skip
    else:
        last, seeing = 128, [
            nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
        ]  # fmt: skip
    return [
        *seeing, nn.Conv2d(64, last, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3),
        nn.Linear(last * (height // 4) * (width // 4), 256), nn.ReLU(), nn.Linear(256, classes),
    ]  # fmt: skip


def student(
    images: Tensor,
    labels: Tensor,
    classes: int,
    test: Tensor,
    truth: Tensor,
    seed: int,
    *,
    light: bool = False,
    epochs: int = EPOCHS,
) -> float:
    """Train the network and return its accuracy on the test images."""
    torch.manual_seed(seed)
    device = images.device
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True  # here no sensitivity is at stake
    network = nn.Sequential(*layers(images.shape[1:], classes, light=light)).to(device)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    size = 256
    steps = epochs * (len(labels) // size)
    rule = torch.optim.AdamW(network.parameters(), 1e-3)
    course = torch.optim.lr_scheduler.OneCycleLR(rule, 2e-3, total_steps=steps)
    for _ in range(epochs):
        order = torch.randperm(len(labels), device=device)
        for at in order[: len(labels) // size * size].reshape(-1, size):
            rule.zero_grad()
            seen = (images[at].float() / 255).contiguous(memory_format=torch.channels_last)
            with torch.autocast("cpu", torch.bfloat16, enabled=device.type == "cpu"):
                loss: Any = nn.functional.cross_entropy(network(seen), labels[at])
            loss.backward()
            rule.step()
            course.step()
    network.eval()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with torch.no_grad():
        found = torch.cat([network(part).argmax(1) for part in torch.tensor_split(test, 5)])
    return float((found == truth).double().mean())


@dataclass(frozen=True)
class Run:
    """What is learned once, and how."""

    data: str
    epsilon: float
    seed: int
    device: str
    teacher: bool
    small: bool
    distilled: bool
    light: bool
    epochs: int
    images: int
    models: Path | None

    def learned(self, records: ImageRecords) -> tuple[DistillationModel, dict[str, float]]:
        """Return what is learned from the records, or has been before, and how long it took."""
        method = Distillation(device=self.device)
        method = method.quick() if self.small else method
        name = f"{Path(self.data).stem}-{self.epsilon:g}-{self.seed}{'-small' if self.small else ''}"
        kept = None if self.models is None else self.models / f"{name}.npz"
        if kept is not None and kept.exists():
            with np.load(kept, allow_pickle=False) as file:
                arrays = dict(file)
            settings, took = json.loads(str(arrays.pop("settings")))
            return replace(method.model.from_state(records.canvas, State(settings, arrays)), device=self.device), took
        began, spent = time.monotonic(), time.process_time()
        sums = NoisySums(method.shares(records.canvas), calibrate(Gaussian, self.epsilon, DELTA), Source())
        model = method.learn(records, sums, np.random.default_rng(self.seed))
        took = {"learn_s": time.monotonic() - began, "learn_cpu": time.process_time() - spent}
        if kept is not None:
            state = model.to_state()
            saved = {"settings": np.array(json.dumps([dict(state.settings), took])), **state.arrays}
            np.savez(kept, **saved)  # type: ignore[arg-type]
        return model, took

    def __call__(self) -> dict[str, Any]:
        """Learn, draw, train and test once."""
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        (images, labels), (test, truth), classes = load(self.data)
        seen, right = as_tensor(test, self.device), torch.from_numpy(truth).to(self.device)
        found: dict[str, Any] = {"data": Path(self.data).stem, "epsilon": self.epsilon, "seed": self.seed}
        found |= {"device": self.device, "small": self.small, "images": self.images}
        found |= {"light": self.light, "epochs": self.epochs}

        def score(drawn: NDArray[np.uint8], own: NDArray[np.int64]) -> float:
            inputs = torch.from_numpy(np.moveaxis(drawn, 3, 1).copy()).to(self.device)
            known = torch.from_numpy(own).to(self.device)
            return student(inputs, known, classes, seen, right, self.seed, light=self.light, epochs=self.epochs)

        if self.epsilon == float("inf"):
            return {**found, "student": score(images, labels)}
        model, took = self.learned(
            ImageRecords(images, labels, Canvas(images.shape[1], images.shape[2], images.shape[3], classes))
        )
        weights, bias = (one.float() for one in model.teacher)
        accuracy = float(((features_of(seen) @ weights + bias).argmax(1) == right).double().mean())
        found |= {"teacher": accuracy, **took}
        if self.teacher:
            return found
        began, spent = time.monotonic(), time.process_time()
        drawn = model.sample(self.images, np.random.default_rng(self.seed))
        found |= {"draw_s": time.monotonic() - began, "draw_cpu": time.process_time() - spent}
        spent = time.process_time()
        found |= {"student": score(*drawn), "student_cpu": time.process_time() - spent}
        if not self.small and not self.distilled:
            some = min(self.images, 60_000)
            found["faithful"] = score(*model.sample(some, np.random.default_rng(self.seed), style="faithful"))
        return found


def table(rows: list[dict[str, Any]]) -> None:
    """Print the mean and the range of all runs of each setting."""
    kinds = defaultdict(list)
    for one in rows:
        how = (one.get("light", False), one.get("epochs", EPOCHS), one.get("images", IMAGES))
        kinds[one["data"], one["epsilon"], one["device"], one["small"], *how].append(one)
    for (data, epsilon, device, small, light, epochs, images), runs in sorted(kinds.items(), key=lambda item: item[0]):
        line = f"{data:<10} epsilon {epsilon:<5g} {device}{' small' if small else ''}, {images:,} images, "
        line += f"{epochs} epochs{' of the lighter network' if light else ''}, {len(runs)} runs:"
        for name in ("teacher", "student", "faithful", "learn_s", "draw_s", "learn_cpu", "draw_cpu", "student_cpu"):
            if values := [one[name] for one in runs if name in one]:
                digits = 1 if name.endswith(("_s", "_cpu")) else 4
                line += (
                    f"  {name} {statistics.mean(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"
                )
        print(line)


def main() -> None:
    """Run what the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["mnist"], help="mnist, pneumonia, or a folder or file")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--teacher", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--distilled", action="store_true", help="no faithful images")
    parser.add_argument("--light", action="store_true", help="the lighter network")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of the network")
    parser.add_argument("--images", type=int, default=IMAGES, help="drawn to train the network on")
    parser.add_argument("--models", type=Path, help="a folder that keeps what is learned")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("--keep", type=Path, default=KEPT)
    options = parser.parse_args()
    if options.print:
        return table([json.loads(line) for line in options.keep.read_text().splitlines()])
    named = ("device", "teacher", "small", "distilled", "light", "epochs", "images", "models")
    tasks = [
        Run(data, epsilon, seed, **{name: getattr(options, name) for name in named})
        for seed in range(options.seeds)
        for data in options.data
        for epsilon in options.epsilon
    ]
    rows = []
    # Large tensors are then kept for the next step, and not given back to the system and cleared: .15 of the time.
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        os.environ.setdefault(name, str(2**34))
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(one) for one in tasks]):
            rows.append(future.result())
            print(json.dumps(rows[-1]), flush=True)
            with options.keep.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    return table(rows)


if __name__ == "__main__":
    main()

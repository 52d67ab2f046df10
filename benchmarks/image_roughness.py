"""How near drawn images are to real ones, before any network learns from them: roughness and distance.

The generator of `Distillation` learns from a part of the training images, with its share of the budget. Then, for real
and for drawn images:

- the root mean square of the cosine coefficients of each half octave: larger ones in high frequencies show noise,
  smaller ones lack texture;
- the Frechet distance from the other training images, in the first 40 principal components of their scattering
  features: of all images, and the mean over the classes;
- how many of the other training images a linear discriminant gets right that knows drawn images only.

None of it is trained at random, so few runs suffice. Test images are not used. Delta is 1e-5; 5 CPU seconds a run.

    python image_roughness.py --data pneumonia mnist --images 3700 --epsilon 1 10 --seeds 3
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn

from sfumato.budget.accounting.accountant import calibrate
from sfumato.budget.events import Gaussian
from sfumato.budget.noise import Source
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.learners.images.generator import learn_generator
from sfumato.learners.images.teacher import as_tensor, features_of
from sfumato.synthesizers.images.base import Canvas
from sfumato.synthesizers.images.distillation import Distillation
from synthetic_images import DELTA, load

Floats = NDArray[np.float64]
_KEPT = 40  # principal components
_OTHERS = 2000  # real images to compare with


def amplitudes(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the root mean square of the coefficients in each half octave of frequencies."""
    squares = np.square(dctn(images[..., 0], axes=(1, 2), norm="ortho")).mean(axis=0)
    far = np.hypot(*np.indices(squares.shape))
    edges = 2.0 ** np.arange(0.5, 5.5, 0.5)
    bands = np.digitize(far, edges)
    return np.sqrt([squares[bands == one].mean() for one in range(1, len(edges))])


@dataclass(frozen=True)
class Real:
    """Images that nothing was learned from, as principal components of their scattering features."""

    labels: NDArray[np.int64]
    mean: Floats
    components: Floats
    points: Floats

    @classmethod
    def of(cls, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> Real:
        """Return the components of some images."""
        found = _features(images)
        mean = found.mean(axis=0)
        components = np.linalg.svd(found - mean, full_matrices=False)[2][:_KEPT].T
        return cls(labels, mean, components, (found - mean) @ components)

    def beside(self, images: NDArray[Any], labels: NDArray[np.int64]) -> tuple[float, float, float]:
        """Return the distance of drawn images, the mean distance of their classes, and what they teach."""
        points = (_features(images) - self.mean) @ self.components
        known = [k for k in range(int(self.labels.max()) + 1) if (labels == k).sum() > _KEPT]
        apart = [frechet(points[labels == k], self.points[self.labels == k]) for k in known]
        means = np.stack([points[labels == k].mean(axis=0) for k in known])
        within = np.mean([np.cov(points[labels == k].T) for k in known], axis=0)
        rule = np.linalg.solve(within + 1e-3 * np.eye(_KEPT), means.T)
        shares = np.log([(labels == k).mean() for k in known])
        seen = np.argmax(self.points @ rule - (means * rule.T).sum(axis=1) / 2 + shares, axis=1)
        return frechet(points, self.points), float(np.mean(apart)), float((np.array(known)[seen] == self.labels).mean())


def frechet(one: Floats, two: Floats) -> float:
    """Return the Frechet distance of two normal distributions with the means and covariances of these points."""
    first, second = np.cov(one.T), np.cov(two.T)
    roots = np.sqrt(np.maximum(np.linalg.eigvals(first @ second).real, 0.0))
    apart = np.square(one.mean(axis=0) - two.mean(axis=0)).sum()
    return float(apart + np.trace(first) + np.trace(second) - 2 * roots.sum())


def _features(images: NDArray[Any]) -> Floats:
    return features_of(as_tensor(images)).numpy().astype(np.float64)


def main() -> None:
    """Run what the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["pneumonia"])
    parser.add_argument("--images", type=int, default=3700, help="training images to learn from")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=1, help="runs, each with noise of its own")
    options = parser.parse_args()
    for data in options.data:
        (pixels, known), _, classes = load(data)
        order = np.random.default_rng(0).permutation(len(known))
        some, others = order[: options.images], order[options.images : options.images + _OTHERS]
        images, labels = pixels[some], known[some]
        real = Real.of(pixels[others], known[others])
        print(f"{data:10} real         ", amplitudes(images / 255).round(3))
        for epsilon in options.epsilon:
            shares = Distillation().shares(Canvas(images.shape[1], images.shape[2], images.shape[3], classes))
            for seed in range(options.seeds):
                sums = NoisySums(shares, calibrate(Gaussian, epsilon, DELTA), Source())
                found = learn_generator(images, labels, classes, sums, np.random.default_rng(seed))
                drawn, own = found.draw(2000, np.random.default_rng(seed))
                whole, each, right = real.beside(drawn, own)
                print(f"{data:10} epsilon {epsilon:<5g}", amplitudes(drawn.astype(np.float64)).round(3))
                print(f"{'':24}distance {whole:.0f}, of classes {each:.0f}, right {right:.1%}", flush=True)


if __name__ == "__main__":
    main()

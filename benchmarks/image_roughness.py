"""How rough drawn images are beside real ones: the amplitude of each band of frequencies.

The generator of `Distillation` learns from training images only, with its share of the budget; then the root mean
square of the cosine coefficients of each half octave is printed, for real and for drawn images. Those that are
larger in high frequencies show noise, smaller ones lack texture. Delta is 1e-5; one run each, 10 CPU seconds.

    python image_roughness.py --data pneumonia mnist --images 3700 --epsilon 1 10
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn

from sfumato.budget.accounting.accountant import calibrate
from sfumato.budget.events import Gaussian
from sfumato.budget.noise import Source
from sfumato.learners.estimators.noisy_sums import NoisySums
from sfumato.learners.images.generator import learn_generator
from sfumato.synthesizers.images.base import Canvas
from sfumato.synthesizers.images.distillation import Distillation
from synthetic_images import DELTA, load


def amplitudes(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the root mean square of the coefficients in each half octave of frequencies."""
    squares = np.square(dctn(images[..., 0], axes=(1, 2), norm="ortho")).mean(axis=0)
    far = np.hypot(*np.indices(squares.shape))
    edges = 2.0 ** np.arange(0.5, 5.5, 0.5)
    bands = np.digitize(far, edges)
    return np.sqrt([squares[bands == one].mean() for one in range(1, len(edges))])


def main() -> None:
    """Run what the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["pneumonia"])
    parser.add_argument("--images", type=int, default=3700, help="training images to learn from")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 10.0])
    options = parser.parse_args()
    for data in options.data:
        (pixels, known), _, classes = load(data)
        some = np.random.default_rng(0).permutation(len(known))[: options.images]
        images, labels = pixels[some], known[some]
        print(f"{data:10} real         ", amplitudes(images / 255).round(3))
        for epsilon in options.epsilon:
            shares = Distillation().shares(Canvas(images.shape[1], images.shape[2], images.shape[3], classes))
            sums = NoisySums(shares, calibrate(Gaussian, epsilon, DELTA), Source())
            found = learn_generator(images, labels, classes, sums, np.random.default_rng(0))
            drawn, _ = found.draw(1000, np.random.default_rng(0))
            print(f"{data:10} epsilon {epsilon:<5g}", amplitudes(drawn.astype(np.float64)).round(3), flush=True)


if __name__ == "__main__":
    main()

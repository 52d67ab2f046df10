"""The wavelet scattering transform of images: fixed features that need no training.

An image is filtered by wavelets of several scales and angles, keeping only the moduli; the moduli are filtered again by
the wavelets of larger scales; everything is smoothed and downsampled (Mallat 2012; Bruna and Mallat 2013). The result
hardly changes under small translations and deformations. So a linear model of it can replace a convolutional network,
and has fewer parameters that need noise (Tramèr and Boneh 2021).

No parameter depends on data, and the features of an image depend on that image alone, so the transform costs no
privacy.

The filters are those of Kymatio (Andreux et al. 2020): Morlet wavelets with standard deviation 0.8 * 2**j, frequency
3/4 * pi / 2**j and slant 4 / angles, and a Gaussian with standard deviation 0.8 * 2**(scales - 1).

The second part of the module chooses the number of steps and the learning rate of a full-batch linear model on these
features, from epsilon and the number of images. Every step uses all images, so there is no amplification by sampling: a
step is one Gaussian mechanism, and T steps with noise of sigma clips equal one step with sigma / sqrt(T). Epsilon and
delta therefore determine mu = sqrt(T) / sigma, whatever T is (Dong, Roth and Su 2022).

With clip C, learning rate r and momentum m, the weights travel at most D = r C T / (1 - m), and the noise in each of
them finally has a standard deviation of about D / (n mu), for n images, independent of T. So n mu, here called the
signal, determines how far to travel, and more steps only make the path smoother. A clip far below the usual norm of a
gradient makes all gradients equally long; no larger clip was better at any signal.

The two remaining constants below were chosen on training images only: on 1,750 to 7,000 of the 10,000 built-in training
images of MNIST, scored on the other 3,000, for signals from 50 to 45,000, 10 to 640 steps, five clips, ten distances
and two schedules. One setting was checked on 50,000 images of the full training part against its other 10,000. Test
images were not used. The search is benchmarks/training_rule.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sfumato.budget.accounting.accountant import calibrate
from sfumato.budget.events import Gaussian
from sfumato.errors import InputError, OptionError

if TYPE_CHECKING:
    from sfumato.engines.engine import Progress

__all__ = [
    "channels_of",
    "learning_rate_of",
    "normalized_scattering",
    "scattering",
    "signal_of",
    "signal_of_noise",
    "steps_of",
]

Floats = NDArray[np.float64]

_AT_ONCE = 1 << 15  # pixels per batch, to stay in the processor's cache
_AT_ONCE_ON_DEVICE = 1 << 22
_PERIODS = 5  # periods of the image over which a filter is wrapped, until it has decayed
_BLANK = 1e-5  # added to a variance, so a nearly blank group is not amplified
_STEPS, _FEWEST = 2.2, 20  # times sqrt(signal): more steps were hardly better, and take longer
_DISTANCE = 4.0  # times signal / sqrt(inputs): the noise of an output then has a standard deviation of about 4
_LARGEST = 60_000.0  # the largest signal tried; beyond it, noise does not matter


def scattering(images: Any, scales: int = 2, angles: int = 8, *, progress: Progress | None = None) -> Tensor:
    """Return the scattering coefficients of images.

    Parameters
    ----------
    images : tensor or array of shape (count, height, width) or (count, 1, height, width)
        Grey images. Bytes are scaled to 0..1; other numbers are used as they are.
    scales : int
        The number of scales J of the wavelets, each twice as wide as the one before. In each direction
        there are 2**J times fewer coefficients than pixels.
    angles : int
        The number of angles L.
    progress : callable, optional
        Called with the fraction of images done.

    Returns
    -------
    tensor of shape (count, 1 + J L + J (J - 1) / 2 L**2, height // 2**J, width // 2**J)
        In 32-bit floats: the smoothed image, then one channel for each scale and angle of a
        wavelet, then one for each scale and angle of a first and, on a larger scale, a second one.

    Examples
    --------
    >>> import sfumato as sf
    >>> scattering(sf.datasets.mnist().train_images[:5]).shape
    torch.Size([5, 81, 7, 7])

    A constant image has no waves, and smoothing does not change it:

    >>> coefficients = scattering(torch.full((1, 28, 28), 0.5))
    >>> round(float(coefficients[0, 0].mean()), 5), float(coefficients[0, 1:].max()) < 1e-5
    (0.5, True)
    """
    return _in_batches(images, scales, angles, None, progress)


def normalized_scattering(
    images: Any, scales: int = 2, angles: int = 8, groups: int = 27, *, progress: Progress | None = None
) -> Tensor:
    """Return the scattering coefficients of images as rows of features, normalized within each image.

    Neighbouring channels form a group, and the values of a group in one image are normalized to mean 0 and variance 1
    (Wu and He 2018). The result depends on no other image, so this costs no privacy either.

    Parameters
    ----------
    images, scales, angles, progress
        See `scattering`.
    groups : int
        The number of groups; it must divide the number of channels.

    Returns
    -------
    tensor of shape (count, channels * (height // 2**J) * (width // 2**J))

    Examples
    --------
    >>> import sfumato as sf
    >>> features = normalized_scattering(sf.datasets.mnist().train_images[:5])
    >>> features.shape
    torch.Size([5, 3969])
    >>> first = features[0, : 3 * 49]
    >>> round(float(first.var(correction=0)), 2)
    1.0
    """
    channels = channels_of(scales, angles)
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1 or channels % groups:
        raise OptionError(f"the number of groups must divide the {channels} channels, got {groups!r}")

    def normalize(batch: Tensor) -> Tensor:
        return functional.group_norm(batch, groups, eps=_BLANK).flatten(1)

    return _in_batches(images, scales, angles, normalize, progress)


def channels_of(scales: int = 2, angles: int = 8) -> int:
    """Return the number of channels of the scattering coefficients.

    Examples
    --------
    >>> channels_of(scales=2, angles=8)
    81
    """
    for name, value in (("scales", scales), ("angles", angles)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise OptionError(f"the number of {name} must be a whole number of at least 1, got {value!r}")
    return 1 + scales * angles + scales * (scales - 1) // 2 * angles**2


@torch.no_grad()
def _in_batches(
    images: Any, scales: int, angles: int, finish: Callable[[Tensor], Tensor] | None, progress: Progress | None
) -> Tensor:
    channels = channels_of(scales, angles)
    every = _as_grey(images, scales)
    height, width = every.shape[1:]
    bank = _bank(height, width, scales, angles, every.device)
    size = max(1, (_AT_ONCE if every.device.type == "cpu" else _AT_ONCE_ON_DEVICE) // (height * width))
    shape: tuple[int, ...] = (channels, height >> scales, width >> scales)
    result = torch.empty((len(every), *((math.prod(shape),) if finish else shape)), device=every.device)
    for start in range(0, len(every), size):
        batch = every[start : start + size]
        if start and len(batch) < size:  # all batches of one size, by which libraries choose the order of additions
            batch = functional.pad(batch, (0, 0, 0, 0, 0, size - len(batch)))
        values = batch.float() / 255 if batch.dtype == torch.uint8 else batch.float()
        if not values.isfinite().all():
            raise InputError("images must contain finite numbers only")
        coefficients = bank.transform(values)
        made = finish(coefficients) if finish else coefficients
        result[start : start + size] = made[: len(every) - start]
        if progress is not None:
            progress(min(1.0, (start + size) / len(every)))
    return result


def _as_grey(images: Any, scales: int) -> Tensor:
    """Return images as a tensor of shape (count, height, width), or raise an `InputError`."""
    if not isinstance(images, Tensor):
        array = np.require(images, requirements=["C", "W"])  # a copy, if torch needs one
        if array.dtype.kind not in "buif":
            raise InputError(f"images must contain real numbers, got {array.dtype}")
        images = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    grey: Tensor = images[:, 0] if images.dim() == 4 and images.shape[1] == 1 else images
    if grey.dim() != 3:
        shape = " x ".join(map(str, grey.shape)) or "one number"
        raise InputError(f"grey images must have the shape count x height x width, got {shape}")
    height, width = grey.shape[1:]
    if min(height, width) <= 2**scales:
        raise InputError(
            f"images for {scales} scales must have more than {2**scales} pixels a side, got {height} x {width}",
            hint="use fewer scales",
        )
    return grey


@dataclass(frozen=True, eq=False)
class _Bank:
    """The filters for images of one size.

    Attributes
    ----------
    padding : tuple of int
        The number of pixels reflected on the left, right, top and bottom.
    wavelets : dictionary of tensors of shape (angles, step**2, height * width * 2)
        Fourier transforms by scale and by the scale of the moduli they apply to, split into the parts that are
        aliased onto each other by downsampling; repeated for the real and the imaginary part.
    smoothing : sequence of pairs of matrices
        For moduli of each scale: the matrices that smooth and downsample rows and columns, and drop the padding.
    """

    padding: tuple[int, int, int, int]
    wavelets: dict[tuple[int, int], Tensor]
    smoothing: tuple[tuple[Tensor, Tensor], ...]

    def transform(self, images: Tensor) -> Tensor:
        """Return the scattering coefficients of a batch."""
        scales = len(self.smoothing)
        image = functional.pad(images[:, None], self.padding, mode="reflect")
        spectrum = torch.fft.fft2(image[:, 0])
        zeroth, first, second = self._smooth(image, 0), [], []
        for one in range(scales):
            moduli = self._moduli(spectrum, one, 0)
            first.append(self._smooth(moduli, one))
            if one + 1 < scales:
                of_moduli = torch.fft.fft2(moduli)
                after = [self._smooth(self._moduli(of_moduli, two, one), two) for two in range(one + 1, scales)]
                second.append(torch.cat(after, dim=2).flatten(1, 2))
        return torch.cat([zeroth, *first, *second], dim=1)

    def _moduli(self, spectrum: Tensor, scale: int, resolution: int) -> Tensor:
        """Filter by the wavelets of a scale at all angles, downsample accordingly and return the moduli."""
        step = 1 << (scale - resolution)
        height, width = spectrum.shape[-2] // step, spectrum.shape[-1] // step
        wavelets = self.wavelets[scale, resolution]
        # Downsampling an image adds up parts of its spectrum, which is fastest for rows of real numbers.
        split = torch.view_as_real(spectrum).reshape(-1, step, height, step, 2 * width).transpose(2, 3)
        parts = split.reshape(-1, step * step, height * width * 2)[:, :, None].unbind(1)
        filtered = parts[0] * wavelets[:, 0]
        for part, filters in zip(parts[1:], wavelets.unbind(1)[1:], strict=True):
            filtered.addcmul_(part, filters)
        shape = (*spectrum.shape[:-2], len(wavelets), height, width, 2)
        waves = torch.fft.ifft2(torch.view_as_complex(filtered.view(shape)))
        squares = torch.view_as_real(waves).square_()
        return (squares[..., 0] + squares[..., 1]).sqrt_()  # torch.abs takes four times as long

    def _smooth(self, moduli: Tensor, scale: int) -> Tensor:
        # One product for all images: in one for each, additions are ordered by where in memory an image begins.
        rows, columns = self.smoothing[scale]
        return ((moduli @ columns.T).mT.contiguous() @ rows.T).mT


@lru_cache(maxsize=8)
def _bank(height: int, width: int, scales: int, angles: int, device: torch.device) -> _Bank:
    rows, columns = (((side >> scales) + 2) << scales for side in (height, width))
    more, wider = rows - height, columns - width
    wavelets = {}
    for scale in range(scales):
        spectra = np.stack([_wavelet(rows, columns, scale, angle, angles) for angle in range(angles)])
        for resolution in range(max(scale, 1)):
            coarse = _coarser(_coarser(spectra, resolution, axis=1), resolution, axis=2)
            step = 1 << (scale - resolution)
            parts = coarse.reshape(angles, step, coarse.shape[1] // step, step, -1).swapaxes(2, 3) / step**2
            wavelets[scale, resolution] = _tensor(parts.reshape(angles, step**2, -1).repeat(2, axis=2), device)
    smoothing = tuple(
        (_tensor(_smoothing(rows, scales, scale), device), _tensor(_smoothing(columns, scales, scale), device))
        for scale in range(scales)
    )
    return _Bank((wider // 2, wider - wider // 2, more // 2, more - more // 2), wavelets, smoothing)


def _wavelet(rows: int, columns: int, scale: int, angle: int, angles: int) -> Floats:
    """Return the (real) Fourier transform of a Morlet wavelet: a wave times a Gaussian, corrected to mean 0."""
    deviation, frequency, slant = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, 4 / angles
    turn = (angles // 2 - 1 - angle) * math.pi / angles
    row, column = _places(rows)[:, None], _places(columns)
    along = row * math.cos(turn) + column * math.sin(turn)
    across = column * math.cos(turn) - row * math.sin(turn)
    bell = np.exp(-(along**2 + (slant * across) ** 2) / (2 * deviation**2))
    wave = bell * np.exp(1j * frequency * along)
    wave -= bell * (wave.sum() / bell.sum())  # makes the mean 0
    wrapped = wave.reshape(_PERIODS, rows, _PERIODS, columns).sum((0, 2))
    return np.asarray(np.fft.fft2(wrapped).real * slant / (2 * math.pi * deviation**2))


def _smoothing(side: int, scales: int, resolution: int) -> Floats:
    """Return the matrix that smooths a line of moduli, downsamples it to the last scale and drops the padding."""
    deviation = 0.8 * 2 ** (scales - 1)
    bell = np.exp(-(_places(side) ** 2) / (2 * deviation**2)) / (math.sqrt(2 * math.pi) * deviation)
    spectrum = _coarser(np.fft.fft(bell.reshape(_PERIODS, side).sum(0)).real, resolution, axis=0)
    kernel = np.fft.ifft(spectrum).real
    kept = np.arange(1, (side >> scales) - 1) << (scales - resolution)
    return np.asarray(kernel[(kept[:, None] - np.arange(len(kernel))) % len(kernel)])


def _places(side: int) -> Floats:
    """Return the positions at which a filter is sampled before it is wrapped around the image."""
    return np.arange(_PERIODS * side, dtype=np.float64) - _PERIODS // 2 * side


def _coarser(spectrum: Floats, resolution: int, axis: int) -> Floats:
    """Return the low frequencies that remain after downsampling by 2**resolution."""
    side = spectrum.shape[axis] >> resolution
    frequencies = np.r_[: side // 2, -(side // 2) : 0]
    return np.asarray(spectrum.take(frequencies, axis=axis))


def _tensor(values: Floats, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)


def signal_of(rows: int, epsilon: float, delta: float) -> float:
    """Return the signal n mu: the number of records over the noise multiplier of training in a single step.

    Examples
    --------
    >>> round(signal_of(60_000, 0.79, 1e-5), -2)
    13000.0
    """
    if epsilon == math.inf:
        return _LARGEST
    return min(_LARGEST, rows / calibrate(Gaussian, epsilon, delta, precision=1e-3))


def signal_of_noise(rows: int, noise_multiplier: float) -> float:
    """Return the signal of `steps_of` steps with the given noise per step.

    Examples
    --------
    >>> round(signal_of_noise(60_000, 71.7)), steps_of(signal_of_noise(60_000, 71.7))
    (13339, 254)
    """
    steps = max(_FEWEST, (_STEPS**2 * rows / noise_multiplier) ** (2 / 3))  # signal = rows sqrt(steps) / noise
    return min(_LARGEST, rows * math.sqrt(steps) / noise_multiplier)


def steps_of(signal: float) -> int:
    """Return the number of steps for a signal.

    Examples
    --------
    >>> steps_of(50), steps_of(2_800), steps_of(13_000)
    (20, 116, 251)
    """
    return max(_FEWEST, round(_STEPS * math.sqrt(min(signal, _LARGEST))))


def learning_rate_of(signal: float, *, steps: float, inputs: int, clip: float = 0.1, momentum: float = 0.9) -> float:
    """Return the learning rate with which the weights travel as far as the signal allows.

    Examples
    --------
    >>> round(learning_rate_of(13_000, steps=251, inputs=3969), 2)
    3.29
    """
    distance = _DISTANCE * min(signal, _LARGEST) / math.sqrt(inputs)
    return distance * (1 - momentum) / (clip * steps)

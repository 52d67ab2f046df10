"""Estimate from a sample how many people are unique in the population.

A row that is unique in a sample need not be unique in the population it was drawn from. The input is
the histogram of class sizes in the sample: s_j classes of j rows, n rows in all, from a population
of N people. The result is S_1, the number of population classes of one person. There are three
models; the decision rule of Dankar et al. chooses between them.

- Zayatz, *Estimation of the number of unique population elements using a sample*, 1991.
- Chen and Keller-McNulty, *Estimation of identification disclosure risk in microdata*, Journal of
  Official Statistics 14(1), 1998: the slide negative binomial model (SNB).
- Hoshino, *Applying Pitman's sampling formula to microdata disclosure risk assessment*, Journal of
  Official Statistics 17(4), 2001.
- Haas and Stokes, *Estimating the number of classes in a finite population*, Journal of the
  American Statistical Association 93, 1998: the number of classes, which SNB needs.
- Dankar, El Emam, Neisa and Roffey, *Estimating the re-identification risk of clinical data sets*,
  BMC Medical Informatics and Decision Making 12:66, 2012.

All three assume a simple random sample, and are wrong for any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from sfumato.errors import OptionError
from sfumato.measures.classes import Floats

__all__ = ["PopulationModel", "PopulationUniques", "pitman", "population_uniques", "snb", "zayatz"]

_SMALL_FRACTION = 0.1  # Dankar et al.: up to here Pitman
_TRUSTED_FRACTION = 0.2  # below, the mean error in our simulations exceeds 25 % for most populations
_FEWEST_ALPHA = 1e-3  # below, the fit cannot be distinguished from its edge at 0
_LARGEST_LOG = 18.0  # parameters of SNB and Pitman are sought up to e**18


class PopulationModel(StrEnum):
    """The model that an estimate of population uniques comes from.

    Examples
    --------
    >>> PopulationModel("pitman")
    <PopulationModel.PITMAN: 'pitman'>
    """

    EXACT = "exact"
    """No model is needed: the sample is the whole population."""
    PITMAN = "pitman"
    SNB = "snb"
    ZAYATZ = "zayatz"


@dataclass(frozen=True)
class PopulationUniques:
    """The estimated number of people who are alone in their population class.

    Examples
    --------
    >>> estimate = population_uniques({1: 30, 2: 10, 5: 10}, population=10_000)
    >>> estimate.chosen
    <PopulationModel.PITMAN: 'pitman'>
    >>> estimate.uniques == estimate.pitman
    True
    """

    rows: int
    """The rows of the sample."""
    population: int
    """The people in the population."""
    sample_uniques: int
    """The rows of the sample that are alone in their class."""
    uniques: float
    """The estimate of the chosen model."""
    pitman: float | None
    snb: float | None
    zayatz: float | None
    """The estimate of each model; None if the model does not fit."""
    chosen: PopulationModel
    """The model whose estimate was chosen."""
    reason: str
    """Why that model was chosen."""

    @property
    def share(self) -> float:
        """The share of the population that is estimated to be unique."""
        return self.uniques / self.population

    def to_dict(self) -> dict[str, Any]:
        """Return the estimates as plain values."""
        return {
            "rows": self.rows,
            "population": self.population,
            "sample_uniques": self.sample_uniques,
            "uniques": self.uniques,
            "share": self.share,
            "pitman": self.pitman,
            "snb": self.snb,
            "zayatz": self.zayatz,
            "chosen": self.chosen.value,
            "reason": self.reason,
        }


def population_uniques(histogram: Mapping[int, int], population: int) -> PopulationUniques:
    """Estimate the population uniques by all three models and choose one.

    The rule of Dankar et al. as the ARX software applies it: up to a sampling fraction of 0.1
    Pitman, above it the smaller of SNB and Zayatz. If Pitman does not fit a small sample, the
    smaller of the other two is taken (ARX takes Zayatz); if SNB does not fit either, Zayatz.

    Parameters
    ----------
    histogram : mapping of int to int
        The number of classes of each size in the sample.
    population : int
        The number of people in the population that the sample was drawn from.

    Examples
    --------
    >>> estimate = population_uniques({1: 400, 2: 100, 10: 20}, population=1600)
    >>> round(estimate.uniques), estimate.chosen.value
    (525, 'snb')
    >>> population_uniques({1: 400, 2: 100}, population=600).uniques
    400.0
    """
    size, classes = _read(histogram, population)
    rows = int(size @ classes)
    seen = int(classes[size == 1].sum())
    if rows == population:
        chosen, reason = PopulationModel.EXACT, "the sample is the whole population"
        uniques, estimates = float(seen), dict.fromkeys(_MODELS)
    else:
        estimates = {model: estimate(histogram, population) for model, estimate in _MODELS.items()}
        chosen, reason = _choose(estimates, rows / population)
        if not seen:
            reason += "; no row of the sample is unique"
        elif seen < rows and rows / population < _TRUSTED_FRACTION:
            reason += "; from less than a fifth of the population it can be off by a factor of several, mostly too high"
        if seen == rows:
            reason += "; every row of the sample is unique, so this is an upper bound, not an estimate"
        uniques = estimates[chosen] or 0.0
    return PopulationUniques(
        rows=rows,
        population=int(population),
        sample_uniques=seen,
        uniques=uniques,
        pitman=estimates[PopulationModel.PITMAN],
        snb=estimates[PopulationModel.SNB],
        zayatz=estimates[PopulationModel.ZAYATZ],
        chosen=chosen,
        reason=reason,
    )


def zayatz(histogram: Mapping[int, int], population: int) -> float:
    """Estimate the population uniques by the equivalence class model of Zayatz (1991).

    ``S_1 = s_1 P(F=1 | f=1) N / n``. By Bayes' rule ``P(F=1 | f=1)`` is ``p_1 P(f=1 | F=1)`` over
    the sum of ``p_j P(f=1 | F=j)``, with p_j the share of *sample* classes of size j and f
    hypergeometric. The sample has more small classes than the population, so the estimate is too
    high, the more so the smaller the sample.

    Examples
    --------
    >>> round(zayatz({1: 2, 2: 1}, population=8), 6)  # 2 * P * 2, P = 2 (1/2) / (2 (1/2) + 4/7)
    2.545455
    """
    from scipy.special import gammaln

    size, classes = _read(histogram, population)
    rows = size @ classes
    uniques = classes[size == 1].sum()
    if not uniques:
        return 0.0
    possible = population - size >= rows - 1  # a larger class would have to show twice in the sample
    j, s = size[possible], classes[possible]
    # log of j C(N-j, n-1) / C(N, n)
    others = gammaln(population - j + 1) - gammaln(rows) - gammaln(population - j - rows + 2)
    all_samples = gammaln(population + 1) - gammaln(rows + 1) - gammaln(population - rows + 1)
    seen_once = s * j * np.exp(others - all_samples)
    return float(uniques * seen_once[j == 1].sum() / seen_once.sum() * population / rows)


def snb(histogram: Mapping[int, int], population: int) -> float | None:
    """Estimate the population uniques by the slide negative binomial model (Chen & Keller-McNulty 1998).

    A population class has one person and a negative binomial number more:
    ``P(F=j) = C(a+j-2, j-1) b^a (1-b)^(j-1)``. Its a and b are those that give the expected
    numbers of sample classes of one and two rows, ``K P(f=1) = s_1`` and ``K P(f=2) = s_2``, with K
    the number of population classes by Haas and Stokes' modified Shlosser estimator; then
    ``S_1 = K b^a``. If several pairs solve this, the one whose classes come nearest to N people in
    all is chosen. None if no pair does.

    Examples
    --------
    >>> round(snb({1: 400, 2: 100, 3: 50, 10: 20}, population=1900))
    547
    >>> snb({1: 400}, population=1900) is None
    True
    """
    from scipy.optimize import least_squares

    size, classes = _read(histogram, population)
    fraction = float(size @ classes) / population
    one, two = (float(classes[size == number].sum()) for number in (1, 2))
    if not one or not two or fraction == 1:  # too little to fit, or nothing to estimate
        return None
    total = _number_of_classes(size, classes, fraction)
    if not total <= population:
        return None

    def unexplained(parameters: Floats) -> Floats:
        """Return the errors of the model in log s_1 and log s_2."""
        a, log_b, log_not_b = _snb_parameters(parameters)
        missed = (1 - fraction) * math.exp(log_not_b)
        rest = 1 - missed
        log_one = math.log(fraction) + a * (log_b - math.log(rest)) + math.log1p(a * missed / rest)
        log_two = (
            math.log(a / 2)
            + 2 * math.log(fraction)
            + a * log_b
            + log_not_b
            - (a + 2) * math.log(rest)
            + math.log(2 + (a - 1) * missed)
        )
        return np.array([math.log(total / one) + log_one, math.log(total / two) + log_two])

    solutions = []
    for start_a in (-4.0, -1.0, 2.0):
        for start_odds in (-6.0, -3.0, 0.0, 3.0):
            found = least_squares(
                unexplained, [start_a, start_odds], bounds=([-_LARGEST_LOG] * 2, [_LARGEST_LOG] * 2), xtol=1e-14
            )
            if np.abs(found.fun).max() < 1e-8:
                a, log_b, log_not_b = _snb_parameters(found.x)
                people = total * (1 + a * math.exp(log_not_b - log_b))
                solutions.append((abs(math.log(people / population)), total * math.exp(a * log_b)))
    return min(solutions)[1] if solutions else None


def pitman(histogram: Mapping[int, int], population: int) -> float | None:
    """Estimate the population uniques by Pitman's sampling formula (Hoshino 2001).

    The n rows fall into classes one after the other: when there are u classes, the next row opens
    a new one with probability ``(theta + u alpha) / (theta + n)`` and joins a class of j rows with
    ``(j - alpha) / (theta + n)``. ``alpha`` and ``theta`` are fitted by maximum likelihood, and
    continued to N people that gives ``S_1 = N`` times the product of
    ``(theta + alpha + i - 1) / (theta + i)`` over i from 1 to N - 1, of which
    ``Gamma(theta+1) / Gamma(theta+alpha) N^alpha`` is the limit for large N. None if the
    likelihood has its maximum at an edge, such as alpha = 0: then the model does not fit.

    Examples
    --------
    >>> round(pitman({1: 400, 2: 100, 3: 50, 10: 20}, population=19_000))
    1980
    >>> pitman({1: 400}, population=1900) is None
    True
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import gammaln

    size, classes = _read(histogram, population)
    rows, count = int(size @ classes), int(classes.sum())
    uniques = int(classes[size == 1].sum())
    if uniques in (0, rows) or rows == population:  # too little to fit, or nothing to estimate
        return None

    def best_theta(alpha: float) -> Any:
        """Maximise the part of the likelihood that depends on theta, over log(theta + alpha)."""

        def loss(log_shifted: float) -> float:
            theta = math.exp(log_shifted) - alpha
            opened = gammaln(theta / alpha + count) - gammaln(theta / alpha + 1)
            return float(gammaln(theta + rows) - gammaln(theta + 1) - opened)

        return minimize_scalar(loss, bounds=(-_LARGEST_LOG, _LARGEST_LOG), method="bounded", options={"xatol": 1e-9})

    def loss(alpha: float) -> float:
        joined = classes @ (gammaln(size - alpha) - gammaln(1 - alpha))
        return float(best_theta(alpha).fun - (count - 1) * math.log(alpha) - joined)

    edge = _FEWEST_ALPHA / 10
    found = minimize_scalar(loss, bounds=(edge, 1 - edge), method="bounded", options={"xatol": 1e-9})
    alpha = float(found.x)
    log_shifted = float(best_theta(alpha).x)
    inside = _FEWEST_ALPHA < alpha < 1 - _FEWEST_ALPHA and abs(log_shifted) < _LARGEST_LOG - 1
    if not (found.success and inside):
        return None
    theta = math.exp(log_shifted) - alpha
    log_share = (
        gammaln(theta + alpha + population - 1)
        - gammaln(theta + alpha)
        + gammaln(theta + 1)
        - gammaln(theta + population)
    )
    return float(population * math.exp(min(log_share, 0.0)))


_MODELS: dict[PopulationModel, Callable[[Mapping[int, int], int], float | None]] = {
    PopulationModel.PITMAN: pitman,
    PopulationModel.SNB: snb,
    PopulationModel.ZAYATZ: zayatz,
}


def _choose(estimates: Mapping[PopulationModel, float | None], fraction: float) -> tuple[PopulationModel, str]:
    """Apply the decision rule; Zayatz always has an estimate."""
    by_snb, by_zayatz = estimates[PopulationModel.SNB], estimates[PopulationModel.ZAYATZ]
    assert by_zayatz is not None
    if fraction > _SMALL_FRACTION:
        why = f"the sampling fraction {fraction:.2g} is above {_SMALL_FRACTION:g}"
    else:
        why = f"the sampling fraction {fraction:.2g} is at most {_SMALL_FRACTION:g}"
        if estimates[PopulationModel.PITMAN] is not None:
            return PopulationModel.PITMAN, why
        why += ", but Pitman's model does not fit"
    if by_snb is None:
        return PopulationModel.ZAYATZ, f"{why}; the SNB model does not fit"
    if by_zayatz < by_snb:
        return PopulationModel.ZAYATZ, f"{why}; the estimate of Zayatz is below that of SNB"
    return PopulationModel.SNB, f"{why}; the estimate of SNB is not above that of Zayatz"


def _number_of_classes(size: Floats, classes: Floats, fraction: float) -> float:
    """Estimate the number of classes in the population (Haas & Stokes 1998, the third Shlosser estimator)."""
    one = classes[size == 1].sum()
    unseen = (1 - fraction) ** size
    first = (size * fraction**2 * (1 - fraction**2) ** (size - 1)) @ classes
    second = ((1 - fraction**2) ** size - unseen) @ classes
    third = unseen @ classes
    fourth = (size * fraction * (1 - fraction) ** (size - 1)) @ classes
    return float(classes.sum() + one * (first / second) * (third / fourth) ** 2)


def _snb_parameters(parameters: Floats) -> tuple[float, float, float]:
    """Return a, ln b and ln(1 - b) from ln a and the log odds of b, without loss near 0 and 1."""
    odds = float(parameters[1])
    return math.exp(parameters[0]), -float(np.logaddexp(0, -odds)), -float(np.logaddexp(0, odds))


def _read(histogram: Mapping[int, int], population: int) -> tuple[Floats, Floats]:
    """Return the class sizes and the number of classes of each; refuse an invalid histogram."""
    for size, classes in histogram.items():
        if size != int(size) or size < 1 or classes != int(classes) or classes < 0:
            raise OptionError("a histogram of class sizes maps whole numbers of at least 1 to numbers of classes")
    kept = sorted((int(size), int(classes)) for size, classes in histogram.items() if classes)
    if not kept:
        raise OptionError("the histogram of class sizes holds no class")
    rows = sum(size * classes for size, classes in kept)
    if isinstance(population, bool) or population != int(population) or population < rows:
        raise OptionError(
            f"the population must be a whole number of at least the {rows} rows of the sample, got {population!r}"
        )
    size, classes = np.array(kept, dtype=np.float64).T
    return size, classes

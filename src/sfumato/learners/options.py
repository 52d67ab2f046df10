"""Option groups: what a person decides about privacy, the split, the optimization and speed.

`train` takes `Split` and `Privacy`, `Trainer` takes `Privacy`, `Optimization` and `Speed`. Recipes and the command line
have the same options without groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato._repr import parameters
from sfumato.data.validate import by_name, real, whole
from sfumato.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.learners.dpsgd.optimizers import Schedule
    from sfumato.learners.gradients.clipping import Loss

__all__ = ["SCORES", "Optimization", "Privacy", "Speed", "Split", "grouped"]

SCORES = ("noisy", "none")
"""How the scores of a private model on private records can be released."""
_PRECISIONS = ("bfloat16", "float16")
_MEMORY_FORMATS = ("auto", "contiguous", "channels-last")


@dataclass(frozen=True, repr=False)
class _Options:
    """The base of option groups; only options that differ from their default are shown."""

    def _check_whole(self, name: str, what: str, **limits: Any) -> None:
        """Check an optional whole number, and store it as an int."""
        if (value := getattr(self, name)) is not None:
            object.__setattr__(self, name, whole(what, value, **limits))

    def __repr__(self) -> str:
        values = ((one, getattr(self, one.name)) for one in fields(self))
        return f"{type(self).__name__}({parameters({one.name: now for one, now in values if now is not one.default})})"


@dataclass(frozen=True, kw_only=True, repr=False)
class Privacy(_Options):
    """What is noisy and what is public, beyond epsilon, delta and the clip.

    Parameters
    ----------
    noise_multiplier : float or list, optional
        The standard deviation of the noise on the sum of a batch, in clips, whatever epsilon results. `train` takes
        several, each for a run of its own; `Trainer` takes one, instead of epsilon.
    rows : int, optional
        The number of training records (of people, if they are protected), if it is public. It determines the sampling
        rate, the number of steps and the divisor of a batch. By default `train` estimates it for networks with a part
        of epsilon, and `Trainer` takes the actual number, which then counts as public.
    insecure_seed : int, optional
        Makes noise, samples and split reproducible: the result is then not private.

    Examples
    --------
    >>> Privacy(rows=30_000)
    Privacy(rows=30000)
    """

    noise_multiplier: float | Sequence[float] | None = None
    rows: int | None = None
    insecure_seed: int | None = None

    def __post_init__(self) -> None:
        if len(set(self.noise_multipliers)) < len(self.noise_multipliers):
            raise OptionError("a noise multiplier is listed twice")
        self._check_whole("rows", "the number of rows")
        self._check_whole("insecure_seed", "the seed of noise", least=0)

    @property
    def noise_multipliers(self) -> list[float]:
        """All noise multipliers; none if epsilon determines the noise."""
        given = () if self.noise_multiplier is None else self.noise_multiplier
        several = given if isinstance(given, list | tuple) else (given,)
        return [real("the noise multiplier", one, above=0) for one in several]


@dataclass(frozen=True, kw_only=True, repr=False)
class Split(_Options):
    """Which records train a model, which test it, and what is released of the test.

    Parameters
    ----------
    test : path, Table or frame, optional
        Other rows to test on. By default the official test rows of a built-in table, else a part of the rows.
        A row that is in both tables counts as two records. If people are protected, the test rows of people who are in
        the table are left out.
    holdout : float
        The probability that a row is held out for testing, or a person with all of their rows.
    scores : {"noisy", "none"}
        How the scores of a private model on private records are released.
    samples, test_samples : number, optional
        Use only a fraction of the records, from 0 to 1, each chosen by its own coin. For a built-in data set also a
        number: the first images, or random rows of a table. Other data cannot have a number, because one more record
        would then displace another.
    full : bool
        Use all 60,000 and 10,000 images of MNIST.
    root : path, optional
        The folder of the full MNIST.
    seed : int
        The seed of the split of a built-in data set, and by default of the initial weights of a network. Other data is
        split by a secret key.

    Examples
    --------
    >>> Split(holdout=0.3)
    Split(holdout=0.3)
    """

    test: Any = None
    holdout: float = 0.2
    scores: str = "noisy"
    samples: float | None = None
    test_samples: float | None = None
    full: bool = False
    root: str | Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        real("the share of rows held out", self.holdout, above=0, below=1)
        if self.scores not in SCORES:
            raise OptionError(f"the scores must be one of {', '.join(SCORES)}, got {self.scores!r}")
        self._check_whole("seed", "the seed", least=0, most=2**63 - 1)


@dataclass(frozen=True, kw_only=True, repr=False)
class Optimization(_Options):
    """How the weights of a network follow the gradients.

    Parameters
    ----------
    loss : str or callable
        "cross-entropy", "squared-error", or a function that returns one number per sample. The function is tested on
        random outputs and targets, and rejected if the loss of one sample depends on another.
    schedule : str or callable
        The learning-rate schedule: "constant", "linear", "cosine", "warm-cosine".
    noise_schedule : str or callable
        The noise schedule: a smaller factor spends more of the budget.
    averaging : float, optional
        The decay of a moving average of the weights, which then is the result; it costs no privacy.
    augment : callable, optional
        Augments each sample of a batch at random; called once per view. The function is tested on random samples, and
        rejected if the view of one depends on another (mixup, cutmix). Random numbers must come from torch, from
        ``np.random`` or from ``random``; otherwise wrap the function in `OneByOne`.
    views : int
        How many views of a sample are averaged before clipping.
    seed : int, optional
        Makes augmentation and dropout reproducible, not the noise.

    Examples
    --------
    >>> Optimization(schedule="cosine", averaging=0.99)
    Optimization(schedule='cosine', averaging=0.99)
    """

    loss: str | Loss = "cross-entropy"
    schedule: str | Schedule = "constant"
    noise_schedule: str | Schedule = "constant"
    averaging: float | None = None
    augment: Callable[[Tensor], Tensor] | None = None
    views: int = 1
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.averaging is not None:
            real("averaging", self.averaging, above=0, below=1)
        self._check_whole("views", "the number of views")
        self._check_whole("seed", "the seed", least=0)
        if self.views > 1 and self.augment is None:
            raise OptionError("several views of a sample need augment")


@dataclass(frozen=True, kw_only=True, repr=False)
class Speed(_Options):
    """Where and how fast a network is trained; none of these options changes the privacy.

    Parameters
    ----------
    device : str
        "cpu", or "cuda" where there is a GPU.
    precision : str, optional
        "bfloat16" or "float16" for the forward and the backward pass.
    memory_format : str
        The memory format of images: "contiguous", "channels-last", or "auto", the faster of the two.
    micro_batch : int, optional
        How many samples the module processes at once. Batches that do not fit into memory are divided anyway.
    distributed : bool
        Whether this is one of several processes of ``torch.distributed`` that train one model, each on its own
        samples. Only the first process uses the ledger and the checkpoint.

    Examples
    --------
    >>> Speed(device="cuda", precision="bfloat16")
    Speed(device='cuda', precision='bfloat16')
    >>> Speed(precision="bfloat")
    Traceback (most recent call last):
        ...
    sfumato.errors.OptionError: there is no precision 'bfloat' (did you mean 'bfloat16' or 'float16'?)
    """

    device: str = "cpu"
    precision: str | None = None
    memory_format: str = "auto"
    micro_batch: int | None = None
    distributed: bool = False

    def __post_init__(self) -> None:
        if self.precision is not None:
            by_name("precision", self.precision, {name: name for name in _PRECISIONS})
        by_name("memory format", self.memory_format, {name: name for name in _MEMORY_FORMATS})
        self._check_whole("micro_batch", "the micro-batch")


def grouped(options: Mapping[str, Any], **groups: type[_Options]) -> dict[str, Any]:
    """Collect the options of a recipe or a command into groups; others, and given groups, stay as they are.

    Examples
    --------
    >>> grouped({"target": "ill", "holdout": 0.3}, split=Split, privacy=Privacy)
    {'split': Split(holdout=0.3), 'privacy': Privacy(), 'target': 'ill'}
    """
    rest = dict(options)
    made = {
        name: group(**{one.name: rest.pop(one.name) for one in fields(group) if one.name in rest})
        for name, group in groups.items()
    }
    return {**made, **rest}

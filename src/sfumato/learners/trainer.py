"""Private training from beginning to end: draw, clip, add noise, follow; pay before and save after."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from sfumato._errors import OptionError, did_you_mean
from sfumato.budget.accounting import Spent, check_delta, spent
from sfumato.budget.events import Event, Relation
from sfumato.budget.ledger import Ledger
from sfumato.budget.mechanisms import positive
from sfumato.budget.noise import Source
from sfumato.data.files import refuse_unwritable
from sfumato.learners import checkpoint as checkpoints
from sfumato.learners.clipping import Loss, cross_entropy, squared_error
from sfumato.learners.descent import Rule, Schedule, Sgd, schedule_of
from sfumato.learners.layout import LAYOUTS, fastest_layout, in_layout, lies
from sfumato.learners.plan import Progress, Stage, events_of, plan
from sfumato.learners.samples import Batch, Samples, in_mode
from sfumato.learners.sampling import Full, Poisson, Sampler
from sfumato.learners.steps import AdaptiveClip, HostNoise, Step
from sfumato.learners.together import Alone, Together
from sfumato.learners.vetting import check, make_private, refuse_mixing

__all__ = ["Report", "Trainer"]

LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "squared-error": squared_error}
_PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Report:
    """Where a training stands after an epoch.

    Losses and scores are read from data, and those of private data are not covered by epsilon: they
    are for the eyes of whoever may see the data.
    """

    epoch: int
    step: int
    loss: float
    """The mean loss of the samples that were drawn; not a number if none were."""
    epsilon: float
    seconds: float
    score: float | None = None
    """Accuracy, or the mean squared error, on the validation data."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values; what is unbounded is the text "inf", what is not known is None."""
        return {name: _plain(value) for name, value in vars(self).items()}


class Trainer:
    """Trains a torch module with differential privacy (DP-SGD: Abadi et al. 2016).

    What the trained weights tell about any one sample is bounded by epsilon and delta, for
    neighbours that differ by adding or removing one sample. Sampler, noise and accountant belong
    together: the sampler says what event a step is.

    Parameters
    ----------
    module : torch.nn.Module
        It is trained in place. Layers that mix samples are refused, with their replacement named.
    epsilon : float, optional
        The target, never exceeded; infinity trains without privacy. Give this or ``noise_multiplier``.
    delta : float
        Below one over the number of samples.
    noise_multiplier : float, optional
        The deviation of the noise on the sum of a batch, in clips.
    clip : float
        The largest norm of a sample's gradient.
    batch_size : int, optional
        How many samples a step takes on average, each with the same probability. By default all.
    epochs : float, optional
        How often each sample is taken on average. Give this or ``steps``.
    steps : int, optional
    rule : Rule
        `Sgd` or `Adam`.
    loss : str or callable
        "cross-entropy", "squared-error", or what gives one number per sample.
    schedule : str or callable
        The course of the learning rate: "constant", "linear", "cosine", "warm-cosine".
    noise_schedule : str or callable
        The course of the noise: where the factor is small, more of the budget is spent.
    averaging : float, optional
        The decay of an average of the weights, which then is the result; it costs no privacy.
    augment : callable, optional
        Changes a batch of samples at random, each for itself; called once per view.
    views : int
        How many views of a sample are averaged before clipping.
    adaptive : AdaptiveClip, optional
        Lets the clip follow a quantile of the norms; charged.
    micro_batch : int, optional
        How many samples go through the module at once. What does not fit into memory is divided anyway.
    precision : str, optional
        "bfloat16" or "float16" for the forward and the backward pass.
    layout : str
        Memory layout of images: "contiguous", "channels-last", or "auto", the faster of the two.
    replace : bool
        Trains a copy of the module with group normalisation in the place of batch normalisation;
        ``trainer.module`` is that copy.
    device : str, optional
    seed : int, optional
        Makes augmentation and dropout reproducible, not the noise.
    insecure_seed : int, optional
        Makes noise and samples reproducible: the result is then not private.
    ledger : Ledger, optional
        Charged before the steps are run, an epoch at a time.
    checkpoint : str or Path, optional
        Written after every epoch; a training that was interrupted continues from it, under the same
        options. Steps that were made after it was written are lost, and stay charged.
    together : bool
        Whether this is one of several processes of ``torch.distributed`` that train one model, each on
        its own samples. The ledger and the checkpoint are those of the first process.

    Examples
    --------
    >>> import torch
    >>> inputs, targets = torch.randn(400, 2), torch.randint(0, 2, (400,))
    >>> trainer = Trainer(
    ...     torch.nn.Linear(2, 2), epsilon=1.0, delta=1e-4, batch_size=40, epochs=2, rule=Sgd(learning_rate=0.5)
    ... )
    >>> reports = trainer.fit(inputs, targets)
    >>> [report.step for report in reports]
    [10, 20]
    >>> trainer.spent.epsilon <= 1.0
    True
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        epsilon: float | None = None,
        delta: float = 1e-5,
        noise_multiplier: float | None = None,
        clip: float = 1.0,
        batch_size: int | None = None,
        epochs: float | None = None,
        steps: int | None = None,
        rule: Rule | None = None,
        loss: str | Loss = "cross-entropy",
        schedule: str | Schedule = "constant",
        noise_schedule: str | Schedule = "constant",
        averaging: float | None = None,
        augment: Callable[[Tensor], Tensor] | None = None,
        views: int = 1,
        adaptive: AdaptiveClip | None = None,
        micro_batch: int | None = None,
        precision: str | None = None,
        layout: str = "auto",
        replace: bool = False,
        device: str = "cpu",
        seed: int | None = None,
        insecure_seed: int | None = None,
        ledger: Ledger | None = None,
        checkpoint: str | Path | None = None,
        together: bool = False,
    ) -> None:
        if (epsilon is None) == (noise_multiplier is None):
            raise OptionError("give either epsilon or noise_multiplier")
        self.epsilon = epsilon if epsilon in (None, math.inf) else positive("epsilon", epsilon)
        self.delta = check_delta(delta)
        self._noise = None if noise_multiplier is None else positive("the noise multiplier", noise_multiplier)
        self.clip = positive("the clip", clip)
        self.batch_size = None if batch_size is None else _whole("the batch size", batch_size)
        self._asked = {**_length(epochs, steps), "epsilon": self.epsilon, "noise multiplier": self._noise}
        self.rule = rule or Sgd(learning_rate=0.1, momentum=0.9)
        if not isinstance(self.rule, Rule):
            raise OptionError(f"the rule must be one like Sgd() or Adam(), got {rule!r}")
        self.loss = _named(loss, LOSSES, "loss")
        self.schedule, self.noise_schedule = schedule_of(schedule), schedule_of(noise_schedule)
        if averaging is not None and not (isinstance(averaging, float) and 0 < averaging < 1):
            raise OptionError(f"averaging must be a number between 0 and 1, got {averaging!r}")
        self.averaging, self.augment, self.views = averaging, augment, _whole("the number of views", views)
        if self.views > 1 and augment is None:
            raise OptionError("several views of a sample need augment")
        if adaptive is not None and not isinstance(adaptive, AdaptiveClip):
            raise OptionError(f"adaptive must be an AdaptiveClip(), got {adaptive!r}")
        self.adaptive = adaptive if self.private else None
        self.micro_batch = None if micro_batch is None else _whole("the micro-batch", micro_batch)
        self.precision = None if precision is None else _named(precision, _PRECISIONS, "precision")
        self.layout = _named(layout, {name: name for name in ("auto", *LAYOUTS)}, "layout")
        self.seed = None if seed is None else _whole("the seed", seed, least=0)
        self.insecure_seed = None if insecure_seed is None else _whole("the seed of noise", insecure_seed, least=0)
        if ledger is not None and not self.private:
            raise OptionError("a training without privacy cannot be charged to a ledger", hint="it has no epsilon")
        self.ledger, self.checkpoint = ledger, None if checkpoint is None else Path(checkpoint)
        self.crew = Together() if together else Alone()
        module = make_private(module) if replace else module
        if self.private:
            check(module)
        self.device = _device(device)
        self.module = module.to(self.device)
        self.history: list[Report] = []
        self.sampler: Sampler | None = None
        """Known when the number of samples is."""
        self._progress = Progress()
        self._planned = self._extended = False
        self._step: Step | None = None
        self._own: Tensor | None = None  # the weights themselves, where the module has their average

    # --- what it costs ---

    @property
    def private(self) -> bool:
        """Whether samples are clipped and noise is added."""
        return self.epsilon != math.inf

    @property
    def done(self) -> int:
        """How many steps were made; one that was interrupted counts."""
        return self._progress.done

    @property
    def events(self) -> tuple[Event, ...]:
        """What was done with the data so far, for the accountant."""
        return tuple(events_of(self.sampler, self._progress.ran)) if self.private and self.sampler else ()

    @property
    def spent(self) -> Spent:
        """What the steps so far cost together."""
        if not self.private and self.done:
            return Spent(math.inf, self.delta, Relation.ADD_REMOVE, "pld", ())
        return spent(self.events, self.delta)

    @property
    def noise_multiplier(self) -> float | None:
        """The deviation of the noise in clips at this point; None before it is known, 0 without privacy."""
        stage = self._progress.current
        return stage.noise_multiplier if stage else self._noise

    def to_dict(self) -> dict[str, Any]:
        """Return how the weights were made and what they cost, as plain values."""
        cost = self.spent.to_dict()
        return {
            **{name: cost[name] for name in ("epsilon", "delta", "relation", "accountant")},
            "noise_multiplier": self.noise_multiplier,
            "clip": self.clip if self.private else None,
            "sampling": {**(self.sampler.to_dict() if self.sampler else {}), "steps": self.done},
            "rule": self.rule.to_dict(),
            "private": self.private and self.insecure_seed is None,
            "events": [event.to_dict() for event in self.events],
            "history": [report.to_dict() for report in self.history],
        }

    # --- training ---

    def fit(
        self,
        inputs: Any,
        targets: Any,
        *,
        validation: tuple[Any, Any] | None = None,
        progress: Callable[[float], None] | None = None,
        report: Callable[[Report], None] | None = None,
        stop: Callable[[Report], bool] | None = None,
    ) -> list[Report]:
        """Train, and return a report per epoch.

        Parameters
        ----------
        inputs, targets : Tensor or array
            All samples; batches are drawn here, so that their event is known. Bytes become numbers,
            and whole numbers stay what they are, for a model that takes words.
        validation : tuple, optional
            Inputs and targets to score on. If they are private, their score is one more release, not
            covered by epsilon.
        progress : callable, optional
            Told the share that is done, from 0 to 1.
        report : callable, optional
            Told a `Report` after each epoch.
        stop : callable, optional
            Told each report; true ends the training. Only the steps that were made are accounted for,
            and the next `fit` makes the others.
        """
        with in_mode(self.module, training=True):
            with self.crew.agreeing():
                samples = Samples.of(inputs, targets, self.module, self.loss)
                held = None if validation is None else Samples.of(*validation, self.module, self.loss)
                if self.private:
                    refuse_mixing(self.module, samples.inputs[:1].to(self.device))
            step, sampler = self._begin(samples)
            every = max(1, round(sampler.rows / sampler.expected))
            source, began = self._source("samples"), time.monotonic()
            losses: list[Tensor] = []
            with in_layout(self.module, LAYOUTS[self.layout]), step.running(), self._continued(step):
                while self._progress.ahead:
                    self._pay(sampler, every)
                    losses.append(self._one(step, sampler, samples, source))
                    if progress:
                        progress(self.done / self._progress.total)
                    if self.done % every and self._progress.ahead:
                        continue
                    told = self._told(step, every, losses, held, time.monotonic() - began)
                    losses = []
                    self.history.append(told)
                    self.crew.once(lambda: self._save(step))
                    if report:
                        report(told)
                    if self.crew.any(bool(stop and stop(told))):
                        break
        return self.history

    def extend(self, *, epochs: float | None = None, steps: int | None = None, epsilon: float | None = None) -> Self:
        """Plan more steps, in the place of those that are left; the next `fit` makes them.

        Without an epsilon the noise stays as it was, and the cost grows. With one, the new total, the
        noise is chosen so that all steps together cost at most that.
        """
        if epsilon is not None and not self.private:
            raise OptionError("a training without privacy cannot be given an epsilon later")
        more = None if epsilon is None else positive("epsilon", epsilon)
        self._asked = {**_length(epochs, steps), "epsilon": more, "noise multiplier": None}
        self._planned, self._extended = False, True
        return self

    def score(self, inputs: Any, targets: Any) -> float:
        """Return the accuracy, or the mean squared error, on other data."""
        return self._score(Samples.of(inputs, targets, self.module, self.loss))

    def _score(self, samples: Samples) -> float:
        found = []
        with in_mode(self.module, training=False), torch.no_grad():
            for some, targets in samples.parts():
                found.append(_scored(self.module(self._laid(some)), targets.to(self.device)))
        return float(torch.cat(found).mean())

    def _one(self, step: Step, sampler: Sampler, samples: Samples, source: Source) -> Tensor:
        """Make one step (Abadi et al. 2016, algorithm 1); an empty batch is one too."""
        way = self.done / self._progress.total
        if self.insecure_seed is not None:  # every step begins anew, so that a run can be continued
            source, step.noise = self._source("samples"), HostNoise(self._source("noise"))
        noise = self._progress.begin().noise_multiplier
        if self.adaptive:
            noise = self.adaptive.for_sum(noise, sampler.expected)
        weight = step.flat.values.dtype if self.private else None  # without privacy, layers may mix samples
        batch = self._seen(samples.batch(self.crew.mine(sampler, len(samples)), source, weight))
        rate = self.rule.learning_rate * self.schedule(way)
        return step(*batch, rate, noise, noisy=self.crew.first)

    def _seen(self, batch: Batch) -> Batch:
        """Return a batch as the module sees it: on its device, and in as many views as were asked for."""
        some, targets, weights = batch
        some, targets = self._laid(some), targets.to(self.device)
        if self.augment is not None and len(some):
            views = [self.augment(some) for _ in range(self.views)]
            if any(len(view) != len(some) for view in views):
                raise OptionError("augment must give as many samples as it got")
            some, targets = torch.stack(views, 1).flatten(0, 1), targets.repeat_interleave(self.views, 0)
        return Batch(self._laid(some), targets, None if weights is None else weights.to(self.device))

    def _laid(self, some: Tensor) -> Tensor:
        return lies(some.to(self.device), LAYOUTS.get(self.layout, torch.contiguous_format))

    def _told(self, step: Step, every: int, losses: list[Tensor], held: Samples | None, seconds: float) -> Report:
        with step.averaged():
            score = None if held is None else self._score(held)
        return Report(
            epoch=math.ceil(self.done / every),
            step=self.done,
            loss=self.crew.mean(torch.stack(losses).nanmean()),
            epsilon=self.spent.epsilon,
            seconds=seconds,
            score=score,
        )

    # --- before the steps, and between them ---

    def _begin(self, samples: Samples) -> tuple[Step, Sampler]:
        """Return the step and the sampler, with the plan made and a checkpoint read."""
        rows = self.crew.total(len(samples))
        if self.private:
            check_delta(self.delta, rows)
        sampler: Sampler = Full(rows)
        if self.batch_size is not None:
            if self.batch_size > rows:
                raise OptionError(
                    f"the batch size must be at most the number of samples, {rows:,}, got {self.batch_size}"
                )
            sampler = Poisson(rows, self.batch_size / rows)
        if self.sampler not in (None, sampler):
            raise OptionError("a training continues with as many samples as it began with")
        if self._step is None:
            self._resume(sampler, samples)
        assert self._step is not None
        self.sampler = sampler
        if not self._planned:
            self._progress.redirect(self._plan(sampler))
            self._planned = True
        return self._step, sampler

    def _made(self, sampler: Sampler) -> Step:
        """Make the step; the module is in its layout."""
        return Step(
            self.module,
            self.loss,
            self.rule,
            HostNoise(self._source("noise")),
            clip=self.clip if self.private else None,
            expected=sampler.expected,
            views=self.views,
            adaptive=self.adaptive,
            averaging=self.averaging,
            micro_batch=self.micro_batch,
            precision=self.precision,
            reduce=self.crew.reduce,
        )

    def _plan(self, sampler: Sampler) -> list[Stage]:
        """Return the stages to come."""
        steps, epochs, target = (self._asked[name] for name in ("number of steps", "number of epochs", "epsilon"))
        count = int(steps) if steps else max(1, round((epochs or 0) * sampler.rows / sampler.expected))
        if not self.private:
            return [Stage(count, 0.0)]
        last = self._progress.ran[-1:]
        if target is None and last:  # more of the same
            return [Stage(count, last[0].noise_multiplier)]
        return plan(
            sampler,
            count,
            self.noise_schedule,
            delta=self.delta,
            epsilon=target or self.epsilon,
            noise_multiplier=self._noise or 1.0,
            past=events_of(sampler, self._progress.ran),
        )

    def _pay(self, sampler: Sampler, every: int) -> None:
        """Charge what is left of an epoch, before its noise is drawn, unless it is paid for."""
        stage, ledger = self._progress.ahead[0], self.ledger
        if self._progress.paid or not self.private:
            return
        steps = min(stage.steps, every - self.done % every)

        def charge() -> None:
            if ledger is not None:
                ledger.charge(sampler.event(stage.noise_multiplier), times=steps, note="training")

        self.crew.once(charge)
        self._progress.paid = steps

    @contextmanager
    def _continued(self, step: Step) -> Iterator[None]:
        """Go on from the weights themselves, and leave the module their average, if there is one."""
        if self._own is not None:
            step.flat.values.copy_(self._own)
        self.crew.same([*step.state.values(), *self._rest().values()])
        try:
            yield
        finally:
            if step.average is not None:
                self._own = step.flat.values.clone()
                step.flat.values.copy_(step.average)

    def _source(self, purpose: str) -> Source:
        """Return where noise or samples come from; with a seed, also by the number of the step."""
        if self.insecure_seed is None:
            return Source()
        mark = ("samples", "noise").index(purpose)
        return Source(insecure_seed=(((self.insecure_seed << 64) + self.done) << 16) + (self.crew.rank << 1) + mark)

    # --- on disk ---

    def _settings(self, sampler: Sampler) -> dict[str, Any]:
        """Return what a training cannot change on its way, by the names under which it is refused."""
        shapes = {name: [list(one.shape), one.requires_grad] for name, one in self.module.named_parameters()}
        return {
            "model": {**shapes, **{name: list(one.shape) for name, one in self.module.named_buffers()}},
            "clip": self.clip if self.private else None,
            "delta": self.delta,
            "batch size": self.batch_size,
            "number of samples": sampler.rows,
            "rule": self.rule.to_dict(),
            "number of views": self.views,
            "averaging": self.averaging,
            "adaptive clip": None if self.adaptive is None else asdict(self.adaptive),
            "seed of the noise": self.insecure_seed,
            **({} if self.layout == "auto" else {"layout": self.layout}),
            **({} if self._extended else self._asked),
        }

    def _rest(self) -> dict[str, Tensor]:
        """Return what belongs to the module and is not trained."""
        fixed = {name: one.data for name, one in self.module.named_parameters() if not one.requires_grad}
        return {f"module {name}": one for name, one in (*fixed.items(), *self.module.named_buffers())}

    def _save(self, step: Step) -> None:
        if self.checkpoint is None or self.sampler is None:
            return
        checkpoints.save(
            self.checkpoint,
            {**step.state, **self._rest(), "generator": torch.get_rng_state()},
            {
                "settings": {**self._settings(self.sampler), **self._asked},
                "ran": [[stage.steps, stage.noise_multiplier] for stage in self._progress.ran],
                "ahead": [[stage.steps, stage.noise_multiplier] for stage in self._progress.ahead],
                "history": [vars(report) for report in self.history],
            },
        )

    def _resume(self, sampler: Sampler, samples: Samples) -> None:
        """Make the step, as a checkpoint has it if there is one."""
        tensors: dict[str, Tensor] = {}

        def read() -> dict[str, Any]:
            """Return what all processes have to know."""
            if self.checkpoint is not None:
                refuse_unwritable(self.checkpoint)
            if self.checkpoint is None or not self.checkpoint.exists():
                return {"layout": self._fastest(samples, sampler)}
            held, facts = checkpoints.load(self.checkpoint)
            checkpoints.refuse_other(self.checkpoint, facts["settings"], self._settings(sampler))
            tensors.update(held)
            return {"layout": facts["settings"]["layout"], **facts}

        facts = self.crew.once(read)
        self.layout = facts["layout"]
        with in_layout(self.module, LAYOUTS[self.layout]):
            step = self._made(sampler)
            if self.seed is not None:
                torch.manual_seed(self.seed)
            if tensors:
                with step.running(), torch.no_grad():
                    for name, one in {**step.state, **self._rest()}.items():
                        one.copy_(tensors[name])
                torch.set_rng_state(tensors["generator"])
        if "ran" in facts:
            self._progress = Progress([Stage(*one) for one in facts["ran"]], [Stage(*one) for one in facts["ahead"]])
            self.history = [Report(**told) for told in facts["history"]]
            self._planned = not self._extended
        self._step = step

    def _fastest(self, samples: Samples, sampler: Sampler) -> str:
        if self.layout != "auto":
            return self.layout
        like = torch.zeros(min(64, math.ceil(sampler.expected)), *samples.inputs.shape[1:], dtype=samples.inputs.dtype)
        return fastest_layout(self.module, like.to(self.device), private=self.private)


def _scored(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return whether each sample has its class, or how far off it is, squared."""
    if targets.is_floating_point():
        return (outputs.reshape(targets.shape) - targets).square().reshape(len(targets), -1)
    return (outputs.argmax(1) == targets).float()


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value


def _length(epochs: float | None, steps: int | None) -> dict[str, float | None]:
    if (epochs is None) == (steps is None):
        raise OptionError("give either epochs or steps")
    return {
        "number of epochs": None if epochs is None else positive("the number of epochs", epochs),
        "number of steps": None if steps is None else _whole("the number of steps", steps),
    }


def _whole(name: str, value: Any, *, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def _named(value: Any, known: Mapping[str, _T], what: str) -> _T:
    if callable(value):
        return value
    if not isinstance(value, str) or value not in known:
        raise OptionError(f"there is no {what} {value!r}", hint=did_you_mean(str(value), known))
    return known[value]


def _device(name: str) -> torch.device:
    """Return a device if something can be put there."""
    try:
        return torch.zeros(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise OptionError(f"there is no device {name!r}", hint="cpu, or cuda where there is a GPU") from error

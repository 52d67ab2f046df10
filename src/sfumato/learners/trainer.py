"""Private training from beginning to end: samples, steps, accounts, charges and checkpoints."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._errors import FileError, OptionError, did_you_mean
from sfumato.budget.accounting import Spent, check_delta, spent
from sfumato.budget.events import Event, Relation
from sfumato.budget.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.learners import checkpoint as checkpoints
from sfumato.learners.clipping import Clipper, Loss, cross_entropy, squared_error
from sfumato.learners.descent import Rule, Schedule, Sgd, schedule_of
from sfumato.learners.plan import Stage, events_of, plan
from sfumato.learners.sampling import Full, Poisson, Sampler
from sfumato.learners.steps import AdaptiveClip, HostNoise, Step
from sfumato.learners.together import Alone, Together
from sfumato.learners.vetting import check, make_private, refuse_mixing

__all__ = ["Report", "Trainer"]

LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "squared-error": squared_error}
_PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}
_FILL = 8  # batches are filled up to multiples of it, so that few shapes occur
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
    epsilon: float
    seconds: float
    score: float | None = None
    """Accuracy, or the mean squared error, on the validation data."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values; an unbounded epsilon is the text "inf"."""
        return {**vars(self), "epsilon": "inf" if self.epsilon == math.inf else self.epsilon}


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
        Trains a copy of the module with group normalisation in the place of batch normalisation.
    device : str, optional
    seed : int, optional
        Makes augmentation and dropout reproducible, not the noise.
    insecure_seed : int, optional
        Makes noise and samples reproducible: the result is then not private.
    ledger : Ledger, optional
        Charged before the steps are run, an epoch at a time.
    checkpoint : str or Path, optional
        Written after every epoch; a training that was interrupted continues from it.
    together : bool
        Whether this is one of several processes of ``torch.distributed`` that train one model.

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
        if views > 1 and augment is None:
            raise OptionError("several views of a sample need augment")
        self.epsilon = None if epsilon is None else _positive("epsilon", epsilon, infinite=True)
        self.delta = check_delta(delta)
        self._noise = None if noise_multiplier is None else _positive("the noise multiplier", noise_multiplier)
        self.clip = _positive("the clip", clip)
        self.batch_size = None if batch_size is None else _whole("the batch size", batch_size)
        self._wanted = _length(epochs, steps)
        self.rule = rule or Sgd(learning_rate=0.1, momentum=0.9)
        self.loss = _named(loss, LOSSES, "loss")
        self.schedule, self.noise_schedule = schedule_of(schedule), schedule_of(noise_schedule)
        if averaging is not None and not 0 < averaging < 1:
            raise OptionError(f"averaging must be a number between 0 and 1, got {averaging!r}")
        self.averaging, self.augment, self.views = averaging, augment, _whole("the number of views", views)
        self.adaptive = adaptive
        self.micro_batch = None if micro_batch is None else _whole("the micro-batch", micro_batch)
        self.precision = None if precision is None else _named(precision, _PRECISIONS, "precision")
        self.layout = None if layout == "auto" else _named(layout, _LAYOUTS, "layout")
        if self.private:
            module = make_private(module) if replace else module
            check(module)
        self.device = torch.device(device)
        self.module = module.to(self.device)
        self.seed, self.insecure_seed = seed, insecure_seed
        self.ledger, self.checkpoint = ledger, None if checkpoint is None else Path(checkpoint)
        self.crew = Together() if together else Alone()
        self.history: list[Report] = []
        self.done = 0
        """How many steps were made."""
        self.sampler: Sampler | None = None
        """Known when the number of samples is."""
        self._ran: list[Stage] = []
        self._plan: list[Stage] | None = None
        self._step: Step | None = None
        self._more: float | None = None
        self._extended = False
        self._own: Tensor | None = None  # the weights themselves, where the module has their average

    # --- what it costs ---

    @property
    def private(self) -> bool:
        """Whether samples are clipped and noise is added."""
        return self.epsilon != math.inf

    @property
    def events(self) -> tuple[Event, ...]:
        """What was done with the data so far, for the accountant."""
        return tuple(events_of(self.sampler, self._ran)) if self.private and self.sampler else ()

    @property
    def spent(self) -> Spent:
        """What the steps so far cost together."""
        if not self.private and self.done:
            return Spent(math.inf, self.delta, Relation.ADD_REMOVE, "pld", ())
        return spent(self.events, self.delta)

    @property
    def noise_multiplier(self) -> float | None:
        """The deviation of the noise in clips at this point; None before it is known, 0 without privacy."""
        stages = self._plan or self._ran[-1:]
        return stages[0].noise_multiplier if stages else self._noise

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
            All samples; batches are drawn here, so that their event is known.
        validation : tuple, optional
            Inputs and targets to score on. If they are private, their score is one more release, not
            covered by epsilon.
        progress : callable, optional
            Told the share that is done, from 0 to 1.
        report : callable, optional
            Told a `Report` after each epoch.
        stop : callable, optional
            Told each report; true ends the training. Only the steps that were made are accounted for.
        """
        data, labels = self._read(inputs, targets)
        held = None if validation is None else self._read(*validation)
        step, sampler = self._begin(data, labels)
        every = max(1, round(sampler.rows / sampler.expected))
        total = self.done + sum(stage.steps for stage in self._plan or ())
        source = self._source("samples")
        began = time.monotonic()
        self.module.train()
        with step.running():
            self._restore(step)
            while self._plan:
                stage = self._plan[0]
                block = min(stage.steps, every - self.done % every)
                self._charge(sampler, stage, block)
                losses = []
                for _ in range(block):
                    losses.append(self._one(step, sampler, data, labels, stage, self.done / total, source))
                    self.done += 1
                    if progress:
                        progress(self.done / total)
                self._note(stage, block)
                with step.averaged():
                    score = None if held is None else self.score(*held)
                told = Report(
                    epoch=math.ceil(self.done / every),
                    step=self.done,
                    loss=self.crew.mean(torch.stack(losses).nanmean()),
                    epsilon=self.spent.epsilon,
                    seconds=time.monotonic() - began,
                    score=score,
                )
                self.history.append(told)
                self._save(step)
                if report:
                    report(told)
                if self.crew.any(bool(stop and stop(told))):
                    break
            self._own = step.flat.values.clone()
            if step.average is not None:
                step.flat.values.copy_(step.average)
        return self.history

    def extend(self, *, epochs: float | None = None, steps: int | None = None, epsilon: float | None = None) -> Self:
        """Plan more steps, with more budget; the next `fit` makes them.

        Without an epsilon the noise stays as it was, and the cost grows. With one, the new total, the
        noise is chosen so that all steps together cost at most that.
        """
        self._wanted = _length(epochs, steps)
        self._more = None if epsilon is None else _positive("epsilon", epsilon)
        self._plan, self._extended = None, True
        return self

    def score(self, inputs: Any, targets: Any) -> float:
        """Return the accuracy, or the mean squared error, on other data."""
        data, labels = self._read(inputs, targets)
        training = self.module.training
        self.module.eval()
        found = []
        with torch.no_grad():
            for some, theirs in zip(data.split(1024), labels.split(1024), strict=True):
                outputs = self.module(self._laid_out(some.to(self.device)))
                found.append(_scored(outputs, theirs.to(self.device)))
        self.module.train(training)
        return float(torch.cat(found).mean())

    def _one(
        self, step: Step, sampler: Sampler, data: Tensor, labels: Tensor, stage: Stage, way: float, source: Source
    ) -> Tensor:
        """Make one step; an empty batch is one too."""
        if self.insecure_seed is not None:  # every step begins anew, so that a run can be continued
            source, step.noise = self._source("samples"), HostNoise(self._source("noise"))
        some, theirs, weights = self._drawn(self.crew.mine(sampler, len(data)), data, labels, source)
        if self.augment is not None and len(some):
            some = torch.stack([self.augment(some) for _ in range(self.views)], 1).flatten(0, 1)
            theirs = theirs.repeat_interleave(self.views, 0)
        noise = stage.noise_multiplier
        if self.adaptive and self.private:
            noise = self.adaptive.for_sum(noise, sampler.expected)
        rate = self.rule.learning_rate * self.schedule(way)
        return step(self._laid_out(some), theirs, weights, rate, noise, noisy=self.crew.first)

    def _drawn(
        self, sampler: Sampler, data: Tensor, labels: Tensor, source: Source
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Draw a batch, filled up with samples of weight 0."""
        if isinstance(sampler, Full):
            return data, labels, None
        taken = sampler.draw(source)
        lacking = -len(taken) % _FILL
        rows = torch.from_numpy(np.pad(taken, (0, lacking))).to(data.device)
        weights = torch.ones(len(rows), device=data.device, dtype=data.dtype if data.is_floating_point() else None)
        weights[len(taken) :] = 0
        return data[rows], labels[rows], weights if lacking else None

    # --- beginning, ending, and between ---

    def _begin(self, data: Tensor, labels: Tensor) -> tuple[Step, Sampler]:
        rows = self.crew.total(len(data))
        check_delta(self.delta, rows)
        if self.batch_size is not None and self.batch_size > rows:
            raise OptionError(f"the batch size must be at most the number of samples, {rows:,}, got {self.batch_size}")
        sampler = Full(rows) if self.batch_size is None else Poisson(rows, self.batch_size / rows)
        if self.sampler not in (None, sampler):
            raise OptionError("a training continues with as many samples as it began with")
        self.sampler = sampler
        if self._step is None:
            self._step = self._made(sampler, data, labels)
            self._resume(self._step)
        if self._plan is None:
            self._plan = self._planned(sampler)
        return self._step, sampler

    def _made(self, sampler: Sampler, data: Tensor, labels: Tensor) -> Step:
        if self.seed is not None:
            torch.manual_seed(self.seed)
        if self.private:
            refuse_mixing(self.module, data)
        self._refuse_labels(data, labels)
        if self.layout is None:
            self.layout = self._fastest_layout(data, sampler)
        if data.dim() == 4:
            laid_out(self.module, self.layout)
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

    def _planned(self, sampler: Sampler) -> list[Stage]:
        """Return the stages to come."""
        epochs, steps = self._wanted
        count = steps if steps is not None else max(1, round((epochs or 0) * sampler.rows / sampler.expected))
        if not self.private:
            return [Stage(count, 0.0)]
        target, noise = self.epsilon, self._noise
        if self._ran:  # more of it
            target, noise = self._more, self._ran[-1].noise_multiplier
        return plan(
            sampler,
            count,
            self.noise_schedule,
            delta=self.delta,
            epsilon=target,
            noise_multiplier=noise or 1.0,
            past=self.events,
        )

    def _charge(self, sampler: Sampler, stage: Stage, steps: int) -> None:
        """Charge steps before their noise is drawn."""
        ledger = self.ledger
        if ledger is not None and self.private:
            event = sampler.event(stage.noise_multiplier)
            self.crew.once(lambda: ledger.charge(event, times=steps, note="training"))

    def _note(self, stage: Stage, steps: int) -> None:
        """Move steps from what is planned to what ran."""
        left = [Stage(stage.steps - steps, stage.noise_multiplier)] if stage.steps > steps else []
        self._plan = [*left, *(self._plan or [])[1:]]
        if self._ran and self._ran[-1].noise_multiplier == stage.noise_multiplier:
            steps += self._ran.pop().steps
        self._ran.append(Stage(steps, stage.noise_multiplier))

    def _source(self, purpose: str) -> Source:
        """Return where noise or samples come from; with a seed, also by the number of the step."""
        if self.insecure_seed is None:
            return Source()
        mark = ("samples", "noise").index(purpose)
        return Source(insecure_seed=(((self.insecure_seed << 64) + self.done) << 16) + (self.crew.rank << 1) + mark)

    def _restore(self, step: Step) -> None:
        """Put back the weights whose average the module was given."""
        if self._own is not None:
            step.flat.values.copy_(self._own)
        self.crew.same(step.state.values())

    def _settings(self) -> dict[str, Any]:
        """Return what a training cannot change on its way."""
        shapes = {name: list(one.shape) for name, one in self.module.named_parameters() if one.requires_grad}
        return {
            "model": shapes,
            "clip": self.clip if self.private else None,
            "batch_size": self.batch_size,
            "samples": self.sampler.rows if self.sampler else 0,
            "rule": self.rule.to_dict(),
            "views": self.views,
            "averaging": self.averaging,
            "adaptive": None if self.adaptive is None else asdict(self.adaptive),
            "insecure_seed": self.insecure_seed,
        }

    def _save(self, step: Step) -> None:
        if self.checkpoint is None or not self.crew.first:
            return
        buffers = {f"buffer {name}": one for name, one in self.module.named_buffers()}
        checkpoints.save(
            self.checkpoint,
            {**step.state, **buffers, "generator": torch.get_rng_state()},
            {
                "settings": self._settings(),
                "done": self.done,
                "ran": [[stage.steps, stage.noise_multiplier] for stage in self._ran],
                "plan": [[stage.steps, stage.noise_multiplier] for stage in self._plan or ()],
                "history": [vars(report) for report in self.history],
            },
        )

    def _resume(self, step: Step) -> None:
        if self.checkpoint is None or not self.checkpoint.exists():
            return
        tensors, facts = checkpoints.load(self.checkpoint)
        for name, value in self._settings().items():
            if facts["settings"].get(name) != value:
                what = "another model" if name == "model" else f"another {name.replace('_', ' ')}"
                raise FileError(
                    f"the checkpoint '{self.checkpoint}' is of a training with {what}",
                    hint="give another file, or train as before",
                )
        with step.running(), torch.no_grad():
            for name, one in step.state.items():
                one.copy_(tensors[name])
            for name, one in self.module.named_buffers():
                one.copy_(tensors[f"buffer {name}"])
        torch.set_rng_state(tensors["generator"])
        self.done = int(facts["done"])
        self._ran = [Stage(*stage) for stage in facts["ran"]]
        self.history = [Report(**told) for told in facts["history"]]
        if self._plan is None and not self._extended:
            self._plan = [Stage(*stage) for stage in facts["plan"]]

    # --- data ---

    def _read(self, inputs: Any, targets: Any) -> tuple[Tensor, Tensor]:
        """Return all samples as tensors; numbers that are not finite are refused."""
        if isinstance(inputs, torch.utils.data.DataLoader):
            raise OptionError(
                "a loader's batches are no Poisson sample, so what they cost cannot be said",
                hint="give all inputs and targets as tensors or arrays",
            )
        data, labels = _tensor(inputs), _tensor(targets)
        if len(data) != len(labels):
            raise OptionError(f"there are {len(data):,} inputs and {len(labels):,} targets")
        for name, one in (("inputs", data), ("targets", labels)):
            if one.is_floating_point() and not bool(one.isfinite().all()):
                raise OptionError(
                    f"the {name} hold numbers that are missing or infinite", hint="fill them in, or leave them out"
                )
        return data, labels

    def _refuse_labels(self, data: Tensor, labels: Tensor) -> None:
        if self.loss is not cross_entropy:
            return
        with torch.no_grad():
            classes = self.module(self._laid_out(torch.zeros_like(data[:1]).to(self.device))).shape[-1]
        if labels.is_floating_point() or bool((labels < 0).any()) or bool((labels >= classes).any()):
            raise OptionError(
                f"targets must be whole numbers from 0 to {classes - 1}, one class per output of the model"
            )

    def _laid_out(self, some: Tensor) -> Tensor:
        some = some.to(self.device)
        return some.contiguous(memory_format=self.layout) if some.dim() == 4 and self.layout else some

    def _fastest_layout(self, data: Tensor, sampler: Sampler) -> torch.memory_format:
        """Try both on random numbers."""
        if data.dim() != 4 or not any(isinstance(one, nn.Conv2d) for one in self.module.modules()):
            return torch.contiguous_format
        size = (min(64, max(1, round(sampler.expected))), *data.shape[1:])
        took: dict[torch.memory_format, float] = {}
        for layout in _LAYOUTS.values():
            module = laid_out(copy.deepcopy(self.module), layout)
            some = torch.randn(size, device=self.device, dtype=data.dtype).contiguous(memory_format=layout)
            with Clipper(module, lambda outputs, _: outputs.flatten(1).square().mean(1)) as clipper:
                clipper(some, some)
                began = time.process_time()
                for _ in range(3):
                    clipper(some, some)
                took[layout] = time.process_time() - began
        return min(took, key=lambda layout: took[layout])


def laid_out(module: nn.Module, layout: torch.memory_format) -> nn.Module:
    """Give the weights of a module a layout in memory."""
    return module.to(memory_format=layout)  # type: ignore[call-overload]


def _tensor(values: Any) -> Tensor:
    found = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    return found.float() if found.dtype in (torch.float64, torch.uint8) and found.dim() > 1 else found


def _scored(outputs: Tensor, targets: Tensor) -> Tensor:
    if targets.is_floating_point():
        return (outputs.reshape(targets.shape) - targets).square().flatten(1 if targets.dim() > 1 else 0)
    return (outputs.argmax(1) == targets).float()


def _length(epochs: float | None, steps: int | None) -> tuple[float | None, int | None]:
    if (epochs is None) == (steps is None):
        raise OptionError("give either epochs or steps")
    return (
        None if epochs is None else _positive("the number of epochs", epochs),
        None if steps is None else _whole("the number of steps", steps),
    )


def _positive(name: str, value: Any, *, infinite: bool = False) -> float:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not number > 0 or (number == math.inf and not infinite):
        raise OptionError(f"{name} must be a number above 0, got {value!r}")
    return number


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"{name} must be a whole number of at least 1, got {value!r}")
    return value


def _named(value: Any, known: Mapping[str, _T], what: str) -> _T:
    if callable(value):
        return value
    if value not in known:
        raise OptionError(f"there is no {what} {value!r}", hint=did_you_mean(str(value), known))
    return known[value]

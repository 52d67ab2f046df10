"""Private training from beginning to end: draw, clip, add noise, follow; pay before and save after."""

from __future__ import annotations

import importlib.util
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from sfumato.budget.accounting.accountant import Spent
from sfumato.budget.events import Event
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.data.io.files import refuse_unwritable
from sfumato.data.io.fingerprint import user_hmac
from sfumato.data.validate import real
from sfumato.errors import OptionError
from sfumato.learners.dpsgd import checkpoint as checkpoints
from sfumato.learners.dpsgd.account import Account
from sfumato.learners.dpsgd.distributed import Alone, Together
from sfumato.learners.dpsgd.module_checks import check, make_private, refuse_mixing
from sfumato.learners.dpsgd.optimizers import Rule, Schedule, Sgd, schedule_of
from sfumato.learners.dpsgd.options import device_of, named, whole
from sfumato.learners.dpsgd.progress import PublicReport, Report, scored
from sfumato.learners.dpsgd.rounded_noise import HostNoise, NoiseMaker
from sfumato.learners.dpsgd.sample_independence import refuse_mixing_augment, refuse_mixing_loss
from sfumato.learners.dpsgd.samples import Samples, in_mode
from sfumato.learners.dpsgd.sampling import FixedPoisson, Full, Poisson, Sampler
from sfumato.learners.dpsgd.steps import AdaptiveClip, Step
from sfumato.learners.gpu.memory_format import LAYOUTS, arranged, fastest_layout, in_layout
from sfumato.learners.gradients.clipping import Loss, cross_entropy, squared_error

__all__ = ["Report", "Trainer"]

LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "squared-error": squared_error}
_MOST_REPORTS = 50  # of a training: one of more epochs is charged, scored and saved every few of them
_FEW_MORE = 32  # a batch on a GPU has room for one in so many more samples than are declared
_PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}


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
    rows : int, optional
        The public number of samples, from which the sampling rate, the number of steps and the divisor of a
        batch are computed; each sample is taken with that rate, however many there are. By default the actual number,
        which then counts as public.
    rule : Rule
        `Sgd` or `Adam`.
    loss : str or callable
        "cross-entropy", "squared-error", or a function that gives one number per sample. It is tried on random
        outputs and targets, and refused if the loss of one sample depends on another.
    schedule : str or callable
        The course of the learning rate: "constant", "linear", "cosine", "warm-cosine".
    noise_schedule : str or callable
        The course of the noise: where the factor is small, more of the budget is spent.
    averaging : float, optional
        The decay of an average of the weights, which then is the result; it costs no privacy.
    augment : callable, optional
        Changes a batch of samples at random, each on its own; called once per view. It is tried on random samples,
        and refused if the view of one depends on another (mixup, cutmix). Random numbers must come from torch, from
        ``np.random`` or from ``random``; otherwise wrap it in `OneByOne`.
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
        options, with the same samples and by the same user. Steps that were made after it was written are
        lost, and stay charged.
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

    least_dimensions = 0
    """How many numbers with noise a step is charged for at least; for what has to be known before the module is."""

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
        rows: int | None = None,
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
        self._account = Account(
            epsilon=epsilon,
            noise_multiplier=noise_multiplier,
            delta=delta,
            epochs=epochs,
            steps=steps,
            course=schedule_of(noise_schedule),
            ledger=ledger,
        )
        self.clip = real("the clip", clip, above=0)
        self.batch_size = None if batch_size is None else whole("the batch size", batch_size)
        self.rows = None if rows is None else whole("the number of rows", rows)
        self.rule = rule or Sgd(learning_rate=0.1, momentum=0.9)
        if not isinstance(self.rule, Rule):
            raise OptionError(f"the rule must be one like Sgd() or Adam(), got {rule!r}")
        self.loss, self.schedule = named("loss", loss, LOSSES), schedule_of(schedule)
        if averaging is not None and not (isinstance(averaging, float) and 0 < averaging < 1):
            raise OptionError(f"averaging must be a number between 0 and 1, got {averaging!r}")
        self.averaging, self.augment, self.views = averaging, augment, whole("the number of views", views)
        if self.views > 1 and augment is None:
            raise OptionError("several views of a sample need augment")
        if adaptive is not None and not isinstance(adaptive, AdaptiveClip):
            raise OptionError(f"adaptive must be an AdaptiveClip(), got {adaptive!r}")
        self.adaptive = adaptive if self.private else None
        self.micro_batch = None if micro_batch is None else whole("the micro-batch", micro_batch)
        self.precision = None if precision is None else named("precision", precision, _PRECISIONS)
        self.layout = named("layout", layout, {name: name for name in ("auto", *LAYOUTS)})
        self.seed = None if seed is None else whole("the seed", seed, least=0)
        self.insecure_seed = None if insecure_seed is None else whole("the seed of noise", insecure_seed, least=0)
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self.crew = Together() if together else Alone()
        self.device = device_of(device)
        module = make_private(module) if replace else module
        if self.private:
            check(module)
        self.module = module.to(self.device)
        self.history: list[Report] = []
        self._step: Step | None = None
        self._own: Tensor | None = None  # the weights themselves, where the module has their average
        self._data: str | None = None  # the fingerprint of the samples, where there is a checkpoint

    # --- what it costs ---

    @property
    def private(self) -> bool:
        """Whether samples are clipped and noise is added."""
        return self._account.private

    @property
    def done(self) -> int:
        """How many steps were made; one that was interrupted counts."""
        return self._account.progress.done

    @property
    def events(self) -> tuple[Event, ...]:
        """What was done with the data so far, for the accountant."""
        return self._account.events

    @property
    def spent(self) -> Spent:
        """What the steps so far cost together."""
        return self._account.spent

    @property
    def noise_multiplier(self) -> float | None:
        """The deviation of the noise in clips at this point; None before it is known, 0 without privacy."""
        return self._account.noise_multiplier

    def to_dict(self) -> dict[str, Any]:
        """Return how the weights were made and what they cost, as plain values.

        Of a private training it holds neither losses nor scores, so it can be released with the weights.
        """
        sampler = self._account.sampler
        return {
            **self.spent.bound(),
            "noise_multiplier": self.noise_multiplier,
            "clip": self.clip if self.private else None,
            "sampling": {**({**sampler.to_dict(), "rows": sampler.rows} if sampler else {}), "steps": self.done},
            "rule": self.rule.to_dict(),
            "private": self.private and self.insecure_seed is None,
            "events": [event.to_dict() for event in self.events],
            "history": [(one.without_data() if self.private else one).to_dict() for one in self.history],
        }

    # --- training ---

    def fit(
        self,
        inputs: Any,
        targets: Any,
        *,
        validation: tuple[Any, Any] | None = None,
        public_validation: bool = False,
        progress: Callable[[float], None] | None = None,
        report: Callable[[Report], None] | None = None,
        stop: Callable[[Any], bool] | None = None,
    ) -> list[Report]:
        """Train, and return a report per epoch, or per few epochs if there are more than 50.

        A training that was interrupted goes on; one that has ended makes no more steps unless it is
        extended. Whatever happens, the module is left with weights and modes of its own.

        Parameters
        ----------
        inputs, targets : Tensor or array
            All samples; batches are drawn here, so that their event is known. Bytes become numbers,
            and whole numbers stay what they are, for a model that takes words.
        validation : tuple, optional
            Inputs and targets to score on. If they are private, their score is one more release, not
            covered by epsilon.
        public_validation : bool
            Declares the validation data public, so that ``stop`` may use their score.
        progress : callable, optional
            Called with the fraction of steps done, from 0 to 1.
        report : callable, optional
            Called with a `Report` after each epoch. Like the returned reports and ``history``, it holds losses and
            scores of private data without noise, for the data owner alone: do not release them nor act on them.
        stop : callable, optional
            Called after each epoch; true ends the training. In a private training it gets a `PublicReport`: epoch,
            step, epsilon and seconds, but neither the loss nor the score on private data. When to stop is then
            decided without the data, so only the steps made are accounted for, and the next `fit` makes the others.

            With ``public_validation`` it gets the score too. The data of that score are public, but the weights are
            noisy, so the moment of the stop depends on the noise. Therefore all planned steps are charged at the
            beginning and accounted for, however early it stops, and then the training has ended.
            ``stop`` must not look at private data by other ways, such as the reports.
        """
        if public_validation and validation is None:
            raise OptionError("public_validation needs validation data")
        by_score = self.private and stop is not None and public_validation
        with in_mode(self.module, training=True):
            with self.crew.agreeing():
                samples = Samples.of(inputs, targets, self.module, self.loss)
                held = None if validation is None else Samples.of(*validation, self.module, self.loss)
                if self.private:
                    self._refuse_mixing(samples)
            step, sampler = self._begin(samples)
            epoch = max(1, round(sampler.rows / sampler.expected))
            every = epoch * math.ceil(self._account.progress.total / epoch / _MOST_REPORTS)
            source, began = self._source("samples"), time.monotonic()
            account, losses = self._account, list[Tensor]()
            if by_score:
                account.pay_all(self.crew, seeded=self.insecure_seed is not None)
            with in_layout(self.module, self._memory), step.running(), self._continued(step):
                graph = self._graph(step, sampler, samples)
                while account.progress.ahead:
                    account.pay(every, self.crew, seeded=self.insecure_seed is not None)
                    losses.append(self._one(step, sampler, samples, source, graph))
                    if progress:
                        progress(self.done / account.progress.total)
                    if self.done % every and account.progress.ahead:
                        continue
                    told = self._told(step, epoch, losses, held, time.monotonic() - began)
                    losses.clear()
                    self.history.append(told)
                    self.crew.once(lambda: self._save(step, sampler))
                    if report:
                        report(told)
                    if self.crew.any(bool(stop and stop(self._public(told, public_validation)))):
                        if by_score:
                            account.progress.waive()
                        break
        return self.history

    def extend(self, *, epochs: float | None = None, steps: int | None = None, epsilon: float | None = None) -> Self:
        """Plan more steps, in the place of those that are left; the next `fit` makes them.

        Without an epsilon the noise stays as it was, and the cost grows. With one, the new total, the
        noise is chosen so that all steps together cost at most that.
        """
        self._account.extend(epochs, steps, epsilon)
        return self

    def score(self, inputs: Any, targets: Any) -> float:
        """Return the accuracy, or the mean squared error, on other data."""
        return self._score(Samples.of(inputs, targets, self.module, self.loss))

    def _score(self, samples: Samples) -> float:
        found = []
        with in_mode(self.module, training=False), torch.no_grad():
            for part in samples.parts():
                some, targets, _ = part.at(self.device, self._memory)
                found.append(scored(self.module(some), targets))
        return float(torch.cat(found).mean())

    def _one(self, step: Step, sampler: Sampler, samples: Samples, source: Source, graph: Any = None) -> Tensor:
        """Make one step (Abadi et al. 2016, algorithm 1); an empty batch is one too."""
        way = self.done / self._account.progress.total
        rate = self.rule.learning_rate * self.schedule(way)
        if self.insecure_seed is not None:  # every step begins anew, so that a run can be continued
            source, step.noise = self._source("samples"), HostNoise(self._source("noise"))
        noise = self._account.begin()
        if self.adaptive:
            noise = self.adaptive.for_sum(noise, sampler.expected)
        if graph is not None:
            return graph(rate, noise).clone()
        weight = step.flat.values.dtype if self.private else None  # without privacy, layers may mix samples
        drawn = samples.batch(sampler, source, weight)
        seen = drawn.at(self.device, self._memory).viewed(self.augment, self.views)
        return step(arranged(seen.inputs, self._memory), seen.targets, seen.weights, rate, noise, noisy=self.crew.first)

    @property
    def _memory(self) -> torch.memory_format:
        return LAYOUTS.get(self.layout, torch.contiguous_format)

    def _told(self, step: Step, epoch: int, losses: list[Tensor], held: Samples | None, seconds: float) -> Report:
        with step.averaged():
            score = None if held is None else self._score(held)
        return Report(
            epoch=math.ceil(self.done / epoch),
            step=self.done,
            loss=self.crew.mean(torch.stack(losses).nanmean()),
            epsilon=self.spent.epsilon,
            seconds=seconds,
            score=score,
        )

    def _public(self, told: Report, public_validation: bool) -> Report | PublicReport:
        """Return what may decide on the end of the training."""
        if not self.private:
            return told
        score = told.score if public_validation else None
        return PublicReport(told.epoch, told.step, told.epsilon, told.seconds, score)

    # --- before the steps, and between them ---

    def _refuse_mixing(self, samples: Samples) -> None:
        """Refuse a model, a loss or an augmentation that mixes samples, tried on random numbers."""
        example = samples.inputs[:1].to(self.device)
        refuse_mixing(self.module, example)
        refuse_mixing_loss(self.module, self.loss, samples.inputs[:3].to(self.device), samples.targets[:1])
        if self.augment is not None:
            refuse_mixing_augment(self.augment, example)

    def _begin(self, samples: Samples) -> tuple[Step, Sampler]:
        """Return the step and the sampler, with a checkpoint read and the steps planned."""
        rows = self.crew.total(len(samples)) if self.rows is None else self.rows
        trained = sum(one.numel() for one in self.module.parameters() if one.requires_grad)
        noisy = {"dimensions": max(trained + (self.adaptive is not None), self.least_dimensions)}
        sampler: Sampler = Full(rows, **noisy)
        if self.batch_size is not None:
            if self.batch_size > rows:
                raise OptionError(
                    f"the batch size must be at most the number of samples, {rows:,}, got {self.batch_size}"
                )
            sampler = Poisson(rows, self.batch_size / rows, **noisy)
            if self._is_graphed:
                most = rows if self.rows is None else rows + rows // _FEW_MORE
                sampler = FixedPoisson.of(sampler, self._account.delta, self._account.up_to, most)
                if self.private and (self._account.asked["epsilon"] or 0) > sampler.up_to:
                    raise OptionError(f"on a GPU this training can be extended to an epsilon of {sampler.up_to:g}")
        self._account.refuse(sampler)
        if self.checkpoint is not None:
            self._data = _fingerprint(samples)
        step = self._step = self._step or self._resumed(sampler, samples)
        self._account.open(sampler)
        if self.adaptive:
            for stage in self._account.progress.ahead:
                self.adaptive.for_sum(stage.noise_multiplier, sampler.expected)  # refused now rather than half way
        return step, sampler

    def _made(self, sampler: Sampler) -> Step:
        """Make the step; the module is in its layout."""
        return Step(
            self.module,
            self.loss,
            self.rule,
            self._noise(),
            clip=self.clip if self.private else None,
            expected=sampler.expected,
            views=self.views,
            adaptive=self.adaptive,
            averaging=self.averaging,
            micro_batch=self.micro_batch,
            precision=self.precision,
            reduce=self.crew.reduce,
            share=self.crew.share,
        )

    @property
    def _is_graphed(self) -> bool:
        """Whether steps are one CUDA graph: on a GPU, if nothing in them is up to Python."""
        plain = self.augment is None and self.micro_batch is None and self.insecure_seed is None
        return self._has_kernels and plain and self.batch_size is not None and isinstance(self.crew, Alone)

    @property
    def _has_kernels(self) -> bool:
        return self.device.type == "cuda" and importlib.util.find_spec("triton") is not None

    def _noise(self) -> NoiseMaker:
        if self._has_kernels and self.insecure_seed is None:
            from sfumato.learners.gpu.chacha import DeviceNoise

            return DeviceNoise(self.device)
        return HostNoise(self._source("noise"))

    def _graph(self, step: Step, sampler: Sampler, samples: Samples) -> Any:
        """Return what makes a step as one CUDA graph, where that can be."""
        if not isinstance(sampler, FixedPoisson) or len(samples) > sampler.most:
            return None
        from sfumato.learners.gpu.cuda_graph import GraphedStep

        inputs, targets = samples.inputs.to(self.device), samples.targets.to(self.device)
        return GraphedStep(step, inputs, targets, sampler, self._memory)

    @contextmanager
    def _continued(self, step: Step) -> Iterator[None]:
        """Go on from the weights themselves, and leave the module their average, if there is one."""
        if self._own is not None:
            step.flat.values.copy_(self._own)
        self.crew.same([*step.state.values(), *checkpoints.fixed(self.module).values()])
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
            "delta": self._account.delta,
            "batch size": self.batch_size,
            "number of samples": sampler.rows,
            "set of samples": self._data,
            "rule": self.rule.to_dict(),
            "number of views": self.views,
            "averaging": self.averaging,
            "adaptive clip": None if self.adaptive is None else asdict(self.adaptive),
            "seed of the noise": self.insecure_seed,
            **({} if self.layout == "auto" else {"layout": self.layout}),
            **({} if self._account.extended else self._account.asked),
        }

    def _save(self, step: Step, sampler: Sampler) -> None:
        if self.checkpoint is not None:
            settings = {**self._settings(sampler), **self._account.asked}
            facts = {"settings": settings, **self._account.to_dict(), "history": list(map(vars, self.history))}
            checkpoints.save(self.checkpoint, checkpoints.state_of(step), facts)

    def _resumed(self, sampler: Sampler, samples: Samples) -> Step:
        """Return the step, as a checkpoint has it if there is one."""
        tensors: dict[str, Tensor] = {}

        def read() -> dict[str, Any]:
            """Return what all processes have to know."""
            if self.checkpoint is not None:
                refuse_unwritable(self.checkpoint)
            if self.checkpoint is None or not self.checkpoint.exists():
                return {"settings": {"layout": self._fastest(samples, sampler)}}
            held, facts = checkpoints.load(self.checkpoint)
            checkpoints.refuse_other(self.checkpoint, facts["settings"], self._settings(sampler))
            tensors.update(held)
            return facts

        facts = self.crew.once(read)
        self.layout = facts["settings"]["layout"]
        with in_layout(self.module, self._memory):
            step = self._made(sampler)
            if self.seed is not None:
                torch.manual_seed(self.seed)
            if tensors:
                checkpoints.put_back(step, tensors)
        if "history" in facts:
            self._account.continue_from(facts)
            self.history = [Report(**told) for told in facts["history"]]
        return step

    def _fastest(self, samples: Samples, sampler: Sampler) -> str:
        if self.layout != "auto":
            return self.layout
        like = torch.zeros(min(64, math.ceil(sampler.expected)), *samples.inputs.shape[1:], dtype=samples.inputs.dtype)
        return fastest_layout(self.module, like.to(self.device), private=self.private)


def _fingerprint(samples: Samples) -> str:
    """Return what only this user can compare, so that a training never goes on with the samples of another."""
    mac = user_hmac()
    for one in (samples.inputs, samples.targets):
        mac.update(json.dumps([list(one.shape), str(one.dtype)]).encode())
        mac.update(one.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return f"hmac-sha256:{mac.hexdigest()}"

"""Private training with DP-SGD: sample, clip, add noise, update; charge the ledger before, save afterwards."""

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

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.budget.accounting.accountant import Spent
from sfumato.budget.events import Event
from sfumato.budget.ledger.ledger import Ledger
from sfumato.budget.noise import Source
from sfumato.budget.people import draw_rows
from sfumato.data.io.files import refuse_unwritable
from sfumato.data.io.fingerprint import user_hmac
from sfumato.data.validate import by_name, real, whole
from sfumato.errors import OptionError
from sfumato.learners.dpsgd import checkpoint as checkpoints
from sfumato.learners.dpsgd.account import RunAccount
from sfumato.learners.dpsgd.distributed import Distributed, SingleProcess
from sfumato.learners.dpsgd.module_checks import check, refuse_mixing
from sfumato.learners.dpsgd.optimizers import Optimizer, Sgd, schedule_of
from sfumato.learners.dpsgd.progress import PublicReport, Report, sample_scores
from sfumato.learners.dpsgd.sample_independence import refuse_mixing_augment, refuse_mixing_loss
from sfumato.learners.dpsgd.samples import Samples, in_mode
from sfumato.learners.dpsgd.sampling import FixedPoisson, Full, Poisson, Sampler
from sfumato.learners.dpsgd.steps import AdaptiveClip, HostNoise, NoiseMaker, Step
from sfumato.learners.gradients.clipping import (
    MEMORY_FORMATS,
    Loss,
    cross_entropy,
    fastest_memory_format,
    in_memory_format,
    squared_error,
    to_memory_format,
)
from sfumato.learners.options import Optimization, Privacy, Speed

__all__ = ["Report", "Trainer", "device_of"]

LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "squared-error": squared_error}
_MOST_REPORTS = 50  # a run of more epochs is charged, scored and saved every few epochs
_FEW_MORE = 32  # on a GPU, batches have room for 1/32 more samples than declared
_FOR_ROWS = 2**131  # apart from the seeds of samples and noise
_DRAWN = "rows drawn"


class Trainer:
    """Trains a torch module with differential privacy (DP-SGD: Abadi et al. 2016).

    Epsilon and delta bound what the trained weights reveal about any one sample, for neighbours that differ by adding
    or removing one sample (or one person with all of their samples: see `fit`). Sampler, noise and accountant belong
    together: the sampler defines the event of a step.

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place. A layer that mixes samples raises a `ModelError` that names its replacement.
    epsilon : float, optional
        The target, never exceeded; infinity trains without privacy. Give this or ``Privacy(noise_multiplier=...)``.
    delta : float
        Must be below one over the number of samples.
    clip : float or AdaptiveClip
        The largest norm of a sample's gradient. An `AdaptiveClip` follows a quantile of the norms; that is charged.
    batch_size : int, optional
        The average number of samples per step, each drawn with the same probability. By default all.
    epochs : float, optional
        How often each sample is drawn on average. Give this or ``steps``.
    steps : int, optional
    optimizer : Sgd or Adam, optional
        By default `Sgd` with a learning rate of 0.1 and momentum 0.9.
    ledger : Ledger, optional
        Charged before the steps run, one epoch at a time.
    checkpoint : str or Path, optional
        Written after every epoch. An interrupted run resumes from it, with the same options and samples and for the
        same user. Steps made after it was written are lost, and stay charged.
    privacy : Privacy, optional
        A fixed noise, the public number of samples, a seed.
    optimization : Optimization, optional
        The loss, schedules, averaging, augmentation.
    speed : Speed, optional
        The device, precision, memory format, micro-batches, several processes.

    Examples
    --------
    >>> import torch
    >>> inputs, targets = torch.randn(400, 2), torch.randint(0, 2, (400,))
    >>> trainer = Trainer(
    ...     torch.nn.Linear(2, 2), epsilon=1.0, delta=1e-4, batch_size=40, epochs=2, optimizer=Sgd(learning_rate=0.5)
    ... )
    >>> reports = trainer.fit(inputs, targets)
    >>> [report.step for report in reports]
    [10, 20]
    >>> trainer.spent.epsilon <= 1.0
    True
    """

    least_dimensions = 0
    """The least number of noisy values to charge a step for, for costs that are planned before the module exists."""

    def __init__(
        self,
        module: nn.Module,
        *,
        epsilon: float | None = None,
        delta: float = 1e-5,
        clip: float | AdaptiveClip = 1.0,
        batch_size: int | None = None,
        epochs: float | None = None,
        steps: int | None = None,
        optimizer: Optimizer | None = None,
        ledger: Ledger | None = None,
        checkpoint: str | Path | None = None,
        privacy: Privacy | None = None,
        optimization: Optimization | None = None,
        speed: Speed | None = None,
    ) -> None:
        privacy, how, speed = privacy or Privacy(), optimization or Optimization(), speed or Speed()
        self._account = RunAccount(
            epsilon=epsilon,
            noise_multiplier=privacy.noise_multiplier,  # type: ignore[arg-type]  # several are rejected
            delta=delta,
            epochs=epochs,
            steps=steps,
            course=schedule_of(how.noise_schedule),
            ledger=ledger,
        )
        self.rows, self.insecure_seed = privacy.rows, privacy.insecure_seed
        self.adaptive = clip if isinstance(clip, AdaptiveClip) and self.private else None
        self.clip = real("the clip", clip.start if isinstance(clip, AdaptiveClip) else clip, above=0)
        self.batch_size = None if batch_size is None else whole("the batch size", batch_size)
        self.optimizer = optimizer or Sgd(learning_rate=0.1, momentum=0.9)
        if not isinstance(self.optimizer, Optimizer):
            raise OptionError(f"the optimizer must be one like Sgd() or Adam(), got {optimizer!r}")
        self.loss, self.schedule = by_name("loss", how.loss, LOSSES), schedule_of(how.schedule)
        self.averaging, self.augment, self.views, self.seed = how.averaging, how.augment, how.views, how.seed
        self.micro_batch, self.memory_format = speed.micro_batch, speed.memory_format
        self.precision = None if speed.precision is None else getattr(torch, speed.precision)
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self.processes = Distributed() if speed.distributed else SingleProcess()
        self.device = device_of(speed.device)
        if self.private:
            check(module)
        self.module = module.to(self.device)
        self.history: list[Report] = []
        self._step: Step | None = None
        self._last_weights: Tensor | None = None  # where the module has the averaged ones
        self._data: str | None = None  # the fingerprint of the samples, if there is a checkpoint
        self._drawn: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None  # people, and which of their rows count

    # --- privacy cost ---

    @property
    def private(self) -> bool:
        """Whether gradients are clipped and noise is added."""
        return self._account.private

    @property
    def done(self) -> int:
        """The number of steps begun, including an interrupted one."""
        return self._account.progress.done

    @property
    def events(self) -> tuple[Event, ...]:
        """The events so far, for the accountant."""
        return self._account.events

    @property
    def spent(self) -> Spent:
        """The privacy cost of the steps so far."""
        return self._account.spent

    @property
    def noise_multiplier(self) -> float | None:
        """The current standard deviation of the noise in clips; None before it is known, 0 without privacy."""
        return self._account.noise_multiplier

    def to_dict(self) -> dict[str, Any]:
        """Return how the weights were trained and their privacy cost, as plain values.

        For a private run it contains no losses or scores, so it can be released with the weights.
        """
        sampler = self._account.sampler
        return {
            **self.spent.bound(),
            "noise_multiplier": self.noise_multiplier,
            "clip": self.clip if self.private else None,
            "sampling": {**({**sampler.to_dict(), "rows": sampler.rows} if sampler else {}), "steps": self.done},
            "rule": self.optimizer.to_dict(),
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
        people: Any = None,
        rows_per_person: int | None = None,
        validation: tuple[Any, Any] | None = None,
        public_validation: bool = False,
        progress: Callable[[float], None] | None = None,
        report: Callable[[Report], None] | None = None,
        stop: Callable[[Any], bool] | None = None,
    ) -> list[Report]:
        """Train, and return a report per epoch, or per few epochs if there are more than 50.

        An interrupted run continues; a finished run makes no more steps unless it is extended. The module always gets
        back its own memory and its training mode, also after an error.

        Parameters
        ----------
        inputs, targets : Tensor or array
            All samples, from which the trainer draws the batches. Bytes become floats; other integers keep their type,
            for models that take token ids.
        people : array, optional
            Whose each row is: one whole number per person (see `codes_of_people`), negative for a row of nobody, which
            counts as a person of its own. Epsilon then protects people: steps draw people, and the mean of the
            gradients of a person's rows is clipped. Sizes and numbers of samples are those of people.
        rows_per_person : int, optional
            At most so many rows of each person count, drawn at random and in secret before the first step.
        validation : tuple, optional
            Inputs and targets to score on. If they are private, their score is one more release, not
            covered by epsilon.
        public_validation : bool
            Declares the validation data public, which lets ``stop`` use their score.
        progress : callable, optional
            Called with the fraction of steps done, from 0 to 1.
        report : callable, optional
            Called with a `Report` after each epoch. Like the returned reports and ``history``, it contains losses and
            scores of private data without noise, for the data owner only: do not release them or act on them.
        stop : callable, optional
            Called after each epoch; returning true stops the training. In private training it gets a `PublicReport`:
            epoch, step, epsilon and seconds, but neither the loss nor the score on private data. The decision to stop
            then does not depend on the data, so only the steps made are accounted for, and the next `fit` makes the
            others.

            With ``public_validation`` it gets the score too. The data of that score are public, but the weights are
            noisy, so the stopping time depends on the noise. Therefore all planned steps are charged at the start and
            accounted for, however early the run stops, and the run is then finished.
            ``stop`` must not use private data from elsewhere, such as the reports.
        """
        if public_validation and validation is None:
            raise OptionError("public_validation needs validation data")
        by_score = self.private and stop is not None and public_validation
        with in_mode(self.module, training=True):
            with self.processes.shared_errors():
                if people is not None and self.processes.size > 1:
                    raise OptionError(
                        "several processes cannot protect people together: a person may have rows in two of them"
                    )
                samples = Samples.of(inputs, targets, self.module, self.loss).of_people(people, rows_per_person)
                held_out = None if validation is None else Samples.of(*validation, self.module, self.loss)
                if self.private:
                    self._refuse_mixing(samples)
            step, sampler = self._begin(samples)
            samples = self._that_count(samples)
            epoch = max(1, round(sampler.rows / sampler.expected))
            every = epoch * math.ceil(self._account.progress.total / epoch / _MOST_REPORTS)
            source, began = self._source("samples"), time.monotonic()
            account, losses = self._account, list[Tensor]()
            if by_score:
                account.pay_all(self.processes, seeded=self.insecure_seed is not None)
            with in_memory_format(self.module, self._memory), step.running(), self._unaveraged(step):
                graph = self._graph(step, sampler, samples)
                while account.progress.ahead:
                    account.pay(every, self.processes, seeded=self.insecure_seed is not None)
                    losses.append(self._run_step(step, sampler, samples, source, graph))
                    if progress:
                        progress(self.done / account.progress.total)
                    if self.done % every and account.progress.ahead:
                        continue
                    latest = self._report(step, epoch, losses, held_out, time.monotonic() - began)
                    losses.clear()
                    self.history.append(latest)
                    self.processes.once(lambda: self._save(step, sampler))
                    if report:
                        report(latest)
                    if self.processes.any(bool(stop and stop(self._public(latest, public_validation)))):
                        if by_score:
                            account.progress.waive()
                        break
        return self.history

    def extend(self, *, epochs: float | None = None, steps: int | None = None, epsilon: float | None = None) -> Self:
        """Plan more steps, in place of those that are left; the next `fit` runs them.

        Without an epsilon, the noise stays the same and the cost grows. With an epsilon, the new total, the noise is
        calibrated such that all steps together cost at most that.
        """
        self._account.extend(epochs, steps, epsilon)
        return self

    def score(self, inputs: Any, targets: Any) -> float:
        """Return the accuracy, or the mean squared error, on other data."""
        return self._score(Samples.of(inputs, targets, self.module, self.loss))

    def _score(self, samples: Samples) -> float:
        scores = []
        with in_mode(self.module, training=False), torch.no_grad():
            for part in samples.parts():
                inputs, targets, *_ = part.to(self.device, self._memory)
                scores.append(sample_scores(self.module(inputs), targets))
        return float(torch.cat(scores).mean())

    def _run_step(self, step: Step, sampler: Sampler, samples: Samples, source: Source, graph: Any = None) -> Tensor:
        """Run one step (Abadi et al. 2016, algorithm 1), also on an empty batch, and return its loss."""
        way = self.done / self._account.progress.total
        rate = self.optimizer.learning_rate * self.schedule(way)
        if self.insecure_seed is not None:  # a fresh source per step lets a run resume anywhere
            source, step.noise = self._source("samples"), HostNoise(self._source("noise"))
        noise = self._account.begin()
        if self.adaptive:
            noise = self.adaptive.for_sum(noise, sampler.expected)
        if graph is not None:
            return graph(rate, noise).clone()
        weight = step.flat.values.dtype if self.private else None  # no padding: without privacy, layers may mix samples
        drawn = samples.batch(sampler, source, weight)
        batch = drawn.to(self.device, self._memory).augmented(self.augment, self.views)
        inputs, noisy = to_memory_format(batch.inputs, self._memory), self.processes.first
        return step(inputs, batch.targets, batch.weights, rate, noise, people=batch.people, noisy=noisy)

    @property
    def _memory(self) -> torch.memory_format:
        return MEMORY_FORMATS.get(self.memory_format, torch.contiguous_format)

    def _report(self, step: Step, epoch: int, losses: list[Tensor], held_out: Samples | None, seconds: float) -> Report:
        with step.averaged():
            score = None if held_out is None else self._score(held_out)
        return Report(
            epoch=math.ceil(self.done / epoch),
            step=self.done,
            loss=self.processes.mean(torch.stack(losses).nanmean()),
            epsilon=self.spent.epsilon,
            seconds=seconds,
            score=score,
        )

    def _public(self, report: Report, public_validation: bool) -> Report | PublicReport:
        """Return the part of a report that ``stop`` may use."""
        if not self.private:
            return report
        score = report.score if public_validation else None
        return PublicReport(report.epoch, report.step, report.epsilon, report.seconds, score)

    # --- before the steps, and between them ---

    def _refuse_mixing(self, samples: Samples) -> None:
        """Raise an error if the model, the loss or the augmentation mixes samples; tested on random numbers."""
        example = samples.inputs[:1].to(self.device)
        refuse_mixing(self.module, example)
        refuse_mixing_loss(self.module, self.loss, samples.inputs[:3].to(self.device), samples.targets[:1])
        if self.augment is not None:
            refuse_mixing_augment(self.augment, example)

    def _begin(self, samples: Samples) -> tuple[Step, Sampler]:
        """Read the checkpoint, plan the steps, and return the step and the sampler."""
        rows = self.processes.total(len(samples)) if self.rows is None else self.rows
        trained = sum(one.numel() for one in self.module.parameters() if one.requires_grad)
        noisy, bound = max(trained + (self.adaptive is not None), self.least_dimensions), samples.rows_per_person
        sampler: Sampler = Full(rows, dimensions=noisy, rows_per_person=bound)
        if self.batch_size is not None:
            if self.batch_size > rows:
                raise OptionError(
                    f"the batch size must be at most the number of samples, {rows:,}, got {self.batch_size}"
                )
            sampler = Poisson(rows, self.batch_size / rows, dimensions=noisy, rows_per_person=bound)
            if self._is_graphed and samples.owners is None:
                most = rows if self.rows is None else rows + rows // _FEW_MORE
                sampler = FixedPoisson.of(sampler, self._account.delta, self._account.up_to, most)
                if self.private and (self._account.requested["epsilon"] or 0) > sampler.up_to:
                    raise OptionError(f"on a GPU this training can be extended to an epsilon of {sampler.up_to:g}")
        self._account.check(sampler)
        if self.checkpoint is not None:
            self._data = _fingerprint(samples)
        step = self._step = self._step or self._load_step(sampler, samples)
        self._account.open(sampler)
        if self.adaptive:
            for stage in self._account.progress.ahead:
                self.adaptive.for_sum(stage.noise_multiplier, sampler.expected)  # fail now, not half way
        return step, sampler

    def _that_count(self, samples: Samples) -> Samples:
        """Return the rows that count of each person; a run that continues keeps those that it began with."""
        owners, bound = samples.owners, samples.rows_per_person
        if owners is None or bound is None:
            return samples
        if self._drawn is None or not np.array_equal(self._drawn[0], owners):
            seed = None if self.insecure_seed is None else self.insecure_seed ^ _FOR_ROWS
            self._drawn = owners, draw_rows(owners, bound, Source(insecure_seed=seed))
        return samples.drawn(self._drawn[1])

    def _new_step(self, sampler: Sampler) -> Step:
        """Return a new step; the module must be in its memory format."""
        return Step(
            self.module,
            self.loss,
            self.optimizer,
            self._noise(),
            clip=self.clip if self.private else None,
            expected=sampler.expected,
            views=self.views,
            rows_per_person=sampler.rows_per_person or 1,
            adaptive=self.adaptive,
            averaging=self.averaging,
            micro_batch=self.micro_batch,
            precision=self.precision,
            reduce=self.processes.reduce,
            share=self.processes.share,
        )

    @property
    def _is_graphed(self) -> bool:
        """Whether a step runs as one CUDA graph: on a GPU, in one process, if no part of it runs in Python."""
        plain = self.augment is None and self.micro_batch is None and self.insecure_seed is None
        return self._has_kernels and plain and self.batch_size is not None and self.processes.size == 1

    @property
    def _has_kernels(self) -> bool:
        return self.device.type == "cuda" and importlib.util.find_spec("triton") is not None

    def _noise(self) -> NoiseMaker:
        if self._has_kernels and self.insecure_seed is None:
            from sfumato.learners.gpu.chacha import DeviceNoise

            return DeviceNoise(self.device)
        return HostNoise(self._source("noise"))

    def _graph(self, step: Step, sampler: Sampler, samples: Samples) -> Any:
        """Return the step as one CUDA graph; None if that is not possible."""
        if not isinstance(sampler, FixedPoisson) or len(samples) > sampler.most:
            return None
        from sfumato.learners.gpu.cuda_graph import GraphedStep

        inputs, targets = samples.inputs.to(self.device), samples.targets.to(self.device)
        return GraphedStep(step, inputs, targets, sampler, self._memory)

    @contextmanager
    def _unaveraged(self, step: Step) -> Iterator[None]:
        """Train the last weights, and leave their average in the module afterwards, if there is one."""
        if self._last_weights is not None:
            step.flat.values.copy_(self._last_weights)
        self.processes.broadcast([*step.state.values(), *checkpoints.untrained_tensors(self.module).values()])
        try:
            yield
        finally:
            if step.average is not None:
                self._last_weights = step.flat.values.clone()
                step.flat.values.copy_(step.average)

    def _source(self, purpose: str) -> Source:
        """Return the source of noise or samples; with a seed, a different one for each step."""
        if self.insecure_seed is None:
            return Source()
        mark = ("samples", "noise").index(purpose)
        seed = (((self.insecure_seed << 64) + self.done) << 16) + (self.processes.rank << 1) + mark
        return Source(insecure_seed=seed)

    # --- checkpoints ---

    def _settings(self, sampler: Sampler) -> dict[str, Any]:
        """Return the settings that a resumed run must share, under the names that error messages use."""
        shapes = {name: [list(one.shape), one.requires_grad] for name, one in self.module.named_parameters()}
        adaptive = None if self.adaptive is None else asdict(self.adaptive)
        if adaptive is not None:
            del adaptive["start"]  # the clip
        return {
            "model": {**shapes, **{name: list(one.shape) for name, one in self.module.named_buffers()}},
            "clip": self.clip if self.private else None,
            "delta": self._account.delta,
            "batch size": self.batch_size,
            "number of samples": sampler.rows,
            **({} if sampler.rows_per_person is None else {"bound on the rows of a person": sampler.rows_per_person}),
            "set of samples": self._data,
            "rule": self.optimizer.to_dict(),
            "number of views": self.views,
            "averaging": self.averaging,
            "adaptive clip": adaptive,
            "seed of the noise": self.insecure_seed,
            **({} if self.memory_format == "auto" else {"layout": self.memory_format}),
            **({} if self._account.extended else self._account.requested),
        }

    def _save(self, step: Step, sampler: Sampler) -> None:
        if self.checkpoint is not None:
            settings = {**self._settings(sampler), **self._account.requested}
            facts = {"settings": settings, **self._account.to_dict(), "history": list(map(vars, self.history))}
            drawn = {} if self._drawn is None else {_DRAWN: torch.from_numpy(self._drawn[1])}
            checkpoints.save(self.checkpoint, {**checkpoints.state_of(step), **drawn}, facts)

    def _load_step(self, sampler: Sampler, samples: Samples) -> Step:
        """Return a step, restored from the checkpoint if there is one."""
        tensors: dict[str, Tensor] = {}

        def read() -> dict[str, Any]:
            """Return the facts that all processes need."""
            if self.checkpoint is not None:
                refuse_unwritable(self.checkpoint)
            if self.checkpoint is None or not self.checkpoint.exists():
                return {"settings": {"layout": self._fastest(samples, sampler)}}
            stored, facts = checkpoints.load(self.checkpoint)
            checkpoints.refuse_other_settings(self.checkpoint, facts["settings"], self._settings(sampler))
            tensors.update(stored)
            return facts

        facts = self.processes.once(read)
        self.memory_format = facts["settings"]["layout"]
        with in_memory_format(self.module, self._memory):
            step = self._new_step(sampler)
            if self.seed is not None:
                torch.manual_seed(self.seed)
            if tensors:
                checkpoints.restore(step, tensors)
                if samples.owners is not None:
                    self._drawn = samples.owners, tensors[_DRAWN].numpy()
        if "history" in facts:
            self._account.continue_from(facts)
            self.history = [Report(**report) for report in facts["history"]]
        return step

    def _fastest(self, samples: Samples, sampler: Sampler) -> str:
        if self.memory_format != "auto":
            return self.memory_format
        like = torch.zeros(min(64, math.ceil(sampler.expected)), *samples.inputs.shape[1:], dtype=samples.inputs.dtype)
        return fastest_memory_format(self.module, like.to(self.device), private=self.private)


def device_of(name: str) -> torch.device:
    """Return a device, or raise an `OptionError` if it does not exist."""
    try:
        return torch.zeros(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise OptionError(f"there is no device {name!r}", hint="cpu, or cuda where there is a GPU") from error


def _fingerprint(samples: Samples) -> str:
    """Return a keyed fingerprint of the samples, so a run never resumes with other samples."""
    mac = user_hmac()
    owners = () if samples.owners is None else (torch.from_numpy(samples.owners),)
    for one in (samples.inputs, samples.targets, *owners):
        mac.update(json.dumps([list(one.shape), str(one.dtype)]).encode())
        mac.update(one.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return f"hmac-sha256:{mac.hexdigest()}"

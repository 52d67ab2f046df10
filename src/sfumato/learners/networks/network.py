"""The base of networks with scikit-learn's interface: a module or a named network, trained on a table or images.

The public description of the columns is declared or estimated as for every estimator, and so is the number of records,
which determines the sampling rate, the number of steps and the learning rate. The rest of epsilon goes to DP-SGD (Abadi
et al. 2016). It clips all gradients, so images need no bounds.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.budget.accounting.accountant import check_delta
from sfumato.budget.events import Event
from sfumato.budget.noise import Source
from sfumato.budget.people import BOUGHT, for_people
from sfumato.budget.query.discovery import CountRows
from sfumato.data.io.files import atomic_path, refuse_unwritable, why
from sfumato.data.io.fingerprint import user_hmac
from sfumato.data.validate import by_name, whole
from sfumato.errors import FileError, InputError, ModelError, OptionError, did_you_mean
from sfumato.learners.dpsgd.account import RunAccount, events_of
from sfumato.learners.dpsgd.module_checks import make_private
from sfumato.learners.dpsgd.optimizers import Adam, Optimizer, Schedule, Sgd, schedule_of
from sfumato.learners.dpsgd.progress import Report
from sfumato.learners.dpsgd.samples import in_mode
from sfumato.learners.dpsgd.sampling import Full, Poisson
from sfumato.learners.dpsgd.steps import AdaptiveClip
from sfumato.learners.dpsgd.trainer import Trainer
from sfumato.learners.estimators.estimator import PrivateEstimator, Purchase
from sfumato.learners.estimators.features import Columns, Feature, Undeclared
from sfumato.learners.gradients.clipping import Loss
from sfumato.learners.networks.architectures import ARCHITECTURES, Architecture, ImageInputs, architecture, rebuild
from sfumato.learners.networks.scattering import learning_rate_of, signal_of, signal_of_noise, steps_of
from sfumato.learners.options import Optimization, Privacy, Speed, grouped

__all__ = ["Network", "fingerprint_of"]

Floats = NDArray[np.floating[Any]]
Purchases = Mapping[int, Purchase]

_OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": Sgd, "adam": Adam}
_MORE = ("noise_schedule", "augment", "views", "adaptive", "micro_batch", "precision", "layout", "replace")
_FACTS = ("noise_multiplier", "sampling", "rule")  # facts of the training that are stored
_SCHEDULED = "scattering-linear"  # the model whose steps and learning rate `schedule` chooses
_FOR_ROWS = 0.02  # the share of epsilon for the number of records
_ROWS = -1  # its key among the purchases, whose other keys are positions of columns
_WEIGHTS = 2**24  # rounding is charged for at least this many weights: their number may depend on purchases
_LARGEST = 2**22  # inputs that a stored network may have
_AT_ONCE = 1024  # samples predicted at once


@dataclass(kw_only=True, eq=False, repr=False)
class Network(PrivateEstimator):
    """The common part of classifier and regressor: everything but the target."""

    model: str | nn.Module | Callable[[Any, int], nn.Module] = "mlp"
    model_options: Mapping[str, Any] | None = None
    noise_multiplier: float | None = None
    clip: float = 1.0
    batch_size: int | None = 2048
    epochs: float | None = 30
    rows: int | None = None
    learning_rate: float | None = 0.7
    momentum: float = 0.9
    optimizer: str | Optimizer = "sgd"
    schedule: str | Schedule = "cosine"
    averaging: float | None = None
    knots: int | None = 20
    scale: tuple[Any, Any] | None = None
    trainer_options: Mapping[str, Any] | None = None
    device: str = "cpu"
    seed: int | None = None
    checkpoint: str | Path | None = None

    # --- the target, for subclasses to implement ---

    @property
    def _outputs(self) -> int:
        """The number of outputs of a named network."""
        raise NotImplementedError

    @property
    def _loss(self) -> Loss:
        raise NotImplementedError

    def _loss_target(self, target: Any) -> NDArray[Any]:
        """Return the target in the form that the loss takes."""
        raise NotImplementedError

    def _validation_target(self, target: pl.Series | None) -> Any:
        """Return the target of validation records in the form of `_targets`."""
        raise NotImplementedError

    @property
    def _unit(self) -> float:
        """A loss of 1 in the units of the target."""
        return 1.0

    # --- scikit-learn's interface ---

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        validation: tuple[Any, Any] | None = None,
        progress: Callable[[float], None] | None = None,
        report: Callable[[Report], None] | None = None,
    ) -> Self:
        """Train on records or images; see the class for the privacy cost.

        Parameters
        ----------
        X : Table, frame, array or tensor
        y : sequence or str, optional
            The target, or the name of its column in X.
        validation : tuple, optional
            Another X and y, to score on after each epoch. If they are private, their score is one more release, not
            covered by epsilon.
        progress : callable, optional
            Called with the fraction of steps done, from 0 to 1.
        report : callable, optional
            Called with a `Report` after each epoch.
        """
        columns, target = self._given(X, y)
        public = self._described(columns, target)
        how = self._purchases(public)
        self._check_options(how)
        bought, bound = self._bought(columns, how), self._bound(columns)
        data = None if self.checkpoint is None or not how else fingerprint_of(columns, target)
        stored, charged = self._load_purchases(public, how, bought, data), list[Event]()
        begun = stored is not None or (self.checkpoint is not None and Path(self.checkpoint).exists())
        self._refuse_beyond(() if begun else (*bought, *self._plan(how, self._known_rows(columns), bound)))
        with self._reporting_cost(charged):
            if stored is None:
                rows = self._count(how, columns, charged)
                features = self._estimate_features(public, how, columns, target, charged)
                self._save_purchases(features, rows, how, bought, data)
            else:
                features, rows = stored
            wanted = self._loss_target(self._know(columns, target, features))
            with _seeded(self.seed):
                module = self._new_module(columns)
                inputs = self._inputs(columns)
                trainer = self._trainer(module, how, rows)
                held_out = None if validation is None else self._held_out(*validation)
                if not begun:
                    self._refuse_beyond(self._plan(how, rows, bound))
                try:
                    trainer.fit(
                        inputs,
                        wanted,
                        people=None if columns.people is None or bound is None else columns.people.to_numpy(),
                        rows_per_person=bound,
                        validation=held_out,
                        progress=progress,
                        report=(lambda latest: report(self._total_report(latest, how))) if report else None,
                    )
                finally:
                    charged += trainer.events
            if not all(bool(one.isfinite().all()) for one in trainer.module.parameters()):
                raise ModelError("the training has diverged", hint="use a smaller learning rate")
        self.module_, self.history_ = trainer.module, [self._total_report(one, how) for one in trainer.history]
        training = trainer.to_dict()
        self.noise_multiplier_, self.sampling_, self.rule_ = (training[one] for one in _FACTS)
        return self._end((*bought, *trainer.events))

    def events_of(self, X: Any, y: Any = None) -> tuple[Event, ...]:  # noqa: N803
        """Return the events that `fit` would charge for on a CPU; only names and types of columns are read.

        The cost of training in batches depends on the number of records, so ``rows`` must be declared.
        """
        columns, target = self._given(X, y)
        how = self._purchases(self._described(columns, target))
        self._check_options(how)
        rows = self._known_rows(columns)
        if rows is None:
            raise OptionError(
                "the cost of training in batches depends on the number of rows, which is not declared",
                hint="declare it with rows=, or use all records in every step with batch_size=None",
            )
        return (*self._bought(columns, how), *self._plan(how, rows, self._bound(columns)))

    def _bound(self, columns: Columns) -> int | None:
        """Return how many rows of a person count; None if rows are protected, or nothing is."""
        return None if columns.people is None else self.rows_that_count

    def _there(self, columns: Columns) -> int:
        """Return the number of records, or of people."""
        return columns.rows if self._bound(columns) is None else columns.unit_count

    def _known_rows(self, columns: Columns) -> int | None:
        """Return a number of records with which the training can be planned; None before it is estimated."""
        if self.rows is None and self.is_private:
            known = self.batch_size is None and self.epochs is not None
            return 1 if known else None  # full batches cost the same for any number of records
        return self.rows or self._there(columns)

    def _plan(self, how: Purchases, rows: int | None, bound: int | None) -> tuple[Event, ...]:
        """Return the events of training on this many records, or people; none if the number is not known."""
        if not self.is_private or rows is None:
            return ()
        size = self._batch(rows)
        given = self.model.parameters() if isinstance(self.model, nn.Module) else ()
        trained = sum(one.numel() for one in given if one.requires_grad)
        noisy = max(trained + ("adaptive" in (self.trainer_options or {})), _WEIGHTS)
        more: dict[str, Any] = {"dimensions": noisy, "rows_per_person": bound}
        sampler = Full(rows, **more) if size is None else Poisson(rows, size / rows, **more)
        course = schedule_of((self.trainer_options or {}).get("noise_schedule", "constant"))
        account = RunAccount(**self._terms(how), epochs=self._length(how, rows), steps=None, course=course)
        account.open(sampler)
        return tuple(events_of(sampler, account.progress.ahead))

    def to_dict(self) -> dict[str, Any]:
        """Return how the network was trained and the privacy cost, as plain values; never release ``history``."""
        return {
            **super().to_dict(),
            "noise_multiplier": self.noise_multiplier_,
            "clip": self.clip if self.is_private else None,
            "sampling": self.sampling_,
            "rule": self.rule_,
            "history": [one.to_dict() for one in self.history_],
        }

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the fitted state as arrays and plain values, for storing the model."""
        _, facts = super().state()
        facts["architecture"] = None if self.architecture_ is None else self.architecture_.to_dict()
        facts["inputs"], facts["knots"] = list(self.inputs_), self.knots_
        facts["training"] = {one: getattr(self, f"{one}_") for one in _FACTS}
        facts["history"] = [one.to_dict() for one in self.history_]
        return {name: one.detach().cpu().numpy() for name, one in self.module_.state_dict().items()}, facts

    def restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Restore the fitted state returned by `state`; a module of the user must be given as ``model``."""
        self._set_image_shape([whole("an input", one) for one in facts["inputs"]])
        self.knots_ = None if facts["knots"] is None else whole("the number of knots", facts["knots"], least=2)
        super().restore(arrays, facts)
        if self.features_ is not None and (self.features_.width(self.knots_),) != self.inputs_:
            raise InputError("the inputs of the network do not fit its columns")
        if math.prod(self.inputs_) > _LARGEST:
            raise InputError("the network has too many inputs")
        self.noise_multiplier_, self.sampling_, self.rule_ = (facts["training"][one] for one in _FACTS)
        self.history_ = [_report_of(one) for one in facts["history"]]
        self.architecture_: Architecture | None = None
        if facts["architecture"] is not None:
            self.architecture_ = rebuild(facts["architecture"], {name: one.shape for name, one in arrays.items()})
            if self.architecture_.inputs != self.inputs_ or self.architecture_.outputs != self._outputs:
                raise InputError("the inputs or outputs of the network do not fit the model")
            self.module_ = self.architecture_.module
        elif isinstance(self.model, nn.Module):
            self.module_ = copy.deepcopy(self.model)
            if (self.trainer_options or {}).get("replace"):  # as in training
                self.module_ = make_private(self.module_)
        else:
            raise ModelError("the weights belong to a module of the user", hint="give the module")
        own = self.module_.state_dict()
        weights = {name: torch.from_numpy(one.copy()) for name, one in arrays.items()}
        if any(one.is_floating_point() != own[name].is_floating_point() for name, one in weights.items()):
            raise ModelError("the type of the weights does not fit the network")
        self.module_.load_state_dict({name: one.reshape(own[name].shape) for name, one in weights.items()})
        self.module_.to(self.device)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = tags.non_deterministic or self.seed is None  # initial weights are random
        return tags

    # --- records and images ---

    def _split(self, X: Any, y: Any) -> tuple[Columns, Any]:  # noqa: N803
        X, y = (_array(one) if isinstance(one, Tensor) else one for one in (X, y))  # noqa: N806
        if isinstance(X, ImageInputs):
            return X, y
        return (ImageInputs.of_array(X), y) if getattr(X, "ndim", 2) > 2 else super()._split(X, y)

    def _know(self, columns: Columns, target: pl.Series | None, features: Sequence[Feature]) -> Any:
        wanted = super()._know(columns, target, features)
        self.knots_ = None if isinstance(self.model, nn.Module) else self.knots
        if isinstance(columns, ImageInputs):
            self._set_image_shape(columns.shape)
        else:
            self.inputs_: tuple[int, ...] = (self.features_.width(self.knots_),)
        return wanted

    def _set_image_shape(self, shape: Sequence[int]) -> None:
        self.inputs_, self.n_features_in_ = tuple(shape), math.prod(shape)
        self.features_ = None  # type: ignore[assignment]

    def _columns(self, X: Any) -> Columns:  # noqa: N803
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "module_")
        return self._align(self._split(X, None)[0])

    def _align(self, columns: Columns) -> Columns:
        """Return new records or images, if they fit those of the training."""
        shape = columns.shape if isinstance(columns, ImageInputs) else None
        wanted = self.inputs_ if self.features_ is None else None
        if shape != wanted:
            given, expected = (
                "columns" if one is None else f"images of shape {' x '.join(map(str, one))}" for one in (shape, wanted)
            )
            raise InputError(f"X has {given}, but {type(self).__name__} is expecting {expected}")
        return columns if self.features_ is None else self.features_.align(columns, type(self).__name__)

    def _inputs(self, columns: Columns) -> Tensor:
        """Return the inputs of the module."""
        if not isinstance(columns, ImageInputs):
            return torch.from_numpy(self.features_.matrix(columns, self.knots_)).float()
        images = columns.tensor(self.scale)
        if self.architecture_ is None or self.architecture_.features is None:
            return images
        return self.architecture_.features(images.squeeze(1))

    def _predictions(self, X: Any) -> Tensor:  # noqa: N803
        """Return the outputs of the module, a row per record."""
        inputs = self._inputs(self._columns(X))
        like = next((one for one in self.module_.parameters() if one.is_floating_point()), inputs)
        with in_mode(self.module_, training=False), torch.no_grad():
            parts = [self.module_(part.to(like)).cpu() for part in inputs.split(_AT_ONCE)]
        return torch.cat(parts).reshape(len(inputs), -1)

    def _held_out(self, X: Any, y: Any) -> tuple[Tensor, NDArray[Any]]:  # noqa: N803
        columns, given = self._split(X, y)
        wanted = self._validation_target(self._target(given))
        if len(wanted) != columns.rows:
            raise InputError(
                f"the X and y of validation must have the same length, got {columns.rows:,} and {len(wanted):,}"
            )
        known = ~np.isnan(wanted)  # a missing number cannot be scored; classes are integers
        if not known.any():
            raise InputError("the validation data has no record with a target")
        return self._inputs(self._align(columns))[torch.from_numpy(known)], self._loss_target(wanted[known])

    def _check_people(self, columns: Columns) -> None:
        if self.rows_per_person == BOUGHT:
            raise OptionError(
                "networks do not buy the rows of a person, because a step draws people and a large bound adds no noise",
                hint="declare a number that few people exceed: rows_per_person / --rows-per-person",
            )
        super()._check_people(columns)

    # --- the number of records ---

    def _public_rows(self, columns: Columns) -> int | None:
        # An estimated number is compared with delta later; it will not be below this.
        return self.rows or math.ceil(self._row_count.noise.scale)

    def _purchases(self, public: Sequence[Feature | Undeclared]) -> dict[int, Purchase]:
        found = super()._purchases(public)
        return {_ROWS: self._row_count, **found} if self.is_private and self.rows is None else found

    @property
    def _row_count(self) -> CountRows:
        return CountRows(epsilon=_FOR_ROWS * self.epsilon)

    def _count(self, how: Purchases, columns: Columns, charged: list[Event]) -> int:
        """Return the public number of records: declared, or estimated and charged."""
        count = how.get(_ROWS)
        if not isinstance(count, CountRows):
            return self.rows or self._there(columns)
        self._charge((count.event if columns.people is None else for_people(count.event, 1),), charged)
        # Not the source for the columns: with a seed, both would get the same noise.
        source = Source(insecure_seed=None if self.insecure_seed is None else self.insecure_seed ^ 2**129)
        rows = count.answer(self._there(columns), source)
        check_delta(self.delta, rows, columns.unit)
        return rows

    # --- the network and its training ---

    def _new_module(self, columns: Columns) -> nn.Module:
        """Return the untrained network."""
        self.architecture_ = None
        inputs = self.inputs_ if isinstance(columns, ImageInputs) else self.inputs_[0]
        if isinstance(self.model, str):
            self.architecture_ = architecture(self.model, inputs, self._outputs, **(self.model_options or {}))
            return self.architecture_.module
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        module = self.model(inputs, self._outputs)
        if not isinstance(module, nn.Module):
            raise OptionError(f"the model must return a torch.nn.Module, got {type(module).__name__}")
        return module

    def _check_options(self, how: Purchases) -> None:
        """Raise an error for invalid options before anything is charged."""
        if isinstance(self.model, str):
            if self.model not in ARCHITECTURES:
                hint = did_you_mean(self.model, ARCHITECTURES)
                raise OptionError(f"the model must be one of {', '.join(ARCHITECTURES)}, got {self.model!r}", hint=hint)
        elif not callable(self.model):
            raise OptionError(
                f"the model must be a name, a torch.nn.Module or a function that returns one, got {self.model!r}"
            )
        if None in (self.epochs, self.learning_rate) and (self.model != _SCHEDULED or self.optimizer != "sgd"):
            raise OptionError(
                f"epochs and learning rate are chosen automatically only for '{_SCHEDULED}' with sgd",
                hint="give epochs and learning_rate",
            )
        if self.checkpoint is not None:
            refuse_unwritable(self.checkpoint)
        if self.knots is not None:
            whole("the number of knots", self.knots, least=2)
        if self.rows is not None:
            whole("the number of rows", self.rows)
        if self.model_options and not isinstance(self.model, str):
            raise OptionError("model_options are for a model given by name")
        with _seeded(0):
            self._trainer(nn.Linear(1, 1), how, None)

    def _trainer(self, module: nn.Module, how: Purchases, rows: int | None) -> Trainer:
        more = dict(self.trainer_options or {})
        for name in more:
            if name not in _MORE:
                raise OptionError(f"trainer_options has no '{name}'", hint=did_you_mean(str(name), _MORE))
        if "layout" in more:
            more["memory_format"] = more.pop("layout")
        clip, adaptive = self.clip, more.pop("adaptive", None)
        if adaptive is not None and not isinstance(adaptive, AdaptiveClip):
            raise OptionError(f"adaptive must be an AdaptiveClip(), got {adaptive!r}")
        if more.pop("replace", False):
            module = make_private(module)
        without_noise = None if self.is_private else self.seed  # without privacy, the seed also determines the samples
        options = {
            **self._terms(how),
            "clip": clip if adaptive is None else replace(adaptive, start=clip),
            "batch_size": self.batch_size if rows is None else self._batch(rows),
            "epochs": self._length(how, rows),
            "rows": rows,
            "optimizer": self._optimizer(self._rate(module, how, rows)),
            "loss": self._loss if rows else "squared-error",
            "schedule": self.schedule,
            "averaging": self.averaging,
            "device": self.device,
            "seed": self.seed,
            "insecure_seed": without_noise if self.insecure_seed is None else self.insecure_seed,
            "checkpoint": self.checkpoint,
            **more,
        }
        trainer = Trainer(module, **grouped(options, privacy=Privacy, optimization=Optimization, speed=Speed))
        trainer.least_dimensions = _WEIGHTS
        return trainer

    def _terms(self, how: Purchases) -> dict[str, Any]:
        """Return the privacy terms of the training: what the purchases leave, by basic composition."""
        if self.noise_multiplier is not None and not self.is_private:
            raise OptionError("a training without privacy has no noise", hint="give epsilon or noise_multiplier")
        return {
            "epsilon": self.epsilon - _price(how) if self.noise_multiplier is None else None,
            "noise_multiplier": self.noise_multiplier,
            "delta": self.delta - math.fsum(getattr(one, "delta", 0.0) for one in how.values()),
            "ledger": self.ledger,
        }

    def _batch(self, rows: int) -> int | None:
        return self.batch_size if self.batch_size is not None and self.batch_size < rows else None

    def _length(self, how: Purchases, rows: int | None) -> float:
        """Return the number of epochs: as given, or chosen from the signal."""
        if self.epochs is not None:
            return self.epochs
        return 1.0 if rows is None else steps_of(self._signal(how, rows)) / self._steps_per_epoch(rows)

    def _rate(self, module: nn.Module, how: Purchases, rows: int | None) -> float:
        """Return the learning rate: as given, or chosen from the signal."""
        if self.learning_rate is not None:
            return self.learning_rate
        if rows is None:
            return 1.0
        return learning_rate_of(
            self._signal(how, rows),
            steps=self._length(how, rows) * self._steps_per_epoch(rows),
            inputs=sum(one.numel() for one in module.parameters()) // self._outputs,
            clip=self.clip,
            momentum=self.momentum,
        )

    def _signal(self, how: Purchases, rows: int) -> float:
        terms = self._terms(how)
        if terms["epsilon"] is not None:
            return signal_of(rows, terms["epsilon"], terms["delta"])
        return signal_of_noise(rows, terms["noise_multiplier"])

    def _steps_per_epoch(self, rows: int) -> float:
        return rows / (self._batch(rows) or rows)

    def _optimizer(self, rate: float) -> Optimizer:
        if isinstance(self.optimizer, Optimizer):
            return self.optimizer
        kind = by_name("optimizer", self.optimizer, _OPTIMIZERS)
        if kind is Sgd:
            return Sgd(learning_rate=rate, momentum=self.momentum)
        return Adam(learning_rate=rate)

    def _total_report(self, report: Report, how: Purchases) -> Report:
        """Return a report that includes the cost of the purchases, in the units of the target."""
        score = None if report.score is None else report.score * self._unit
        return replace(report, epsilon=report.epsilon + _price(how), loss=report.loss * self._unit, score=score)

    # --- the file of purchases next to a checkpoint ---

    @property
    def _columns_file(self) -> Path:
        return Path(f"{self.checkpoint}.columns.json")

    def _load_purchases(
        self, public: Sequence[Feature | Undeclared], how: Purchases, bought: Sequence[Event], data: str | None
    ) -> tuple[list[Feature], int] | None:
        """Return the columns and the number of rows that a resumed training has estimated before, if any."""
        if data is None or not self._columns_file.exists():
            return None
        try:
            plain = json.loads(self._columns_file.read_text(encoding="utf-8"))
            places = [at for at in how if at != _ROWS]
            estimated = dict(zip(places, map(Feature.from_dict, plain["columns"]), strict=True))
            rows = whole("the number of rows", plain["rows"])
            events, then = [Event.from_dict(one) for one in plain["events"]], plain["data"]
        except OSError as error:
            raise FileError(f"'{self._columns_file}' cannot be read: {why(error)}") from error
        except (ValueError, KeyError, TypeError, OptionError) as error:
            raise FileError(f"'{self._columns_file}' is damaged, or is of a training on other columns") from error
        if events != list(bought) or any(public[at].name != one.name for at, one in estimated.items()):
            raise FileError(
                f"'{self._columns_file}' is of a training on other columns",
                hint="give another file, or train as before",
            )
        if then != data:
            raise FileError(
                f"'{self._columns_file}' is of a training on other records",
                hint="give another checkpoint; one file is one training",
            )
        return [estimated[at] if isinstance(one, Undeclared) else one for at, one in enumerate(public)], rows

    def _save_purchases(
        self, features: Sequence[Feature], rows: int, how: Purchases, bought: Sequence[Event], data: str | None
    ) -> None:
        if data is None:
            return
        plain = {
            "columns": [features[at].to_dict() for at in how if at != _ROWS],
            "rows": rows,
            "events": [one.to_dict() for one in bought],
            "data": data,
        }
        with atomic_path(self._columns_file) as temporary:
            temporary.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Seed torch's generators, randomly if no seed is given, and restore their state afterwards."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=list(devices)):
        if seed is None:
            torch.seed()
        else:
            torch.manual_seed(seed)
        yield


def fingerprint_of(columns: Columns, target: pl.Series | None) -> str:
    """Return a keyed fingerprint of the records."""
    mac = user_hmac()
    people = [] if columns.people is None else [columns.people]
    for one in (*columns.values, *([] if target is None else [target]), *people):
        mac.update(json.dumps([one.name, str(one.dtype)]).encode())
        mac.update(one.to_frame().write_ipc(None, compression="uncompressed").getvalue())
    if isinstance(columns, ImageInputs):
        mac.update(np.ascontiguousarray(columns.array).data)
    return f"hmac-sha256:{mac.hexdigest()}"


def _price(how: Purchases) -> float:
    return math.fsum(one.epsilon for one in how.values())


def _array(tensor: Tensor) -> NDArray[Any]:
    copied = tensor.detach().cpu()
    # Numpy has no bfloat16.
    numbers: NDArray[Any] = (copied.float() if copied.dtype == torch.bfloat16 else copied).numpy()
    return numbers


def _report_of(plain: Mapping[str, Any]) -> Report:
    loss = math.nan if plain["loss"] is None else plain["loss"]
    return Report(**{**plain, "loss": loss, "epsilon": float(plain["epsilon"])})

"""Networks with scikit-learn's interface: a torch module, or one by its name, trained privately on a table or images.

What is public of the columns is declared or bought as for every estimator, and so is the number of records, which the
sampling rate, the steps and the size of a step come from. The rest of epsilon goes to DP-SGD (Abadi et al. 2016), whose
gradients are clipped whatever they come from. So images need no bounds.
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
from torch.nn import functional

from sfumato.budget.accounting.accountant import check_delta
from sfumato.budget.events import Event
from sfumato.budget.noise import Source
from sfumato.budget.query.discovery import CountRows
from sfumato.data.io.files import atomic_path, refuse_unwritable, why
from sfumato.data.io.fingerprint import user_hmac
from sfumato.errors import FileError, InputError, ModelError, OptionError, did_you_mean
from sfumato.learners.dpsgd.account import Account
from sfumato.learners.dpsgd.module_checks import make_private
from sfumato.learners.dpsgd.optimizers import Adam, Rule, Schedule, Sgd, schedule_of
from sfumato.learners.dpsgd.options import named, whole
from sfumato.learners.dpsgd.plan import events_of
from sfumato.learners.dpsgd.progress import Report
from sfumato.learners.dpsgd.samples import in_mode
from sfumato.learners.dpsgd.sampling import Full, Poisson
from sfumato.learners.dpsgd.trainer import Trainer
from sfumato.learners.estimators.estimator import Classifier, PrivateEstimator, Purchase, Regressor
from sfumato.learners.estimators.features import Columns, Feature, Unknown, texts_in
from sfumato.learners.gradients.clipping import Loss
from sfumato.learners.networks.architectures import ARCHITECTURES, Architecture, architecture, rebuilt
from sfumato.learners.networks.images import Images
from sfumato.learners.networks.schedule import learning_rate_of, signal_of, signal_of_noise, steps_of

__all__ = ["PrivateClassifier", "PrivateRegressor"]

Floats = NDArray[np.floating[Any]]
Purchases = Mapping[int, Purchase]

_RULES: dict[str, type[Rule]] = {"sgd": Sgd, "adam": Adam}
_MORE = ("noise_schedule", "augment", "views", "adaptive", "micro_batch", "precision", "layout", "replace")
_FACTS = ("noise_multiplier", "sampling", "rule")  # of a training, that are kept of it
_PACED = "scattering-linear"  # the model whose steps and learning rate follow from epsilon and the number of records
_FOR_ROWS = 0.02  # the share of epsilon for the number of records
_ROWS = -1  # its place among what is bought, beside the places of columns
_WEIGHTS = 2**24  # what float noise misses is charged for at least so many: how many there are may depend on purchases
_LARGEST = 2**22  # inputs that a network on disk may have
_AT_ONCE = 1024  # how many samples are predicted at once
_MISSING = 2.0  # of a target that is scaled to [-1, 1]


@dataclass(kw_only=True, eq=False, repr=False)
class _Network(PrivateEstimator):
    """What both share: all but the target."""

    model: str | nn.Module | Callable[[Any, int], nn.Module] = "mlp"
    model_options: Mapping[str, Any] | None = None
    noise_multiplier: float | None = None
    clip: float = 1.0
    batch_size: int | None = 2048
    epochs: float | None = 30
    rows: int | None = None
    learning_rate: float | None = 0.7
    momentum: float = 0.9
    optimizer: str | Rule = "sgd"
    schedule: str | Schedule = "cosine"
    averaging: float | None = None
    knots: int | None = 20
    scale: tuple[Any, Any] | None = None
    trainer_options: Mapping[str, Any] | None = None
    device: str = "cpu"
    seed: int | None = None
    checkpoint: str | Path | None = None

    # --- what a subclass says of its target ---

    @property
    def _outputs(self) -> int:
        """How many numbers a named network gives."""
        raise NotImplementedError

    @property
    def _loss(self) -> Loss:
        raise NotImplementedError

    def _learnt(self, target: Any) -> NDArray[Any]:
        """Return the target as the loss takes it."""
        raise NotImplementedError

    def _held(self, target: pl.Series | None) -> Any:
        """Return another target as `_targets` would."""
        raise NotImplementedError

    @property
    def _unit(self) -> float:
        """What a loss of 1 is, in the units of the target."""
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
        """Train on records or images; see the class for what it costs.

        Parameters
        ----------
        X : Table, frame, array or tensor
        y : sequence or str, optional
            The target, or the name of its column in X.
        validation : tuple, optional
            Another X and y, to score on after each epoch. If they are private, their score is one more release, not
            covered by epsilon.
        progress : callable, optional
            Told the share of the steps that is done, from 0 to 1.
        report : callable, optional
            Told a `Report` after each epoch.
        """
        columns, target = self._given(X, y)
        public = self._described(columns, target)
        how = self._purchases(public)
        self._refuse(how)
        data = None if self.checkpoint is None or not how else _fingerprint(columns, target)
        kept, charged = self._kept(public, how, data), list[Event]()
        begun = kept is not None or (self.checkpoint is not None and Path(self.checkpoint).exists())
        self._refuse_beyond(() if begun else (*_events(how), *self._planned(how, self._known_rows(columns))))
        with self._saying(charged):
            if kept is None:
                rows = self._count(how, columns, charged)
                found = self._bought(public, how, columns, target, charged)
                self._keep(found, rows, how, data)
            else:
                found, rows = kept
            wanted = self._learnt(self._know(columns, target, found))
            with _own_chance(self.seed):
                module = self._made(columns)
                inputs = self._inputs(columns)
                trainer = self._trainer(module, how, rows)
                held = None if validation is None else self._held_out(*validation)
                if not begun:
                    self._refuse_beyond(self._planned(how, rows))
                try:
                    trainer.fit(
                        inputs,
                        wanted,
                        validation=held,
                        progress=progress,
                        report=(lambda told: report(self._told(told, how))) if report else None,
                    )
                finally:
                    charged += trainer.events
            if not all(bool(one.isfinite().all()) for one in trainer.module.parameters()):
                raise ModelError("the training has diverged", hint="take a smaller learning rate")
        self.module_, self.history_ = trainer.module, [self._told(one, how) for one in trainer.history]
        training = trainer.to_dict()
        self.noise_multiplier_, self.sampling_, self.rule_ = (training[one] for one in _FACTS)
        return self._end((*_events(how), *trainer.events))

    def events_of(self, X: Any, y: Any = None) -> tuple[Event, ...]:  # noqa: N803
        """Return what `fit` would charge on a CPU; only names and types are looked at.

        What a training in batches costs depends on the number of records, so that has to be declared: ``rows``.
        """
        columns, target = self._given(X, y)
        how = self._purchases(self._described(columns, target))
        self._refuse(how)
        rows = self._known_rows(columns)
        if rows is None:
            raise OptionError(
                "what a training in batches costs depends on the number of rows, which is bought",
                hint="declare it with rows=, or take all records in every step with batch_size=None",
            )
        return (*_events(how), *self._planned(how, rows))

    def _known_rows(self, columns: Columns) -> int | None:
        """Return a number of records by which the training can be planned; None before it is bought."""
        if self.rows is None and self.is_private:
            known = self.batch_size is None and self.epochs is not None
            return 1 if known else None  # all records in each step, whatever their number
        return self.rows or columns.rows

    def _planned(self, how: Purchases, rows: int | None) -> tuple[Event, ...]:
        """Return what the training will be, of so many records; nothing if that is not known."""
        if not self.is_private or rows is None:
            return ()
        size = self._batch(rows)
        given = self.model.parameters() if isinstance(self.model, nn.Module) else ()
        trained = sum(one.numel() for one in given if one.requires_grad)
        noisy = max(trained + ("adaptive" in (self.trainer_options or {})), _WEIGHTS)
        sampler = Full(rows, dimensions=noisy) if size is None else Poisson(rows, size / rows, dimensions=noisy)
        course = schedule_of((self.trainer_options or {}).get("noise_schedule", "constant"))
        account = Account(**self._terms(how), epochs=self._length(how, rows), steps=None, course=course)
        account.open(sampler)
        return tuple(events_of(sampler, account.progress.ahead))

    def to_dict(self) -> dict[str, Any]:
        """Return how it was trained and what that cost, as plain values; ``history`` is for the data owner alone."""
        return {
            **super().to_dict(),
            "noise_multiplier": self.noise_multiplier_,
            "clip": self.clip if self.is_private else None,
            "sampling": self.sampling_,
            "rule": self.rule_,
            "history": [one.to_dict() for one in self.history_],
        }

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return what was fitted, as arrays and plain values: all that a model on disk holds."""
        _, facts = super().state()
        facts["architecture"] = None if self.architecture_ is None else self.architecture_.to_dict()
        facts["inputs"], facts["knots"] = list(self.inputs_), self.knots_
        facts["training"] = {one: getattr(self, f"{one}_") for one in _FACTS}
        facts["history"] = [one.to_dict() for one in self.history_]
        return {name: one.detach().cpu().numpy() for name, one in self.module_.state_dict().items()}, facts

    def restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Become what `state` was taken of; a module that has no name must have been given as ``model``."""
        self._be_of_images([whole("an input", one) for one in facts["inputs"]])
        self.knots_ = None if facts["knots"] is None else whole("the number of knots", facts["knots"], least=2)
        super().restore(arrays, facts)
        if self.features_ is not None and (self.features_.width(self.knots_),) != self.inputs_:
            raise InputError("the inputs of the network are not those that its columns make")
        if math.prod(self.inputs_) > _LARGEST:
            raise InputError("the inputs of the network are too many")
        self.noise_multiplier_, self.sampling_, self.rule_ = (facts["training"][one] for one in _FACTS)
        self.history_ = [_report_of(one) for one in facts["history"]]
        self.architecture_: Architecture | None = None
        if facts["architecture"] is not None:
            self.architecture_ = rebuilt(facts["architecture"], {name: one.shape for name, one in arrays.items()})
            if self.architecture_.inputs != self.inputs_ or self.architecture_.outputs != self._outputs:
                raise InputError("the network has other inputs or outputs than the model")
            self.module_ = self.architecture_.module
        elif isinstance(self.model, nn.Module):
            self.module_ = copy.deepcopy(self.model)
            if (self.trainer_options or {}).get("replace"):  # as it was trained
                self.module_ = make_private(self.module_)
        else:
            raise ModelError("the weights are of a module without a name", hint="give the module")
        own = self.module_.state_dict()
        weights = {name: torch.from_numpy(one.copy()) for name, one in arrays.items()}
        if any(one.is_floating_point() != own[name].is_floating_point() for name, one in weights.items()):
            raise ModelError("the weights are of another type than the network's")
        self.module_.load_state_dict({name: one.reshape(own[name].shape) for name, one in weights.items()})
        self.module_.to(self.device)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = tags.non_deterministic or self.seed is None  # its first weights are drawn
        return tags

    # --- records and images ---

    def _split(self, X: Any, y: Any) -> tuple[Columns, Any]:  # noqa: N803
        X, y = (_array(one) if isinstance(one, Tensor) else one for one in (X, y))  # noqa: N806
        if isinstance(X, Images):
            return X, y
        return (Images.of_array(X), y) if getattr(X, "ndim", 2) > 2 else super()._split(X, y)

    def _know(self, columns: Columns, target: pl.Series | None, found: Sequence[Feature]) -> Any:
        wanted = super()._know(columns, target, found)
        self.knots_ = None if isinstance(self.model, nn.Module) else self.knots
        if isinstance(columns, Images):
            self._be_of_images(columns.shape)
        else:
            self.inputs_: tuple[int, ...] = (self.features_.width(self.knots_),)
        return wanted

    def _be_of_images(self, shape: Sequence[int]) -> None:
        self.inputs_, self.n_features_in_ = tuple(shape), math.prod(shape)
        self.features_ = None  # type: ignore[assignment]

    def _columns(self, X: Any) -> Columns:  # noqa: N803
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "module_")
        return self._taken(self._split(X, None)[0])

    def _taken(self, columns: Columns) -> Columns:
        """Return other records or images, if they are like those that were learnt from."""
        shape = columns.shape if isinstance(columns, Images) else None
        wanted = self.inputs_ if self.features_ is None else None
        if shape != wanted:
            raise InputError(f"X has {_told_of(shape)}, but {type(self).__name__} is expecting {_told_of(wanted)}")
        return columns if self.features_ is None else self.features_.taken(columns, type(self).__name__)

    def _inputs(self, columns: Columns) -> Tensor:
        """Return what the module takes."""
        if not isinstance(columns, Images):
            return torch.from_numpy(self.features_.matrix(columns, self.knots_)).float()
        images = columns.tensor(self.scale)
        if self.architecture_ is None or self.architecture_.features is None:
            return images
        return self.architecture_.features(images.squeeze(1))

    def _answers(self, X: Any) -> Tensor:  # noqa: N803
        """Return what the module gives, a row per record."""
        inputs = self._inputs(self._columns(X))
        like = next((one for one in self.module_.parameters() if one.is_floating_point()), inputs)
        with in_mode(self.module_, training=False), torch.no_grad():
            parts = [self.module_(part.to(like)).cpu() for part in inputs.split(_AT_ONCE)]
        return torch.cat(parts).reshape(len(inputs), -1)

    def _held_out(self, X: Any, y: Any) -> tuple[Tensor, NDArray[Any]]:  # noqa: N803
        columns, given = self._split(X, y)
        wanted = self._held(self._target(given))
        if len(wanted) != columns.rows:
            raise InputError(f"validation must have as many X as y, got {columns.rows:,} and {len(wanted):,}")
        known = ~np.isnan(wanted)  # what has no number cannot be scored; classes are whole numbers
        if not known.any():
            raise InputError("the validation has no record with a target")
        return self._inputs(self._taken(columns))[torch.from_numpy(known)], self._learnt(wanted[known])

    # --- the number of records ---

    def _public_rows(self, columns: Columns) -> int | None:
        # One that is bought is compared with delta when it is known; it will not be less than this.
        return self.rows or math.ceil(self._row_count.noise.scale)

    def _purchases(self, public: Sequence[Feature | Unknown]) -> dict[int, Purchase]:
        found = super()._purchases(public)
        return {_ROWS: self._row_count, **found} if self.is_private and self.rows is None else found

    @property
    def _row_count(self) -> CountRows:
        return CountRows(epsilon=_FOR_ROWS * self.epsilon)

    def _count(self, how: Purchases, columns: Columns, charged: list[Event]) -> int:
        """Return the number of records that is public, once it is."""
        count = how.get(_ROWS)
        if not isinstance(count, CountRows):
            return self.rows or columns.rows
        self._charge((count.event,), charged)
        # Not the source of the columns, which begins at the same place.
        source = Source(insecure_seed=None if self.insecure_seed is None else self.insecure_seed ^ 2**129)
        rows = count.answer(columns.rows, source)
        check_delta(self.delta, rows)
        return rows

    # --- the network and its training ---

    def _made(self, columns: Columns) -> nn.Module:
        """Return the untrained network."""
        self.architecture_ = None
        inputs = self.inputs_ if isinstance(columns, Images) else self.inputs_[0]
        if isinstance(self.model, str):
            self.architecture_ = architecture(self.model, inputs, self._outputs, **(self.model_options or {}))
            return self.architecture_.module
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        made = self.model(inputs, self._outputs)
        if not isinstance(made, nn.Module):
            raise OptionError(f"the model must give a torch.nn.Module, got {type(made).__name__}")
        return made

    def _refuse(self, how: Purchases) -> None:
        """Refuse what can be refused before anything is paid for."""
        if isinstance(self.model, str):
            if self.model not in ARCHITECTURES:
                hint = did_you_mean(self.model, ARCHITECTURES)
                raise OptionError(f"the model must be one of {', '.join(ARCHITECTURES)}, got {self.model!r}", hint=hint)
        elif not callable(self.model):
            raise OptionError(f"the model must be a name, a torch.nn.Module or what makes one, got {self.model!r}")
        if None in (self.epochs, self.learning_rate) and (self.model != _PACED or self.optimizer != "sgd"):
            raise OptionError(
                f"the epochs and the learning rate are chosen for '{_PACED}' with sgd alone",
                hint="give epochs and learning_rate",
            )
        if self.checkpoint is not None:
            refuse_unwritable(self.checkpoint)
        if self.knots is not None:
            whole("the number of knots", self.knots, least=2)
        if self.rows is not None:
            whole("the number of rows", self.rows)
        if self.model_options and not isinstance(self.model, str):
            raise OptionError("model_options are those of a model that is given by its name")
        with _own_chance(0):
            self._trainer(nn.Linear(1, 1), how, None)

    def _trainer(self, module: nn.Module, how: Purchases, rows: int | None) -> Trainer:
        more = dict(self.trainer_options or {})
        for name in more:
            if name not in _MORE:
                raise OptionError(f"trainer_options has no '{name}'", hint=did_you_mean(str(name), _MORE))
        without_noise = None if self.is_private else self.seed  # then a seed is for the samples that are drawn, too
        trainer = Trainer(
            module,
            **self._terms(how),
            clip=self.clip,
            batch_size=self.batch_size if rows is None else self._batch(rows),
            epochs=self._length(how, rows),
            rows=rows,
            rule=self._rule(self._rate(module, how, rows)),
            loss=self._loss if rows else "squared-error",
            schedule=self.schedule,
            averaging=self.averaging,
            device=self.device,
            seed=self.seed,
            insecure_seed=without_noise if self.insecure_seed is None else self.insecure_seed,
            checkpoint=self.checkpoint,
            **more,
        )
        trainer.least_dimensions = _WEIGHTS
        return trainer

    def _terms(self, how: Purchases) -> dict[str, Any]:
        """Return what the training may cost: what the purchases leave, by basic composition."""
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
        """Return the number of epochs: the one given, or for as many steps as the records are worth."""
        if self.epochs is not None:
            return self.epochs
        return 1.0 if rows is None else steps_of(self._signal(how, rows)) / self._steps_per_epoch(rows)

    def _rate(self, module: nn.Module, how: Purchases, rows: int | None) -> float:
        """Return the learning rate: the one given, or one that goes as far as the records are worth."""
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

    def _rule(self, rate: float) -> Rule:
        if isinstance(self.optimizer, Rule):
            return self.optimizer
        kind = named("optimizer", self.optimizer, _RULES)
        if kind is Sgd:
            return Sgd(learning_rate=rate, momentum=self.momentum)
        return Adam(learning_rate=rate)

    def _told(self, report: Report, how: Purchases) -> Report:
        """Return a report of all costs, in the units of the target."""
        score = None if report.score is None else report.score * self._unit
        return replace(report, epsilon=report.epsilon + _price(how), loss=report.loss * self._unit, score=score)

    # --- what was bought, beside a checkpoint ---

    @property
    def _columns_file(self) -> Path:
        return Path(f"{self.checkpoint}.columns.json")

    def _kept(
        self, public: Sequence[Feature | Unknown], how: Purchases, data: str | None
    ) -> tuple[list[Feature], int] | None:
        """Return the columns and the number of rows that a training that is continued has bought, if it has."""
        if data is None or not self._columns_file.exists():
            return None
        try:
            plain = json.loads(self._columns_file.read_text(encoding="utf-8"))
            places = [at for at in how if at != _ROWS]
            bought = dict(zip(places, map(Feature.from_dict, plain["columns"]), strict=True))
            rows = whole("the number of rows", plain["rows"])
            events, then = [Event.from_dict(one) for one in plain["events"]], plain["data"]
        except OSError as error:
            raise FileError(f"'{self._columns_file}' cannot be read: {why(error)}") from error
        except (ValueError, KeyError, TypeError, OptionError) as error:
            raise FileError(f"'{self._columns_file}' is damaged, or of a training on other columns") from error
        if events != list(_events(how)) or any(public[at].name != one.name for at, one in bought.items()):
            raise FileError(
                f"'{self._columns_file}' is of a training on other columns",
                hint="give another file, or train as before",
            )
        if then != data:
            raise FileError(
                f"'{self._columns_file}' is of a training on other records",
                hint="give another checkpoint; one file is one training",
            )
        return [bought[at] if isinstance(one, Unknown) else one for at, one in enumerate(public)], rows

    def _keep(self, found: Sequence[Feature], rows: int, how: Purchases, data: str | None) -> None:
        if data is None:
            return
        plain = {
            "columns": [found[at].to_dict() for at in how if at != _ROWS],
            "rows": rows,
            "events": [one.to_dict() for one in _events(how)],
            "data": data,
        }
        with atomic_path(self._columns_file) as temporary:
            temporary.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(_Network, Classifier):
    """A network that classifies, trained with differential privacy.

    Parameters
    ----------
    model : str, torch.nn.Module or callable
        "mlp" or "logistic", for tables and images; "cnn", "resnet18" or "scattering-linear", for images; see
        `architecture`. A module is copied, and `fit` never changes it. A callable gets the inputs (the number of
        columns, or the shape of an image with its channels) and the number of classes, and returns a module. Of two
        classes, a single output is enough.
    model_options : mapping, optional
        Of a model that is given by its name, for instance ``{"hidden": (50, 50)}``.
    noise_multiplier : float, optional
        The deviation of the noise on the sum of a batch, in clips, instead of the one that epsilon asks for. Then
        epsilon is only for what is bought, which gets a tenth of it; ``spent_`` says what all came to.
    clip : float
        The largest norm of a record's gradient.
    batch_size : int, optional
        How many records a step takes on average. None takes all, and so does a number that is not below theirs.
    epochs : float, optional
        How often each record is taken on average. None is for "scattering-linear": the number of steps then follows
        from epsilon and the number of records.
    rows : int, optional
        The number of records, if it is public; the sampling rate and the number of steps come from it. By default it is
        bought with a fiftieth of epsilon.
    learning_rate, momentum : float
        Of "sgd". Adam has no momentum, and wants a learning rate of about 0.01. A learning rate of None is for
        "scattering-linear", as for the epochs.
    optimizer : str or Rule
        "sgd" or "adam", or one like ``Adam(learning_rate=0.01, weight_decay=0.1)``, with a learning rate of its own.
    schedule : str or callable
        The course of the learning rate: "constant", "linear", "cosine", "warm-cosine".
    averaging : float, optional
        The decay of an average of the weights, which then is the result; it costs no privacy.
    knots : int, optional
        At how many equidistant places a line over a number of a table can bend: a number is coded by its weights on the
        two places that it lies between. Without, and for a module, which knows its inputs, a number is one input from
        -1 to 1.
    scale : tuple, optional
        The mean and the deviation by which images are normalised: public constants, for all or per channel. Bytes are
        brought from 0 to 1 before; other numbers are taken as they are, and 0 if they are missing or infinite.
    trainer_options : mapping, optional
        What else `Trainer` takes: ``noise_schedule``, ``augment``, ``views``, ``adaptive``, ``micro_batch``,
        ``precision``, ``layout``, ``replace``.
    device : str
        "cpu", or "cuda" where there is a GPU.
    seed : int, optional
        Of the first weights, of augmentation and of dropout, not of the noise. Without privacy it makes all
        reproducible. Torch's own generator is left as it was.
    checkpoint : path, optional
        Written after every epoch; a training that was interrupted is continued by the same `fit`. What was bought is in
        a file beside it. One file is one training on one set of records: with others it is refused, so it is not for
        a cross-validation. One that has ended is returned again, and not charged again.
    epsilon, delta, schema, bounds, classes, ledger, insecure_seed
        As of every estimator; epsilon is for what is bought and the training together. The ledger is charged for each
        thing that is bought before it is, and for an epoch before it is trained.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained network.
    architecture_ : Architecture or None
        Of a model that was given by its name.
    classes_ : array
    features_ : Features or None
        What is public of the columns; None for images.
    history_ : list of Report
        One per epoch; their epsilon counts what was bought, too. Losses and scores are read from the data without
        noise: for the data owner alone, not to be released nor acted on.
    noise_multiplier_ : float
    sampling_ : dict
        ``kind``, ``rate``, ``steps``, and the number of ``rows`` that is public: declared or bought.
    events_, spent_
        What was done with the data, and what that costs.

    Notes
    -----
    The defaults are for tables of some ten thousand records and a hundred columns: they were chosen by cross-validation
    on the training records of Adult, for epsilon 1. For images, give a batch size and few epochs; for
    "scattering-linear", give what `sfumato train` does: ``batch_size=None, clip=0.1, schedule="constant", epochs=None,
    learning_rate=None``.

    Examples
    --------
    >>> import sfumato as sf
    >>> model = PrivateClassifier(model="logistic", epsilon=1, epochs=5).fit(sf.datasets.adult("train"), "income")
    >>> model.score(sf.datasets.adult("test"), "income") > 0.82
    True
    >>> model.spent_.epsilon <= 1
    True

    Images, and a module of one's own:

    >>> digits = sf.datasets.mnist()
    >>> own = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    >>> model = PrivateClassifier(model=own, classes=range(10), epsilon=2, batch_size=500, epochs=2, learning_rate=0.5)
    >>> model.fit(digits.train_images, digits.train_labels).predict(digits.test_images).shape
    (2000,)
    """

    @property
    def _outputs(self) -> int:
        return len(self.classes_)

    @property
    def _loss(self) -> Loss:
        return _CrossEntropy(len(self.classes_))

    def _learnt(self, target: Any) -> NDArray[Any]:
        return np.asarray(target)

    def _held(self, target: pl.Series | None) -> Any:
        assert target is not None
        return Feature("target", domain=texts_in(self.classes_)).codes(target)

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return the probability of each class, in the order of ``classes_``."""
        answers = self._answers(X)
        if answers.shape[1] == 1:
            answers = torch.cat([torch.zeros_like(answers), answers], dim=1)
        return answers.softmax(1).numpy()


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRegressor(_Network, Regressor):
    """A network that predicts a number, trained with differential privacy.

    The target is brought from its public bounds to [-1, 1] for the training; predictions, losses and scores are in its
    own units. A record without a target has no gradient.

    Parameters
    ----------
    target_bounds : tuple of two numbers, optional
        The public bounds of the target. By default those of the schema, or they are bought like a column's.

    Notes
    -----
    All other parameters are those of `PrivateClassifier`; the model has one output, and the learning rate is smaller by
    default: 0.2.

    Examples
    --------
    >>> x = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    >>> model = PrivateRegressor(epsilon=4, bounds=(-1, 1), target_bounds=(0, 100), learning_rate=0.5)
    >>> bool(model.fit(x, 50 + 40 * x[:, 0]).score(x, 50 + 40 * x[:, 0]) > 0.8)
    True
    """

    learning_rate: float | None = 0.2

    @property
    def _outputs(self) -> int:
        return 1

    @property
    def _loss(self) -> Loss:
        return _squared_error

    @property
    def _ends(self) -> tuple[float, float]:
        assert self.target_.bounds is not None
        return self.target_.bounds

    @property
    def _unit(self) -> float:
        low, high = self._ends
        return ((high - low) / 2) ** 2

    def _learnt(self, target: Any) -> NDArray[Any]:
        low, high = self._ends
        return np.nan_to_num((target - low) * (2 / (high - low)) - 1, nan=_MISSING).astype(np.float32)

    def _held(self, target: pl.Series | None) -> Any:
        assert target is not None
        return self.target_.numbers(target)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the number of each record, within the bounds of the target."""
        answers, (low, high) = self._answers(X).numpy()[:, 0], self._ends
        return np.clip(low + (answers + 1) * ((high - low) / 2), low, high)


@dataclass(frozen=True)
class _CrossEntropy:
    """The cross-entropy of every sample; 0 for one of none of the classes, which so has no gradient."""

    classes: int

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        rows = outputs.reshape(len(targets), -1)
        if rows.shape[1] == 1 and self.classes == 2:
            known = targets < self.classes
            wanted = (targets == 1).to(rows.dtype)
            return functional.binary_cross_entropy_with_logits(rows[:, 0], wanted, reduction="none") * known
        if rows.shape[1] != self.classes:
            raise ModelError(f"the model must have one output per class, {self.classes}, got {rows.shape[1]}")
        return functional.cross_entropy(rows, targets, ignore_index=self.classes, reduction="none")


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error of every sample; 0 where the target is missing."""
    rows = outputs.reshape(len(targets), -1)
    if rows.shape[1] != 1:
        raise ModelError(f"the model of a regression must have one output, got {rows.shape[1]}")
    return (rows[:, 0] - targets).square() * (targets < (1 + _MISSING) / 2)


@contextmanager
def _own_chance(seed: int | None) -> Iterator[None]:
    """Let torch draw from a seed, or from a new one, and then go on as if nothing had been drawn."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=list(devices)):
        if seed is None:
            torch.seed()
        else:
            torch.manual_seed(seed)
        yield


def _fingerprint(columns: Columns, target: pl.Series | None) -> str:
    """Return what only this user can compare: the records that something was bought of."""
    mac = user_hmac()
    for one in (*columns.values, *([] if target is None else [target])):
        mac.update(json.dumps([one.name, str(one.dtype)]).encode())
        mac.update(one.to_frame().write_ipc(None, compression="uncompressed").getvalue())
    if isinstance(columns, Images):
        mac.update(np.ascontiguousarray(columns.array).data)
    return f"hmac-sha256:{mac.hexdigest()}"


def _events(how: Purchases) -> tuple[Event, ...]:
    return tuple(one.event for one in how.values())


def _price(how: Purchases) -> float:
    return math.fsum(one.epsilon for one in how.values())


def _array(tensor: Tensor) -> NDArray[Any]:
    found = tensor.detach().cpu()
    numbers: NDArray[Any] = (
        found.float() if found.dtype == torch.bfloat16 else found
    ).numpy()  # numpy has no such type
    return numbers


def _report_of(plain: Mapping[str, Any]) -> Report:
    loss = math.nan if plain["loss"] is None else plain["loss"]
    return Report(**{**plain, "loss": loss, "epsilon": float(plain["epsilon"])})


def _told_of(shape: tuple[int, ...] | None) -> str:
    return "columns" if shape is None else f"images of shape {' x '.join(map(str, shape))}"

"""A private auto-encoder with a normal mixture of its codes for each label: a published baseline.

The auto-encoder is trained by DP-SGD (Abadi et al. 2016). All records are encoded and clipped to the unit ball, and a
normal mixture is fitted to the codes of each label by DP-EM (Park et al. 2017). A new row is drawn from the mixture of
its label and decoded to a distribution for each column. Only the decoder, the mixtures and noisy counts are kept.

Different from the published design, in which every label has an auto-encoder of its own: one auto-encoder learns from
all records, so that a rare label does not have to train a network alone. It knows the label, and the decoder begins at
the noisy counts of each column within the label, so it learns only how columns depend on each other. After training,
the shares of the drawn rows are fitted to these counts, which is free.

Everything is (epsilon, delta)-differentially private for adding or removing a row: noisy counts, Gaussian; DP-SGD with
Poisson sampling at a fixed rate; noisy sums of DP-EM, Gaussian.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sfumato.data.validate import real, whole
from sfumato.errors import InputError, require_extra
from sfumato.learners.estimators.noisy_sums import NoisySums, Share, softmax
from sfumato.synthesizers.dense import Dense
from sfumato.synthesizers.dp_em import Mixtures, em_shares, fit_mixtures
from sfumato.synthesizers.state import State, split
from sfumato.synthesizers.steps import Steps
from sfumato.synthesizers.tables.base import Axis, Model, Records, Synthesizer
from sfumato.synthesizers.tables.columns.cells import (
    Cells,
    count_cells,
    find_cells,
    is_wide,
    label_totals,
    read_columns,
    read_groups,
)
from sfumato.synthesizers.tables.methods.marginals import coarse_groups, draw_evenly, onto_simplex
from sfumato.synthesizers.tables.methods.tree.tree_model import by_group, inside_groups

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["AutoEncoderMixture"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_GROUPS = 16  # of a column, apart from those for missing and for rare values
_RARE = 0.01  # the smallest share of a group
_POOL = 4000  # codes drawn per label to fit the shares of the columns
_SWEEPS = 20
_AT_ONCE = 50_000  # records encoded at once, to bound memory
_LEAST = 1e-6  # the smallest share of a group in training
_MOST = 2**12  # units of a layer, components and labels
_WIDEST = 256  # dimensions of a code: drawing takes their cube


@dataclass(eq=False, repr=False)
class AutoEncoderModel(Model):
    """A decoder, the mixtures of its codes, and noisy counts of cells."""

    label: int | None
    cells: list[Cells]
    groups: list[Ints]
    by_label: Floats
    tables: list[Floats]
    """The counts of (cell, label) of each column."""
    mixtures: Mixtures
    decoder: Dense
    base: Floats
    """What is added to the outputs of the decoder, by label."""

    @property
    def total(self) -> float:
        """The noisy number of records."""
        return float(self.by_label.sum())

    @cached_property
    def _inside(self) -> list[Floats]:
        return [inside_groups(table, group) for table, group in zip(self.tables, self.groups, strict=True)]

    @property
    def _sizes(self) -> list[int]:
        return [int(one.max()) + 1 for one in self.groups]

    def fit_shares(self, rng: np.random.Generator) -> None:
        """Change the base until the drawn rows of each label have the shares of its noisy counts."""
        wanted = [by_group(table, group) for table, group in zip(self.tables, self.groups, strict=True)]
        for label in range(len(self.by_label)):
            outputs = self.decoder(self.mixtures.sample(np.full(_POOL, label), rng)).astype(np.float64)
            parts = zip(
                split(outputs.T, self._sizes),
                split(self.base[label], self._sizes),
                (_log_shares(one[:, label]) for one in wanted),
                strict=True,
            )
            for scores, base, shares in parts:  # the base is changed in place
                for _ in range(_SWEEPS):
                    base += shares - np.log(softmax(scores.T + base).mean(axis=0) + 1e-300)

    def sample(self, rows: int, rng: np.random.Generator) -> list[Ints]:
        """Return the codes of new rows, one array per column."""
        classes = len(self.by_label)
        label = draw_evenly(np.zeros(rows, dtype=np.int64), self.by_label[None, :], rng)
        outputs = self.decoder(self.mixtures.sample(label, rng)) + self.base[label]
        codes = []
        for scores, cell, inside in zip(split(outputs.T, self._sizes), self.cells, self._inside, strict=True):
            up = np.cumsum(softmax(scores.T), axis=1)
            group = (rng.random((rows, 1)) * up[:, -1:] >= up[:, :-1]).sum(axis=1)
            fine = draw_evenly(group * classes + label, inside.reshape(-1, inside.shape[2]), rng)
            codes.append(cell.draw_codes(fine, rng))
        return codes if self.label is None else [*codes[: self.label], label, *codes[self.label :]]

    def to_state(self) -> State:
        """Return the sizes, the weights of the decoder, the mixtures and the counts."""
        settings = {
            "cells": [one.size for one in self.cells],
            "layers": [len(one) for one in self.decoder.weights],
            "components": self.mixtures.weights.shape[1],
        }
        arrays = {
            "starts": np.concatenate([one.starts for one in self.cells]),
            "groups": np.concatenate(self.groups),
            "by_label": self.by_label,
            "tables": np.concatenate(self.tables),
            "base": self.base,
            "mixture_weights": self.mixtures.weights,
            "mixture_means": self.mixtures.means,
            "mixture_covariances": self.mixtures.covariances,
        }
        for at, (weights, biases) in enumerate(self.decoder.layers):
            arrays |= {f"weights_{at}": weights, f"biases_{at}": biases}
        return State(settings, arrays)

    @classmethod
    def from_state(cls, axes: tuple[Axis, ...], label: int | None, state: State) -> Self:
        """Return the model of a state."""
        stored, _, classes, cells = read_columns(axes, label, state)
        sizes = [one.size for one in cells]
        total = sum(sizes)
        groups = read_groups(stored, "groups", cells)
        outputs = sum(int(one.max()) + 1 for one in groups)
        components = stored.whole("components", 1, _MOST)
        layers = stored.sizes("layers", 2)
        if layers[0] > _WIDEST or layers[1] > _MOST:
            raise InputError(
                f"the generator's codes must have at most {_WIDEST} dimensions, and its layer {_MOST} units"
            )
        shapes = Dense.shapes([*layers, outputs])
        mixed = (classes, components)
        return cls(
            label=label,
            cells=cells,
            groups=groups,
            by_label=stored.array("by_label", (classes,), least=1e-9),
            tables=split(stored.array("tables", (total, classes), least=0.0), sizes),
            mixtures=Mixtures(
                stored.array("mixture_weights", mixed, least=1e-9, most=1.0),
                stored.array("mixture_means", (*mixed, layers[0]), least=-1.0, most=1.0),
                stored.array("mixture_covariances", (*mixed, layers[0], layers[0]), least=-1e3, most=1e3),
            ),
            decoder=Dense(
                tuple(stored.array(f"weights_{at}", shape, least=-1e6, most=1e6) for at, shape in enumerate(shapes)),
                tuple(stored.array(f"biases_{at}", shape[1:], least=-1e6, most=1e6) for at, shape in enumerate(shapes)),
            ),
            base=stored.array("base", (classes, outputs), least=-1e6, most=1e6),
        )


@dataclass(frozen=True, kw_only=True)
class AutoEncoderMixture(Synthesizer):
    """A private auto-encoder, and a normal mixture of its codes for each label.

    Needs torch for learning; rows are drawn without it.

    Parameters
    ----------
    width : int
        The number of dimensions of a code.
    hidden : int
        The number of units of the hidden layers.
    components : int
        The number of components of each mixture.
    rounds : int
        The number of rounds of DP-EM.
    steps : int
        The number of steps of DP-SGD.
    rate : float
        The probability with which a step draws each record. For millions of records a smaller one takes less time.
    clip : float
        The largest norm of a record's gradient.
    learning_rate : float
        Of Adam.
    jitter : float
        The standard deviation of the noise on codes in training.

    Examples
    --------
    >>> from sfumato.budget.noise import Source
    >>> from sfumato.synthesizers.tables.base import Rows
    >>> axes = Axis("sex", 3, False), Axis("age", 100, True)
    >>> rows = Rows(axes, (np.array([0, 0, 1]), np.array([30, 30, 40])), None)
    >>> method = AutoEncoderMixture(width=2, hidden=4, components=2, rounds=1, steps=3, rate=0.5)
    >>> rng = np.random.default_rng(0)
    >>> model = method.learn(rows, NoisySums(method.shares(axes, None), 0.0, Source()), rng)
    >>> sex, age = model.sample(6, rng)
    >>> sorted(set(age.tolist()))
    [30, 40]
    """

    name: ClassVar[str] = "autoencoder"
    model: ClassVar[type[Model]] = AutoEncoderModel

    width: int = 8
    hidden: int = 64
    components: int = 5
    rounds: int = 3
    steps: int = 200
    rate: float = 0.05
    clip: float = 1.0
    learning_rate: float = 0.01
    jitter: float = 0.1

    def __post_init__(self) -> None:
        whole("the width of a code", self.width, most=_WIDEST)
        for name, value in (("hidden units", self.hidden), ("components", self.components)):
            whole(f"the number of {name}", value, most=_MOST)
        for name, count in (("rounds", self.rounds), ("steps", self.steps)):
            whole(f"the number of {name}", count)
        real("the sampling rate", self.rate, above=0, most=1)
        for name, number in (("clip", self.clip), ("learning rate", self.learning_rate)):
            real(f"the {name}", number, above=0)
        real("the jitter", self.jitter, least=0)

    def prepare(self) -> None:
        """Raise an error if torch is missing."""
        require_extra("torch", "torch", "the auto-encoder")

    def shares(self, axes: Sequence[Axis], label: int | None, *, scans: bool = True) -> Mapping[str, Share]:
        """Return the kinds of sums that `learn` asks for, the steps of training, and the worth of each."""
        if not scans:
            raise InputError(
                "the auto-encoder has to read the records, but here they can only be counted",
                hint="collect the table into memory, or use another method",
            )
        wide = any(is_wide(one) for at, one in enumerate(axes) if at != label)
        return {
            **({"values": Share(1, 0.05)} if wide else {}),
            "cells": Share(1, 0.2),
            "training": Steps(self.steps, 0.4, rate=self.rate, dimensions=self._most_weights(axes, label)),
            **em_shares(self.rounds, 0.4),
        }

    def _layers(self, outputs: int, labels: int) -> tuple[list[int], list[int]]:
        return [outputs + labels, self.hidden, self.width], [self.width, self.hidden, outputs]

    def _most_weights(self, axes: Sequence[Axis], label: int | None) -> int:
        """Return the largest number of weights, whatever groups will be found."""
        # The domain of an undeclared label is not known yet, but it does not exceed _MOST.
        outputs = (_GROUPS + 2) * len(axes)
        down, up = self._layers(outputs, _MOST if label is not None else 1)
        return Dense.count(down) + Dense.count(up)

    def learn(self, records: Records, sums: NoisySums, rng: np.random.Generator) -> AutoEncoderModel:
        """Learn from the records through noisy sums and steps of DP-SGD."""
        columns = [at for at in range(len(records.axes)) if at != records.label]
        cells = find_cells(records, columns, sums)
        raw, _ = count_cells(records, columns, cells, sums)
        by_label = label_totals(raw)
        if len(by_label) > _MOST:
            raise InputError(f"the auto-encoder takes at most {_MOST} labels, got {len(by_label):,}")
        tables = [np.stack(list(map(onto_simplex, one.T, by_label)), axis=1) for one in raw]
        groups = [
            coarse_groups(one.sum(axis=1), _GROUPS, _RARE, ordered=records.axes[at].ordered)
            for one, at in zip(tables, columns, strict=True)
        ]
        data = _Coded.of(records, columns, cells, groups, len(by_label))
        margins = [by_group(one, group) for one, group in zip(tables, groups, strict=True)]
        base = np.concatenate([_log_shares(one) for one in margins]).T.copy()
        encoder, decoder = self._train(data, base, float(by_label.sum()), sums, int(rng.integers(2**62)))
        mixtures = fit_mixtures(
            data.encode(encoder),
            data.labels,
            len(by_label),
            sums,
            components=self.components,
            rounds=self.rounds,
            weights=data.weights,
        )
        model = AutoEncoderModel(records.label, cells, groups, by_label, tables, mixtures, decoder, base)
        model.fit_shares(rng)
        return model

    def _train(self, data: _Coded, base: Floats, rows: float, sums: NoisySums, seed: int) -> tuple[Dense, Dense]:
        import torch

        from sfumato.synthesizers.auto_encoder import Training, train

        steps = sums.shares["training"]
        assert isinstance(steps, Steps)
        down, up = self._layers(base.shape[1], len(base))
        known = torch.from_numpy(np.vstack([base, np.zeros(base.shape[1])]).astype(np.float32))
        sizes = data.sizes

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            """Return the sum of the columns' cross-entropies; 0 for a record without a label."""
            label = targets[:, -1]
            parts = torch.split(outputs + known[label], sizes, dim=1)
            losses = [
                torch.nn.functional.cross_entropy(part, targets[:, at], reduction="none")
                for at, part in enumerate(parts)
            ]
            return torch.stack(losses).sum(0) * (label < len(base))

        def batches(at: Ints) -> tuple[Tensor, Tensor, Tensor | None]:
            targets = np.column_stack([data.codes[at], data.labels[at]]).astype(np.int64)
            weights = None if data.weights is None else torch.from_numpy(data.weights[at].astype(np.float32))
            return torch.from_numpy(data.one_hot(at)), torch.from_numpy(targets), weights

        return sums.run(
            "training",
            lambda noise, source: train(
                down,
                up,
                loss,
                batches,
                records=len(data.labels),
                rows=rows,
                steps=steps,
                noise=noise,
                source=source,
                seed=seed,
                how=Training(clip=self.clip, learning_rate=self.learning_rate, jitter=self.jitter),
            ),
            times=steps.times,
        )


@dataclass(frozen=True, eq=False, repr=False)
class _Coded:
    """The records as groups and labels; those without a label stay, with a label beyond the last, and count nothing."""

    codes: NDArray[np.int16]
    labels: Ints
    weights: Floats | None
    sizes: list[int]
    classes: int

    @classmethod
    def of(
        cls, records: Records, columns: Sequence[int], cells: Sequence[Cells], groups: Sequence[Ints], classes: int
    ) -> _Coded:
        """Read all records."""
        sizes = [int(one.max()) + 1 for one in groups]
        codes, labels, weights = list[NDArray[np.int16]](), list[Ints](), list[Floats]()
        for batch in records.scan():
            found = [
                cell.recoding.then(group).of_codes(batch.codes[at])
                for at, cell, group in zip(columns, cells, groups, strict=True)
            ]
            codes.append(np.stack(found, axis=1).astype(np.int16))
            alone = np.zeros(len(batch), dtype=np.int64)
            labels.append(alone if records.label is None else batch.codes[records.label].astype(np.int64))
            if batch.weights is not None:
                weights.append(batch.weights)
        every = np.concatenate(weights) if weights else None
        return cls(np.concatenate(codes), np.concatenate(labels), every, sizes, classes)

    @cached_property
    def _places(self) -> NDArray[np.int32]:
        """The inputs that are 1: the group of each column, and the label."""
        starts = np.cumsum([0, *self.sizes]).astype(np.int32)
        label = np.minimum(self.labels, self.classes - 1).astype(np.int32)
        places: NDArray[np.int32] = np.column_stack([self.codes.astype(np.int32), label]) + starts
        return places

    def one_hot(self, at: Ints) -> NDArray[np.float32]:
        """Return the inputs of the encoder for some records."""
        inputs = np.zeros((len(at), sum(self.sizes) + self.classes), dtype=np.float32)
        np.put_along_axis(inputs, self._places[at], 1.0, axis=1)
        return inputs

    def encode(self, encoder: Dense) -> Floats:
        """Return the code of each record, before it is clipped to the ball."""
        first, *weights = encoder.weights
        rest = Dense(tuple(weights), encoder.biases[1:])
        codes = np.empty((len(self.labels), len(encoder.biases[-1])))
        for start in range(0, len(codes), _AT_ONCE):
            part = self._places[start : start + _AT_ONCE]
            hidden = np.tile(encoder.biases[0].astype(np.float64), (len(part), 1))
            for places in part.T:
                hidden += first[places]
            codes[start : start + _AT_ONCE] = rest.one_by_one(np.maximum(hidden, 0.0))
        return codes


def _log_shares(counts: Floats) -> Floats:
    """Return the logarithms of shares along the first axis, none of which is 0."""
    shares = counts / np.maximum(counts.sum(axis=0), 1e-300)
    logs: Floats = np.log(np.maximum(shares, _LEAST))
    return logs

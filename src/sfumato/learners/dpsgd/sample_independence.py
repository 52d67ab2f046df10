"""Test on random samples whether a loss and an augmentation treat each sample independently.

Clipping bounds the effect of one sample only if its gradient depends on no other sample. With a contrastive loss or
mixup, every sample enters the gradients of others, and removing one person changes the sum by several clips. Loss and
augmentation are functions of the user, so they can only be tested: on random outputs, targets and inputs shaped like
the real ones, never on the data. A test can find mixing, but cannot prove its absence.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from sfumato.errors import OptionError, SfumatoError
from sfumato.learners.dpsgd.module_checks import nearly_equal, preserving_state, random_like, seed_torch

if TYPE_CHECKING:
    from sfumato.learners.gradients.clipping import Loss

__all__ = ["OneByOne", "refuse_mixing_augment", "refuse_mixing_loss"]

Augment = Callable[[Tensor], Tensor]

_ROUNDS = 2  # random batches per kind of outputs and targets
_ROWS = 6  # rows of a batch: one stays while the others change
_LARGE = 33  # rows of a large batch, if that many fit into _NUMBERS
_NUMBERS = 2**22
_DRAWS = 32  # random states per augmentation: mixing in a quarter of all batches is missed once in 10,000


# --- the loss ---


def refuse_mixing_loss(module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> None:
    """Raise an `OptionError` if the loss or gradient of one sample depends on another sample.

    The loss is called with random outputs and targets. The loss of a sample, and its gradient with respect to that
    sample's output, must not change with the other samples (other outputs and targets, equal targets, another order,
    another number of them) nor with earlier calls, and its gradient with respect to other outputs must be exactly 0.

    The module runs once, on random inputs, for the shapes of its outputs. Of inputs and targets only shapes and types
    are used.
    """
    with _isolated(module, inputs), torch.autocast(inputs.device.type, enabled=False):
        given = random_like(inputs, min(len(inputs), 3))  # few, to fit into memory
        leaves, form = tree_flatten(module(given))
        own = [one.detach() if isinstance(one, Tensor) else one for one in leaves]
        has_rows = [isinstance(one, Tensor) and one.shape[:1] == given.shape[:1] for one in own]
        # A class out of range kills a process on a GPU, so everything is tried on the CPU first.
        on_cpu = [one.cpu() if isinstance(one, Tensor) else one for one in own]
        kinds = list(_accepted(loss, _Kind(on_cpu, has_rows, form, targets.cpu())))
        if not kinds:
            kinds = [_Kind(own, has_rows, form, targets.to(given.device))]
        with _explaining_failure():
            for kind, turn in itertools.product(kinds, range(_ROUNDS)):
                _compare(loss, kind, turn)


def _as_given(rows: Tensor) -> Tensor:
    return rows


def _any_number(rows: Tensor) -> Tensor:
    return rows + torch.randn_like(rows)


def _any_share(rows: Tensor) -> Tensor:
    return torch.rand_like(rows)


def _two_classes(shares: Tensor, _: Tensor) -> Tensor:
    return shares.round()


def _shares(shares: Tensor, _: Tensor) -> Tensor:
    return shares


def _numbers(_: Tensor, numbers: Tensor) -> Tensor:
    return numbers


def _classes(count: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda shares, _: (shares * count).floor()


class _Kind(NamedTuple):
    """Random outputs and targets of one kind."""

    given: Sequence[Any]
    """The outputs of the model for a few samples, as a flat list."""
    has_rows: Sequence[bool]
    """Which of the outputs have a row per sample."""
    form: TreeSpec
    like: Tensor
    """Example targets; only their shape and type are used."""
    outputs: Callable[[Tensor], Tensor] = _as_given
    targets: Callable[[Tensor, Tensor], Tensor] = _two_classes

    @property
    def rows(self) -> list[Tensor]:
        """The outputs that have a row per sample."""
        return list(itertools.compress(self.given, self.has_rows))

    def draw(self, count: int) -> tuple[list[Any], Tensor]:
        """Return random outputs, as a flat list, and random targets for ``count`` samples."""
        outputs = [self._mix(one, count) if has else one for one, has in zip(self.given, self.has_rows, strict=True)]
        shape, device = (count, *self.like.shape[1:]), self.like.device
        targets = self.targets(torch.rand(shape, device=device), torch.randn(shape, device=device))
        return outputs, targets.to(self.like.dtype)

    def _mix(self, rows: Tensor, count: int) -> Tensor:
        """Return random rows between pairs of the given rows."""
        one, other = (rows[torch.randint(0, len(rows), (count,), device=rows.device)] for _ in range(2))
        if not rows.is_floating_point():
            return one
        share = torch.rand(count, *[1] * (rows.dim() - 1), device=rows.device, dtype=rows.dtype)
        return self.outputs(one + share * (other - one))

    @property
    def largest(self) -> int:
        """The number of rows of a large batch."""
        each = sum(one[0].numel() for one in self.rows) + self.like[0].numel()
        return max(_ROWS, min(_LARGE, _NUMBERS // max(each, 1)))


def _accepted(loss: Loss, kind: _Kind) -> Iterator[_Kind]:
    """Yield each kind of outputs with the first kind of targets that the loss accepts."""
    if kind.like.is_floating_point():
        kinds = [_shares, _numbers, _two_classes]
    else:
        sizes = [size for one in kind.rows for size in (*one.shape[1:2], *one.shape[-1:])]
        kinds = [_classes(size) for size in dict.fromkeys([*sizes, 2, 1])]
    for turn, outputs in enumerate((_as_given, _any_number, _any_share)):
        at = turn if kind.like.is_floating_point() else 0
        tried = (kind._replace(outputs=outputs, targets=wanted) for wanted in (*kinds[at:], *kinds[:at]))
        yield from itertools.islice((one for one in tried if _accepts(loss, one)), 1)


def _accepts(loss: Loss, kind: _Kind) -> bool:
    try:
        first = _SampleLoss.of(loss, kind, *kind.draw(_ROWS), 0)
    except SfumatoError:
        raise
    except Exception:  # noqa: BLE001 - a loss may raise anything for numbers that it does not expect
        return False
    return bool(first.value.isfinite() and first.gradient.isfinite().all())


@contextmanager
def _explaining_failure() -> Iterator[None]:
    """Turn any error of a loss into an `OptionError`."""
    try:
        yield
    except SfumatoError:
        raise
    except Exception as error:
        raise OptionError(
            f"the loss fails on random samples, so it cannot be tested for mixing samples: "
            f"{str(error).partition(chr(10))[0][:200]}",
            hint="it must accept any number of samples, any outputs of the model's shape, and targets 0 and 1",
        ) from error


class _SampleLoss(NamedTuple):
    """The loss of one sample of a batch, and its gradient with respect to the sample's own output."""

    value: Tensor
    gradient: Tensor

    @classmethod
    def of(
        cls, loss: Loss, kind: _Kind, outputs: Sequence[Any], targets: Tensor, row: int, seed: int = 0
    ) -> _SampleLoss:
        """Compute the losses of a batch, and return those of one row."""
        _seed_all(seed)
        tracked = [
            one.detach().clone().requires_grad_(one.is_floating_point()) if isinstance(one, Tensor) else one
            for one in outputs
        ]
        losses = loss(tree_unflatten(tracked, kind.form), targets.clone())
        if losses.numel() == len(targets) == 1:
            losses = losses.reshape(1)
        if losses.shape != (len(targets),):
            raise OptionError(
                f"the loss must return one number per sample, got the shape {tuple(losses.shape)} for {len(targets)} "
                f"random samples",
                hint='use reduction="none"',
            )
        over = [one for one in itertools.compress(tracked, kind.has_rows) if one.requires_grad]
        gradients = torch.autograd.grad(losses[row], over, allow_unused=True) if losses.requires_grad and over else ()
        reached = [one.reshape(len(targets), -1) for one in gradients if one is not None]
        joined = torch.cat([losses.new_zeros(len(targets), 0), *reached], 1)
        own = joined[row].clone()
        joined[row] = 0
        if bool((joined.abs() > 0).any()):  # NaN passes: it is 0 times another sample's loss that is not finite
            raise _mixing_loss()
        return cls(losses[row].detach(), own)

    def same(self, other: _SampleLoss) -> bool:
        return nearly_equal(self.value, other.value) and nearly_equal(self.gradient, other.gradient)


def _compare(loss: Loss, kind: _Kind, turn: int) -> None:
    """Check that the loss of one sample does not change when the other samples of its batch do."""
    _seed_all(1 + turn)
    batch, beside, many = (kind.draw(count) for count in (_ROWS, _ROWS, kind.largest))
    row = 2 * turn

    def own_loss(outputs: Sequence[Any], targets: Tensor, row: int = row, seed: int = 0) -> _SampleLoss:
        return _SampleLoss.of(loss, kind, outputs, targets, row, seed)

    def each(change: Callable[..., Tensor], *of: tuple[list[Any], Tensor]) -> tuple[list[Any], Tensor]:
        """Apply the same change to all outputs and to the targets."""
        outputs = [
            change(*some) if has else some[0] for has, *some in zip(kind.has_rows, *(one for one, _ in of), strict=True)
        ]
        return outputs, change(*(one for _, one in of))

    def with_own(own: Tensor, others: Tensor) -> Tensor:
        return torch.cat([others[:row], own[row : row + 1], others[row + 1 :]])

    first = own_loss(*batch)
    if not first.same(own_loss(*batch)):
        raise OptionError(
            "the loss returns different numbers for the same samples when it is called again",
            hint="store nothing between calls, and draw random numbers from torch's generator",
        )
    others = each(with_own, batch, beside)
    equal = others[1][row : row + 1].expand_as(others[1])
    tried = [
        own_loss(*others),
        own_loss(batch[0], others[1]),
        own_loss(others[0], batch[1]),
        own_loss(others[0], equal),
    ]
    if first.same(own_loss(*batch, seed=1)):  # a random loss draws differently for another number of samples
        tried += [
            own_loss(*each(lambda one: one.flip(0), batch), row=_ROWS - 1 - row),
            own_loss(*each(lambda one: one[: row + 2], batch)),
            own_loss(*each(lambda one: one[row : row + 1], batch), row=0),
            own_loss(*each(with_own, batch, many)),
        ]
    if not all(first.same(one) for one in tried):
        raise _mixing_loss()
    if not first.same(own_loss(*batch)):
        raise OptionError("the loss returns different numbers for the same samples after a call with other samples")


def _mixing_loss() -> OptionError:
    return OptionError(
        "the loss mixes the samples of a batch: the loss of one changes with the others",
        hint="compute each sample's loss from its own output and target; contrastive losses, batch means and weights "
        "from batch counts cannot be trained privately",
    )


# --- augmentation ---


class OneByOne:
    """Wrap an augmentation to process samples one at a time, which rules out mixing.

    `Trainer` tests whether ``augment`` mixes samples by calling it again with the same random numbers, which works
    only if they come from the generators of torch, numpy (``np.random``) or Python (``random``). Use this wrapper for
    any other function, and for one that redraws until a sample suits it; it is slower. The function must not store
    anything from one sample for the next.

    Parameters
    ----------
    augment : callable
        Augments a batch of one sample.

    Examples
    --------
    >>> shaken = OneByOne(lambda one: one + np.random.default_rng().normal())
    >>> shaken(torch.zeros(3, 2)).shape
    torch.Size([3, 2])
    """

    def __init__(self, augment: Augment) -> None:
        self.augment = augment

    def __call__(self, batch: Tensor) -> Tensor:
        """Return one augmented view of each sample."""
        seen = [self.augment(one) for one in batch.split(1)]
        for one in seen:
            _refuse_misshapen(one, 1)
        return torch.cat(seen)


def refuse_mixing_augment(augment: Augment, example: Tensor) -> None:
    """Raise an `OptionError` if the augmented view of one sample depends on another sample.

    The augmentation is called with random samples shaped like the example, in several random states. In the same
    state, the view of a sample must not change when the other samples do. If the augmentation is not random, the view
    must not change with the order or number of samples either.
    """
    with _isolated(nn.Identity(), example):
        given = random_like(example, 4)
        others = [random_like(example, 5)[:4], torch.ones_like(given), torch.zeros_like(given)]
        first = _view(augment, given, 0)
        if first.is_floating_point() and not bool(first.isfinite().all()):
            raise OptionError("augment returns missing or infinite numbers")
        if isinstance(augment, OneByOne):
            return
        is_random = False
        for draw in range(_DRAWS):
            seen, row = _view(augment, given, draw), draw % 4
            if not nearly_equal(seen, _view(augment, given, draw)):
                raise OptionError(
                    "augment returns different views of the same samples in the same random state",
                    hint="store nothing between calls and draw from torch's generator, or wrap it in OneByOne()",
                )
            is_random = is_random or not nearly_equal(seen, first)
            beside = others[draw % 3].clone()
            beside[row] = given[row]
            if not nearly_equal(seen[row], _view(augment, beside, draw)[row]):
                raise _mixing_augment()
        if is_random:
            return
        for expected, changed in ((first.flip(0), given.flip(0)), (first[:3], given[:3])):
            if not nearly_equal(expected, _view(augment, changed, 0)):
                raise _mixing_augment()


def _view(augment: Augment, given: Tensor, seed: int) -> Tensor:
    _seed_all(seed)
    batch = given.clone()
    try:
        seen = augment(batch)
    except SfumatoError:
        raise
    except Exception as error:
        raise OptionError(
            f"augment fails on random samples like these: {str(error).partition(chr(10))[0][:200]}",
            hint="it gets a batch of any size and must return as many samples",
        ) from error
    _refuse_misshapen(seen, len(given))
    if not torch.equal(batch, given):
        raise OptionError(
            "augment changes the batch, and so the samples, in place", hint="work on a copy: batch.clone()"
        )
    return seen


def _refuse_misshapen(seen: Any, count: int) -> None:
    if not isinstance(seen, Tensor):
        raise OptionError(f"augment must return a tensor, got {type(seen).__name__}")
    if seen.shape[:1] != (count,):
        raise OptionError("augment must return as many samples as it gets")


def _mixing_augment() -> OptionError:
    return OptionError(
        "augment mixes the samples of a batch: the view of one changes with the others",
        hint="augment each sample on its own, or wrap the function in OneByOne(); mixup, cutmix and batch means cannot "
        "be trained privately",
    )


# --- random state ---


@contextmanager
def _isolated(module: nn.Module, example: Tensor) -> Iterator[None]:
    """Restore the module and all random states afterwards."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(list(devices)), preserving_state(module, example):
            _seed_all(0)
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _seed_all(seed: int) -> None:
    seed_torch(seed)
    np.random.seed(seed)
    random.seed(seed)

"""Whether a loss and an augmentation treat each sample on its own, tested on random samples.

Clipping bounds what one sample adds only if its gradient is its own. A contrastive loss or mixup puts every sample
into the gradients of others, and then removing one person moves the sum by several clips. Both are functions of a
user, so they can only be tried: on random outputs, targets and inputs shaped like the real ones, never on the data.
A test can find mixing, but it cannot prove that there is none.
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
from sfumato.learners.dpsgd.module_checks import like, same, undisturbed

if TYPE_CHECKING:
    from sfumato.learners.gradients.clipping import Loss

__all__ = ["OneByOne", "refuse_mixing_augment", "refuse_mixing_loss"]

Augment = Callable[[Tensor], Tensor]

_ROUNDS = 2  # random batches per kind of outputs and targets
_ROWS = 6  # of a batch, of which one stays while the others change
_LARGE = 33  # rows of a large batch, if that many fit into _NUMBERS
_NUMBERS = 2**22
_DRAWS = (
    32  # random states in which an augmentation is tried: mixing in a quarter of all batches is missed once in 10,000
)


# --- the loss ---


def refuse_mixing_loss(module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> None:
    """Refuse a loss in which one sample's number or gradient depends on another sample.

    It is tried on random outputs and targets. The loss of a sample, and its gradient with respect to that sample's
    output, must not change with the other samples (other outputs and targets, equal targets, another order, another
    number of them) nor with earlier calls, and its gradient with respect to other outputs must be exactly 0.

    Parameters
    ----------
    module : torch.nn.Module
        It is run once, on random inputs, for the shapes of its outputs.
    loss : callable
    inputs, targets : Tensor
        Only their shapes and types are used.
    """
    with _own_chance(module, inputs), torch.autocast(inputs.device.type, enabled=False):
        given = like(inputs, min(len(inputs), 3))  # no more than there is memory for
        leaves, form = tree_flatten(module(given))
        own = [one.detach() if isinstance(one, Tensor) else one for one in leaves]
        has_rows = [isinstance(one, Tensor) and one.shape[:1] == given.shape[:1] for one in own]
        # A class that is out of range ends a process that uses a GPU, so everything is tried on the CPU first.
        there = [one.cpu() if isinstance(one, Tensor) else one for one in own]
        kinds = list(_taken(loss, _Kind(there, has_rows, form, targets.cpu())))
        if not kinds:
            kinds = [_Kind(own, has_rows, form, targets.to(given.device))]
        with _in_our_words():
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
    """What the model gives for a few samples, flat."""
    has_rows: Sequence[bool]
    """Which of these have a row per sample."""
    form: TreeSpec
    like: Tensor
    """Targets, of which only the shape and type are used."""
    outputs: Callable[[Tensor], Tensor] = _as_given
    targets: Callable[[Tensor, Tensor], Tensor] = _two_classes

    @property
    def rows(self) -> list[Tensor]:
        """The outputs that have a row per sample."""
        return list(itertools.compress(self.given, self.has_rows))

    def draw(self, count: int) -> tuple[list[Any], Tensor]:
        """Return random outputs, flat, and targets of so many samples."""
        found = [self._drawn(one, count) if has else one for one, has in zip(self.given, self.has_rows, strict=True)]
        shape, device = (count, *self.like.shape[1:]), self.like.device
        drawn = self.targets(torch.rand(shape, device=device), torch.randn(shape, device=device))
        return found, drawn.to(self.like.dtype)

    def _drawn(self, rows: Tensor, count: int) -> Tensor:
        one, other = (rows[torch.randint(0, len(rows), (count,), device=rows.device)] for _ in range(2))
        if not rows.is_floating_point():
            return one
        share = torch.rand(count, *[1] * (rows.dim() - 1), device=rows.device, dtype=rows.dtype)
        return self.outputs(one + share * (other - one))

    @property
    def largest(self) -> int:
        """How many rows a large batch has."""
        each = sum(one[0].numel() for one in self.rows) + self.like[0].numel()
        return max(_ROWS, min(_LARGE, _NUMBERS // max(each, 1)))


def _taken(loss: Loss, kind: _Kind) -> Iterator[_Kind]:
    """Yield the kinds of outputs, each with targets of a kind that the loss takes beside them."""
    if kind.like.is_floating_point():
        kinds = [_shares, _numbers, _two_classes]
    else:
        sizes = [size for one in kind.rows for size in (*one.shape[1:2], *one.shape[-1:])]
        kinds = [_classes(size) for size in dict.fromkeys([*sizes, 2, 1])]
    for turn, outputs in enumerate((_as_given, _any_number, _any_share)):
        at = turn if kind.like.is_floating_point() else 0
        tried = (kind._replace(outputs=outputs, targets=wanted) for wanted in (*kinds[at:], *kinds[:at]))
        yield from itertools.islice((one for one in tried if _is_taken(loss, one)), 1)


def _is_taken(loss: Loss, kind: _Kind) -> bool:
    try:
        found = _Found.of(loss, kind, *kind.draw(_ROWS), 0)
    except SfumatoError:
        raise
    except Exception:  # noqa: BLE001 - whatever a loss raises for numbers that it does not expect
        return False
    return bool(found.value.isfinite() and found.gradient.isfinite().all())


@contextmanager
def _in_our_words() -> Iterator[None]:
    """Refuse a loss that fails when it is tried."""
    try:
        yield
    except SfumatoError:
        raise
    except Exception as error:
        raise OptionError(
            f"the loss fails on random samples, so it cannot be tested for mixing samples: "
            f"{str(error).partition(chr(10))[0][:200]}",
            hint="let it take any number of samples, any outputs of the model's shape, and targets 0 and 1",
        ) from error


class _Found(NamedTuple):
    """The loss of one sample of a batch, and its gradient with respect to the sample's own output."""

    value: Tensor
    gradient: Tensor

    @classmethod
    def of(cls, loss: Loss, kind: _Kind, outputs: Sequence[Any], targets: Tensor, row: int, seed: int = 0) -> _Found:
        """Compute the losses of a batch, and look at one row."""
        _set_chance(seed)
        tracked = [
            one.detach().clone().requires_grad_(one.is_floating_point()) if isinstance(one, Tensor) else one
            for one in outputs
        ]
        losses = loss(tree_unflatten(tracked, kind.form), targets.clone())
        if losses.numel() == len(targets) == 1:
            losses = losses.reshape(1)
        if losses.shape != (len(targets),):
            raise OptionError(
                f"the loss must give one number per sample, got the shape {tuple(losses.shape)} for {len(targets)} "
                f"random samples",
                hint='use reduction="none"',
            )
        over = [one for one in itertools.compress(tracked, kind.has_rows) if one.requires_grad]
        found = torch.autograd.grad(losses[row], over, allow_unused=True) if losses.requires_grad and over else ()
        reached = [one.reshape(len(targets), -1) for one in found if one is not None]
        joined = torch.cat([losses.new_zeros(len(targets), 0), *reached], 1)
        own = joined[row].clone()
        joined[row] = 0
        if bool((joined.abs() > 0).any()):  # not a number: nothing, times another sample's loss that is not finite
            raise _mixing_loss()
        return cls(losses[row].detach(), own)

    def same(self, other: _Found) -> bool:
        return same(self.value, other.value) and same(self.gradient, other.gradient)


def _compare(loss: Loss, kind: _Kind, turn: int) -> None:
    """Let one sample of a batch stay, and see whether what is found for it does."""
    _set_chance(1 + turn)
    batch, beside, many = (kind.draw(count) for count in (_ROWS, _ROWS, kind.largest))
    row = 2 * turn

    def found(outputs: Sequence[Any], targets: Tensor, row: int = row, seed: int = 0) -> _Found:
        return _Found.of(loss, kind, outputs, targets, row, seed)

    def each(change: Callable[..., Tensor], *of: tuple[list[Any], Tensor]) -> tuple[list[Any], Tensor]:
        """Change all outputs and the targets alike."""
        outputs = [
            change(*some) if has else some[0] for has, *some in zip(kind.has_rows, *(one for one, _ in of), strict=True)
        ]
        return outputs, change(*(one for _, one in of))

    def with_own(own: Tensor, others: Tensor) -> Tensor:
        return torch.cat([others[:row], own[row : row + 1], others[row + 1 :]])

    first = found(*batch)
    if not first.same(found(*batch)):
        raise OptionError(
            "the loss gives other numbers for the same samples when it is called again",
            hint="keep nothing between calls, and draw random numbers from torch's generator",
        )
    company = each(with_own, batch, beside)
    equal = company[1][row : row + 1].expand_as(company[1])
    tried = [found(*company), found(batch[0], company[1]), found(company[0], batch[1]), found(company[0], equal)]
    if first.same(found(*batch, seed=1)):  # else the draws are others for another number of samples
        tried += [
            found(*each(lambda one: one.flip(0), batch), row=_ROWS - 1 - row),
            found(*each(lambda one: one[: row + 2], batch)),
            found(*each(lambda one: one[row : row + 1], batch), row=0),
            found(*each(with_own, batch, many)),
        ]
    if not all(first.same(one) for one in tried):
        raise _mixing_loss()
    if not first.same(found(*batch)):
        raise OptionError("the loss gives other numbers for the same samples after it has seen others")


def _mixing_loss() -> OptionError:
    return OptionError(
        "the loss mixes the samples of a batch: the loss of one changes with the others",
        hint="compute each sample's loss from its own output and target; contrastive losses, means over the batch and "
        "weights by its counts cannot be trained privately",
    )


# --- augmentation ---


class OneByOne:
    """Augments samples one at a time, so that none can meet another.

    `Trainer` tests whether ``augment`` mixes samples by calling it again with the same random numbers, which it can
    only repeat if they come from the generators of torch, numpy (``np.random``) or Python (``random``). For any other
    function, and for one that redraws until a sample suits it, this is the way; it is slower. The function must not
    keep anything of one sample for the next.

    Parameters
    ----------
    augment : callable
        Changes a batch that holds one sample.

    Examples
    --------
    >>> shaken = OneByOne(lambda one: one + np.random.default_rng().normal())
    >>> shaken(torch.zeros(3, 2)).shape
    torch.Size([3, 2])
    """

    def __init__(self, augment: Augment) -> None:
        self.augment = augment

    def __call__(self, batch: Tensor) -> Tensor:
        """Return one view of each sample."""
        seen = [self.augment(one) for one in batch.split(1)]
        for one in seen:
            _refuse_misshapen(one, 1)
        return torch.cat(seen)


def refuse_mixing_augment(augment: Augment, example: Tensor) -> None:
    """Refuse an augmentation in which one sample's view depends on another sample.

    It is tried on random samples like the example, in several random states: with the same state, the view of a
    sample must not change when the others do. If nothing is random, it must not change with the order and the number
    of samples either.
    """
    with _own_chance(nn.Identity(), example):
        given = like(example, 4)
        others = [like(example, 5)[:4], torch.ones_like(given), torch.zeros_like(given)]
        first = _view(augment, given, 0)
        if first.is_floating_point() and not bool(first.isfinite().all()):
            raise OptionError("augment gives numbers that are missing or infinite")
        if isinstance(augment, OneByOne):
            return
        is_random = False
        for draw in range(_DRAWS):
            seen, row = _view(augment, given, draw), draw % 4
            if not same(seen, _view(augment, given, draw)):
                raise OptionError(
                    "augment gives other views of the same samples when it is called again in the same random state",
                    hint="keep nothing between calls and draw from torch's generator, or wrap it in OneByOne()",
                )
            is_random = is_random or not same(seen, first)
            beside = others[draw % 3].clone()
            beside[row] = given[row]
            if not same(seen[row], _view(augment, beside, draw)[row]):
                raise _mixing_augment()
        if not is_random and not (
            same(first.flip(0), _view(augment, given.flip(0), 0)) and same(first[:3], _view(augment, given[:3], 0))
        ):
            raise _mixing_augment()


def _view(augment: Augment, given: Tensor, seed: int) -> Tensor:
    _set_chance(seed)
    batch = given.clone()
    try:
        seen = augment(batch)
    except SfumatoError:
        raise
    except Exception as error:
        raise OptionError(
            f"augment fails on random samples like these: {str(error).partition(chr(10))[0][:200]}",
            hint="it gets a batch of any size, and must return as many samples",
        ) from error
    _refuse_misshapen(seen, len(given))
    if not torch.equal(batch, given):
        raise OptionError(
            "augment changes the batch in place, and with it the samples", hint="work on a copy: batch.clone()"
        )
    return seen


def _refuse_misshapen(seen: Any, count: int) -> None:
    if not isinstance(seen, Tensor):
        raise OptionError(f"augment must give a tensor, got {type(seen).__name__}")
    if seen.shape[:1] != (count,):
        raise OptionError("augment must give as many samples as it got")


def _mixing_augment() -> OptionError:
    return OptionError(
        "augment mixes the samples of a batch: the view of one changes with the others",
        hint="change each sample on its own, or wrap it in OneByOne(); mixup, cutmix and means over the batch cannot "
        "be trained privately",
    )


# --- chance ---


@contextmanager
def _own_chance(module: nn.Module, example: Tensor) -> Iterator[None]:
    """Leave the module and all random numbers as they were."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(list(devices)), undisturbed(module, example):
            _set_chance(0)
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _set_chance(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # torch.manual_seed would note a stack trace each time, for when it will be
        torch.cuda.manual_seed_all(seed)
    np.random.seed(seed)
    random.seed(seed)

"""Anonymize the union of several tables without pooling them."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from sfumato.anonymizers.anonymize import as_method, plain_parameters, recipe_of
from sfumato.anonymizers.base import Anonymizer, measure_release, refuse_unreadable, require_quasi
from sfumato.anonymizers.guided.guidance import warn_of_sensitive
from sfumato.anonymizers.guided.guided import Criterion, CutBy, Guided
from sfumato.anonymizers.mondrian.mondrian import Mondrian
from sfumato.anonymizers.problem import Problem
from sfumato.anonymizers.publish import Members, Output, Published, publish, tell_apart
from sfumato.data.release import Provenance, Release
from sfumato.data.sanitize import sanitize
from sfumato.data.schema import Column, Kind, Role, Schema
from sfumato.data.table import Table
from sfumato.errors import InputError, OptionError, did_you_mean, one_of
from sfumato.federation.anonymity.assess import sum_of_all
from sfumato.federation.anonymity.cells import MOST_CELLS, described, public_values
from sfumato.federation.anonymity.grow import Layout, grow, guided_cuts, inconsistent, mondrian_cuts
from sfumato.federation.anonymity.holder import sendable
from sfumato.federation.anonymity.regions import Regions
from sfumato.federation.channel import Channel
from sfumato.federation.secure.sum import SecureSum
from sfumato.federation.wire import Message
from sfumato.measures.classes import Ints
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.loss.information_loss import Loss, loss_of
from sfumato.measures.released_table import ReleasedTable

__all__ = ["AnonymizedUnion", "anonymize_union"]

_MOST_CLASSES = 256  # of a label


@dataclass(frozen=True, eq=False, repr=False)
class AnonymizedUnion(ReleasedTable):
    """The anonymized union of several tables.

    Attributes
    ----------
    loss : the information loss; its divergence ``kl`` is None, because the joint counts of the originals are unknown
    """

    loss: Loss

    @property
    def certified_loss(self) -> dict[str, Any]:
        """The information loss; class measures are taken from the released file, as `verify` will do."""
        return self.loss.to_dict() | self.class_loss

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements as plain values."""
        return {**super().to_dict(), "loss": self.loss.to_dict(), "order": "shuffled"}


def anonymize_union(
    channel: Channel,
    secure: SecureSum,
    schema: Schema,
    guarantees: str | ClassGuarantee | Sequence[str | ClassGuarantee],
    *,
    method: Anonymizer | str = "mondrian",
    round_: int = 1,
) -> Release:
    """Anonymize the union of the holders' tables as if they had been pooled; no holder hands out a row.

    A tree is grown level by level. The holders count the values of each region under masks, the coordinator cuts each
    region where both sides keep every guarantee, and the holders recode their own rows like their regions. The recoded
    rows are counted and measured again; a guarantee that does not hold is an error. The cuts, classes and published
    values equal those of `sfumato.anonymize` on the pooled table.

    Parameters
    ----------
    channel : Channel
        The holders, whose handlers are those of `UnionHolder` besides those of the sum.
    secure : SecureSum
        How counts are added up.
    schema : Schema
        The columns to release, each with a public domain or bounds of whole numbers. Identifiers are left out.
    guarantees : str, ClassGuarantee or sequence of them
        What the union has to keep, such as ``"k=10,l=3"``. A part alone need not keep it.
    method : Mondrian or Guided
        Mondrian, or a tree guided by a column of classes:
        ``Guided(labels="ill", cross_fit=False, look_ahead=0)``. Only options that work on counts are supported.
    round_ : int
        This number and the next ones must not be those of another sum of this run.

    Returns
    -------
    The release of the union. Each holder keeps its own recoded rows as ``UnionHolder.part``.

    Notes
    -----
    The coordinator learns the counts of every region that it opens: how many rows of the union have each value of each
    quasi-identifier, jointly with each value of a sensitive column that a guarantee needs, and of the label. A region
    keeps every guarantee, but a count in it may be 1. It also learns the release, and not which holder a row is from.
    Holders learn the regions and the published values. The coordinator together with all holders but one learns
    the counts of that one holder; fewer colluders, as long as they are fewer than the threshold of the masks, learn
    only the sum over the others. This holds if the coordinator keeps to the protocol: one that does not can open
    regions of its own choice, such as one of a single person.

    A row counts as a person: a person with rows at several holders is not recognised. Anyone who knows which holder a
    released row is from knows more than the guarantee assumes, so publish the union, or the parts unnamed and together.

    Examples
    --------
    >>> import sfumato as sf
    >>> from sfumato.federation import InProcess, Party, PlainSum, UnionHolder, plain_handlers
    >>> schema = sf.Schema([sf.Column(name="age", role="quasi", bounds=(0, 99))])
    >>> tables = {"north": pl.DataFrame({"age": [20, 41, 60]}), "south": pl.DataFrame({"age": [22, 24]})}
    >>> holders = {name: UnionHolder(table) for name, table in tables.items()}
    >>> parties = [Party(name, {**plain_handlers(one.contribute), **one.handlers}) for name, one in holders.items()]
    >>> release = anonymize_union(InProcess(parties), PlainSum(), schema, "k=2")
    >>> release.k, sorted(release.table.frame["age"])
    (2, ['20-22', '20-22', '20-64', '20-64', '20-64'])
    >>> sorted(holders["south"].part.frame["age"])
    ['20-22', '20-64']
    """
    started = time.perf_counter()
    method = type(given := as_method(method))(
        **given.get_params() | {"guarantees": guarantees, "qi": (), "sensitive": ()}
    )
    output = _refuse_unsupported(method)
    require_quasi(schema)
    schema.refuse_person("anonymizing the union of several tables")
    shared = Schema(described(column) for column in schema.columns if not column.role.is_identifier)
    label = _label(method, shared)
    needed = shared.sensitive if any(one.needs_sensitive for one in method.asked) else ()
    union = _Union(channel, secure, shared, needed, label, itertools.count(round_))
    root = next(union.counts(Regions(), [0]))
    quasi, sensitive = [shared[name] for name in shared.quasi], [shared[name] for name in needed]
    guide, levels = None if label is None else shared[label], output is Output.LEVEL
    layout = Layout.of(quasi, sensitive, guide, root, method.asked, levels=levels)
    for domain in layout.problem.domains:
        refuse_unreadable(domain)
    layout.problem.require_reachable()
    if isinstance(method, Guided):
        _refuse_label(layout)
        entropy = one_of(Criterion, method.criterion, "criterion") is Criterion.ENTROPY
        choose = guided_cuts(layout, entropy=entropy, refine=bool(method.refine))
    else:
        choose = mondrian_cuts(layout)
    regions, parts = grow(union.counts, layout, root, choose)
    problem = Problem.of(layout.tuples(parts), shared.quasi, needed, method.asked)
    positions = np.column_stack([layout.public[at][problem.positions[:, at]] for at in range(len(quasi))])
    groups = np.searchsorted(regions.leaves, regions.route(positions))
    members = Members.of(problem, groups)
    published, exact = publish(problem, members, output), 0
    if output is Output.INTERVAL:
        published, exact = tell_apart(problem, members, published)
    rows = union.recoded(regions, published, int(problem.records.sum()))
    released = Table(sanitize(rows, shuffle=True), schema.released())
    assessment = measure_release(released, method.asked)
    union.keep(method.asked)
    columns = [domain.column for domain in problem.domains]
    loss = replace(loss_of(Published(members, published).paired(problem, columns)), kl=None)
    parameters = plain_parameters(method)
    details = {"groups": len(parts), "opened": len(regions), "holders": len(channel.names)}
    return Release(
        artifact=AnonymizedUnion(table=released, assessment=assessment, loss=loss),
        method=method.name,
        parameters=parameters,
        guarantees=method.asked,
        recipe=recipe_of(method, parameters, schema, keep_order=False),
        provenance=Provenance.of(None, len(rows), order="shuffled"),
        seconds=time.perf_counter() - started,
        details=details | ({"exact_ends": exact} if exact else {}),
    )


@dataclass(frozen=True)
class _Union:
    """The sums that the coordinator asks for."""

    channel: Channel
    secure: SecureSum
    schema: Schema
    needed: tuple[str, ...]
    label: str | None
    rounds: Iterator[int]

    def counts(self, regions: Regions, opened: Sequence[int]) -> Iterator[Ints]:
        """Yield the public counts of each region: a row per value of each quasi-identifier."""
        others = [*self.needed, *([self.label] if self.label is not None and self.label not in self.needed else [])]
        columns = [self.schema[name] for name in (*self.schema.quasi, *others)]
        sizes = [len(public_values(column)) + 1 for column in columns]
        number = len(self.schema.quasi)
        shape = (sum(sizes[:number]), max(sum(sizes[number:]), 1))
        at_once = MOST_CELLS // (shape[0] * shape[1])
        if not at_once:
            raise InputError(
                f"the values of the quasi-identifiers with those of the other columns make {shape[0] * shape[1]:,} "
                f"counts, and at most {MOST_CELLS:,} can be summed at once",
                hint="generalise the finest column first",
            )
        request = {"count": "regions", "schema": _sent(columns), "regions": regions.to_message()}
        for first in range(0, len(opened), at_once):
            some = opened[first : first + at_once]
            asked = {**request, "opened": np.array(some, dtype=np.int64)}
            yield from self.total(asked, len(some) * shape[0] * shape[1]).reshape(len(some), *shape)

    def recoded(self, regions: Regions, published: Sequence[pl.Series], rows: int) -> pl.DataFrame:
        """Have so many rows recoded, and build the union of the recoded rows from their counts."""
        others = [column for column in self.schema.columns if column.role is not Role.QUASI]
        values = [public_values(column) for column in others]
        shape = tuple(len(one) + 1 for one in values)
        combinations = math.prod(shape)
        at_once = MOST_CELLS // combinations
        if not at_once:
            raise InputError(
                f"the columns beside the quasi-identifiers have {combinations:,} combinations, "
                f"and at most {MOST_CELLS:,} are counted together",
                hint="release fewer columns, or generalise the finest of them first",
            )
        request = {
            "count": "classes",
            "schema": _sent(self.schema.columns),
            "regions": regions.to_message(),
            "published": [sendable(one) for one in published],
        }
        frames, left = [], rows
        for first in range(0, len(published[0]), at_once):
            last = min(first + at_once, len(published[0]))
            total = self.total({**request, "first": first, "last": last}, (last - first) * combinations)
            held, left = np.flatnonzero(total), left - int(total.sum())
            if left < 0:
                raise inconsistent()
            row = np.repeat(held, total[held])
            of_class, *codes = np.unravel_index(row, (last - first, *shape))
            new = [one.gather(of_class + first) for one in published]
            new += [
                pl.concat([one, pl.Series(one.name, [None], dtype=one.dtype)]).gather(code)
                for one, code in zip(values, codes, strict=True)
            ]
            frames.append(pl.DataFrame(new))
        if left:
            raise inconsistent()
        return pl.concat(frames).select(self.schema.names)

    def total(self, request: Message, length: int) -> Ints:
        """Sum the counts of all holders."""
        return sum_of_all(self.channel, self.secure, next(self.rounds), request, length)

    def keep(self, guarantees: Sequence[ClassGuarantee]) -> None:
        """Tell the holders that the union keeps the guarantees."""
        replies = self.channel.ask_all({"kind": "union/keep", "guarantees": list(map(str, guarantees))})
        replies.require(self.channel.names, "keep its recoded rows")


def _sent(columns: Sequence[Column]) -> Message:
    """Return the columns as holders need them: with their public values."""
    return Schema(replace(column, hierarchy=None) for column in columns).to_dict()


def _refuse_unsupported(method: Anonymizer) -> Output:
    """Raise an error for options that need rows; return what is published."""
    name = type(method).__name__
    if type(method) not in (Mondrian, Guided):
        raise OptionError(
            f"a union cannot be anonymized by {name}, which needs more than counts", hint="use Mondrian() or Guided()"
        )
    wrong = ""
    if isinstance(method, Mondrian) and not method.strict:
        wrong = "strict=True"
    elif isinstance(method, Guided):
        if method.model is not None or method.grown_on is not None or not isinstance(method.labels, str):
            wrong = "labels as the name of a column, without a model or other rows"
        elif method.cross_fit or method.look_ahead:
            wrong = "cross_fit=False and look_ahead=0"
        elif one_of(CutBy, method.cut_by, "cut_by") is CutBy.ALL:
            wrong = "cut_by='qi'"
    if wrong:
        raise OptionError(f"{name} needs more than counts of a union with these options", hint=f"give {wrong}")
    output = one_of(Output, getattr(method, "output", Output.INTERVAL), "output")
    if output is Output.MEDOID:
        raise OptionError("a medoid is the combination of one person, which counts do not have", hint="use median")
    return output


def _label(method: Anonymizer, schema: Schema) -> str | None:
    """Return the name of the column that guides."""
    if not isinstance(method, Guided):
        return None
    label = str(method.labels)
    if label not in schema.names:
        raise OptionError(f"there is no column '{label}' to guide", hint=did_you_mean(label, schema.names))
    if schema[label].role is Role.QUASI:
        raise OptionError(f"column '{label}' is a quasi-identifier and cannot guide too")
    if schema[label].role is Role.SENSITIVE:
        warn_of_sensitive(label)
    return label


def _refuse_label(layout: Layout) -> None:
    """Raise an error for a label that cannot guide."""
    label = layout.others[layout.guide]
    if len(label) < 2:
        raise InputError("the label that should guide is the same in every row", hint="use Mondrian()")
    numbers = label.column.kind is Kind.NUMBER and len(label) > 20
    if numbers or len(label) > _MOST_CLASSES:
        raise InputError(
            f"the label that should guide has {len(label):,} values, and a union is guided by classes",
            hint="declare a column of few classes",
        )

"""Verify a released table: measure it again, and compare the certificate with the recipe.

Someone who edits one file of a release may forget another, so everything that two files state must agree. The claims
are measured by the schema of the certificate, which must follow from that of the recipe: otherwise a number could be
lowered by declaring, say, a hierarchy of the sensitive values afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sfumato.data.certificate import PERSON, UNIT, Certificate
from sfumato.data.claim import Claim, quote, same_number, same_plain
from sfumato.data.column_audit import doubts, naming
from sfumato.data.guarantee import Guarantee
from sfumato.data.recipe import Recipe
from sfumato.data.schema import Column, Kind, Role, Schema
from sfumato.data.table import Table
from sfumato.errors import SfumatoError
from sfumato.measures.guarantee import ClassGuarantee
from sfumato.measures.loss.information_loss import ColumnLoss, Loss
from sfumato.measures.models import KAnonymity, LDiversity

if TYPE_CHECKING:
    from sfumato.measures.released_table import ReleasedTable

__all__ = ["compare_recipe", "is_tokens", "verify_table"]

_WITHOUT_GUARANTEE = ("mask",)
"""Methods that promise nothing."""

_LOSSES = {one.name for one in fields(Loss)}
_OF_A_COLUMN = {one.name for one in fields(ColumnLoss)}
_AVERAGED = {"gcp": "ncp", "precision": "precision"}  # totals that are means over the columns


def verify_table(released: ReleasedTable, folder: Path, certificate: Certificate) -> Iterator[Claim]:
    """Check the claims of a released table that was read and measured."""
    table, found = released.table, released.assessment
    yield from compare_recipe(folder, certificate, table)
    unknown = sorted({*table.schema.names} - {*certificate.schema.names})
    if unknown:
        yield Claim("the certificate names all columns", False, quote(", ".join(unknown)))
    named = [name for name in table.schema.identifiers if name != table.schema.person]
    if named:
        yield Claim("no identifier is released", False, quote(", ".join(named)))
    if table.schema.person is not None:
        tokens = table.column(table.schema.person)
        held = is_tokens(tokens)
        yield Claim("people have tokens, not identifiers", held, "whole numbers from 1 on" if held else "other values")
    yield from _of_people(released, certificate)
    yield from _check_identifying(table, certificate.schema)
    checks = () if found is None or found.verdict is None else found.verdict.checks
    for check in checks:
        value = check.measured.value
        yield Claim(_with_conventions(check.guarantee), check.held, "inf" if value == math.inf else value)
    if len(checks) < len(certificate.guarantees):
        # here, because most tables do not need the budget
        from sfumato.budget.differential_privacy import DifferentialPrivacy, verify_events

        for promise in map(Guarantee.from_dict, certificate.guarantees):
            if isinstance(promise, DifferentialPrivacy):
                yield from verify_events(certificate.parameters.get("events"), promise)
    if not certificate.guarantees and certificate.method in _WITHOUT_GUARANTEE:
        yield Claim.unchecked("nothing is guaranteed", f"{certificate.method} promises nothing")
    elif not certificate.guarantees:
        yield Claim("something is guaranteed", False, "the certificate names no guarantee")
    numbers = released.claims
    for name, claimed in certificate.claims.items():
        held = name in numbers and same_number(claimed, numbers[name])
        yield Claim(f"{quote(name)} is {quote(claimed)}", held, numbers.get(name))
    for name in sorted(numbers.keys() - certificate.claims.keys()):
        yield Claim(f"{name} is claimed", False, numbers[name])
    rows = certificate.source.get("rows")  # suppression masks rows without dropping them
    yield Claim(f"source.rows is {quote(rows)}", same_number(rows, released.rows), released.rows)
    if found is not None:
        yield from _loss(certificate, released.class_loss)


def _of_people(released: ReleasedTable, certificate: Certificate) -> Iterator[Claim]:
    """Check guarantees about people as far as rows tell: k people have at least k rows, and as many values."""
    found = released.assessment
    if certificate.unit != PERSON or certificate.schema.person is not None or found is None:
        return
    for one in map(Guarantee.from_dict, certificate.guarantees):
        if not isinstance(one, ClassGuarantee):
            continue
        bound = {KAnonymity: found.k, LDiversity: found.l}.get(type(one))
        if bound is not None and not one.accepts(bound):
            yield Claim(f"{one} for people", False, f"not even for rows: {bound}")
        else:
            yield Claim.unchecked(
                f"{one} for people", "it needs the person column: --source ORIGINAL measures it again"
            )


def is_tokens(values: pl.Series) -> bool:
    """Return whether a column has the whole numbers from 1 on, in any order, and nothing else.

    Examples
    --------
    >>> is_tokens(pl.Series([2, 1, 2])), is_tokens(pl.Series([7, 8])), is_tokens(pl.Series(["1"]))
    (True, False, False)
    """
    if not values.dtype.is_integer() or values.has_nulls():
        return False
    return sorted(values.unique().to_list()) == list(range(1, values.n_unique() + 1))


def _check_identifying(table: Table, certified: Schema) -> Iterator[Claim]:
    """Check that columns that look identifying are kept on purpose; some can be judged only with the original."""
    named = {name: reason for name, reason in naming(table).items() if name in certified.names}
    if named:
        listed = ", ".join(f"{name} ({reason})" for name, reason in named.items())
        yield Claim("what names people is kept on purpose", False, quote(listed))
    open_ = [name for name in certified.names if name in table.schema.names and certified[name].role is Role.OTHER]
    doubtful = [name for name in doubts(table) if name in open_ and name not in named]
    if doubtful:
        yield Claim.unchecked(
            f"schema: that {quote(', '.join(doubtful))} may be released as they are",
            "they look like identifiers, free text or copies of other columns, which a person must judge",
        )


# --- the recipe -------------------------------------------------------------------------------


def compare_recipe(folder: Path, certificate: Certificate, table: Table | None) -> Iterator[Claim]:
    """Compare the certificate with the recipe."""
    claim = "the recipe says the same"
    try:
        recipe = Recipe.of_release(folder)
        differing = []
        if not same_plain(recipe.options.get("guarantees"), list(certificate.guarantees)):
            differing.append("it asks for other guarantees")
        if recipe.options.get("method") != certificate.method:
            differing.append("it names another method")
        if not same_plain(recipe.options.get("parameters", {}), certificate.parameters):
            differing.append("it has other parameters")
        if bool(recipe.options.get("keep_person_token")) != (certificate.schema.person is not None):
            differing.append("it treats the person column otherwise")
        unit = UNIT if recipe.schema.person is None else PERSON
        if certificate.method not in _WITHOUT_GUARANTEE and certificate.unit != unit:
            differing.append("it protects another unit")
        if bool(recipe.options.get("keep_order")) != (certificate.source.get("order") == "kept"):
            differing.append("it treats the order of the rows otherwise")
        others = _other_columns(recipe.schema, certificate.schema, table)
    except SfumatoError as error:
        yield Claim(claim, False, str(error).partition("\n")[0])
        return
    differing += [why for why in others if why not in differing]
    yield Claim(claim, not differing, "; ".join(differing) or "the same guarantees, method, parameters and columns")
    trusted = [column.name for column in certificate.schema.columns if _is_typed(column, recipe.schema)]
    if trusted:
        yield Claim.unchecked(
            f"schema: the order of the values of {quote(', '.join(trusted))}", "it came from the type of the original"
        )
    measured = [name for name in certificate.schema.sensitive if certificate.schema[name].hierarchy]
    if measured:
        yield Claim.unchecked(
            f"schema: the hierarchy of {quote(', '.join(measured))}, by which t is measured",
            "whether it is a fair measure of distance, a person must judge",
        )


def _other_columns(declared: Schema, certified: Schema, table: Table | None) -> Iterator[str]:
    """Yield the differences between the columns of a certificate and those that follow from the recipe."""
    expected = declared.released(tokens=certified.person is not None)
    if {*expected.names} != {*certified.names}:
        yield "it has other columns"
        return
    known = expected if table is None else Table(table.source, expected).schema
    for column in certified.columns:
        asked, found = expected[column.name], known[column.name]
        if column.role is not asked.role:
            yield "its columns have other roles"
        if column.hierarchy != asked.hierarchy:
            yield "its columns have other hierarchies"
        if column.bounds != asked.bounds:
            yield "its columns have other bounds"
        if _is_typed(column, declared):
            continue
        if column.kind is not found.kind and not (column.role is Role.QUASI and column.kind is Kind.CATEGORY):
            yield "its columns are of other kinds"
        if column.domain != found.domain:
            yield "its columns have other domains"


def _is_typed(column: Column, declared: Schema) -> bool:
    """Return whether the order of the values came from a type of the original, which recipes and text files lose."""
    open_kind = column.name in declared.names and declared[column.name].kind is Kind.AUTO
    return open_kind and column.kind is Kind.ORDINAL and column.domain is not None


# --- numbers ----------------------------------------------------------------------------------


def _with_conventions(guarantee: ClassGuarantee) -> str:
    """Format a guarantee with its non-default conventions: alpha of one value is weaker than alpha of all."""
    numbers = {bound.field for bound in guarantee.bounds.values()}
    chosen = {one.name: getattr(guarantee, one.name) for one in fields(guarantee) if one.name not in numbers}
    usual = {one.name: one.default for one in fields(guarantee)}
    conventions = [
        f"{name}: {value if isinstance(value, str) else ', '.join(value)}"
        for name, value in chosen.items()
        if value != usual[name]
    ]
    return f"{guarantee} ({'; '.join(conventions)})" if conventions else str(guarantee)


def _loss(certificate: Certificate, derived: Mapping[str, Any]) -> Iterator[Claim]:
    """Check the losses that follow from the release alone, and the totals against their columns."""
    claimed = certificate.loss
    for name, value in derived.items():
        held = same_number(claimed.get(name), value)
        yield Claim(f"loss.{name} is {quote(claimed.get(name))}", held, value)
    columns = _columns(claimed.get("by_column"), certificate.schema.quasi)
    if not columns:
        yield Claim("loss.by_column has the quasi-identifiers", False, "it has other columns, or values out of range")
        return
    for total, part in _AVERAGED.items():
        parts = [column[part] for column in columns]
        mean = None if None in parts else float(np.mean(parts))
        yield Claim(f"loss.{total} is the mean of its columns", same_number(claimed.get(total), mean), mean)
    if claimed.keys() != _LOSSES:
        yield Claim("loss has the measures of a table", False, quote(", ".join(sorted(claimed.keys() ^ _LOSSES))))
    rest = sorted(_LOSSES - derived.keys() - _AVERAGED.keys())
    yield Claim.unchecked(", ".join(f"loss.{name}" for name in rest), "it needs the original table")


def _columns(plain: Any, quasi: tuple[str, ...]) -> list[Mapping[str, Any]]:
    """Return the losses of the columns; none unless they are valid and exactly those of the quasi-identifiers."""
    columns = list(plain.values()) if isinstance(plain, Mapping) and {*plain} == {*quasi} else []
    if not all(isinstance(one, Mapping) and one.keys() == _OF_A_COLUMN for one in columns):
        return []
    return columns if all(_is_share(name, value) for one in columns for name, value in one.items()) else []


def _is_share(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return value is None and name == "precision"
    return isinstance(value, int | float) and -1e-9 <= value <= 1 + 1e-9

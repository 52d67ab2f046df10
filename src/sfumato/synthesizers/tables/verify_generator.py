"""Verify a generator: derive its cost again, check that its files agree, and that its rows lie in its domain.

The noisy numbers do not show how they were drawn: that the noise was secret, and as large as stated, must be trusted.
Everything that follows from the description is checked: the purchases follow from the method, the columns and the noise
multiplier; they cost what is claimed; certificate, ``generator.json`` and recipe agree; the state of the model is valid
and nothing else is stored; every drawn row has values of the declared or bought domains. The time and memory that a
stranger's files can take are bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sfumato.budget.differential_privacy import read_events
from sfumato.budget.noise import Source
from sfumato.budget.people import BOUGHT
from sfumato.data.certificate import Certificate, is_regular_file, read_plain
from sfumato.data.claim import DAMAGED, Claim, quote, reason_of, same_number, same_plain
from sfumato.data.hierarchies.label_paths import text_of
from sfumato.data.io.formulas import unescaped
from sfumato.data.io.source import File, column
from sfumato.data.io.text import TextFile
from sfumato.data.recipe import Recipe
from sfumato.errors import InputError, SfumatoError
from sfumato.learners.estimators.features import as_numbers, texts_in
from sfumato.learners.training.released_model import read_arrays
from sfumato.synthesizers.catalogue import parameters_of
from sfumato.synthesizers.stored import ARRAYS, FACTS
from sfumato.synthesizers.tables.columns.constraints import Determines
from sfumato.synthesizers.tables.columns.description import Described, declared_ends
from sfumato.synthesizers.tables.columns.domain import Coding, Computed, Values
from sfumato.synthesizers.tables.generator import Generator
from sfumato.synthesizers.verification import COST, keeps_its_promise, nothing_else, number_is_private, same_terms

__all__ = ["rows_in_domain", "verify_generator"]

_MOST_BYTES = 2**32  # of the table
_MOST_CELLS = 10**9
_NOISE = 1e-6  # relative error of a noise multiplier that a state implies


def verify_generator(folder: Path, certificate: Certificate) -> Iterator[Claim]:
    """Check the claims of a generator."""
    claim = "the generator can be read, and its state is valid"
    try:
        found = Generator.read(folder, certificate)
        plain, arrays = read_plain(folder / FACTS), read_arrays(folder / ARRAYS)
        events = read_events(certificate.parameters.get("events"))
    except (SfumatoError, *DAMAGED) as error:
        yield Claim(claim, False, reason_of(error))
        return
    yield Claim(claim, True, f"method {found.method.name}, {found.columns} columns")
    yield from nothing_else(found, plain, arrays)
    derived = [one.to_dict() for one in found.plan.events]
    same = same_plain(certificate.parameters["events"], derived)
    yield Claim("its events follow from its method, columns and noise", same, f"{len(derived)} purchases")
    yield _noise_in_state(found)
    yield from keeps_its_promise(found, certificate, events)
    known = (*(COST if found.private else ()), *([] if found.further is None else ["people"]))
    yield same_terms(found, certificate, known)
    yield _columns(found, certificate)
    yield _recipe(folder, found, certificate)
    yield from _unit(found, certificate)
    yield from _rows(folder, found, certificate)
    yield from number_is_private(certificate)
    yield Claim.unchecked("its noise was drawn as described, and from the data", "the noisy numbers do not show it")


def _noise_in_state(found: Generator) -> Claim:
    """Compare the noise that the state implies with the noise of the plan."""
    claim = "the noise that its state implies is the noise that was paid for"
    if not found.model.deviations:
        return Claim.unchecked(claim, f"the state of the method {found.method.name} does not show its noise")
    sums, others = found.plan.sums(Source()), []
    for name, multiplier in found.model.deviations.items():
        paid = sums.multiplier_of(name) if name in sums.shares else math.nan
        if not math.isclose(multiplier, paid, rel_tol=_NOISE):
            others.append(name)
    measured = f"another for {quote(', '.join(others))}" if others else "the same"
    return Claim(claim, not others, measured)


def _columns(found: Generator, certificate: Certificate) -> Claim:
    """Check that every domain and all bounds are declared, bought, or those of a type."""
    declared = {one.name: one for one in certificate.schema.columns}
    others = []
    for coding in found.domain.codings if found.further is None else found.domain.codings[:-1]:
        name, column = coding.feature.name, declared.get(coding.feature.name)
        bought = {*found.plan.bought.get(name, ())}
        if column is None or column.role.is_identifier:
            others.append(name)
        elif column.domain is None and column.bounds is None and column.dates is None:
            others += [] if bought & {"domain", "bounds"} or _is_of_type(coding) else [name]
        elif bought & {"domain", "bounds"} or not _as_declared(coding, column):
            others.append(name)
    try:
        computed = {one.coding.name: one for one in found.domain.computed}
        others += sorted(computed.keys() ^ {*found.constraints.computed})
        others += [one.column for one in found.constraints.mappings if not _is_computed(one, computed, found)]
    except SfumatoError:
        others.append("constraints")
    if certificate.schema.target not in (None, found.target):
        others.append(str(certificate.schema.target))
    measured = f"not {quote(', '.join(others))}" if others else "all of them"
    return Claim("its columns are as declared, or were bought", not others, measured)


def _is_computed(rule: Determines, computed: dict[str, Computed], found: Generator) -> bool:
    """Return whether a column is looked up as its constraint says."""
    own = computed.get(rule.column)
    if own is None or own.source != rule.source:
        return False
    wanted = rule.computed(found.domain.by_name[rule.source], Described(rule.column, own.coding.values, None))
    return wanted.lookup == own.lookup and wanted.coding.feature == own.coding.feature


def _is_of_type(coding: Coding) -> bool:
    """Return whether the values of a column follow from its type: truth values, times of day."""
    if coding.values is Values.TRUTH:
        return coding.feature.domain == ("False", "True")
    return coding.values is Values.TIME and coding.feature.bounds == (0.0, 86_399.0)


def _as_declared(coding: Coding, column: Any) -> bool:
    if coding.feature.domain is not None:
        own = coding.feature.domain
        return column.domain is not None and own in (texts_in(column.domain), tuple(map(text_of, column.domain)))
    ends = declared_ends(column, coding.values)
    if ends is None or coding.feature.bounds is None:
        return False
    (low, high), (least, most), slack = coding.feature.bounds, ends, max(coding.step, 1.0)
    return bool(least <= low < least + slack and (most - slack < high <= most or low == high))


def _recipe(folder: Path, found: Generator, certificate: Certificate) -> Claim:
    claim = "the recipe says the same"
    try:
        recipe = Recipe.of_release(folder, "synthesize")
    except SfumatoError as error:
        return Claim(claim, False, reason_of(error))
    own = {
        "method": found.method.name,
        "parameters": parameters_of(found.method),
        "epsilon": found.epsilon,
        "delta": found.delta,
        "target": found.target,
        "rows": recipe.options.get("rows") and certificate.claims.get("rows"),
        "seed": certificate.parameters.get("seed"),
        "declared_only": recipe.options.get("declared_only"),
        "data": recipe.options.get("data"),
        "weights": recipe.options.get("weights"),
        "constraints": found.constraints.texts or None,
        "given": recipe.options.get("given"),
        "rows_per_person": BOUGHT if found.plan.buys_rows else found.rows_per_person,
        "people": recipe.options.get("people") and certificate.claims.get("people"),
    }
    same = same_plain(recipe.options, own) and recipe.schema == certificate.schema
    return Claim(claim, same, "the same" if same else "another method, cost, target, seed, or other columns")


def _unit(found: Generator, certificate: Certificate) -> Iterator[Claim]:
    """Check that the unit is that of the events; how many rows of a person were read shows in no number."""
    if certificate.unit != found.unit:
        yield Claim(f"the unit is a {certificate.unit}", False, f"its events protect a {found.unit}")
    if found.rows_per_person is not None:
        few = "one row and one pair of rows" if found.further else f"at most {found.rows_per_person} rows"
        yield Claim.unchecked(f"{few} of each person were read", "only the maker of the release knows")
    if found.plan.buys_rows:
        claim = f"its {found.rows_per_person:,} rows per person were chosen with noise"
        yield Claim.unchecked(claim, "the noisy numbers do not show it")


def _rows(folder: Path, found: Generator, certificate: Certificate) -> Iterator[Claim]:
    """Check that the drawn rows are as many as claimed, and lie in the domain."""
    claim = "every drawn row lies in the domain of its columns"
    try:
        rows = rows_in_domain(folder / certificate.data, found)
    except (SfumatoError, *DAMAGED, pl.exceptions.PolarsError, OSError) as error:
        yield Claim(claim, False, reason_of(error))
        return
    yield Claim(claim, True, f"all {rows:,}")
    stated = certificate.claims.get("rows")
    yield Claim(f"rows is {quote(stated)}", same_number(stated, rows), rows)
    if found.further is not None:
        stated = certificate.claims.get("people")
        yield Claim(f"people is {quote(stated)}", same_number(stated, found.people), found.people)


def rows_in_domain(path: Path, found: Generator) -> int:
    """Return the number of rows of a file, or raise an error if one of them is not in the domain of a generator."""
    if not is_regular_file(path) or (size := path.stat().st_size) > _MOST_BYTES:
        raise InputError(f"the table is missing, or larger than {_MOST_BYTES:,} bytes")
    text = File(path).text if path.suffix != ".parquet" else None
    lazy = pl.scan_parquet(path) if text is None else text.without_blank_lines(text.scan())
    person = [] if found.further is None else [found.declared.person]
    if lazy.collect_schema().names() != [*person, *found.names]:
        raise InputError("the table has other columns than the generator")
    rows = int(lazy.select(pl.len()).collect().item())
    if rows * found.columns > min(_MOST_CELLS, 64 * size + _MOST_CELLS):
        raise InputError(f"the table has more than {_MOST_CELLS:,} cells")
    needed = {name for one in found.constraints.items for name in one.columns}
    codes = {}
    for name, coding in ((name, found.domain.by_name[name]) for name in found.names):
        values = lazy.select(column(name)).collect()[name]
        if text is not None:
            values = _values_of(values, text, coding, escaped=found.escaped)
        if values.dtype.is_nested() or not is_drawn(values, coding):
            raise InputError(f"column '{quote(name)}' has a value that is not in its domain")
        if name in needed:
            codes[name] = coding.encode(values)
    if found.further is not None:
        _check_people(lazy.select(column(found.declared.person or "")).collect().to_series(), found)
    if codes and not found.constraints.met(found.domain, codes).all():
        raise InputError("a row does not meet the constraints")
    for one in found.domain.computed:
        if (np.array(one.lookup)[codes[one.source]] != codes[one.coding.name]).any():
            raise InputError(f"column '{quote(one.coding.name)}' is not computed from '{quote(one.source)}'")
    return rows


def _check_people(person: pl.Series, found: Generator) -> None:
    """Raise an error unless people are numbered from 1 on, row by row, and nobody has too many rows."""
    numbers = person.cast(pl.Int64).to_numpy()
    if len(numbers) and (numbers[0] != 1 or not np.isin(np.diff(numbers), (0, 1)).all()):
        raise InputError("the people of the table are not numbered from 1 on")
    if np.bincount(numbers).max(initial=0) > (found.rows_per_person or 1):
        raise InputError(f"a person of the table has more than {found.rows_per_person} rows")


def _values_of(texts: pl.Series, text: TextFile, coding: Coding, *, escaped: bool) -> pl.Series:
    """Return the values of a text file's column: numbers and dates as they are written there, formulas unescaped."""
    if coding.feature.domain is None:
        return text.parse(texts)
    texts = texts.set(texts == "", None)
    return unescaped(texts) if escaped else texts


def is_drawn(values: pl.Series, coding: Coding) -> bool:
    """Return whether all values of a column are among those that a coding can draw.

    Examples
    --------
    >>> from sfumato.learners.estimators.features import Feature
    >>> age = Coding.of(Feature("age", bounds=(0.0, 99.0)), pl.Int64())
    >>> is_drawn(pl.Series("age", [30, None]), age), is_drawn(pl.Series("age", ["30.5", "7"]), age)
    (True, False)
    """
    distinct = values.unique().drop_nulls()
    codes = coding.encode(distinct)
    if coding.feature.domain is not None:
        return bool((codes < len(coding.feature.domain)).all())
    back, own = (as_numbers(one).to_numpy() for one in (coding.decode(codes), distinct))
    return bool(np.isclose(back, own, rtol=1e-9, atol=1e-9).all())

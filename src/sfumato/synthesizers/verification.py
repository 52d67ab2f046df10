"""What is verified of every generator, of rows or of images.

The noisy numbers do not show how they were drawn: that the noise was secret, and as large as stated, must be trusted.
What follows from the description is derived again, and everything that two files state must agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from sfumato.budget.differential_privacy import DifferentialPrivacy, bounded_epsilon
from sfumato.data.certificate import Certificate
from sfumato.data.claim import DAMAGED, Claim, quote, reason_of, same_number, same_plain
from sfumato.errors import SfumatoError
from sfumato.synthesizers.stored import ARRAYS, FACTS

__all__ = ["Verifiable", "keeps_its_promise", "nothing_else", "number_is_private", "same_terms"]

COST = ("epsilon", "delta", "relation")
"""The claims of a generator that is private, beside its number of rows."""


class Verifiable(Protocol):
    """A generator that was read from its files."""

    @property
    def private(self) -> bool:
        """Whether its noise was secret, and its method is private."""

    @property
    def epsilon(self) -> float:
        """The epsilon that was asked for."""

    @property
    def delta(self) -> float:
        """The delta that was asked for."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything from which the cost follows."""

    @property
    def method(self) -> Any:
        """How it has learned."""

    def stored_form(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the plain values and the arrays that are stored."""


def nothing_else(found: Verifiable, plain: Mapping[str, Any], arrays: Mapping[str, Any]) -> Iterator[Claim]:
    """Check that the files hold what the generator would write, and nothing else."""
    own, own_arrays = found.stored_form()
    others = [name for name in own if name != "sfumato" and not same_plain(plain[name], own[name])]
    others += [
        name
        for name in {*arrays, *own_arrays}
        if name not in arrays
        or name not in own_arrays
        or arrays[name].dtype != own_arrays[name].dtype
        or not np.array_equal(arrays[name], own_arrays[name])
    ]
    found_here = f"other {quote(', '.join(sorted(others)))}" if others else "nothing else"
    yield Claim(f"{FACTS} and {ARRAYS} hold the generator alone", not others, found_here)
    yield Claim.unchecked(f"{FACTS}: sfumato", "only the maker of the release knows")


def keeps_its_promise(found: Verifiable, certificate: Certificate, events: tuple[Any, ...]) -> Iterator[Claim]:
    """Recompute epsilon from the events, and compare it with the promise and the claims."""
    if not found.private or len(certificate.guarantees) != 1:
        why = f"{len(certificate.guarantees)} are" if found.private else "its noise came from a given seed"
        yield Claim("one epsilon is guaranteed", False, why)
        return
    try:
        promise = DifferentialPrivacy.from_plain(certificate.guarantees[0])
        bound = bounded_epsilon(events, promise)
    except (SfumatoError, *DAMAGED) as error:
        yield Claim("its events can be accounted for", False, reason_of(error))
        return
    same = (promise.epsilon, promise.delta) == (found.epsilon, found.delta)
    yield Claim(f"the guarantee is that of {FACTS}", same, f"epsilon {found.epsilon:g}, delta {found.delta:g}")
    claimed = certificate.claims
    if bound.exact:
        yield Claim(str(promise), bound.epsilon <= promise.epsilon, _plain(bound.epsilon))
        held = same_number(claimed.get("epsilon"), _plain(bound.epsilon), precision=1e-6)
        yield Claim(f"what was spent is epsilon {quote(claimed.get('epsilon'))}", held, _plain(bound.epsilon))
    else:
        held_at_all = True if bound.epsilon <= promise.epsilon else None
        yield Claim(str(promise), held_at_all, _plain(bound.epsilon) if held_at_all else bound.why)
        yield Claim.unchecked(f"claims.epsilon is {quote(claimed.get('epsilon'))}", bound.why)
    for name, value in (("delta", promise.delta), ("relation", promise.relation.value)):
        if claimed.get(name) != value:
            yield Claim(f"{name} is {quote(claimed.get(name))}", False, value)
    yield Claim.unchecked("its noise was secret", "no file names a seed, and none can prove that there was none")


def same_terms(found: Verifiable, certificate: Certificate, claims: Iterable[str] | None = None) -> Claim:
    """Compare the certificate with what the files of the generator say.

    ``claims`` are the names of the claims beside the number of rows; by default the cost, if the generator is private.
    """
    own = {**found.parameters, "seed": certificate.parameters.get("seed")}
    stated = certificate.parameters
    others = [name for name in {*own, *stated} if name not in stated or not same_plain(own.get(name), stated[name])]
    others += [] if certificate.method == found.method.name else ["method"]
    known = (COST if found.private else ()) if claims is None else claims
    others += sorted(certificate.claims.keys() - {"rows", *known})
    others += ["loss"] if certificate.loss else []
    measured = f"it states other {quote(', '.join(sorted(others)))}" if others else "the same"
    return Claim(f"the certificate says the same as {FACTS}", not others, measured)


def number_is_private(certificate: Certificate) -> Iterator[Claim]:
    """Check that the number of records is not stated, which is private unless the data is public."""
    rows, public = certificate.source.get("rows"), certificate.source.get("public")
    if rows is not None:
        claim = f"source.rows is {quote(rows)}"
        if public is True and type(rows) is int and rows > 0:
            yield Claim.unchecked(claim, "the data is said to be public")
        else:
            yield Claim(claim, False, "the number of records is private")


def _plain(value: float) -> Any:
    return "inf" if value == math.inf else value

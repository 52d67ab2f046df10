"""Verify a released model: recompute its epsilon from its events, and check its events against its training.

The weights do not show how the private data was used: that the training ran as described must be trusted. Everything
that follows from the description is checked: the certificate, ``model.json`` and the recipe agree, the events contain
every step with the stated noise, and they cost what is claimed. Accounting for untrusted events is bounded in time and
memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.budget.accounting.pld import distinct_events
from sfumato.budget.accounting.training_events import missing_charges
from sfumato.budget.differential_privacy import DifferentialPrivacy, EpsilonBound, bounded_epsilon, read_events
from sfumato.budget.events import Event, Gaussian
from sfumato.budget.people import BOUGHT
from sfumato.budget.query.discovery import FindRowsPerPerson
from sfumato.data.certificate import PERSON, UNIT, Certificate, is_regular_file, read_plain
from sfumato.data.claim import DAMAGED, Claim, quote, reason_of, same_number, same_plain
from sfumato.data.recipe import Recipe
from sfumato.data.schema import Schema
from sfumato.errors import FileError, MissingExtra, OptionError, SfumatoError
from sfumato.learners.estimators.features import texts_in
from sfumato.learners.training.catalogue import IMAGE_MODELS, TABLE_MODELS
from sfumato.learners.training.released_model import load_model, read_arrays, stored_form

__all__ = ["verify_model"]

_MODEL = "model.json"
_NUMBERS = ("epsilon", "delta", "relation")
_FACTS = ("format", "estimator", "parameters", "state", "cost", "sfumato")
"""The keys of ``model.json``."""
_NOT_SETTINGS = {"data", "model", "epsilon", "noise_multiplier", "target", "insecure_seed", "person"}
"""Options of a recipe that a certificate states elsewhere, or not at all."""


Steps = Callable[[Certificate, tuple[Event, ...], Mapping[str, Any]], Iterator[Claim]]
"""Compares the events with the stated training, given the certificate, the events and ``model.json``."""


def verify_model(
    folder: Path, certificate: Certificate, *, command: str = "train", steps: Steps | None = None
) -> Iterator[Claim]:
    """Check the claims of a released model, whose recipe is of this command."""
    weights = _weights(folder / certificate.data)
    yield weights
    model, recipe = _read_model(folder), _read_recipe(folder, certificate, command)
    yield from model.problem
    yield from recipe.problem
    try:
        events = read_events(certificate.parameters.get("events"))
        promises = [DifferentialPrivacy.from_plain(one) for one in certificate.guarantees]
    except (SfumatoError, *DAMAGED) as error:
        yield Claim("its events can be accounted for", False, reason_of(error))
        return
    if not promises:
        yield Claim("something is guaranteed", False, "it was trained without privacy")
    if len(promises) > 1:
        yield Claim("one epsilon is guaranteed", False, f"{len(promises)} are")
    for promise in promises[:1]:
        yield from _accounted(certificate, events, promise)
        yield from (steps or _steps)(certificate, events, model.plain)
        yield from _people(certificate, events, promise, each=_is_network(model.plain))
        yield from _noise(certificate, model.plain, recipe.plain)
        yield from _scores(certificate, promise)
    yield from _as_in_model(certificate, model.plain, promises)
    if weights.held:
        yield from _belongs(folder, certificate, model.plain)
    yield from _as_in_recipe(certificate, recipe.plain, promises)
    yield from _rows(certificate, model.plain, promises)
    yield from _unchecked(certificate, model.plain, recipe.plain)


def _weights(path: Path) -> Claim:
    claim = "its weights can be read, and are numbers"
    try:
        arrays = read_arrays(path)
    except FileError as error:
        return Claim(claim, False, reason_of(error))
    finite = all(bool(np.isfinite(one).all()) for one in arrays.values())
    count = sum(one.size for one in arrays.values())
    return Claim(claim, finite, f"{count:,} numbers" if finite else "some are infinite or not numbers")


# --- the other files --------------------------------------------------------------------------


class _Beside:
    """The plain values of a file next to the certificate, or a failed claim about it."""

    def __init__(self, plain: Mapping[str, Any], *problem: Claim) -> None:
        self.plain, self.problem = plain, problem


def _read_model(folder: Path) -> _Beside:
    claim, path = f"{_MODEL} says the same", folder / _MODEL
    if not is_regular_file(path):
        return _Beside({}, Claim(claim, False, "it is missing, or not a file of this folder"))
    try:
        plain = read_plain(path)
        parts = [plain[name] for name in ("cost", "parameters", "state")]
        if not all(isinstance(one, dict) for one in parts):
            raise FileError("a part of it is of another type")
        if strange := plain.keys() - {*_FACTS}:
            return _Beside(plain, Claim(claim, False, f"it holds {', '.join(map(quote, sorted(strange)))}, too"))
    except (FileError, *DAMAGED):
        return _Beside({}, Claim(claim, False, "it is damaged"))
    return _Beside(plain)


def _read_recipe(folder: Path, certificate: Certificate, command: str) -> _Beside:
    claim = "the recipe says the same"
    try:
        recipe = Recipe.of_release(folder, command)
    except SfumatoError as error:
        return _Beside({}, Claim(claim, False, reason_of(error)))
    if recipe.schema != certificate.schema:
        return _Beside(recipe.options, Claim(claim, False, "it declares other columns"))
    return _Beside(recipe.options)


def _as_in_model(
    certificate: Certificate, model: Mapping[str, Any], promises: list[DifferentialPrivacy]
) -> Iterator[Claim]:
    """Compare the certificate with ``model.json``, which a forger may have forgotten to change."""
    if not model:
        return
    cost, parameters, state = model["cost"], model["parameters"], model["state"]
    stated = {**certificate.parameters, **(certificate.claims if promises else {"epsilon": cost.get("epsilon")})}
    others = [name for name in cost if not same_plain(cost[name], stated.get(name))]
    others += [name for name in ("events", "sampling", "noise_multiplier", *_NUMBERS) if name not in cost]
    training = state.get("training")
    if isinstance(training, dict):  # a network, which stores its training facts
        others += [name for name in training if not same_plain(training[name], cost.get(name))]
        if promises and not same_plain(parameters.get("clip"), cost.get("clip")):
            others.append("clip")
    elif cost.get("clip") is not None:
        others.append("clip")
    if not promises and cost.get("epsilon") != "inf":
        others.append("epsilon")
    for promise in promises[:1]:
        by_noise = parameters.get("noise_multiplier") is not None  # then the promise is the cost
        asked = {"delta": parameters.get("delta"), "epsilon": (cost if by_noise else parameters).get("epsilon")}
        others += [name for name, value in asked.items() if not same_plain(value, getattr(promise, name))]
    others += [
        name
        for name in parameters.keys() & certificate.parameters.keys() - cost.keys()
        if not same_plain(parameters[name], certificate.parameters[name])
    ]
    found = f"it records other {', '.join(quote(name) for name in dict.fromkeys(others))}" if others else "the same"
    yield Claim(f"{_MODEL} says the same", not others, found)


def _belongs(folder: Path, certificate: Certificate, model: Mapping[str, Any]) -> Iterator[Claim]:
    """Check that the files hold the stated model and nothing else: it is loaded, and written again."""
    if not model:
        return
    method, estimator = certificate.method, model.get("estimator")
    named = [kind for kind in (TABLE_MODELS.get(method), IMAGE_MODELS.get(method)) if kind is not None]
    kinds = [form for kind in named for form in (kind, kind.as_network) if form is not None]
    fits = any(
        estimator in (kind.classifier, kind.regressor)
        and (not kind.network or model["parameters"].get("model") == method)
        for kind in kinds
    )
    yield Claim("it is a model of the stated method", fits, quote(estimator))
    claim = "its files hold the model alone"
    try:
        arrays, plain = stored_form(load_model(folder))
    except MissingExtra as error:
        yield Claim.unchecked(claim, reason_of(error))
    except SfumatoError as error:
        yield Claim(claim, False, reason_of(error))
    else:
        more = sorted(read_arrays(folder / certificate.data).keys() - arrays.keys())
        more += sorted(_more(model, {**plain, "sfumato": model.get("sfumato")}))
        yield Claim(claim, not more, f"they hold {quote(', '.join(more))}, too" if more else "nothing else")
    others = list(_other_columns(certificate.schema, model["state"]))
    found = f"others: {quote(', '.join(others))}" if others else "the same"
    yield Claim("its columns and classes are the declared ones", not others, found)


def _more(stored: Any, known: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of values that are stored but do not belong to the model, or differ from it."""
    if isinstance(stored, Mapping) and isinstance(known, Mapping):
        for name, value in stored.items():
            yield from _more(value, known[name], f"{path}.{name}") if name in known else [f"{path}.{name}"[1:]]
    elif stored != known:
        yield path[1:]


def _other_columns(declared: Schema, state: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns of a model whose domain or bounds are not the declared ones, and its classes if they are not.

    Undeclared ones were bought with noise, so they cannot be checked.
    """
    try:
        for feature in state["features"]["columns"] if declared.columns and "features" in state else ():
            name = str(feature["name"])
            if name not in declared.names or name == declared.target or name in declared.identifiers:
                yield name
                continue
            column = declared[name]
            if column.domain is not None:
                same = list(texts_in(column.domain)) == feature.get("domain")
            else:
                same = column.bounds is None or same_plain(list(column.bounds), feature.get("bounds"))
            if not same:
                yield name
        target = declared[declared.target] if declared.target is not None else None
        classes = texts_in(state["classes"]) if target is not None and "classes" in state else ()
        if target is not None and target.domain is not None and {*classes} not in ({*texts_in(target.domain)}, set()):
            yield "classes"
    except DAMAGED:
        yield "features"


def _as_in_recipe(
    certificate: Certificate, recipe: Mapping[str, Any], promises: list[DifferentialPrivacy]
) -> Iterator[Claim]:
    """Compare the certificate with the recipe."""
    if not recipe:
        return
    others = ["model"] if recipe.get("model") != certificate.method else []
    others += ["target"] if recipe.get("target", certificate.schema.target) != certificate.schema.target else []
    others += ["person"] if recipe.get("person", certificate.schema.person) != certificate.schema.person else []
    noises, asked = (_asked(recipe.get(name)) for name in ("noise_multiplier", "epsilon"))
    if noises:
        others += [] if same_plain(noises, [certificate.parameters.get("noise_multiplier")]) else ["noise_multiplier"]
    elif not same_plain(asked, [promises[0].epsilon if promises else "none"]):
        others.append("epsilon")
    for name, value in recipe.items():
        if name in certificate.parameters and name not in _NOT_SETTINGS:
            others += [] if same_plain(value, certificate.parameters[name]) else [name]
    found = f"it asks for other {', '.join(quote(name) for name in others)}" if others else "the same"
    yield Claim("the recipe says the same", not others, found)


def _asked(value: Any) -> list[Any]:
    """Return the values of a recipe option that is a list, or the text of the command line."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    values: list[Any] = []
    for part in parts:
        text = part.strip().lower() if isinstance(part, str) else part
        try:
            values.append("none" if text in ("none", "inf") else float(text) if isinstance(text, str) else text)
        except ValueError:
            values.append(text)
    return [one for one in values if one is not None]


# --- privacy cost -----------------------------------------------------------------------------


def _accounted(certificate: Certificate, events: tuple[Event, ...], promise: DifferentialPrivacy) -> Iterator[Claim]:
    """Recompute epsilon from the events, and compare it with the promise and the claim."""
    claimed, parameters = certificate.claims, certificate.parameters
    try:
        found = bounded_epsilon(events, promise) if events else EpsilonBound(math.inf)
    except (SfumatoError, *DAMAGED) as error:
        yield Claim(str(promise), False, reason_of(error))
        return
    epsilon = claimed.get("epsilon")
    if found.exact:
        yield Claim(str(promise), found.epsilon <= promise.epsilon, _inf(found.epsilon))
        held = same_number(epsilon, found.epsilon, precision=1e-6)
        yield Claim(f"what was spent is epsilon {quote(epsilon)}", held, _inf(found.epsilon))
    else:
        if found.epsilon <= promise.epsilon:
            yield Claim(str(promise), True, found.epsilon)
        else:
            yield Claim.unchecked(str(promise), found.why)
        yield Claim.unchecked(f"claims.epsilon is {quote(epsilon)}", found.why)
    if promise.unit != certificate.unit:
        yield Claim(f"the unit is {quote(certificate.unit)}", False, promise.unit)
    for name, value in (("delta", promise.delta), ("relation", promise.relation.value)):
        for stated in (claimed.get(name), parameters.get(name)):
            if stated != value:
                yield Claim(f"{name} is {quote(stated)}", False, value)
    for name in claimed.keys() - {*_NUMBERS}:
        yield Claim(f"{quote(name)} is {quote(claimed[name])}", False, "it cannot be measured for a model")


def _steps(certificate: Certificate, events: tuple[Event, ...], model: Mapping[str, Any]) -> Iterator[Claim]:
    """Find the stated steps, with the stated noise, among the events."""
    stated = certificate.parameters
    claim = "its events hold every step with the stated noise"
    options = model.get("parameters", {}).get("trainer_options") if model else None
    varies = isinstance(options, dict) and options.get("noise_schedule", "constant") != "constant"
    try:
        lacking = missing_charges(
            events,
            sampling=stated["sampling"],
            noise_multiplier=stated["noise_multiplier"],
            each=_is_network(model) or stated.get("clip") is not None,
            varies=varies,
            dimensions=1,
            unit=certificate.unit,
        )
    except (SfumatoError, *DAMAGED) as error:
        yield Claim(claim, False, reason_of(error))
        return
    yield Claim(claim, not lacking, lacking or f"all {quote(stated['sampling']['steps'])}")
    if varies:
        yield Claim.unchecked("parameters.events: the noise of all steps but the last", "a schedule varied it")


def _people(
    certificate: Certificate, events: tuple[Event, ...], promise: DifferentialPrivacy, *, each: bool
) -> Iterator[Claim]:
    """Compare the unit with the person column and with the bound on the rows of a person.

    If not `each` step clips all rows of a person together, noise is made for as many rows as the bound says.
    """
    person, bound = certificate.schema.person, certificate.parameters.get("rows_per_person")
    is_bought = bound == BOUGHT
    if promise.unit != PERSON:
        if (person is not None and promise.unit == UNIT) or bound is not None:
            yield Claim("it protects rows", False, "a person column or a bound on the rows of a person is stated")
        return
    found = "no column" if person is None else quote(person)
    yield Claim("the schema names the person column", person is not None, found)
    if is_bought:
        bound = certificate.parameters.get("bought_rows_per_person")
        yield from _search(bound, events, promise)
    claim = f"at most {quote(bound)} rows of a person count"
    if type(bound) is not int or bound < 1:
        yield Claim(claim, False, "it must be a whole number of at least 1")
        return
    if each:
        sampling = certificate.parameters.get("sampling")
        drawn = sampling if isinstance(sampling, dict) else {}
        same = drawn.get("unit") == PERSON and same_plain(drawn.get("rows_per_person"), bound)
        yield Claim(claim, same, f"steps draw {quote(drawn.get('rows_per_person'))} of a {quote(drawn.get('unit'))}")
        return
    of_sums = {event.sensitivity for event in distinct_events(events) if isinstance(event, Gaussian)}
    others = sorted(of_sums - {float(bound)})
    yield Claim(claim, not others, f"noise is for {', '.join(map(quote, others or [bound]))} rows")


def _search(bound: Any, events: tuple[Event, ...], promise: DifferentialPrivacy) -> Iterator[Claim]:
    """Check that the rows of a person can have been bought, and that the events hold the purchase."""
    search = FindRowsPerPerson(epsilon=FindRowsPerPerson.SHARE * promise.epsilon, relation=promise.relation)
    try:
        found, can = quote(search.checked(bound)), True
    except OptionError as error:
        found, can = reason_of(error), False
    yield Claim("its rows per person can have been bought", can, found)
    paid = sum(event == search.event for event in events)
    yield Claim("its events hold the purchase of rows per person", paid == 1, f"{paid:,} times")
    yield Claim.unchecked(f"its {quote(bound)} rows per person were chosen with noise", "the weights do not show it")


def _noise(certificate: Certificate, model: Mapping[str, Any], recipe: Mapping[str, Any]) -> Iterator[Claim]:
    """Look for a seed of the noise; no file can prove that there was none."""
    claim = "its noise cannot be made again"
    seeds = [model.get("parameters", {}).get("insecure_seed"), recipe.get("insecure_seed")]
    seeds.append(certificate.parameters.get("insecure_seed"))
    private = [certificate.parameters.get("private"), model.get("cost", {}).get("private", True)]
    if any(seed is not None for seed in seeds) or any(one is not True for one in private):
        yield Claim(claim, False, "it came from a given seed")
    else:
        yield Claim.unchecked(claim, "whether it was secret; no file names a seed")


def _scores(certificate: Certificate, promise: DifferentialPrivacy) -> Iterator[Claim]:
    """Check that the scores of held-out records keep the promise: these records are about people too."""
    how, claim = certificate.loss.get("scores"), "the scores of held-out records keep the promise"
    if how == "none":
        return
    if how != "noisy":
        exact = how == "exact" and certificate.source.get("public") is True
        yield Claim(claim, exact, "the data is said to be public" if exact else "they are exact, or of an unknown kind")
        return
    try:
        found = bounded_epsilon(read_events(certificate.loss.get("events")), promise)
    except (SfumatoError, *DAMAGED) as error:
        yield Claim(claim, False, reason_of(error))
        return
    if found.exact or found.epsilon <= promise.epsilon:
        yield Claim(claim, found.epsilon <= promise.epsilon, _inf(found.epsilon))
    else:
        yield Claim.unchecked(claim, found.why)


def _rows(certificate: Certificate, model: Mapping[str, Any], promises: list[DifferentialPrivacy]) -> Iterator[Claim]:
    """Compare the number of records with delta, and with the sampling rate of a stated batch size."""
    rows, sampling = certificate.source.get("rows"), certificate.parameters.get("sampling")
    size = model.get("parameters", {}).get("batch_size")
    rate = sampling.get("rate") if isinstance(sampling, dict) else None
    claim = f"source.rows is {quote(rows)}"
    if rows is not None and (type(rows) is not int or rows < 1):
        yield Claim(claim, False, "it must be a number of records, or null where that is private")
        return
    if _is_network(model) and isinstance(size, int) and isinstance(rate, float) and 0 < rate < 1:
        derived = round(size / rate) if size / rate < 1e15 else 0
        yield Claim(claim, rows == derived, f"{quote(size)} at a rate of {quote(rate)} are of {quote(derived)}")
    else:
        yield Claim.unchecked(claim, "nothing in the release depends on it")
    if rows is not None and promises and promises[0].delta >= 1 / rows:
        yield Claim("delta is below one over the number of records", False, f"of {quote(rows)} records")


def _is_network(model: Mapping[str, Any]) -> bool:
    """Return whether the stated noise is that of every step, not that of all steps together."""
    return isinstance(model.get("state", {}).get("training"), dict)


def _unchecked(certificate: Certificate, model: Mapping[str, Any], recipe: Mapping[str, Any]) -> Iterator[Claim]:
    """List claims that cannot be checked."""
    yield Claim.unchecked("its training ran as described", "the weights do not show it")
    yield Claim.unchecked(
        "loss, parameters.tested on",
        "accuracy, AUC, loss and margin need records that it was not trained on",
    )
    elsewhere = {*recipe, *model.get("cost", {}), *model.get("parameters", {})}
    alone = {name for name in certificate.parameters if name not in elsewhere}
    alone |= {name for name in recipe if name not in certificate.parameters and name not in _NOT_SETTINGS}
    if alone := alone - {"tested on"}:
        names = ", ".join(f"parameters.{quote(name)}" for name in sorted(alone))
        yield Claim.unchecked(names, "one file alone states it")


def _inf(value: float) -> Any:
    return "inf" if value == math.inf else value

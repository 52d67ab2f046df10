"""Whatever field of a certificate is changed, verification fails, or lists the field as not checkable.

The battery goes through every value of the certificate of a table, of a classical model, of a network, of a generator
of rows and of one of images, one at a time: a field that is added to certificates is in it from the first day.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.learners import Privacy
from sfumato.synthesizers import Distillation

RELEASES = ("table", "bayes", "network", "generator", "images")
Place = tuple[str | int, ...]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    frame = pl.DataFrame(
        {
            "age": [20 + at % 10 for at in range(200)],
            "stay": [1.5 * (at % 7) for at in range(200)],
            "ill": ["no", "yes", "no"] * 66 + ["yes", "no"],
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SFUMATO_HOME", str(folder / "home"))
        frame.write_csv(folder / "people.csv")
        tree = sf.Hierarchy.tree([("no", "any"), ("yes", "any")])
        schema = sf.Schema(
            [
                sf.Column(name="age", role="quasi"),
                sf.Column(name="stay", role="sensitive", bounds=(0, 20)),
                sf.Column(name="ill", role="sensitive", hierarchy=tree),
            ]
        )
        table = sf.anonymize(folder / "people.csv", [sf.KAnonymity(4), sf.TCloseness(0.9)], schema=schema)
        sf.save(table, folder / "table")
    columns = [
        sf.Column(name="age", bounds=(18, 90)),
        sf.Column(name="stay", bounds=(0, 20)),
        sf.Column(name="ill", domain=["no", "yes"]),
    ]
    private = sf.Table(frame, sf.Schema(columns))
    sf.save(sf.train(private, "naive-bayes", target="ill", epsilon=1, delta=1e-4), folder / "bayes")
    options = {"batch_size": 50, "epochs": 2, "clip": 0.5, "model_options": {"hidden": [4]}}
    noise = Privacy(noise_multiplier=2.0, rows=400)
    network = sf.train(private, "mlp", target="ill", epsilon=None, privacy=noise, delta=1e-4, **options)
    sf.save(network, folder / "network")
    made = sf.synthesize(private, target="ill", method="independent", rows=20, delta=1e-4, seed=1)
    sf.save(made, folder / "generator")
    few = sf.datasets.Images.of(np.zeros((60, 8, 8), np.uint8), np.arange(60) % 2, classes=2)
    quick = Distillation(directions=4, steps=2, views=1, whitening=8, samples=50)
    sf.save(sf.synthesize(few, method=quick, rows=20, delta=1e-4, seed=1), folder / "images")
    return folder


def places(plain: Any, at: Place = ()) -> Iterator[Place]:
    """Go through every value that is not made of others."""
    inner = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    for key, value in inner:
        yield from places(value, (*at, key))
    if not inner:
        yield at


def holder(plain: Any, place: Place) -> Any:
    for key in place[:-1]:
        plain = plain[key]
    return plain


def changes(value: Any) -> Iterator[Any]:
    """Values near the one that is there, and one of another type."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, float):
        yield from (value * 1.25 + 0.01, value / 2 - 0.01)
    elif isinstance(value, str):
        yield value + "x"
    else:
        yield 7
    yield None if value is not None else "x"


def seen(folder: Path, place: Place) -> bool:
    """Say whether verification refuses the release, fails it, or lists the field."""
    try:
        verdict = sf.verify(folder)
    except sf.SfumatoError:
        return True
    path = ".".join(map(str, place))
    names = [name.partition(" is ")[0] for claim in verdict.unchecked for name in claim.claim.split(", ")]
    return not verdict.ok or any(path == name or path.startswith(f"{name}.") for name in names)


@pytest.fixture
def release(request: pytest.FixtureRequest, made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / request.param, tmp_path / "release"))


@pytest.mark.parametrize("release", RELEASES, indirect=True)
def test_every_field_that_is_changed_fails_or_is_listed(release: Path) -> None:
    path = release / "certificate.json"
    whole = json.loads(path.read_text())
    assert sf.verify(release).ok
    unseen = []
    for place in places(whole):
        value = holder(whole, place)[place[-1]]
        for change in changes(value):
            plain = copy.deepcopy(whole)
            holder(plain, place)[place[-1]] = change
            path.write_text(json.dumps(plain))
            if not seen(release, place):
                unseen.append((place, change))
    assert unseen == []


@pytest.mark.parametrize("release", RELEASES, indirect=True)
def test_every_field_that_is_dropped_or_added_fails_or_is_listed(release: Path) -> None:
    path = release / "certificate.json"
    whole = json.loads(path.read_text())
    unseen = []
    for place in sorted({one[:end] for one in places(whole) for end in range(1, len(one) + 1)}, key=str):
        plain = copy.deepcopy(whole)
        value = holder(plain, place).pop(place[-1])
        if place[0] == "schema" and len(place) == 4 and value in ("other", "auto", "number"):
            continue  # what a schema leaves out is that; bounds alone say that a column is a number
        if place[-1] == "unit":
            continue  # a certificate that names no unit protects a row
        path.write_text(json.dumps(plain))
        if value is not None and not seen(release, place):  # TOML has no null, so that a null is nothing
            unseen.append(("dropped", place))
        if isinstance(value, dict):
            plain = copy.deepcopy(whole)
            holder(plain, place)[place[-1]]["approved"] = 1
            path.write_text(json.dumps(plain))
            if not seen(release, (*place, "approved")):
                unseen.append(("added", place))
    path.write_text(json.dumps({**whole, "approved": 1}))
    if not seen(release, ("approved",)):
        unseen.append(("added", ()))
    assert unseen == []


WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("release", ["table", "network"], indirect=True)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chance=st.randoms(use_true_random=False), values=st.lists(WILD, min_size=1, max_size=3))
def test_no_certificate_makes_verification_raise_an_exception_that_is_not_ours(
    release: Path, chance: Any, values: list[Any]
) -> None:
    path = release / "certificate.json"
    whole = path.read_text()
    plain = json.loads(whole)
    inner = sorted({place[:end] for place in places(plain) for end in range(1, len(place) + 1)}, key=str)
    try:
        for value, place in zip(values, chance.sample(inner, len(values)), strict=True):
            try:
                holder(plain, place)[place[-1]] = value
            except (LookupError, TypeError, AttributeError):
                continue  # an outer value was replaced already
        path.write_text(json.dumps(plain))
        try:
            verdict = sf.verify(release)
        except sf.SfumatoError:
            return
        json.dumps(verdict.to_dict(), allow_nan=False)
    finally:
        path.write_text(whole)

"""A stranger's model is refused in our own words, or answers; and refusing it costs next to nothing."""

from __future__ import annotations

import copy
import json
import resource
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load, save

import sfumato as sf
from sfumato import learners
from sfumato.learners import load_model, write_model
from sfumato.learners.training.released_model import FACTS, WEIGHTS

NETWORK: dict[str, Any] = {"epochs": 1, "batch_size": None, "seed": 0, "noise_multiplier": 5.0}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "naive Bayes": ("PrivateNaiveBayes", {"cells": 5}),
    "logistic": ("PrivateLogisticRegression", {"rounds": 2}),
    "linear": ("PrivateLinearRegression", {}),
    "forest": ("PrivateRandomForest", {"trees": 3, "depth": 3, "cells": 6, "random_state": 0}),
    "k-means": ("PrivateKMeans", {"n_clusters": 3, "rounds": 2}),
    "PCA": ("PrivatePCA", {}),
    "mixture": ("PrivateGaussianMixture", {"n_components": 2, "rounds": 2}),
    "additive": ("PrivateAdditiveClassifier", {"rounds": 2}),
    "additive, a number": ("PrivateAdditiveRegressor", {"rounds": 2}),
    "network": ("PrivateClassifier", {"model": "mlp", "model_options": {"hidden": [4]}, "knots": 3, **NETWORK}),
    "network, a number": ("PrivateRegressor", {"model": "logistic", "knots": None, **NETWORK}),
    "images": ("PrivateClassifier", {"model": "cnn", "classes": range(3), **NETWORK}),
    "scattered images": ("PrivateClassifier", {"model": "scattering-linear", "classes": range(3), **NETWORK}),
    "views of images": (
        "PrivateScatteringClassifier",
        {"classes": range(3), "steps": 2, "views": 1, "whitening": 20, "draws": 30, "seed": 0},
    ),
}
Model = tuple[dict[str, Any], dict[str, NDArray[Any]]]


def records(kind: str) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    if "images" in kind:
        return generator.random((30, 16, 16)), generator.integers(0, 3, 30)
    frame = pl.DataFrame({"age": generator.integers(18, 90, 60), "height": generator.uniform(100, 200, 60)})
    columns = [sf.Column(name="age", bounds=(18, 90)), sf.Column(name="height", bounds=(100, 200))]
    if kind not in ("k-means", "PCA", "mixture"):
        frame = frame.with_columns(sex=pl.Series(generator.choice(["f", "m"], 60)))
        columns.append(sf.Column(name="sex", domain=["f", "m"]))
    is_number = kind in ("linear", "additive, a number", "network, a number")
    target = frame["age"] * 2.0 if is_number else pl.Series(generator.choice(["no", "yes"], 60))
    columns.append(sf.Column(name="y", bounds=(0, 200)) if is_number else sf.Column(name="y", domain=["no", "yes"]))
    return sf.Table(frame.with_columns(y=target), sf.Schema(columns)), None if len(frame.columns) == 2 else "y"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """Every kind of model, as it is on disk."""
    found = {}
    for kind, (name, options) in KINDS.items():
        folder = tmp_path_factory.mktemp("model")
        inputs, target = records(kind)
        if target is None:
            inputs = inputs.frame.drop("y") if hasattr(inputs, "frame") else inputs
            options = {**options, "bounds": ([18, 100], [90, 200])}
        write_model(getattr(learners, name)(epsilon=2, delta=1e-3, **options).fit(inputs, target), folder)
        found[kind] = json.loads((folder / FACTS).read_text()), load((folder / WEIGHTS).read_bytes())
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("strange")


def answers(kind: str, model: Model, folder: Path) -> bool:
    """Say whether a model loads; if so, it has answered for real records, and else it was refused in our words."""
    (folder / FACTS).write_text(json.dumps(model[0]))
    (folder / WEIGHTS).write_bytes(save({name: np.ascontiguousarray(one) for name, one in model[1].items()}))
    inputs, _ = records(kind)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found: Any = load_model(folder)
        except sf.SfumatoError:
            return False
        try:
            given = len(found.predict(inputs) if hasattr(found, "predict") else found.transform(inputs))
        except sf.SfumatoError:  # another table than it was trained on
            return True
        assert given == (30 if "images" in kind else 60)
    return True


def places(plain: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to everything in plain values."""
    if at:
        yield at
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield from places(value, (*at, key))
    elif isinstance(plain, list):
        for position, value in enumerate(plain[:4]):
            yield from places(value, (*at, position))


STRANGE = (
    None,
    -1,
    0,
    1,
    2,
    7,
    2.5,
    10**9,
    10**30,
    "",
    "x",
    "inf",
    True,
    [],
    [1],
    [0, 1, 2],
    [[1]],
    {},
    {"a": 1},
    1e308,
)
DTYPES = ("float64", "float32", "float16", "int64", "int8", "uint8", "bool")


def reshaped(one: NDArray[Any], how: str) -> NDArray[Any]:
    match how:
        case "flat":
            return one.reshape(-1)
        case "transposed":
            return one.T
        case "longer":
            return np.concatenate([one, one])
        case "shorter":
            return one[:-1]
        case "wider":
            return np.concatenate([one, one], axis=-1)
        case "deeper":
            return one[None]
        case "none":
            return one[:0]
    return one[..., :-1]


HOW = ("flat", "transposed", "longer", "shorter", "wider", "deeper", "none", "narrower")


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_as_it_was_written_answers(kind: str, stored: dict[str, Model], folder: Path) -> None:
    assert answers(kind, stored[kind], folder)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_a_model_with_a_strange_description_is_refused_or_answers(
    kind: str, stored: dict[str, Model], folder: Path, data: st.DataObject
) -> None:
    facts, arrays = copy.deepcopy(stored[kind])
    *way, last = data.draw(st.sampled_from([one for one in places(facts) if one[0] in ("state", "parameters")]))
    within = facts
    for step in way:
        within = within[step]
    if data.draw(st.integers(0, 5)):
        within[last] = data.draw(st.sampled_from(STRANGE))
    else:
        del within[last]
    answers(kind, (facts, arrays), folder)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_a_model_with_strange_arrays_is_refused_or_answers(
    kind: str, stored: dict[str, Model], folder: Path, data: st.DataObject
) -> None:
    facts, arrays = stored[kind][0], dict(stored[kind][1])
    name = data.draw(st.sampled_from(sorted(arrays)))
    one = arrays[name]
    match data.draw(st.sampled_from(["shape", "type", "absent", "values", "other"])):
        case "shape":
            arrays[name] = reshaped(one, data.draw(st.sampled_from(HOW)))
        case "type":
            with np.errstate(all="ignore"):
                arrays[name] = one.astype(data.draw(st.sampled_from(DTYPES)))
        case "absent":
            del arrays[name]
        case "values":
            value = data.draw(st.sampled_from([-(2**31), -1, 5, 2**31 - 1, np.nan, np.inf]))
            arrays[name] = np.full_like(one, value if one.dtype.kind == "f" or np.isfinite(value) else 9)
        case _:
            arrays[name] = arrays[data.draw(st.sampled_from(sorted(arrays)))]
    answers(kind, (facts, arrays), folder)


def test_values_that_point_nowhere_are_refused(stored: dict[str, Model], folder: Path) -> None:
    for kind, name in (("forest", "columns_"), ("additive", "bins_")):
        for value in (-1, 10**6):
            facts, arrays = stored[kind][0], dict(stored[kind][1])
            arrays[name] = arrays[name].copy()
            arrays[name].reshape(-1)[1] = value  # none of the made-up records may meet it
            assert not answers(kind, (facts, arrays), folder)


@pytest.mark.parametrize(
    ("kind", "where", "value"),
    [
        ("network", ("architecture", "hidden"), [30_000, 30_000]),
        ("network", ("architecture", "hidden"), [1] * 100_000),
        ("network", ("architecture", "outputs"), 10**9),
        ("network", ("knots",), 10**8),
        ("network, a number", ("architecture", "inputs"), [10**9]),
        ("images", ("inputs",), [1, 30_000, 30_000]),
        ("images", ("architecture", "inputs"), [1, 30_000, 30_000]),
        ("scattered images", ("architecture", "inputs"), [1, 20_000, 20_000]),
        ("scattered images", ("architecture", "angles"), 10_000),
        ("scattered images", ("architecture", "outputs"), 10**8),
    ],
)
def test_a_network_that_is_larger_than_its_weights_is_refused_before_it_takes_memory(
    kind: str, where: tuple[str, ...], value: Any, stored: dict[str, Model], folder: Path
) -> None:
    facts, arrays = copy.deepcopy(stored[kind])
    within = facts["state"]
    for step in where[:-1]:
        within = within[step]
    within[where[-1]] = value
    if where == ("knots",):
        facts["state"]["inputs"] = [10**8 * 2 + 2]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert not answers(kind, (facts, arrays), folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000, "kilobytes"

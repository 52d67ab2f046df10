"""Every published figure has a row with a verdict, and every figure of ours is computed."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest

import sfumato as sf
from sfumato.errors import MissingExtra, OptionError
from sfumato.reproductions import VERDICTS, Reproduction, Row, experiment, experiments
from sfumato.reproductions.values import NOT_RUN, judge


@pytest.fixture(scope="module")
def runs() -> dict[str, Reproduction]:
    """The quick form of every experiment, as the command runs it: under two minutes of a processor together."""
    return {one.name: sf.reproduce(one.name, quick=True) for one in experiments()}


def test_every_fact_has_one_row_with_a_verdict(runs: dict[str, Reproduction]) -> None:
    for name, found in runs.items():
        assert [row.key for row in found.rows] == list(experiment(name).facts), name
        assert all(row.verdict in VERDICTS for row in found.rows), name
        assert sum(found.verdicts.values()) == len(found.rows)


def test_a_quick_run_measures_something_of_every_experiment(runs: dict[str, Reproduction]) -> None:
    for name, found in runs.items():
        measured = [row for row in found.rows if row.note != NOT_RUN]
        assert any(row.ours is not None for row in measured), name
        assert all(row.ours is not None or row.verdict == "not judged" for row in measured), name
        assert found.quick
        assert found.seconds > 0


def test_a_row_that_depends_on_the_size_of_the_run_is_not_judged_in_a_small_one(runs: dict[str, Reproduction]) -> None:
    for name, keys in {
        "private-cnn": ("accuracy-private", "private-1"),
        "epsilon-sweep": ("order", "start"),
        "membership": ("adult-rf", "adult-rf-k50"),
        "guided-models": ("adult-8-dt", "adult-8-dt-before"),
        "federated-xrays": ("central-accuracy", "10-b-accuracy"),
        "private-auto-encoder": ("loss", "before", "after"),
    }.items():
        rows = {row.key: row for row in runs[name].rows}
        assert {rows[key].verdict for key in keys} == {"not judged"}, name


def test_the_runs_are_json_without_pictures(runs: dict[str, Reproduction]) -> None:
    import json

    for found in runs.values():
        plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert {"what", "printed", "ours", "note", "verdict"} <= plain["rows"][0].keys()
        assert plain["name"] == found.name


def test_the_printed_epsilon_is_refuted_by_the_real_accounting(runs: dict[str, Reproduction]) -> None:
    rows = {row.key: row for row in runs["private-cnn"].rows}
    assert rows["epsilon-9"].ours == "13.21 shuffled; 0.343 Poisson"
    assert {rows[f"epsilon-{epoch}"].verdict for epoch in range(1, 10)} == {"refuted"}


def test_both_networks_have_curves_noisy_digits_and_feature_maps(runs: dict[str, Reproduction]) -> None:
    titles = [one.title for one in runs["private-cnn"].figures]
    for wanted in ("Digits", "Digits with normal noise of 1", "Loss on training images after each epoch"):
        assert wanted in titles
    for kind in ("with", "without"):
        for layer in (1, 2):
            assert any(one.startswith(f"Feature maps {kind} privacy: convolution {layer}") for one in titles)


def test_the_explained_properties_of_privacy_hold(runs: dict[str, Reproduction]) -> None:
    rows = {row.key: row for row in runs["epsilon-sweep"].rows}
    assert rows["coins"].ours == pytest.approx(math.log(3))
    for key in ("composition", "group"):
        assert rows[key].ours == pytest.approx(2 * math.log(3))
    assert rows["post-processing"].ours == pytest.approx(math.log(3))


def test_a_tree_grown_on_other_rows_does_not_give_k(runs: dict[str, Reproduction]) -> None:
    row = next(row for row in runs["guided-models"].rows if row.key == "split")
    assert row.verdict == "refuted"


def test_what_we_anonymize_has_the_k_that_was_asked(runs: dict[str, Reproduction]) -> None:
    row = next(row for row in runs["nine-measures"].rows if row.key == "adult-k3")
    assert (row.ours, row.verdict) == (3.0, "reproduced")


def test_each_technique_stops_what_it_mainly_prevents_but_for_t_and_similarity(runs: dict[str, Reproduction]) -> None:
    rows = {row.key: row for row in runs["techniques"].rows}
    assert [key for key, row in rows.items() if row.verdict != "reproduced"] == ["t"]
    assert "not similarity" in rows["t"].note


def test_encrypted_answers_are_those_of_the_plain_model(runs: dict[str, Reproduction]) -> None:
    rows = {row.key: row for row in runs["encrypted"].rows}
    assert {rows[key].verdict for key in ("pipeline", "inference", "combined", "training")} == {"built"}
    assert rows["together"].verdict in ("built", "not judged")  # OpenFHE may not be here


def test_noise_in_finished_weights_guarantees_nothing(runs: dict[str, Reproduction]) -> None:
    row = next(row for row in runs["private-auto-encoder"].rows if row.key == "private")
    assert (row.ours, row.verdict) == ("infinite", "refuted")
    assert "nothing is guaranteed" in row.note


def test_the_attack_that_was_printed_is_below_guessing(runs: dict[str, Reproduction]) -> None:
    rows = {row.key: row for row in runs["attributes"].rows}
    assert rows["tree-attack"].verdict == "refuted"


@pytest.mark.parametrize(
    ("printed", "ours", "verdict"), [(0.5, 0.505, "reproduced"), (0.5, 0.6, "better"), (0.5, 0.4, "differs")]
)
def test_a_number_is_judged_by_its_distance_and_its_direction(printed: float, ours: float, verdict: str) -> None:
    assert judge(printed, ours, within=0.01, larger=True) == verdict
    assert judge(printed, ours, within=0.01, larger=True, comparable=False) == "not judged"


def test_an_unknown_experiment_setting_or_verdict_is_refused() -> None:
    with pytest.raises(OptionError, match="no experiment 'privat-cnn'"):
        sf.reproduce("privat-cnn")
    with pytest.raises(OptionError, match="no setting 'epoch'"):
        sf.reproduce("private-cnn", epoch=1)
    with pytest.raises(OptionError, match="the verdict must be one of"):
        Row("a", "b", "c", None, "fine")


def test_a_missing_extra_is_named_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name.partition(".")[0] in ("torch", "tenseal"):
            raise ImportError(name)
        return real(name, package)

    needed = {one.name: one.extra for one in experiments() if one.extra}
    assert {"private-cnn", "private-auto-encoder", "encrypted"} <= set(needed)
    monkeypatch.setattr(importlib, "import_module", without)
    for name, extra in needed.items():
        with pytest.raises(MissingExtra, match=rf"the experiment '{name}' needs .*sfumato\[{extra}\]"):
            sf.reproduce(name, quick=True)
    with pytest.raises(MissingExtra, match="the experiment 'membership' needs torch"):
        sf.reproduce("membership")


def test_missing_tables_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SFUMATO_DATA", str(tmp_path))
    found = sf.reproduce("nine-measures")
    row = next(row for row in found.rows if row.key == "stroke-k5")
    assert "SFUMATO_DATA/pycanon/processed/stroke_k5.parquet" in row.note


def test_a_missing_table_does_not_end_a_run_of_hours(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SFUMATO_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = sf.reproduce("membership", targets=("loan-rf",))
    row = next(row for row in found.rows if row.key == "loan-rf")
    assert (row.ours, row.verdict) == (None, "not judged")
    assert "full_train_set.parquet" in row.note

"""Models that answer encrypted questions, as one step of a pipeline with private training."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.reproductions.values import Experiment, Fact, Figure, Row

__all__ = ["EXPERIMENT", "Settings"]

_NUMBERS = ("age", "education-num", "hours-per-week", "capital-gain")


@dataclass(frozen=True)
class Settings:
    """How many records are sent, encrypted, and how long the networks train."""

    records: int = 1_000
    images: int = 10_000
    epochs: int = 10
    network: bool = True
    """Also a network with one hidden layer on images."""


def run(settings: Settings) -> Iterator[Row | Figure]:
    """Train in clear with privacy, predict under encryption, and compare."""
    import sfumato as sf
    from sfumato.federation import inputs_of, to_circuit
    from sfumato.learners import PrivateLogisticRegression

    private = PrivateLogisticRegression(epsilon=1).fit(sf.datasets.adult("train"), "income")
    people = sf.Table.of(sf.datasets.adult("test").frame.head(settings.records))
    circuit, rows = to_circuit(private), inputs_of(private, people)
    found = _asked(circuit, rows, np.asarray(private.predict(people)).astype(str), _truth(people))
    yield EXPERIMENT.row("pipeline", *_row("Adult, a logistic regression of epsilon 1", found))
    if settings.network:
        fitted, digits = _network(settings)
        circuit, rows = to_circuit(fitted), inputs_of(fitted, digits.test_images[: settings.records])
        truth = digits.test_labels[: settings.records].astype(str)
        plain = np.asarray(fitted.predict(digits.test_images[: settings.records])).astype(str)
        found = _asked(circuit, rows, plain, truth)
        yield EXPERIMENT.row("inference", *_row("MNIST, a network 784-32-10 with squares", found))
    yield EXPERIMENT.row("training", *_trained_together(people, _truth(people)))
    yield EXPERIMENT.row("together", *_opened_together())
    yield EXPERIMENT.row("combined", *_row("guided k = 10, then the same", _combined(settings, people, _truth(people))))


def _holders() -> tuple[dict[str, Any], Any]:
    """Divide the training rows of Adult among three holders."""
    import sfumato as sf

    rows = sf.datasets.adult("train").frame.select(*_NUMBERS, "income")
    return {name: rows[at::3] for at, name in enumerate(("east", "north", "south"))}, _public([*_NUMBERS, "income"])


def _trained_together(people: Any, truth: Any) -> tuple[str, str, str]:
    """Fit a logistic regression on gradients that are added up under CKKS, and beside it on sums in clear."""
    from sfumato.federation import AnalysisPlan, LogisticRegression, analyse_together

    holders, schema = _holders()
    found = {}
    for secure in ("none", "ckks"):
        analysis = LogisticRegression(_NUMBERS, "income", iterations=6)
        plan = AnalysisPlan(analysis=analysis, schema=schema, parties=3, secure=secure)
        found[secure] = analyse_together(plan, holders).values
    apart = max(abs(found["ckks"]["slopes"][name] - found["none"]["slopes"][name]) for name in _NUMBERS)
    frame = people.to_polars()
    score = found["ckks"]["intercept"] + sum(
        slope * frame[name].to_numpy() for name, slope in found["ckks"]["slopes"].items()
    )
    accuracy = float(((score > 0) == (truth == found["ckks"]["event"])).mean())
    note = (
        "three holders encrypt the sums of their gradients, which are added encrypted; each row stays in clear at its "
        f"holder. Slopes differ from those of sums in clear by at most {apart:.1e}"
    )
    return f"accuracy {accuracy:.4f}", "built" if apart < 1e-6 else "differs", note


def _opened_together() -> tuple[str | None, str, str]:
    """Add up under a key of which each of three holders has a share."""
    from sfumato.errors import MissingExtra
    from sfumato.federation import AnalysisPlan, Moments, analyse_together
    from sfumato.federation.secure.openfhe import openfhe

    try:
        openfhe()
    except MissingExtra as error:
        return None, "not judged", f"it is built on OpenFHE, which is not here: {error}"
    holders, schema = _holders()
    plans = {
        secure: AnalysisPlan(analysis=Moments(("age",)), schema=schema, parties=3, secure=secure)
        for secure in ("none", "threshold")
    }
    found = {secure: analyse_together(plan, holders).values["age"]["mean"] for secure, plan in plans.items()}
    same = abs(found["none"] - found["threshold"]) < 1e-9
    note = "mean age of 32,561 people of three holders; nothing opens without the share of each of them"
    return f"mean {found['threshold']:.4f}", "built" if same else "differs", note


def _truth(people: Any) -> Any:
    return np.asarray(people.column("income").to_list()).astype(str)


def _combined(settings: Settings, people: Any, truth: Any) -> dict[str, float]:
    """Train on rows that were anonymized with the labels as the guide, and ask under encryption."""
    import sfumato as sf
    from sfumato.federation import inputs_of, to_circuit
    from sfumato.learners import PrivateLogisticRegression

    rows = sf.datasets.adult("train").frame.head(settings.images)
    qi = ["age", "education-num", "marital-status", "sex", "hours-per-week"]
    released = sf.Guided("k=10", qi=qi, labels=rows["income"].to_list()).fit_transform(rows.select(*qi))
    table = sf.Table.of(rows.select("income").hstack(released), schema=_public([*qi, "income"]))
    fitted = PrivateLogisticRegression(epsilon=1).fit(table, "income")
    circuit, asked = to_circuit(fitted), inputs_of(fitted, people)
    return _asked(circuit, asked, np.asarray(fitted.predict(people)).astype(str), truth)


def _public(names: list[str]) -> Any:
    import sfumato as sf

    schema = sf.datasets.adult().schema
    return sf.Schema(sf.Column(name=one, bounds=schema[one].bounds, domain=schema[one].domain) for one in names)


def _network(settings: Settings) -> tuple[Any, Any]:
    import torch
    from torch import nn

    import sfumato as sf
    from sfumato.federation import Square
    from sfumato.learners import PrivateClassifier

    digits = sf.datasets.mnist()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), Square(), nn.Linear(32, 10))
        options: dict[str, Any] = {"batch_size": 250, "epochs": settings.epochs, "learning_rate": 0.1, "seed": 0}
        fitted = PrivateClassifier(model=model, classes=range(10), epsilon=math.inf, **options).fit(
            digits.train_images[: settings.images], digits.train_labels[: settings.images]
        )
    return fitted, digits


def _asked(circuit: Any, rows: Any, plain: Any, truth: Any) -> dict[str, float]:
    """Send every record encrypted; return how often the answer is the plain model's, and what it cost."""
    from sfumato.federation import Client, Server

    server = Server(circuit)
    client = Client(server.question)
    session, began = server.connect(client.public_keys), time.process_time()
    answers = [client.decrypt(server.answer(session, client.encrypt(row))) for row in rows]
    spent, scores = time.process_time() - began, np.array(answers)
    at = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(1)
    said = np.asarray(circuit.classes).astype(str)[at]
    return {
        "records": len(rows),
        "same": float((said == plain).mean()),
        "plain": float((plain == truth).mean()),
        "encrypted": float((said == truth).mean()),
        "error": float(np.abs(scores - circuit(rows)).max()),
        "seconds": spent / len(rows),
    }


def _row(what: str, found: dict[str, float]) -> tuple[str, str, str]:
    ours = f"accuracy {found['encrypted']:.4f} encrypted, {found['plain']:.4f} in clear"
    note = (
        f"{what}: {found['records']:,.0f} records, the same answer for {found['same']:.2%}, "
        f"largest error of a score {found['error']:.1e}, {found['seconds']:.3f} CPU s a record"
    )
    return ours, "built" if found["same"] == 1 else "differs", note


EXPERIMENT = Experiment(
    name="encrypted",
    title="Homomorphic encryption in the pipeline",
    source='Planned in "Privacy preserving techniques for data science" and wished for in two more publications',
    facts={
        "pipeline": Fact("homomorphic encryption in a pipeline with differential privacy", "planned"),
        "inference": Fact("inference on encrypted data", "planned"),
        "training": Fact("training on encrypted data", "planned"),
        "together": Fact("a key that only all parties together can use", "wished for"),
        "combined": Fact("anonymization together with homomorphic encryption", "wished for"),
    },
    full=Settings(),
    quick=Settings(records=100, images=4_000, epochs=4),
    run=run,
    needs="OpenFHE, for the key of several parties",
    extra="federation",
)

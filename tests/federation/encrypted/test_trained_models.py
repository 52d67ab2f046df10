"""Our own trained models answer under encryption as they do in clear."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import sfumato as sf
from sfumato.federation import Client, Question, Server, Square, inputs_of, to_circuit
from sfumato.learners import PrivateClassifier, PrivateLogisticRegression


def encrypted_classes(circuit, rows):
    server = Server(circuit)
    client = Client(server.question)
    session = server.connect(client.public_keys)
    scores = np.array([client.decrypt(server.answer(session, client.encrypt(row))) for row in rows])
    assert np.abs(scores - circuit(rows)).max() < 1e-3
    return np.array(circuit.classes)[scores.argmax(1)] if scores.shape[1] > 1 else scores[:, 0]


@pytest.mark.parametrize("own", [False, True])
def test_networks_on_mnist_agree_with_the_plain_model_on_every_image_in_clear_and_on_some_under_encryption(own):
    digits = sf.datasets.mnist()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), Square(), nn.Linear(32, 10)) if own else "logistic"
    fitted = PrivateClassifier(
        model=model, classes=range(10), epsilon=math.inf, batch_size=250, epochs=5, learning_rate=0.1, seed=0
    ).fit(digits.train_images[:4000], digits.train_labels[:4000])
    circuit, rows = to_circuit(fitted), inputs_of(fitted, digits.test_images)
    plain = fitted.predict(digits.test_images)
    assert (np.array(circuit.classes)[circuit(rows).argmax(1)] == plain).mean() > 0.999
    assert (plain == digits.test_labels).mean() > 0.7
    assert (encrypted_classes(circuit, rows[:10]) == plain[:10]).all()


def test_a_private_logistic_regression_on_adult_agrees_with_the_plain_model():
    fitted = PrivateLogisticRegression(epsilon=1).fit(sf.datasets.adult("train"), "income")
    test = sf.Table.of(sf.datasets.adult("test").frame.head(300))
    circuit, rows = to_circuit(fitted), inputs_of(fitted, test)
    question = Question.from_dict(json.loads(json.dumps(Question.of(circuit).to_dict())))
    assert (inputs_of(question, test) == rows).all()
    assert not {"coef", "weights", "intercept"} & set(json.dumps(question.to_dict()).split('"'))
    plain = fitted.predict(test)
    second = (circuit(rows)[:, 0] > 0) if circuit.widths[-1] == 1 else circuit(rows).argmax(1) == 1
    assert (np.array(circuit.classes)[second.astype(int)] == plain).all()
    found = encrypted_classes(circuit, rows[:10])
    if circuit.widths[-1] == 1:
        found = np.array(circuit.classes)[(found > 0).astype(int)]
    assert (found == plain[:10]).all()

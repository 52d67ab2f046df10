"""Models answer encrypted records: accuracy beside the plain model, latency and bytes.

python benchmarks/encrypted_prediction.py [--records 300] [--seeds 3] [--models logistic,network,cnn,adult]

On the embedded MNIST: a logistic regression, a network with one hidden layer of 32 (784-32-10) and a convolution (4
filters of 7x7, stride 3) with a linear layer, both with a square between; on Adult: a private logistic regression
(epsilon 1). Settings were fixed beforehand. The first test records are encrypted, one at a time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import sfumato as sf
from sfumato.federation import Circuit, Client, Server, Square, inputs_of, to_circuit
from sfumato.learners import PrivateLogisticRegression

Floats = NDArray[np.float64]

MODULES: dict[str, Callable[[], nn.Module]] = {
    "logistic": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
    "network": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 32), Square(), nn.Linear(32, 10)),
    "cnn": lambda: nn.Sequential(nn.Conv2d(1, 4, 7, stride=3), Square(), nn.Flatten(), nn.Linear(256, 10)),
}


def trained(name: str, seed: int, images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    torch.manual_seed(seed)
    module = MODULES[name]()
    optimizer = torch.optim.Adam(module.parameters(), lr=2e-3, weight_decay=1e-4)
    for _ in range(15):
        for part in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(images[part]), labels[part])
            loss.backward()
            optimizer.step()
    return module.eval()


def digits(name: str, seed: int) -> tuple[Circuit, Floats, NDArray[Any], NDArray[Any]]:
    """Return a trained model, the test images, their labels, and what torch predicts."""
    data = sf.datasets.mnist()
    images = torch.tensor(np.array(data.train_images, np.float32).reshape(-1, 1, 28, 28))
    tests = np.array(data.test_images, np.float32).reshape(-1, 1, 28, 28)
    scale = float(images.max())
    module = trained(name, seed, images / scale, torch.tensor(np.array(data.train_labels, np.int64)))
    with torch.no_grad():
        plain = module(torch.tensor(tests / scale)).argmax(1).numpy()
    rows = tests.reshape(len(tests), -1).astype(np.float64) / scale
    return to_circuit(module, (1, 28, 28)), rows, np.array(data.test_labels), plain


def people() -> tuple[Circuit, Floats, NDArray[Any], NDArray[Any]]:
    """Return a private model, the test records, their labels, and what it predicts."""
    model = PrivateLogisticRegression(epsilon=1).fit(sf.datasets.adult("train"), "income")
    table = sf.datasets.adult("test")
    labels = np.array([list(model.classes_).index(one) for one in table.frame["income"].to_list()])
    plain = np.array([list(model.classes_).index(one) for one in model.predict(table)])
    return to_circuit(model), inputs_of(model, table), labels, plain


def classes(scores: Floats) -> NDArray[Any]:
    """Return the class of each row of scores; a single score is that of the second class."""
    return np.asarray(scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int))


def asked(title: str, model: tuple[Circuit, Floats, NDArray[Any], NDArray[Any]], count: int) -> None:
    """Encrypt the first records, and print what comes out."""
    circuit, rows, labels, plain = model
    count = min(count, len(rows))
    began = time.process_time()
    server = Server(circuit)
    client = Client(server.question)
    session = server.connect(client.public_keys)
    start = time.process_time() - began
    found, up, down, spent = np.empty((count, circuit.widths[-1])), 0, 0, np.zeros(3)
    for at in range(count):
        clock = [time.process_time()]
        sent = client.encrypt(rows[at])
        clock.append(time.process_time())
        answer = server.answer(session, sent)
        clock.append(time.process_time())
        found[at] = client.decrypt(answer)
        clock.append(time.process_time())
        spent += np.diff(clock)
        up, down = up + len(sent), down + len(answer)
    right, wrong = labels[:count] == classes(found), np.abs(found - circuit(rows[:count]))
    print(
        f"{title}: plain {100 * (plain == labels).mean():.2f} % of {len(labels):,}; first {count:,}: plain "
        f"{100 * (plain[:count] == labels[:count]).mean():.2f} %, encrypted {100 * right.mean():.2f} %, "
        f"{(classes(found) == plain[:count]).sum():,} alike, largest error {wrong.max():.1e}; CPU s a record: encrypt, "
        f"answer, decrypt {' '.join(f'{one / count:.4f}' for one in spent)}; bytes up {up // count:,}, down "
        f"{down // count:,}; keys {len(client.public_keys) / 1e6:.1f} MB, {start:.2f} CPU s once; "
        f"{server.question.parameters}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", default="logistic,network,cnn,adult")
    given = parser.parse_args()
    for name in given.models.split(","):
        for seed in range(given.seeds):
            asked(f"{name} {seed}", people() if name == "adult" else digits(name, seed), given.records)


if __name__ == "__main__":
    main()

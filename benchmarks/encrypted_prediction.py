"""A small CNN on MNIST answers encrypted images: accuracy beside the plain model, latency and bytes.

python benchmarks/encrypted_prediction.py [--images 300] [--seeds 3]

A convolution (4 filters of 7x7, stride 3), a square and a linear layer, trained on the embedded 10,000 images with
settings that were fixed beforehand; the first test images are encrypted.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import nn

import sfumato as sf
from sfumato.federation import Client, Server, Square, to_circuit


def trained(seed: int, images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Conv2d(1, 4, 7, stride=3), Square(), nn.Flatten(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(module.parameters(), lr=2e-3, weight_decay=1e-4)
    for _ in range(15):
        for part in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(images[part]), labels[part])
            loss.backward()
            optimizer.step()
    return module.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    digits = sf.datasets.mnist()
    images = torch.tensor(np.array(digits.train_images, np.float32).reshape(-1, 1, 28, 28))
    tests = np.array(digits.test_images, np.float32).reshape(-1, 1, 28, 28)
    scale = float(images.max())
    labels = torch.tensor(np.array(digits.train_labels, np.int64))
    for seed in range(given.seeds):
        module = trained(seed, images / scale, labels)
        circuit = to_circuit(module, (1, 28, 28))
        began = time.process_time()
        server = Server(circuit)
        client = Client(server.question)
        session = server.connect(client.public_keys)
        start = time.process_time() - began
        rows = tests.reshape(len(tests), -1) / scale
        plain = circuit(rows).argmax(1)
        with torch.no_grad():
            torchs = module(torch.tensor(tests / scale)).argmax(1).numpy()
        right, same, error, sent, spent = 0, 0, 0.0, [], np.zeros(3)
        for at in range(given.images):
            clock = [time.process_time()]
            asked = client.encrypt(rows[at])
            clock.append(time.process_time())
            answer = server.answer(session, asked)
            clock.append(time.process_time())
            scores = client.decrypt(answer)
            clock.append(time.process_time())
            spent += np.diff(clock)
            sent.append(len(asked) + len(answer))
            right += int(scores.argmax() == digits.test_labels[at])
            same += int(scores.argmax() == plain[at])
            error = max(error, float(np.abs(scores - circuit(rows[at : at + 1])[0]).max()))
        known = np.array(digits.test_labels)
        print(
            f"seed {seed}: torch {100 * (torchs == known).mean():.2f} % of {len(known):,}; first {given.images}: "
            f"plain {100 * (plain[: given.images] == known[: given.images]).mean():.2f} %, encrypted "
            f"{100 * right / given.images:.2f} %, {same} alike, largest error {error:.1e}; CPU s an image: encrypt, "
            f"answer, decrypt {' '.join(f'{one / given.images:.4f}' for one in spent)}; "
            f"{np.mean(sent) / 1e6:.3f} MB an image; "
            f"keys {len(client.public_keys) / 1e6:.1f} MB, {start:.2f} CPU s once; {server.question.parameters}",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Models for attacks.py that are trained on another machine: all networks of a row at once on its GPU, and forests.

    python attacks_gpu.py export FOLDER       here: writes what the models are trained on, as numbers
    python attacks_gpu.py networks FOLDER OUT  where there is a GPU: needs torch and numpy, not Sfumato
    python attacks_gpu.py forests FOLDER OUT   where there are many cores: needs scikit-learn, not Sfumato
    python attacks.py --elsewhere OUT          here: attacks the networks, and takes the forests as references

The networks are those of Table 1: 1024-512-256, tanh, Adam 0.0001. A category is one input per value, a number is
scaled by the mean and the deviation of all rows. A batch is 100 rows; the paper states neither that nor the number of
epochs. Ours are 400 for Adult, which give the printed training accuracy, and 100 for the loans. In the rows with k the
training rows of every model are anonymized apart, guided by the labels, and published by their medians.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIDDEN, RATE, BATCH, TARGETS = (1024, 512, 256), 1e-4, 100, 5
EPOCHS = {"adult": 400, "loan": 100}
REFERENCES = {
    "adult-nn": 32, "adult-nn-k25": 16, "adult-nn-k50": 16, "loan-nn": 16, "loan-nn-k200": 8,
    "adult-rf-k100": 16, "loan-rf-k100": 8,
}  # fmt: skip
# The rows whose forests are trained on the same halves, and with k on the same anonymous rows, as a row above.
FORESTS = {
    "adult-rf": "adult-nn", "adult-rf-k50": "adult-nn-k50", "adult-rf-k100": "adult-rf-k100", "loan-rf": "loan-nn",
    "loan-rf-k100": "loan-rf-k100",
}  # fmt: skip
Floats = NDArray[np.float32]


class Coding:
    """Rows as numbers: scaled numbers, and the position of each category."""

    def __init__(self, frame: Any) -> None:
        self.numbers = [name for name, kind in frame.schema.items() if kind.is_numeric()]
        self.texts = {name: frame[name].unique().sort().to_list() for name in frame.columns if name not in self.numbers}
        values = self._numbers(frame)
        self.mean, self.deviation = values.mean(axis=0), values.std(axis=0)

    def _numbers(self, frame: Any) -> NDArray[np.float64]:
        return np.asarray(frame.select(self.numbers).to_numpy(), dtype=np.float64)

    def codes(self, frame: Any) -> tuple[Floats, NDArray[np.uint8]]:
        """Return the scaled numbers, and the position of each category among those of its column."""
        numbers = ((self._numbers(frame) - self.mean) / self.deviation).astype(np.float32)
        columns = [
            frame[name].replace_strict(known, list(range(len(known)))).to_numpy() for name, known in self.texts.items()
        ]
        return numbers, np.column_stack(columns).astype(np.uint8)

    @property
    def sizes(self) -> list[int]:
        """The number of values of each category."""
        return [len(known) for known in self.texts.values()]


def one_hot(numbers: Floats, codes: NDArray[np.uint8], sizes: Any) -> Floats:
    """Return the inputs of a network."""
    return np.hstack([numbers, *(np.eye(int(size), dtype=np.float32)[codes[:, i]] for i, size in enumerate(sizes))])


class Forest:
    """A forest that was trained on coded rows."""

    def __init__(self, forest: Any, coding: Coding, classes: NDArray[Any]) -> None:
        self.estimator_, self.coding, self.classes_ = forest, coding, classes

    def predict_proba(self, frame: Any) -> NDArray[np.float64]:
        """Return the share of votes for each class."""
        found: NDArray[np.float64] = self.estimator_.predict_proba(
            one_hot(*self.coding.codes(frame), self.coding.sizes)
        )
        return found

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the class with the most votes."""
        result: NDArray[Any] = self.classes_[self.predict_proba(frame).argmax(axis=1)]
        return result


class Network:
    """A trained network, in numpy."""

    def __init__(self, weights: dict[str, Floats], coding: Coding, classes: NDArray[Any]) -> None:
        self.weights, self.coding, self.classes_ = weights, coding, classes

    def predict_proba(self, frame: Any) -> NDArray[np.float64]:
        """Return the probability of each class."""
        found = one_hot(*self.coding.codes(frame), self.coding.sizes)
        layers = len(HIDDEN) + 1
        for layer in range(layers):
            found = found @ self.weights[f"w{layer}"] + self.weights[f"b{layer}"]
            found = np.tanh(found) if layer < layers - 1 else found
        scores = found.astype(np.float64)
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        result: NDArray[np.float64] = scores / scores.sum(axis=1, keepdims=True)
        return result

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the most probable class."""
        result: NDArray[Any] = self.classes_[self.predict_proba(frame).argmax(axis=1)]
        return result


def export(folder: Path) -> None:
    """Write the rows that each network is trained on: references first, then targets."""
    from sklearn.dummy import DummyClassifier

    from attacks import ROWS, pool_of, split_of
    from sfumato.anonymizers import AnonymizedModel
    from sfumato.attacks.membership.references import halves

    folder.mkdir(parents=True, exist_ok=True)
    for name, count in REFERENCES.items():
        if (folder / f"{name}.npz").exists():
            continue
        row = ROWS[name]
        _, pool = pool_of(row.table)
        assert pool.labels is not None
        coding = Coding(pool.frame)
        classes, labels = np.unique(pool.labels, return_inverse=True)
        rows = [np.flatnonzero(inside) for inside in halves(len(pool), count, seed=7)]
        rows += [split_of(len(pool), target)[0] for target in range(TARGETS)]
        size = max(map(len, rows))  # of an odd pool the halves differ by one row: it is then drawn twice
        rows = [np.resize(own, size) for own in rows]
        numbers, codes = coding.codes(pool.frame)
        more: dict[str, Any] = {}
        if row.protect is not None:
            coded = []
            for own in rows:
                k = row.protect.removeprefix("guided:")
                model = AnonymizedModel(
                    DummyClassifier(), k, qi=pool.frame.columns, guide="true", cut_by="qi", transform=False
                )
                model.fit(pool.frame[own], pool.labels[own])
                released = model.release.aligned.frame.select(pool.frame.columns)
                assert len(released) == len(own)
                coded.append(coding.codes(released.cast(dict(pool.frame.schema))))
                print(name, len(coded), end="\r", flush=True)
            more = {
                "own_numbers": np.array([one for one, _ in coded]),
                "own_codes": np.array([one for _, one in coded]),
            }
        np.savez_compressed(
            folder / f"{name}.npz",
            numbers=numbers,
            codes=codes,
            sizes=coding.sizes,
            labels=labels.astype(np.uint8),
            rows=np.array(rows).astype(np.int32),
            classes=len(classes),
            **more,
        )
        print(name, len(rows), "networks")


def networks(folder: Path, out: Path) -> None:
    """Train all networks of each row at once; each has its own weights, rows and order of rows."""
    import torch
    from torch import Tensor

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = True
    for place in sorted(folder.glob("*-nn*.npz")):
        epochs = EPOCHS[place.stem.partition("-")[0]]
        began = time.time()
        given = np.load(place)
        torch.manual_seed(0)
        pool = torch.from_numpy(one_hot(given["numbers"], given["codes"], given["sizes"])).to(device)
        labels = torch.from_numpy(given["labels"].astype(np.int64)).to(device)
        rows = torch.from_numpy(given["rows"].astype(np.int64)).to(device)
        models, size = rows.shape
        answers = labels[rows].flatten()
        bank = (
            torch.cat(
                [
                    torch.from_numpy(one_hot(*own, given["sizes"])).to(device)
                    for own in zip(given["own_numbers"], given["own_codes"], strict=True)
                ]
            )
            if "own_numbers" in given
            else pool[rows.flatten()]
        )
        widths = (pool.shape[1], *HIDDEN, int(given["classes"]))
        weights: list[Tensor] = []
        for before, after in itertools.pairwise(widths):  # torch's own initial weights
            bound = before**-0.5
            weights.append(torch.empty(models, before, after, device=device).uniform_(-bound, bound))
            weights.append(torch.empty(models, 1, after, device=device).uniform_(-bound, bound))
        for one in weights:
            one.requires_grad_(True)
        optimizer = torch.optim.Adam(weights, lr=RATE, fused=device == "cuda")

        def scores(x: Tensor, weights: list[Tensor] = weights) -> Tensor:
            for layer in range(0, len(weights), 2):
                x = torch.baddbmm(weights[layer + 1], x, weights[layer])
                x = x.tanh() if layer < len(weights) - 2 else x
            return x

        start = torch.arange(models, device=device)[:, None] * size
        for epoch in range(epochs):
            order = torch.rand(models, size, device=device).argsort(dim=1) + start
            total = torch.zeros((), device=device)
            for at in range(0, size, BATCH):
                chosen = order[:, at : at + BATCH]
                found = scores(bank[chosen])
                loss = torch.nn.functional.cross_entropy(
                    found.flatten(0, 1), answers[chosen].flatten(), reduction="sum"
                )
                loss = loss / chosen.shape[1]  # the mean of each network's batch; the networks are added
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += loss.detach()
            if epoch % 50 == 49:
                mean = total.item() / models / -(-size // BATCH)
                print(f"{place.stem} epoch {epoch + 1}, loss {mean:.4f}, {time.time() - began:.0f} s", flush=True)
        with torch.no_grad():
            logits = []
            for part in torch.arange(len(pool), device=device).split(8192):  # type: ignore[no-untyped-call]
                found = scores(pool[part].expand(models, -1, -1)).double()
                own = labels[part].expand(models, -1)[..., None]
                mine = found.gather(2, own)[..., 0]
                others = found.scatter(2, own, -torch.inf).logsumexp(dim=2)
                logits.append((mine - others).float())
            own_logit = torch.cat(logits, dim=1).cpu().numpy()
        count = models - TARGETS
        np.savez(out / f"{place.stem}-references.npz", logits=own_logit[:count], seconds=time.time() - began)
        names = [f"{kind}{layer}" for layer in range(len(weights) // 2) for kind in "wb"]
        kept: dict[str, Any] = {
            name: one.detach()[count:].cpu().numpy() for name, one in zip(names, weights, strict=True)
        }
        np.savez(out / f"{place.stem}-targets.npz", **kept)
        print(f"{place.stem}: {models} networks in {time.time() - began:.0f} s", flush=True)


def forests(folder: Path, out: Path) -> None:
    """Train forests as references, one process per core; write the smoothed probability of every row's own label."""
    from multiprocessing import Pool

    with Pool() as workers:
        for name, source in FORESTS.items():
            if not (folder / f"{source}.npz").exists():
                continue
            began, given = time.time(), np.load(folder / f"{source}.npz")
            pool = one_hot(given["numbers"], given["codes"], given["sizes"])
            count, labels = REFERENCES[source], given["labels"]
            own = [(None, None)] * count
            if "own_numbers" in given:
                own = list(zip(given["own_numbers"], given["own_codes"], strict=True))[:count]
            jobs = [
                (pool, labels, rows, numbers, codes, given["sizes"], seed)
                for seed, (rows, (numbers, codes)) in enumerate(zip(given["rows"][:count], own, strict=True))
            ]
            found, spent = zip(*workers.imap(_forest, jobs), strict=True)
            np.savez(out / f"{name}-forests.npz", found=np.array(found, dtype=np.float32), cpu=sum(spent))
            print(f"{name}: {count} forests in {time.time() - began:.0f} s, {sum(spent):.0f} CPU s", flush=True)


def forest_of(folder: Path, name: str, target: int) -> Any:
    """Train the forest of a target on the coded rows that `export` has written."""
    from sklearn.ensemble import RandomForestClassifier

    source = FORESTS[name]
    given, at = np.load(folder / f"{source}.npz"), REFERENCES[source] + target
    rows = given["rows"][at]
    coded = (given["own_numbers"][at], given["own_codes"][at]) if "own_numbers" in given else None
    learned = one_hot(*(coded or (given["numbers"][rows], given["codes"][rows])), given["sizes"])
    return RandomForestClassifier(100, random_state=500 + target).fit(learned, given["labels"][rows])


def _forest(job: tuple[Any, ...]) -> tuple[Floats, float]:
    from sklearn.ensemble import RandomForestClassifier

    pool, labels, rows, numbers, codes, sizes, seed = job
    began = time.process_time()
    learned = pool[rows] if numbers is None else one_hot(numbers, codes, sizes)
    forest = RandomForestClassifier(100, random_state=1000 + seed).fit(learned, labels[rows])
    own = forest.predict_proba(pool)[np.arange(len(pool)), labels]
    return ((own * 100 + 0.5) / 101).astype(np.float32), time.process_time() - began


def load(folder: Path, name: str, target: int) -> dict[str, Floats]:
    """Return the weights of one target."""
    stored = np.load(folder / f"{name}-targets.npz")
    return {key: stored[key][target] for key in stored.files}


if __name__ == "__main__":
    what, *places = sys.argv[1:]
    commands: dict[str, Callable[..., None]] = {"export": export, "networks": networks, "forests": forests}
    commands[what](*map(Path, places))

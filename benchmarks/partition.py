"""Mondrian: against anonypy on Adult, and its kernel against sorting the same rows."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sfumato as sf
from clock import alternate, cpu_seconds
from sfumato.anonymizers.limits import T_EQUAL, L, Limits
from sfumato.anonymizers.mondrian.partition import Space, cut_rows, rows_of
from tables import rows_of as number_of_rows

QI = [
    "workclass",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
    "education-num",
]
K = 10
VALUES = (74, 9, 16, 7, 15, 6, 5, 42)  # like age, workclass, education, ..., native-country
SENSITIVE = 10


class Anonypy:
    """anonypy's Mondrian on the same frame."""

    def __init__(self, frame: Any) -> None:
        self.preserver = importlib.import_module("anonypy").Preserver
        self.frame = frame

    def run(self) -> None:
        """Make the table k-anonymous."""
        self.made = self.preserver(self.frame, QI, "income").anonymize_k_anonymity(k=K)

    def gcp(self) -> float:
        """Return the loss of what it made, as ours is defined: it writes sets as a,b,c and ranges as 1-9."""
        counts, total = [float(row["count"]) for row in self.made], 0.0
        for name in QI:
            texts = [row[name][0] if isinstance(row[name], list) else row[name] for row in self.made]
            if self.frame[name].dtype.name == "category":
                size = self.frame[name].nunique()
                held = [len(text.split(",")) for text in texts]
                shares = [one / size if one > 1 else 0.0 for one in held]
            else:
                span = self.frame[name].max() - self.frame[name].min()
                ends = [[float(end) for end in str(text).split("-")] for text in texts]
                shares = [(one[-1] - one[0]) / span for one in ends]
            total += float(np.dot(shares, counts))
        return float(total / sum(counts) / len(QI))


def against_anonypy() -> list[tuple[str, str, str]]:
    """Compare from a pandas frame to a pandas frame; the texts in it are categories, since anonypy cuts no others."""
    frame = sf.datasets.adult("train").frame.select(*QI, "income").to_pandas()

    def ours() -> object:
        return sf.Mondrian(f"k={K}", qi=QI).fit_transform(frame)

    def whole() -> sf.Release:
        return sf.anonymize(frame, f"k={K}", qi=QI)

    release = whole()
    what = f"Mondrian, k = {K}, Adult ({len(frame):,} rows, {len(QI)} quasi-identifiers), pandas frame to pandas frame"
    again = f"the same with the release measured again and its loss: sf.anonymize, GCP {release.loss.gcp:.4f}"
    asked = "at least 100 x, GCP at most 0.079"
    if not importlib.util.find_spec("anonypy"):
        seconds, slower = (min(cpu_seconds(work) for _ in range(5)) for work in (ours, whole))
        return [
            (f"{what}: GCP {release.loss.gcp:.4f}; anonypy is not installed", f"{seconds:.3f} CPU s", asked),
            (again, f"{slower:.3f} CPU s", ""),
        ]
    peer = Anonypy(frame)
    seconds, theirs = alternate(ours, peer.run, rounds=3)
    slower = min(cpu_seconds(whole) for _ in range(5))
    return [
        (
            f"{what}: Sfumato {seconds:.3f} CPU s, anonypy 0.2.1 {theirs:.1f} CPU s with GCP {peer.gcp():.4f}",
            f"{theirs / seconds:,.0f} x, GCP {release.loss.gcp:.4f}",
            asked,
        ),
        (f"{again}: {slower:.3f} CPU s", f"{theirs / slower:,.0f} x", ""),
    ]


def rows_like_adult(rows: int) -> NDArray[np.int32]:
    """Draw tuples of eight columns with as many values as Adult has, some frequent, most rare."""
    generator = np.random.default_rng(0)
    shares = [generator.dirichlet(np.full(values, 0.7)) for values in VALUES]
    columns = [
        generator.choice(values, rows, p=share).astype(np.int32) for values, share in zip(VALUES, shares, strict=True)
    ]
    return np.column_stack(columns)


def kernel(codes: NDArray[np.int32], sensitive: bool) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return Mondrian (k = 10, or with l = 3 and t = 0.5) on integer codes, and np.sort of the same rows as keys."""
    rows, length = len(codes), np.array(VALUES)
    zeros, none = np.zeros(len(length), dtype=np.int64), np.zeros(0, dtype=np.int64)
    place = np.concatenate([np.arange(values) / (values - 1) for values in VALUES])
    ordered = np.arange(len(length)) == 0
    space = Space(length, length, ordered, np.cumsum(length) - length, place, zeros, zeros, none.astype(np.int32))
    asked = Limits(10, rows, np.array([0]), none, none, none, np.zeros(0), none, none, np.zeros(0), none)
    values = np.zeros((rows, 0), dtype=np.int64)
    if sensitive:
        values = np.random.default_rng(1).integers(0, SENSITIVE, (rows, 1))
        total = np.bincount(values[:, 0], minlength=SENSITIVE)
        asked = Limits(
            10,
            rows,
            offset=np.array([0, SENSITIVE]),
            total=total,
            model=np.array([L, T_EQUAL]),
            attribute=np.array([0, 0]),
            asked=np.array([0.0, 0.5]),
            whole=np.array([3, 0]),
            at=np.array([0, 0]),
            numbers=total / rows,
            node=none,
        )
    words, lanes = rows_of(codes, length, np.ones(rows, dtype=np.int64), values, np.diff(asked.offset))
    key = words[0].copy()
    work = np.empty_like(words)

    def split() -> object:
        work[:] = words
        return cut_rows(work, lanes, space, asked)

    return split, lambda: np.sort(key)


def against_sorting(rows: int) -> list[tuple[str, str, str]]:
    codes, figures = rows_like_adult(rows), []
    for sensitive in (False, True):
        ours, peer = alternate(*kernel(codes, sensitive), rounds=3)
        asked = "k = 10, l = 3, t = 0.5" if sensitive else "k = 10"
        figures.append(
            (
                f"Mondrian kernel, {asked}, {rows:,} tuples of 8 columns: "
                f"{ours:.2f} CPU s, np.sort of the rows as 64-bit keys {peer:.3f} CPU s",
                f"{ours / peer:.1f} x",
                "at most 15 x",
            )
        )
    return figures


def main(largest: int = 10**6) -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows."""
    sizes = [size for size in (10**6, 10**7) if size <= largest]
    return [*against_anonypy(), *(row for size in sizes for row in against_sorting(size))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--largest", type=number_of_rows, default=10**6, help="the most tuples that are sorted: 1e6 or 1e7"
    )
    for row in main(parser.parse_args().largest):
        print(" | ".join(row))

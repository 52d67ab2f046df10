"""Sums of 100,000 values by masks, threshold encryption, CKKS and MPC, in turn with plain OpenFHE and plain TenSEAL.

python benchmarks/secure_sums.py [--times 5] [--size 100000]

Prints CPU seconds of all parties and the coordinator together, divided by the parties; what each party sends and
receives; and the ratio to the peer's. Needs TenSEAL, and SFUMATO_OPENFHE_PYTHON for the threshold rows.
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.federation import InProcess, Party, connect
from sfumato.federation.secure.openfhe import VARIABLE, openfhe

OWN = Path(__file__).with_name("openfhe_own.py")


def cpu(process: int | None) -> float:
    """Return the CPU seconds of this process and of its ended ones, and of another one that runs."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process is None:
        return time.process_time() + ended.ru_utime + ended.ru_stime
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ours(secure: str, parties: int, size: int) -> Callable[[], tuple[float, int, int]]:
    rng = np.random.default_rng(0)
    vectors = {f"party-{at}": rng.integers(0, 2**32, size, dtype=np.uint32) for at in range(parties)}
    expected = np.sum(list(vectors.values()), axis=0, dtype=np.uint32)
    make: dict[str, Any] = {name: lambda _, one=one: (one, {}) for name, one in vectors.items()}
    handlers, sums = connect(secure, make, threshold=parties)
    channel = InProcess([Party(name, one) for name, one in handlers.items()])

    def once() -> tuple[float, int, int]:
        worker = openfhe().process if secure == "threshold" else None
        sent, received = sum(channel.sent.values()), sum(channel.received.values())
        began = cpu(worker)
        total = sums.total(channel, time.time_ns() // 1000, {name: {} for name in vectors}).total
        seconds = cpu(worker) - began
        assert (total == expected).all()
        gone, come = sum(channel.sent.values()) - sent, sum(channel.received.values()) - received
        return seconds / parties, gone // parties, come // parties

    return once


def plain_openfhe(parties: int, size: int) -> Callable[[], tuple[float, int, int]]:
    process = subprocess.Popen(
        [os.environ[VARIABLE], "-I", str(OWN)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def once() -> tuple[float, int, int]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{parties} {size}\n")
        process.stdin.flush()
        seconds, sent, right = process.stdout.readline().split()
        assert right == "True"
        return float(seconds) / parties, int(sent), 0

    return once


def plain_tenseal(parties: int, size: int) -> Callable[[], tuple[float, int, int]]:
    tenseal: Any = importlib.import_module("tenseal")
    vectors = np.random.default_rng(0).integers(0, 2**32, (parties, size)).astype(float)

    def once() -> tuple[float, int, int]:
        began = time.process_time()
        context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[50, 40, 50])
        context.global_scale = 2.0**40
        public = context.serialize(save_secret_key=False)
        sent = []
        for vector in vectors:
            own = tenseal.context_from(public)
            sent.append(tenseal.ckks_vector(own, vector.tolist()).serialize())
        total = tenseal.ckks_vector_from(context, sent[0])
        for one in sent[1:]:
            total += tenseal.ckks_vector_from(context, one)
        found = np.array(total.decrypt())
        seconds = time.process_time() - began
        assert np.abs(found - vectors.sum(0)).max() < 1
        return seconds / parties, sum(map(len, sent)) // parties, len(public)

    return once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--size", type=int, default=100_000)
    given = parser.parse_args()
    for parties in (3, 10):
        those: dict[str, Callable[[], tuple[float, int, int]]] = {"masks": ours("masks", parties, given.size)}
        if VARIABLE in os.environ:
            those |= {"threshold": ours("threshold", parties, given.size)}
            those |= {"plain OpenFHE": plain_openfhe(parties, given.size)}
        those |= {"mpc": ours("mpc", parties, given.size)}
        those |= {"ckks": ours("ckks", parties, given.size), "plain TenSEAL": plain_tenseal(parties, given.size)}
        for once in those.values():
            once()
        runs: dict[str, list[tuple[float, int, int]]] = {name: [] for name in those}
        for _ in range(given.times):
            for name, once in those.items():
                runs[name].append(once())
        seconds = {name: statistics.median(one[0] for one in found) for name, found in runs.items()}
        for name, found in runs.items():
            spread = f"{min(one[0] for one in found):.3f} to {max(one[0] for one in found):.3f}"
            peer = {"threshold": "plain OpenFHE", "ckks": "plain TenSEAL"}.get(name)
            ratio = f"  {seconds[name] / seconds[peer]:.2f} times {peer}" if peer else ""
            sizes = f"sends {found[-1][1] / 1e6:6.2f} MB, receives {found[-1][2] / 1e6:6.2f} MB"
            print(f"{parties:>2} parties  {name:<14} {seconds[name]:.3f} CPU s a party ({spread})  {sizes}{ratio}")


if __name__ == "__main__":
    main()

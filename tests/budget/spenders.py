"""A program whose child processes spend from one ledger: ``spenders.py many|killed LEDGER ...``; for the tests."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from contextlib import suppress

from sfumato.budget import Ledger, PureEvent
from sfumato.errors import BudgetError

EVENT = PureEvent(0.001)


def many(path: str, processes: int, each: int) -> None:
    """Let many processes charge at once; print how many charges were admitted, by their own count."""
    reading, writing = os.pipe()
    children = []
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            ledger, admitted = Ledger(path), 0
            for _ in range(each):
                with suppress(BudgetError):
                    ledger.charge(EVENT)
                    admitted += 1
            os.write(writing, f"{admitted}\n".encode())
            os._exit(0)
        children.append(child)
    os.close(writing)
    codes = [os.waitpid(child, 0)[1] for child in children]
    with os.fdopen(reading) as pipe:
        sys.stdout.write(f"{sum(map(int, pipe))} {codes.count(0)}\n")


def killed(path: str, kills: int, seed: int) -> None:
    """Kill children that charge, each at a random moment; print charges told, charges by us, and the kills."""
    dice, told, ours, lost = random.Random(seed), 0, 0, 0
    ledger = Ledger(path)
    for number in range(kills):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            mine = Ledger(path) if number % 2 else ledger  # also that of the parent can be used
            while True:
                mine.charge(EVENT, note=str(number))
                os.write(writing, b"x")
        os.close(writing)
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            # Most are killed while they charge, however slow the machine is; the others also before.
            acknowledged = len(pipe.read(1)) if number % 4 else 0
            time.sleep(dice.uniform(0, 0.003 if number % 4 else 0.01))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            acknowledged += len(pipe.read())
        told += acknowledged
        if number % 10 == 0:  # the next is not blocked, and sees what was told
            ledger.charge(EVENT, note="next")
            ours += 1
            kept = sum(entry.get("note") == str(number) for entry in ledger.history())
            lost += max(acknowledged - kept, 0)
    sys.stdout.write(f"{told} {ours} {lost}\n")


if __name__ == "__main__":
    {"many": many, "killed": killed}[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))

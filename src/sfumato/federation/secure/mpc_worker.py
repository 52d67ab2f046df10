"""One party's half of a multi-party computation by MPyC, without a network: messages go through the parent process.

`sfumato.federation.secure.serve` runs this file; it needs MPyC and numpy alone. MPyC shares secrets by Shamir's scheme
among parties of which a majority is honest. It sends arrays as pickles unless it is told that the platforms of the
parties differ, so it is, and nothing can be unpickled here. Messages of the parties are read by this process alone.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any

_BITS = 64
_SECURITY = 40  # bits by which masked values hide others in comparisons


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that knows whether anything is left to do."""

    calls = 0

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """Count the calls that are scheduled."""
        self.calls += 1
        return super().call_soon(callback, *args, context=context)

    async def settle(self) -> None:
        """Wait until all others wait for messages."""
        while True:
            before = self.calls
            await asyncio.sleep(0)
            if self.calls == before + 1:
                return


class _Mail:
    """What MPyC takes for the connection to a peer."""

    def __init__(self) -> None:
        self.waiting = bytearray()

    def write(self, data: bytes) -> None:
        """Keep a message until it is fetched."""
        self.waiting += data

    def writelines(self, parts: list[bytes]) -> None:
        """Keep messages."""
        for one in parts:
            self.write(one)

    def fetch(self) -> bytes:
        """Return what is to be sent."""
        found = bytes(self.waiting)
        self.waiting.clear()
        return found


class _NoPickle:
    """Stands where MPyC has the module pickle."""

    @staticmethod
    def dumps(_: Any) -> bytes:
        raise ValueError("nothing is pickled")

    loads = dumps


class Answer:
    """Answers the requests of `sfumato.federation.secure.mpc`: one computation, from its start to its result."""

    def __call__(self, header: Any, parts: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        """Begin, or take messages of the others; return this party's messages, and the result when it is there."""
        if header["op"] == "hello":
            importlib.import_module("mpyc")
            return {}, []
        if header["op"] == "begin":
            self._begin(header, parts[0])
        else:
            for peer, data in zip(header["peers"], parts, strict=True):
                protocol = self._protocols[int(peer)]
                protocol.data_received(data)
                if protocol.peer_pid != int(peer):
                    raise ValueError("peer")
        self._loop.run_until_complete(self._loop.settle())
        waiting = {peer: one.fetch() for peer, one in self._mail.items()}
        peers = [peer for peer, data in waiting.items() if data]
        found = [waiting[peer] for peer in peers]
        if not self._task.done():
            return {"peers": peers, "done": False}, found
        if self._task.cancelled():
            raise ValueError("function")
        return {"peers": peers, "done": True}, [*found, self._task.result()]

    def _begin(self, header: Any, data: bytes) -> None:
        self._loop = _Loop()
        asyncio.set_event_loop(self._loop)
        own, parties = int(header["own"]), int(header["parties"])
        options = [
            f"-M{parties}",
            f"-I{own}",
            f"-L{_BITS}",
            f"-K{_SECURITY}",
            "--no-log",
            "--no-barrier",
            "--no-uvloop",
        ]
        sys.argv = ["mpc", *options, "--mix32-64bit"]
        runtime: Any = importlib.import_module("mpyc.runtime")
        runtime.pickle = _NoPickle
        self._mpc = mpc = runtime.mpc
        if len(mpc.parties) != parties or mpc.pid != own or not mpc.options.mix32_64bit:
            raise ValueError("MPyC")
        self._loop.set_exception_handler(self._failed)
        self._mail = {peer: _Mail() for peer in range(parties) if peer != own}
        mpc.parties[own].protocol = self._loop.create_future()
        self._protocols = {}
        for peer, mail in self._mail.items():
            exchanger = importlib.import_module("mpyc.asyncoro").MessageExchanger
            self._protocols[peer] = exchanger(mpc, peer) if peer > own else exchanger(mpc)
            self._protocols[peer].connection_made(mail)
        self._task = self._loop.create_task(self._run(header["function"], data))

    def _failed(self, loop: Any, context: Any) -> None:
        """End the whole when a part of the computation fails."""
        self._task.cancel()

    async def _run(self, function: Any, data: bytes) -> bytes:
        import numpy as np

        mpc = self._mpc
        await mpc.parties[mpc.pid].protocol
        vectors = mpc.input(mpc.SecInt(_BITS).array(np.frombuffer(data, "<i8").astype(object)))
        opened = await _FUNCTIONS[function["name"]](mpc, vectors, function)
        return np.array([int(one) % 2**_BITS for one in opened], "<u8").tobytes()


def _total(vectors: list[Any]) -> Any:
    total = vectors[0]
    for one in vectors[1:]:
        total = total + one
    return total


async def _opened(mpc: Any, found: Any) -> list[Any]:
    """Open secure numbers, arrays of them, or lists of either, to all parties."""
    numbers: list[Any] = []
    for one in found if isinstance(found, list | tuple) else [found]:
        given = await mpc.output(one)
        numbers += given.reshape(-1).tolist() if hasattr(given, "reshape") else [given]
    return numbers


async def _sum(mpc: Any, vectors: list[Any], options: Any) -> list[Any]:
    """Open the sum."""
    return await _opened(mpc, _total(vectors))


async def _large(mpc: Any, vectors: list[Any], options: Any) -> list[Any]:
    """Open the numbers of the sum that are at least so large, and 0 for all others."""
    total = _total(vectors)
    small = mpc.np_sgn(total - int(options["least"]), l=int(options["bits"]), LT=True)
    return await _opened(mpc, total * (1 - small))


async def _ranks(mpc: Any, vectors: list[Any], options: Any) -> list[Any]:
    """Open the places of quantiles in a histogram: how many bins end before; for an empty one, their number.

    What is opened on the way, the result of each comparison of a bisection, follows from the places.
    """
    reached, bits = mpc.np_cumsum(_total(vectors)), int(options["bits"])
    count, bins, fractions = reached[-1:], len(reached), options["fractions"]
    (empty,) = await _opened(mpc, mpc.np_sgn(count - 1, l=bits, LT=True))
    low, high = [bins if empty else 0 for _ in fractions], [bins] * len(fractions)
    while low != high:
        at = [(one + other) // 2 for one, other in zip(low, high, strict=True)]
        # Before a quantile are the bins with less than its part of the rows, and those without a row so far.
        apart = [
            reached[min(place, bins - 1)] * int(of) - (count[0] * int(part) if part else int(of))
            for place, (part, of) in zip(at, fractions, strict=True)
        ]
        below = await _opened(mpc, mpc.np_sgn(mpc.np_fromlist(apart), l=bits, LT=True))
        for one, is_below in enumerate(below):
            if low[one] == high[one]:
                continue
            if is_below:
                low[one] = at[one] + 1
            else:
                high[one] = at[one]
    return low


async def _own(mpc: Any, vectors: list[Any], options: Any) -> list[Any]:
    """Open what a function of the parties returns, whose source all have agreed on."""
    names: dict[str, Any] = {}
    exec(compile(options["source"], "function", "exec"), names)  # noqa: S102 - each party has read and agreed to it
    found = names["function"](mpc, vectors)
    return await _opened(mpc, await found if asyncio.iscoroutine(found) else found)


_FUNCTIONS = {"sum": _sum, "large": _large, "ranks": _ranks, "own": _own}

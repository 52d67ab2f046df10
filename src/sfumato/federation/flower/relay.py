"""The two Flower apps: they forward bytes between Flower and the processes of Sfumato, and look at none of them.

The client app runs at a data holder, in a new process per message, and hands the request to the holder's own process.
The server app runs beside the SuperLink for as long as the run lasts, and does what the coordinator's process asks.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from sfumato.federation.flower import frames

__all__ = ["client_app", "server_app"]

client_app = ClientApp()
server_app = ServerApp()


@client_app.query()
def forward(message: Message, context: Context) -> Message:
    """Hand a request to the holder's process, and return its reply."""
    with frames.connect(str(context.node_config["socket"])) as holder:
        frames.send(holder, _bytes(message.content))
        reply = frames.receive(holder)
    return Message(_records(reply), reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Do what the coordinator asks until it goes away."""
    with frames.connect(str(context.run_config["socket"])) as coordinator:
        try:
            while True:
                order = frames.receive_json(coordinator)
                _ORDERS[order["do"]](grid, coordinator, order)
        except (EOFError, ConnectionError):
            return


def _nodes(grid: Grid, coordinator: socket.socket, _order: dict[str, Any]) -> None:
    frames.send_json(coordinator, [str(one) for one in grid.get_node_ids()])


def _push(grid: Grid, coordinator: socket.socket, order: dict[str, Any]) -> None:
    content = _records(frames.receive(coordinator))
    message = Message(content, int(order["node"]), "query", ttl=float(order["seconds"]))
    frames.send_json(coordinator, next(iter(grid.push_messages([message])), None))


def _pull(grid: Grid, coordinator: socket.socket, order: dict[str, Any]) -> None:
    end = time.monotonic() + float(order["seconds"])
    while True:
        found = list(grid.pull_messages(order["ids"]))
        if found or time.monotonic() >= end:
            break
        time.sleep(0.1)
    frames.send_json(coordinator, len(found))
    for one in found:
        meta = one.metadata
        fault = one.error.reason or "Flower failed" if one.has_error() else None
        frames.send_json(coordinator, [meta.reply_to_message_id, str(meta.src_node_id), fault])
        frames.send(coordinator, b"" if one.has_error() else _bytes(one.content))


_ORDERS = {"nodes": _nodes, "push": _push, "pull": _pull}


def _records(data: bytes | bytearray) -> RecordDict:
    parts = frames.pieces(data)
    arrays = {str(at): Array("uint8", (len(one),), "bytes", one) for at, one in enumerate(parts)}
    return RecordDict({"pieces": ArrayRecord(arrays), "facts": ConfigRecord({"count": len(parts), "size": len(data)})})


def _bytes(content: RecordDict) -> bytes:
    facts, arrays = content.config_records["facts"], content.array_records["pieces"]
    data = frames.join_pieces([arrays[str(at)].data for at in range(int(str(facts["count"])))])
    if len(data) != facts["size"]:
        raise ValueError("a message has lost some of its pieces")
    return data

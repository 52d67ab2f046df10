"""Data holders as processes of Flower: on one machine for trying out, or each on its own host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.federation.flower.channel import FlowerChannel as FlowerChannel
    from sfumato.federation.flower.deployment import Deployment as Deployment
    from sfumato.federation.flower.deployment import Holder as Holder
    from sfumato.federation.flower.deployment import deploy as deploy
    from sfumato.federation.flower.deployment import host_commands as host_commands
    from sfumato.federation.flower.server import coordinate as coordinate

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "channel": "FlowerChannel",
        "deployment": "Deployment Holder deploy host_commands",
        "server": "coordinate",
    },
)

"""Learn and count together without pooling: federated training, secure sums, anonymity of a union of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.federation.encrypted.circuit import Circuit as Circuit
    from sfumato.federation.encrypted.circuit import Square as Square
    from sfumato.federation.encrypted.circuit import inputs_of as inputs_of
    from sfumato.federation.encrypted.circuit import to_circuit as to_circuit
    from sfumato.federation.encrypted.prediction import Client as Client
    from sfumato.federation.encrypted.prediction import Question as Question
    from sfumato.federation.encrypted.prediction import Server as Server

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "encrypted.circuit": "Circuit Square inputs_of to_circuit",
        "encrypted.prediction": "Client Question Server",
    },
    needs={"torch": ("encrypted",)},
)

"""`SecureSum` by threshold encryption: exact, and opened only with the share of every party that takes part."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.federation.channel import Channel, Handler
from sfumato.federation.secure.masks import Roster
from sfumato.federation.secure.sum import Contribute, Rounds, SecureSum, Summed, contributed, too_few
from sfumato.federation.secure.threshold import ThresholdParty, ThresholdServer
from sfumato.federation.wire import Message

__all__ = ["ThresholdSum", "threshold_handlers"]


class ThresholdSum(SecureSum):
    """A sum by threshold encryption (see `sfumato.federation.secure.threshold`).

    Needs an interpreter that imports OpenFHE; the environment variable ``SFUMATO_OPENFHE_PYTHON`` names it.

    Parameters
    ----------
    roster
        The parties, and how many of them must take part. All that begin a sum must stay to its end.
    """

    def __init__(self, roster: Roster) -> None:
        self.roster = roster

    def total(
        self, channel: Channel, round_: int, requests: Mapping[str, Message], *, bits: int = 32, timeout: float = 600.0
    ) -> Summed:
        """Run the four steps of the protocol."""
        server = ThresholdServer(self.roster, round_)
        refused: dict[str, str] = {}

        def ask(step: str, each: Mapping[str, Message]) -> dict[str, Message]:
            asked = {name: {"kind": f"threshold/{step}", "round": round_, **one} for name, one in each.items()}
            replies = channel.ask(asked, timeout=timeout)
            refused.update(replies.refused)
            if len(replies.arrived) < (self.roster.threshold if step == "commit" else len(each)):
                if step != "commit":
                    replies.require(each, f"take the step '{step}', and nothing opens without it")
                raise too_few(replies, len(replies.arrived), len(self.roster.keys), self.roster.threshold)
            return replies.arrived

        commitments = server.commitments(ask("commit", {key: {} for key in requests}))
        keys = server.keys(ask("key", {key: {"commitments": commitments} for key in commitments}))
        asked = {name: {"keys": keys, "request": requests[name], "bits": bits} for name in commitments}
        sent = ask("vector", asked)
        seen = {name: one.pop("seen", {}) for name, one in sent.items()}
        vectors = server.vectors(sent)
        total = server.total(ask("open", {key: {"vectors": vectors} for key in commitments}), bits)
        return Summed(total, tuple(sorted(vectors)), seen, refused)


def threshold_handlers(
    roster: Roster, name: str, identity: Ed25519PrivateKey, contribute: Contribute
) -> dict[str, Handler]:
    """Return a party's half of a `ThresholdSum`; it takes part in a round once, and never in an older one."""
    rounds = Rounds(name, lambda round_: ThresholdParty(roster, round_, name, identity))
    party = rounds.party

    def vector(request: Message) -> Message:
        words, seen = contributed(name, contribute, request)
        return {**party(request).encrypt(request["keys"], words), "seen": seen}

    return {
        "threshold/commit": lambda request: rounds.begin(request).commit(),
        "threshold/key": lambda request: party(request).key(request["commitments"]),
        "threshold/vector": vector,
        "threshold/open": lambda request: party(request).open(request["vectors"]),
    }

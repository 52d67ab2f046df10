"""Federated training over real processes: what they agree on, a holder's process, and the coordinator."""

from __future__ import annotations

import json
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.budget.ledger.ledger import Ledger
from sfumato.data.io.files import atomic_path
from sfumato.data.recipe import Recipe
from sfumato.data.release import Release
from sfumato.data.schema import Column, Role, Schema
from sfumato.errors import FileError, InputError, ProtocolError
from sfumato.federation.channel import Channel, Party, Replies
from sfumato.federation.coding import Coding
from sfumato.federation.federate import defaults_of, open_ledger, plan_of
from sfumato.federation.flower.deployment import Deployment, Holder, deploy
from sfumato.federation.flower.keys import make_identity, read_identity, split_address
from sfumato.federation.holder import TrainingHolder
from sfumato.federation.holdings import Holdings, check_name, holdings_of, read_holder
from sfumato.federation.plan import FederationPlan
from sfumato.federation.released import federated_release, write_round
from sfumato.federation.rounds import Round
from sfumato.federation.secure.connect import handlers_of, require_library, sum_of
from sfumato.federation.secure.masks import Roster
from sfumato.federation.secure.sum import PlainSum, SecureSum, plain_handlers
from sfumato.federation.simulation import Federated, check_secure, train_over
from sfumato.federation.wire import Message

__all__ = [
    "Agreed",
    "agreement",
    "make_party",
    "planned",
    "read_agreement",
    "train_with_hosts",
    "train_with_processes",
    "training_commands",
    "write_agreement",
]

_MAIN = "sfumato.cli.commands.federate:coordinate"
_FACTORY = "sfumato.federation.flower.training:make_party"
_SAMPLES, _RECORD, _LEDGER = "samples.npz", "record", "ledger"


def agreement(plan: FederationPlan, coding: Coding, secure: str, keys: Mapping[str, bytes]) -> dict[str, Any]:
    """Return what all parties agree on, as plain values: the plan, how records are coded, and who takes part.

    Examples
    --------
    >>> import sfumato as sf
    >>> coding = Coding.of_table(sf.datasets.nursery(), "class")
    >>> plan = FederationPlan(model="logistic", inputs=coding.inputs, classes=5, coding=coding.digest)
    >>> sorted(agreement(plan, coding, "none", {"north": bytes(32)}))
    ['coding', 'keys', 'plan', 'run', 'secure']
    """
    return {
        "plan": plan.to_dict(),
        "coding": coding.to_dict(),
        "secure": secure,
        "run": secrets.token_hex(32),
        "keys": {name: key.hex() for name, key in keys.items()},
    }


def planned(data: Any, names: Sequence[str], *, secure: str = "masks", **options: Any) -> dict[str, Any]:
    """Return the plan of holders on other machines, and how records are coded, as plain values.

    Parameters
    ----------
    data : a table with the same schema as those of the holders, or a built-in data set; its records are not used
    names : the holders
    secure : masks, threshold, ckks or none
    **options : options of `federate`
    """
    described = ("target", "schema", "classes", "samples", "person")
    own = {name: options.pop(name) for name in described if name in options}
    for name in ("test", "holdout", "no_central"):
        options.pop(name, None)
    if isinstance(data, Mapping):
        data = next(iter(data.values()))
    one = holdings_of(data, clients=1, **own)
    holdings = Holdings(one.name, one.coding, {check_name(name): one.pooled for name in names}, None, one.schema)
    settings = defaults_of(one.coding, options.get("model"), options.get("epsilon"))
    plan = plan_of(holdings, secure=secure, **{"absent": 0.0, **settings, **options})
    check_secure(plan, secure, len(names))
    return {"plan": plan.to_dict(), "coding": one.coding.to_dict(), "secure": secure}


def write_agreement(plan: Path, identities: Mapping[str, str], to: Path) -> Path:
    """Complete a plan by the public keys of the holders, and write the agreement."""
    keys = dict[str, bytes]()
    for name, path in identities.items():
        try:
            keys[check_name(name)] = bytes.fromhex(Path(path).read_text(encoding="ascii").strip())
        except (OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise FileError(f"'{path}' is not the identity.pub of a data holder") from error
    try:
        plain = json.loads(plan.read_text())
        known, coding = FederationPlan.from_dict(plain["plan"]), Coding.from_dict(plain["coding"])
        agreed = agreement(known, coding, plain["secure"], keys)
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise FileError(f"'{plan}' is not the plan of a federation") from error
    read_agreement(agreed)
    with atomic_path(to) as temporary:
        temporary.write_text(json.dumps(agreed, indent=2) + "\n", encoding="utf-8")
    return to


def training_commands(
    names: Sequence[str], *, address: str, plan: str, output: str, timeout: float | None = None
) -> str:
    """Return the commands by which holders on other machines train together, each under the machine that runs it.

    Examples
    --------
    >>> print(training_commands(["north"], address="fed.example.org:9092", plan="plan.json", output="out").splitlines()[2])
    # 2. north: make its keys; give node.pub and identity.pub to the coordinator, in a folder north
    """  # noqa: E501
    split_address(address)
    where, program = shlex.quote(address), "python -m sfumato.federation.flower"
    lines = ["# 1. coordinator: make the certificates", f"{program} authority --folder server --address {where}"]
    for name in names:
        lines += [f"# 2. {name}: make its keys; give node.pub and identity.pub to the coordinator, in a folder {name}"]
        lines += [f"{program} key --folder {name}"]
    identities = " ".join(f"--identity {name}={name}/identity.pub" for name in names)
    public = " ".join(f"--key {name}={name}/node.pub" for name in names)
    longest = "" if timeout is None else f" --set timeout={timeout:g}"
    lines += [
        "# 3. coordinator: put the keys into the agreement, and give federation.json and server/ca.pem to every holder",
        f"{program} agree --plan {shlex.quote(plan)} {identities}",
        "# 4. coordinator: start the server, wait for the holders, and train; run it again after a crash",
        f"{program} coordinate --folder server --address {where} --main {_MAIN} {public} "
        f"--set federation=federation.json --set output={shlex.quote(output)}{longest}",
    ]
    for name in names:
        lines += [f"# 5. {name}: read federation.json, then take part with the own records"]
        lines += [
            f"{program} join --name {name} --folder {name} --server {where} --ca ca.pem --party {_FACTORY} "
            f"--set federation=federation.json --set data={name}.csv"
        ]
    return "\n".join(lines)


@dataclass(frozen=True)
class Agreed:
    """What all parties have agreed on.

    Attributes
    ----------
    plan, coding : the training, and how records become samples
    secure : how updates are added up
    run : the name of the run
    names : the holders
    roster : their keys and the name of the run; None for sums in clear
    """

    plan: FederationPlan
    coding: Coding
    secure: str
    run: bytes
    names: tuple[str, ...]
    roster: Roster | None

    def sum(self) -> SecureSum:
        """Return the coordinator's half of the sums."""
        return PlainSum(self.plan.threshold) if self.roster is None else sum_of(self.secure, self.roster)

    def party(self, holder: TrainingHolder, folder: Path) -> Party:
        """Return a holder as a party, with the identity in its folder."""
        if self.roster is None:
            handlers = plain_handlers(holder.contribute)
        else:
            handlers = handlers_of(self.secure, self.roster, holder.name, read_identity(folder), holder.contribute)
        return Party(holder.name, {**handlers, "train/describe": holder.describe})


def read_agreement(given: Mapping[str, Any] | str | Path) -> Agreed:
    """Read what all parties have agreed on, from the file or from its plain values."""
    try:
        plain = json.loads(Path(given).read_text()) if isinstance(given, str | Path) else given
        plan, coding = FederationPlan.from_dict(plain["plan"]), Coding.from_dict(plain["coding"])
        keys = {str(name): bytes.fromhex(key) for name, key in plain["keys"].items()}
        secure, run = str(plain["secure"]), bytes.fromhex(plain["run"])
        roster = None if secure == "none" else Roster(run, keys, plan.threshold)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise FileError("the agreement of the federation is missing or damaged", hint="federation.json") from error
    if plan.coding != coding.digest:
        raise InputError("the agreement of the federation has another schema than its plan")
    check_secure(plan, secure, len(keys))
    return Agreed(plan, coding, secure, run, tuple(keys), roster)


def make_party(
    name: str,
    folder: Path,
    *,
    federation: Mapping[str, Any] | str,
    data: str | None = None,
    ledger: str | None = None,
) -> Party:
    """Make a holder's party in its own process.

    Parameters
    ----------
    name : its name
    folder : private to it: its keys, and the record of what it has sent
    federation : what all have agreed on, or the file with it
    data : its table, or an .npz file of images; without it, samples in its folder that are coded already
    ledger : its ledger, charged before noise is used. Given ``data``, it is by default the one that was granted for
        these records or, at client level or if there is none, the file ``ledger`` in the folder, which is created with
        the budget of the plan.
    """
    agreed = read_agreement(federation)
    plan, coding = agreed.plan, agreed.coding
    if name not in agreed.names:
        raise InputError(f"party '{name}' is not in the agreement of the federation")
    require_library(agreed.secure)
    if data is None:
        with np.load(folder / _SAMPLES, allow_pickle=False) as file:
            inputs, targets, people = file["inputs"], file["targets"], file.get("people")
        book, record = None if ledger is None else Ledger(ledger), folder / _RECORD
    else:
        (inputs, targets), records, people = read_holder(Path(data), coding, plan.person)
        path, record = (
            folder / _LEDGER if ledger is None else Path(ledger),
            folder / f"{_RECORD}-{agreed.run.hex()[:16]}",
        )
        book = open_ledger(plan, records, path, search=ledger is None) if plan.level != "none" else None
    parties = len(agreed.names)
    holder = TrainingHolder(name, plan, inputs, targets, parties=parties, ledger=book, record=record, people=people)
    return agreed.party(holder, folder)


def train_with_processes(
    plan: FederationPlan,
    holdings: Holdings,
    work: Path,
    *,
    secure: str,
    ledgers: Mapping[str, Ledger],
    say: Callable[[str], object],
    timeout: float | None = None,
    **options: Any,
) -> Federated:
    """Train with a process for each holder on this machine; see `train_over` for the options.

    A round goes on without a holder that takes longer than ``timeout`` seconds for an answer, if it is given.
    Their samples are in files that only this user can read, which are removed at the end.
    """
    place = work / "parties"
    keys = dict[str, bytes]()
    for name, (inputs, targets) in holdings.parts.items():
        (place / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        keys[name] = make_identity(place / name)
        whose: dict[str, Any] = {} if holdings.people is None else {"people": holdings.people[name]}
        with atomic_path(place / name / _SAMPLES, mode=0o600) as temporary, temporary.open("wb") as file:
            np.savez(file, inputs=inputs, targets=targets, **whose)
    agreed = agreement(plan, holdings.coding, secure, keys)
    books = {name: str(one.path.absolute()) for name, one in ledgers.items()}
    holders = {name: Holder(_FACTORY, {"federation": agreed, "ledger": books.get(name)}) for name in holdings.parts}
    try:
        with deploy(holders, place, progress=say, seconds=300.0) as deployment:
            deployment.channel.timeout = timeout
            return train_over(Watched(deployment), read_agreement(agreed).sum(), plan, **options)
    finally:
        for name in holdings.parts:
            (place / name / _SAMPLES).unlink(missing_ok=True)


class Watched(Channel):
    """The channel of a deployment on this machine: parties whose process has ended are started again, not waited for.

    Flower takes up to 40 seconds to let a party return, so it misses a round or more.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.channel = deployment, deployment.channel
        self.gone = set[str]()

    @property
    def names(self) -> tuple[str, ...]:
        """The parties."""
        return self.channel.names

    @property
    def sent(self) -> Mapping[str, int]:
        """The bytes that each party has sent."""
        return self.channel.sent

    @property
    def received(self) -> Mapping[str, int]:
        """The bytes that each party has received."""
        return self.channel.received

    def ask(self, requests: Mapping[str, Message], *, timeout: float = 60.0) -> Replies:
        """Ask the parties whose process is there."""
        for name, process in self.deployment.processes.items():
            if process.poll() is not None:
                self.gone.add(name)
                self._log(name).unlink(missing_ok=True)
                self.deployment.start(name)
        self.gone = {name for name in self.gone if not self._joined(name)}
        there = {name: one for name, one in requests.items() if name not in self.gone}
        replies = self.channel.ask(there, timeout=timeout)
        away = dict.fromkeys(requests.keys() - there.keys(), "its process had ended and is not back yet")
        return Replies(replies.arrived, {**replies.refused, **away})

    def _joined(self, name: str) -> bool:
        log = self._log(name)
        return log.exists() and "SuperNode ID" in log.read_text(errors="replace")

    def _log(self, name: str) -> Path:
        return self.deployment.folder / name / "supernode.log"


def train_with_hosts(
    channel: Channel, federation: str | Path, work: Path, *, progress: Callable[[Round], None] | None = None
) -> Release:
    """Train with holders on other machines; only they have records, so the model is not scored.

    Parameters
    ----------
    channel : the connection to the holders
    federation : the file with what all have agreed on
    work : the folder of the checkpoint and of the model of every round; the same call goes on after a crash
    progress : called after every round
    """
    began = time.monotonic()
    agreed = read_agreement(federation)
    plan, coding = agreed.plan, agreed.coding
    require_library(agreed.secure)
    if {*channel.names} != {*agreed.names}:
        raise ProtocolError("the registered parties are not those of the agreement")
    work.mkdir(parents=True, exist_ok=True, mode=0o700)

    def keep(number: int, weights: NDArray[np.float32]) -> None:
        write_round(work / "rounds", number, weights, plan)

    found = train_over(channel, agreed.sum(), plan, checkpoint=work / "checkpoint", progress=progress, keep=keep)
    people = [] if plan.person is None else [Column(name=plan.person, role=Role.PERSON)]
    schema = Schema([*people, *coding.schema.columns]) if people else coding.schema
    holdings = Holdings("the holders' own", coding, {}, None, schema)
    asked: dict[str, Any] = {"model": plan.model, "epsilon": "none" if plan.epsilon is None else plan.epsilon}
    asked |= {} if plan.person is None else {"person": plan.person, "rows_per_person": plan.rows_per_person}
    recipe = Recipe("federate", asked, schema)
    return federated_release(found, holdings, recipe, secure=agreed.secure, seconds=time.monotonic() - began)

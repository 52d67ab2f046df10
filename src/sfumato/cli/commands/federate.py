"""``sfumato federate``: train one model with several holders who keep their records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import sfumato as sf
from sfumato.cli.options import (
    READING,
    Choice,
    Command,
    Number,
    check_not_input,
    check_output,
    force_option,
    names_option,
    print_json,
    public_options,
    reading_options,
)
from sfumato.cli.terminal import echo, style
from sfumato.errors import OptionError, SfumatoError

if TYPE_CHECKING:
    from sfumato.federation import Round

__all__ = ["coordinate", "federate"]

_PUBLIC = ("schema_file", "domain", "bounds", "numbers", "categories")
_IMAGES = ("mnist", "pneumonia")
_FEW = 5  # clients that get processes of their own by default


@click.command(cls=Command)
@click.argument("data", metavar="DATA")
@click.option("--clients", type=Number(is_whole=True, most=10_000), help="How many holders share DATA.  [default: 3]")
@click.option(
    "--rounds",
    type=Number(is_whole=True, most=100_000),
    help="Rounds.  [default: 10; 60 for images without --epsilon]",
)
@click.option(
    "--model",
    type=Choice("logistic", "mlp", "cnn", "resnet18", "scattering-linear", of="federation.plan:MODELS"),
    help="The model; the last three are for images.  [default: logistic for tables, cnn for images]",
)
@click.option("--target", metavar="NAME", help="The column of a table to predict.")
@names_option("--identifiers", "Columns that identify a person directly; they are left out.")
@click.option(
    "--person",
    metavar="NAME",
    help="The column that says which rows are of the same person, such as patient_id; it is left out. At the level "
    "record, the people of each holder are protected, not rows.",
)
@click.option(
    "--rows-per-person",
    type=Number(is_whole=True),
    metavar="N",
    help="With --person and --epsilon: how many rows of a person count; of people with more, N are drawn at random.",
)
@click.option(
    "--secure",
    type=Choice("none", "masks", "threshold", "ckks", of="federation.secure.connect:SECURE_TRAINING"),
    default="masks",
    show_default=True,
    help="How updates are added up: by masks, or encrypted; with none, the coordinator sees each.",
)
@click.option("--absent", type=Number(least=0, below=1), help="The chance that a holder misses a round, such as 0.3.")
@click.option("--threshold", type=Number(is_whole=True), help="How many holders must answer.  [default: above 2/3]")
@click.option("--epsilon", type=Number(above=0), help="The privacy loss; less is more private.  [default: no privacy]")
@click.option(
    "--level",
    type=click.Choice(["record", "client"]),
    help="With --epsilon: protect every record, or all that one holder contributes.  [default: record]",
)
@click.option("--delta", type=Number(above=0, below=1), help="The chance that the guarantee fails.  [default: 1e-5]")
@click.option("--clip", type=Number(above=0), metavar="C", help="The largest norm of a gradient, or of an update.")
@click.option("--epochs", type=Number(is_whole=True), help="Passes of each holder over its records in a round.")
@click.option("--batch", type=Number(is_whole=True), help="The number of records in a step.")
@click.option("--learning-rate", type=Number(above=0), metavar="R", help="The length of a step.")
@click.option("--proximal", type=Number(least=0), metavar="MU", help="The pull towards the common model (FedProx).")
@click.option("--momentum", type=Number(least=0, below=1), metavar="M", help="The momentum of the coordinator.")
@click.option(
    "--decay/--no-decay",
    default=None,
    help="Let the learning rate fall to zero over the rounds.  [default: for images without --epsilon]",
)
@click.option(
    "--augment/--no-augment",
    default=None,
    help="Warp and tone images at random in every step.  [default: for images without --epsilon]",
)
@click.option("--spare", type=Number(is_whole=True, least=0), help="Rounds that may be repeated after a crash.")
@click.option("--test", metavar="FILE", help="Rows to test on.  [default: a part is held out]")
@click.option("--samples", type=Number(is_whole=True), help="Use only N training records of built-in data.")
@click.option("--classes", type=Number(is_whole=True, least=2), help="The number of classes, for your own images.")
@click.option("--no-central", is_flag=True, help="Do not also train on all records together, for comparison.")
@click.option("--processes", is_flag=True, help="A real process for each holder, over TLS.  [default: up to 5 holders]")
@click.option("--simulate", is_flag=True, help="All holders in this process.  [default: for more than 5 holders]")
@click.option(
    "--timeout",
    type=Number(above=0),
    metavar="SECONDS",
    help="How long a process may take to answer; the round goes on without it.  [default: 300; 600 for an update]",
)
@click.option("--ledgers", metavar="FOLDER", help="A folder with the ledger NAME.ledger of each holder.")
@names_option("--hosts", "Do not train: print the commands for holders of these names on machines of their own.")
@click.option("--address", metavar="HOST:PORT", help="With --hosts: where the holders reach the coordinator.")
@click.option(
    "--seed",
    type=Number(is_whole=True, least=0),
    default=0,
    show_default=True,
    help="The seed of weights, batches and absences, not of the noise.",
)
@click.option("-o", "--output", metavar="OUT", help="A new folder.  [default: DATA-federated]")
@force_option
@public_options
@reading_options
def federate(as_json: bool, data: str, output: str | None, force: bool, **options: Any) -> None:
    """Train one model with several holders who keep their records.

    DATA is pneumonia, mnist, adult or nursery, or a table with a --target, split among
    --clients; or a folder with one file per holder. In each round every holder trains on
    its own records and sends a masked change of the model: only the sum can be read.

    Up to 5 holders are real processes on this machine, connected as separate machines
    would be; more are simulated in this process, with the same messages. --hosts prints
    the commands for real machines.

    All holders code their records alike, so a table of your own needs a schema (or
    --domain and --bounds) for all columns and the classes of the target.

    OUT is a release, which 'sfumato verify' checks. OUT.run has the model of every round
    and what the holders keep: run the same command again to resume after a crash.

    \b
    sfumato federate pneumonia --clients 10 -o lungs
    sfumato federate mnist --clients 50 --absent 0.3 --simulate -o digits
    sfumato federate adult --clients 4 --epsilon 3 --level record -o census
    sfumato federate hospitals/ --schema schema.toml --target recovered -o together
    sfumato federate hospitals/ --schema schema.toml --target recovered --epsilon 3 \\
      --person patient_id --rows-per-person 3 -o for-people
    """
    out = output or f"{Path(data).name}-federated"
    flags = ("no_central", "processes", "simulate")
    asked = {name: value for name, value in options.items() if value is not None and value not in ((), [])}
    asked = {name: value for name, value in asked.items() if value is not False or name not in flags}
    hosts, address = asked.pop("hosts", None), asked.pop("address", None)
    if (hosts is None) != (address is None):
        raise OptionError("--hosts and --address belong together", hint="--hosts north,south --address HOST:PORT")
    check_not_input(out, data, asked.get("test"))
    check_output(out, force=force, instead="name a new folder", folder=True)
    simulate, processes = asked.pop("simulate", False), asked.pop("processes", False)
    if simulate and processes:
        raise OptionError("--simulate and --processes exclude each other", hint="give one of them")
    given, asked = _given(data, asked)
    if hosts is not None:
        _print_commands(given, hosts, address, out, as_json, asked)
        return
    from sfumato.federation.federate import CHECKPOINT, forget

    central = not asked.pop("no_central", False)
    count = len(given) if isinstance(given, dict) else int(asked.get("clients", 3))
    real = processes or (not simulate and count <= _FEW and count > 1)
    if "timeout" in asked and not real:
        raise OptionError("--timeout is for holders that are processes", hint="--processes")
    _explain(count, real, processes or simulate)
    work = Path(f"{out}.run")
    if (work / CHECKPOINT).exists():
        echo(f"Going on from the last finished round in {work}", err=True)
    release = sf.federate(
        given, folder=work, processes=real, centralised=central, progress=_print_round, say=_say, **asked
    )
    sf.save(release, out, replace=force)
    forget(work)
    _write_owned(out, release)
    if as_json:
        print_json(release.to_dict())
    else:
        _print(release)
    echo(f"The model and the report are in {out}, the model of every round in {work / 'rounds'}", err=True)


def coordinate(channel: Any, *, federation: str, output: str, timeout: str | None = None) -> None:
    """Train with holders on other machines, and write the release; called by ``coordinate --main``."""
    from sfumato.federation.federate import CHECKPOINT
    from sfumato.federation.flower.training import train_with_hosts

    if timeout is not None:
        channel.timeout = Number(above=0).convert(timeout, None, None)
    work = Path(f"{output}.run")
    sf.save(train_with_hosts(channel, federation, work, progress=_print_round), output)
    (work / CHECKPOINT).unlink(missing_ok=True)
    echo(f"The model and the report are in {output}", err=True)


def _given(data: str, asked: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the data of a pool or of each holder, and the other options."""
    from sfumato.cli.tables import declared_table
    from sfumato.data.io.images import are_images
    from sfumato.federation.holdings import files_in

    reading = {name: asked.pop(name, [] if name == "na" else () if name == "dates" else None) for name in READING}
    public = {name: asked.pop(name, [] if name in ("numbers", "categories") else None) for name in _PUBLIC}
    public = {name: () if value is None and name in ("domain", "bounds") else value for name, value in public.items()}
    identifiers = asked.pop("identifiers", [])
    known = (*sf.datasets.TABLES, *_IMAGES)
    if data in known and not Path(data).exists():
        if any((*reading.values(), *public.values(), identifiers)):
            raise OptionError(f"'{data}' is built in: it takes no options for reading a file or declaring columns")
        return data, asked
    if Path(data).is_dir() and not are_images(data):
        tables = dict[str, Any]()
        for name, one in files_in(Path(data)).items():
            try:
                tables[name] = str(one) if are_images(one) else declared_table(str(one), reading, public, identifiers)
            except SfumatoError as error:
                raise type(error)(f"holder '{name}': {error.message}", hint=error.hint) from error
        return tables, asked
    return data if are_images(data) else declared_table(data, reading, public, identifiers), asked


def _explain(count: int, real: bool, chosen: bool) -> None:
    if real:
        why = "" if chosen else f", since {_FEW} or fewer are few; --simulate is quicker"
        echo(f"{count} holders, each a process of this machine, over TLS{why}", err=True)
    else:
        why = "" if chosen or count == 1 else f", since they are more than {_FEW}; --processes starts real ones"
        echo(f"{count} holder{'s' if count > 1 else ''} in this process{why}", err=True)


def _print_commands(given: Any, hosts: list[str], address: str, out: str, as_json: bool, asked: dict[str, Any]) -> None:
    """Write the plan, and print the commands for real hosts."""
    from sfumato.data.io.files import atomic_path
    from sfumato.federation.flower.training import planned, training_commands

    of_plan = {name: value for name, value in asked.items() if name not in ("clients", "ledgers", "timeout")}
    plain = planned(given, hosts, **of_plan)
    plan = f"{out}.plan.json"
    with atomic_path(plan) as temporary:
        temporary.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
    text = training_commands(hosts, address=address, plan=plan, output=out, timeout=asked.get("timeout"))
    if as_json:
        print_json({"plan": plan, "commands": text.splitlines()})
        return
    for line in text.splitlines():
        echo(line)
    echo(f"The plan is in {plan}: the network, the rounds, the privacy, and how records are coded", err=True)


def _say(line: str) -> None:
    echo(line[:1].upper() + line[1:], err=True)


def _print_round(done: Round) -> None:
    parts = [f"round {done.round}: {done.clients} holders"]
    if done.accuracy is not None:
        parts.append(f"accuracy {100 * done.accuracy:.1f} %, loss {done.loss:.3f}")
    parts.append(f"{done.seconds:.1f} s" if done.seconds is not None else "")
    parts.append(f"{done.bytes / 1000:,.0f} kB each")
    echo(", ".join(filter(None, parts)), err=True)


def _write_owned(out: str, release: sf.Release) -> None:
    """Write the exact scores of private records beside the release, for their owner alone."""
    from sfumato.data.io.files import write_owned
    from sfumato.releases.save import owner_file

    owner = release.outcome.owner
    if owner is not None:
        write_owned(owner_file(out), {"note": "exact numbers about private records: not for publication", **owner})
        echo(f"Exact scores are in {owner_file(out).name}: they are for you alone, do not publish them", err=True)


def _print(release: sf.Release) -> None:
    plain = release.to_dict()
    final, central = plain["final"], plain["centralised"]
    echo(style(", ".join(map(str, release.guarantees)) or "no privacy is guaranteed", bold=True))
    for name, scores in (("together", final), ("on all records", central)):
        if scores is not None and scores["accuracy"] is not None:
            auc = "" if scores["auc"] is None else f", AUC {scores['auc']:.3f}"
            echo(f"{name:<16} accuracy {100 * scores['accuracy']:.2f} %{auc}")
    if plain["epsilon"] is not None:
        echo(f"{'spent':<16} epsilon {plain['epsilon']:.4g} for the holder who spent most")
    if release.unit == "person":
        said = release.parameters["people"]
        echo(f"At most {release.parameters['rows_per_person']} rows of each person were used; {said}", err=True)

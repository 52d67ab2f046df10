"""``sfumato attack``: what an attacker can learn from a release, or from a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import sfumato as sf
from sfumato.attacks.catalogue import ATTACKS
from sfumato.attacks.options import check_options
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
    reading_options,
)
from sfumato.cli.progress import progress_bar
from sfumato.cli.terminal import echo, echo_wrapped, printable, style
from sfumato.data.validate import real
from sfumato.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from sfumato.attacks import AttackReport, AttackResult, AuditResult

__all__ = ["attack"]

_ROLES = ("qi", "sensitive", "identifiers", "person")


class _Limit(click.ParamType[float]):
    """The largest AUC that is accepted, as auc=0.55."""

    name = "auc=A"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        name, equals, number = (part.strip() for part in str(value).partition("="))
        try:
            limit = float(number) if name == "auc" and equals else None
        except ValueError:
            limit = None
        if limit is None:
            raise OptionError(f"--require must look like auc=0.55, got '{value}'")
        return real("the AUC of --require", limit, least=0.5, below=1)


@click.command(cls=Command)
@click.argument("data", metavar="RELEASE|DATA")
@click.option("--source", metavar="FILE", help="The original table that the release was made from.")
@click.option("--control", metavar="FILE", help="Rows like the original that the release has never seen.")
@click.option("--population", metavar="FILE", help="A table of people to link with the release.")
@click.option("--synthetic", is_flag=True, help="DATA is a synthetic table that Sfumato has not made.")
@click.option("--target", metavar="NAME", help="The column that a model predicts.")
@click.option(
    "--model",
    type=Choice("forest", "tree", "mlp", "boosting", of="attacks.protections:MODELS"),
    help="Train this model on half of DATA, and attack it.",
)
@click.option(
    "--protect",
    metavar="HOW",
    help="With --model: how it is protected, such as guided:k=100, dp:epsilon=1 or synthetic:epsilon=1.",
)
@names_option("--qi", "Columns that others may know about a person, such as age,zip.")
@names_option("--sensitive", "Columns that others must not learn, such as a disease.")
@names_option("--identifiers", "Columns that identify a person directly; a model does not see them.")
@click.option(
    "--person",
    metavar="COLUMN",
    help="The column that says which rows are of the same person, such as patient_id: people are attacked, not rows.",
)
@click.option(
    "--attacks",
    type=Choice(*ATTACKS, of="attacks.catalogue:ATTACKS", several=True),
    metavar="A,B",
    help=f"The attacks: {', '.join(ATTACKS)}.  [default: all that fit]",
)
@click.option(
    "--references",
    type=Number(is_whole=True, least=2, most=10_000),
    default=16,
    show_default=True,
    help="The number of models that an attacker trains to compare with; more make stronger attacks.",
)
@click.option(
    "--repeats",
    type=Number(is_whole=True, most=100),
    default=1,
    show_default=True,
    help="Run each attack with several seeds, and say how often they agree.",
)
@click.option(
    "--processes", type=Number(is_whole=True), help="How many processes train models.  [default: one per core]"
)
@click.option(
    "--audit",
    is_flag=True,
    help="Test the epsilon that RELEASE claims, instead of attacking it; the exit code is 1 if it is refuted.",
)
@click.option("--require", type=_Limit(), help="The largest AUC; the exit code is 1 if an attack is surely above it.")
@click.option(
    "--seed",
    type=Number(is_whole=True, least=0, most=2**31 - 1),
    default=0,
    show_default=True,
    help="Decides which half is attacked, and what attackers draw; the same seed gives the same result.",
)
@click.option("-o", "--report", metavar="OUT.html", help="Write the results as an HTML page.")
@force_option
@reading_options
@click.pass_context
def attack(
    ctx: click.Context,
    /,
    as_json: bool,
    data: str,
    report: str | None,
    force: bool,
    require: float | None,
    synthetic: bool,
    audit: bool,
    **options: Any,
) -> None:
    """Measure what an attacker can learn from a release, or from a model.

    RELEASE is a folder that Sfumato has made. Give its original with --source, because
    most attacks ask whether a release says more about the people in it than about
    others. Others are the rows of --control. Without --control, the release is made
    again from a random half of the original, and compared with the other half.

    DATA is a table, or the built-in adult, nursery or mnist. With --model, a model is
    trained on a random half of it and attacked; the other half is the comparison. With
    --protect, its training is protected, so that you see what the protection changes.

    The AUC is the chance that an attack scores a member of the data higher than somebody
    else: 0.5 is guessing, 1 is certainty. That no attack finds anything does not prove
    that there is nothing to find. The exit code is 0 even if there is leakage, because
    this is a measurement; with --require it is 1 if an attack is certainly above the
    limit.

    If people have several rows, name their column with --person: members and others are
    then different people with all of their rows, and every figure counts people.

    With --audit, the recipe of a private model or generator is run again with planted
    records: how well an attacker tells which of them were there gives a lower bound on
    epsilon. An audit can refute a claim, but never prove it. Add --attacks to do both.

    \b
    sfumato attack release --source patients.csv
    sfumato attack release --source patients.csv --control others.csv -o page.html
    sfumato attack visits.csv --target disease --model forest --person patient_id
    sfumato attack adult --model forest
    sfumato attack adult --model forest --protect guided:k=100 --attacks loss,rmia
    sfumato attack patients.csv --target disease --model boosting --require auc=0.55
    sfumato attack model --source patients.csv --audit
    sfumato attack made-up.csv --synthetic --source patients.csv --control others.csv
    """
    named = {name: options[name] for name in ("source", "control", "population")}
    check_not_input(report, data, *named.values())
    check_output(report, force=force, instead="name a file that ends in .html", ending=".html")
    reading = {name: options.pop(name) for name in READING}
    _check(data, synthetic, audit, options)
    with progress_bar("Attacking") as progress:
        tables = {name: _table(file, reading) for name, file in named.items()}
        roles = {name: options.pop(name) for name in _ROLES}
        kind = "synthetic" if synthetic else None
        given = data if Path(data).is_dir() else _table(data, reading)
        if audit:
            found = _audited(data, tables["source"], options["seed"], progress)
        if not audit or options["attacks"]:
            attacked = sf.attack(given, kind=kind, progress=progress, **{**options, **roles, **tables})
            found = replace(attacked, audit=found.audit) if audit else attacked
    satisfied = None if require is None else _satisfied(found, require)
    if report:
        sf.write_report(found, report, title=f"Attacks on {Path(data).name}")
    if as_json:
        asked = {} if require is None else {"require": {"auc": require}, "satisfied": satisfied}
        print_json({**found.to_dict(), **asked})
    else:
        _print(found, require, satisfied)
    if report:
        echo(f"The report is in {report}; it is for you alone: its figures come from the original", err=True)
    refuted = found.audit is not None and not found.audit.passed
    ctx.exit(1 if satisfied is False or refuted else 0)


def _audited(data: str, source: Any, seed: int, progress: Any) -> AttackReport:
    """Audit a release."""
    from sfumato.attacks import AttackReport, audit
    from sfumato.data.certificate import Certificate

    found = audit(data, source, seed=seed, progress=progress)
    kind = "synthetic" if Certificate.read(data).kind == "generator" else "model"
    facts = {"kind": kind, "name": Path(data).resolve().name, "how": f"The audit ran {found.method}."}
    return AttackReport(facts, (), {}, seed, found)


def _check(data: str, synthetic: bool, audit: bool, options: dict[str, Any]) -> None:
    """Refuse options that do not belong together, and a wrong protection, before a file is read."""
    if audit and not Path(data).is_dir():
        raise OptionError(f"--audit tests the claim of a release, and '{data}' is not its folder")
    if audit and not options["attacks"] and (options["control"] or options["population"] or options["person"]):
        raise OptionError(
            "--audit alone takes no --control, no --population and no --person", hint="name --attacks as well"
        )
    names = ("source", "control", "population", "target", "model", "protect")
    kind = "synthetic" if synthetic else None
    check_options(Path(data).is_dir(), kind=kind, **{name: options[name] for name in names})
    if options["protect"] is not None:
        from sfumato.attacks.protections import protection

        protection(options["protect"])


def _table(file: str | None, reading: dict[str, Any]) -> Any:
    """Read a table, or return the name of a built-in one."""
    from sfumato.cli.tables import read_table

    if file is None:
        return None
    if file in sf.datasets.BUILT_IN and not Path(file).exists():
        if any(reading.values()):
            raise OptionError(f"'{file}' is built in: it takes no options for reading a file")
        return file
    if not Path(file).exists() and (close := did_you_mean(file, sf.datasets.BUILT_IN)).startswith("did you mean"):
        raise OptionError(f"there is no file '{file}'", hint=close)
    return read_table(file, None, **reading)


def _satisfied(report: AttackReport, limit: float) -> bool:
    """Return whether attacks were run, and none has an AUC that is surely above the limit."""
    return bool(report.results) and not any(result.interval.low > limit for result in report.results)


# --- text -----------------------------------------------------------------------------------------


def _print(report: AttackReport, require: float | None, satisfied: bool | None) -> None:
    verdict, refuted = report.verdict[:1].upper() + report.verdict[1:], report.audit and not report.audit.passed
    echo(style(f"{verdict}.", bold=True, fg="red" if report.leaks or refuted else None))
    target = report.target
    if target.get("train_accuracy") is not None:
        inside, outside = (f"{100 * target[name]:.1f} %" for name in ("train_accuracy", "test_accuracy"))
        echo(f"The model is right about {inside} of its training records, and about {outside} of others.")
    echo_wrapped(target["how"])
    for note in target.get("notes", ()):
        echo_wrapped(f"{note[:1].upper()}{note[1:]}.")
    if report.audit is not None:
        _print_audit(report.audit)
    if report.results:
        echo()
        width = max(len("attack"), *(len(printable(result.name)) for result in report.results))
        echo(f"{'attack':<{width}}    AUC  95 % interval      right  guessing  found at 1 %  verdict")
        for result in sorted(report.results, key=lambda one: -one.auc):
            _print_result(result, width)
        echo()
        echo_wrapped(
            "AUC: the chance that a member scores higher than somebody else. right: the share of right answers, and "
            "guessing: without the release. found at 1 %: the share of members found with 1 % false alarms."
        )
    if report.skipped:
        echo()
        echo("Not run:")
        for name, why in report.skipped.items():
            echo(f"  {name}: {why}")
    if require is not None:
        _print_required(report, require, satisfied)


def _print_audit(audit: AuditResult) -> None:
    echo()
    echo(f"claimed               {audit.claimed}")
    echo(
        f"shown                 epsilon is at least {audit.epsilon:.3g} ({audit.confidence:.0%} sure); 0 proves nothing"
    )
    echo(f"could have been shown epsilon {audit.could_have_shown:.3g}, had every guess been right")
    rows = "" if audit.rows == 1 else f" of {audit.rows:,} rows each"
    echo(f"guesses               {audit.right:,} of {audit.guesses:,} right, about {audit.canaries:,} canaries{rows}")
    for check in audit.checks:
        held = style("NOT HELD", fg="red") if check.held is False else "held    " if check.held else "unknown "
        echo(f"{held}              {check.claim}: {check.measured}")


def _print_result(result: AttackResult, width: int) -> None:
    low, high = result.interval.to_list()
    rate = result.rates[0.01]
    found = "-" if rate is None or result.guesses else f"{100 * rate.tpr:.1f} %"
    right, guessing = (f"{100 * share:.1f} %" for share in (result.accuracy, result.baseline.accuracy))
    line = f"{printable(result.name):<{width}}  {result.auc:.3f}  {low:.3f} to {high:.3f}  {right:>7}  {guessing:>8}"
    verdict = style(result.word, fg="red") if result.leaks else result.word
    echo(f"{line}  {found:>12}  {verdict}")


def _print_required(report: AttackReport, limit: float, satisfied: bool | None) -> None:
    echo()
    if not report.results:
        echo(style(f"No attack was run, so that auc={limit:g} was not checked.", fg="red"))
    elif satisfied:
        echo(style(f"No attack is surely above auc={limit:g}.", fg="green"))
    else:
        above = [result.name for result in report.results if result.interval.low > limit]
        echo(style(f"Surely above auc={limit:g}: {', '.join(above)}.", fg="red"))

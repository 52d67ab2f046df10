"""What was measured on a table, printed for a person."""

from __future__ import annotations

from sfumato.cli.terminal import echo, echo_wrapped, style
from sfumato.measures.assessment import Assessment
from sfumato.measures.risk.safe_harbor import Status
from sfumato.report.summarise import count, summarise

__all__ = ["print_assessment"]


def print_assessment(assessment: Assessment) -> None:
    """Print the summary of an assessment for a person."""
    summary = summarise(assessment)
    colour = {True: "green", False: "red", None: None}[summary.good]
    echo_wrapped(style(summary.headline, bold=True, fg=colour))
    for warning in summary.warnings:
        echo_wrapped(style(f"! {warning}", fg="yellow"), "  ")
    for fact in summary.facts:
        echo_wrapped(f"- {fact}", "  ")
    for column in summary.columns:
        echo_wrapped(f"- without {column.column}: {count(column.uniques_drop, 'row')} fewer alone", "  ")
    for names, alone, share in summary.subsets[:3]:
        echo_wrapped(f"- by {names}: {alone} {'row' if alone == '1' else 'rows'} alone ({share})", "  ")
    for finding in summary.findings:
        mark = style(finding.status.value, fg="red" if finding.status is Status.FOUND else None)
        echo_wrapped(f"- Safe Harbor ({finding.letter}) {mark}: {finding.found}; {finding.action}", "  ")
    for line in summary.lines:
        mark = {True: style("  held", fg="green"), False: style("  NOT HELD", fg="red"), None: ""}[line.held]
        asked = f"  (asked {line.asked})" if line.asked else ""
        echo()
        echo(f"{line.title:<26} {style(line.value, bold=True)}{mark}{asked}")
        echo_wrapped(f"  {line.meaning}", "  ")

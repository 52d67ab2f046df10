"""The frontier as Markdown: the recommendation, all points, and how they were measured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.frontier.sweep.choose import Recommendation
from sfumato.frontier.sweep.point import Figure, Point

__all__ = ["by_reason", "markdown_of"]

_COLUMNS = {
    "accuracy": "accuracy",
    "re_identification": "1/k",
    "membership_auc": "membership AUC",
    "membership_advantage": "advantage",
    "attribute_inference": "attribute gain",
    "linkage": "linkage gain",
    "query_error": "query error",
}
_LEFT_OUT = ("auc", "pair_distance")
_HOW = ("name", "rows", "target", "qi", "sensitive", "models", "attacks", "analyses", "seeds")


def markdown_of(
    points: Sequence[Point],
    chosen: Recommendation,
    best: Sequence[str],
    skipped: Mapping[str, str],
    data: Mapping[str, Any],
    note: str,
) -> str:
    """Return the text of a Markdown file; names of columns and reasons are escaped."""
    head = "none of them" if chosen.point is None else chosen.point.name
    lines = [f"# Which protection: {_escaped(head)}", "", _escaped(chosen.reason), ""]
    if chosen.command:
        lines += ["```sh", chosen.command.replace("`", "'"), "```", ""]
    lines += [_escaped(note), ""]
    measured = {name for point in points for name in (*point.risk, *point.utility)}
    columns = {name: words for name, words in _COLUMNS.items() if name in measured}
    own = sorted(name for name in measured if name not in (*_COLUMNS, *_LEFT_OUT) and not name.startswith("tpr_at_"))
    columns |= {name: name for name in own}
    if points:
        heads = ["protection", *map(_escaped, columns.values()), "seconds"]
        lines += [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
        for point in points:
            name = f"**{_escaped(point.name)}**" if point is chosen.point else _escaped(point.name)
            cells = [name + (" *" if point.name in best else ""), *(_cell(point.figure(one)) for one in columns)]
            lines.append(f"| {' | '.join(cells)} | {point.seconds:.2f} |")
        lines += ["", "\\* no other has less membership advantage and more accuracy. Means with 95 % intervals.", ""]
    if skipped:
        lines += [
            "Not measured:",
            "",
            *(f"- {_escaped(names)}: {_escaped(why)}" for names, why in by_reason(skipped)),
            "",
        ]
    known = {name: data[name] for name in _HOW if data.get(name)}
    lines += [f"- {name}: {_escaped(_words(value))}" for name, value in known.items()]
    return "\n".join(lines) + "\n"


def by_reason(skipped: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the names that share a reason, and the reason.

    Examples
    --------
    >>> by_reason({"mondrian:k=5": "too few rows", "lattice:k=5": "too few rows", "dp": "no class"})
    [('mondrian:k=5, lattice:k=5', 'too few rows'), ('dp', 'no class')]
    """
    return [
        (", ".join(name for name, other in skipped.items() if other == why), why)
        for why in dict.fromkeys(skipped.values())
    ]


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    reach = figure.reach()
    return f"{figure.mean:.3f}" + (f" ± {reach:.3f}" if reach >= 0.0005 else "")


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _escaped(text: str) -> str:
    """Escape what Markdown or HTML would read as markup.

    Examples
    --------
    >>> _escaped("<b> a|b *x*")
    '&lt;b&gt; a\\\\|b \\\\*x\\\\*'
    """
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", plain)

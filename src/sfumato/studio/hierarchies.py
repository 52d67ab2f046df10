"""The hierarchies of quasi-identifiers: rules, and trees that are edited by ticking values and naming their group."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfumato.data.hierarchies.hierarchy import Hierarchy
from sfumato.data.hierarchies.label_paths import ROOT
from sfumato.data.released_values import write_set
from sfumato.errors import OptionError, SfumatoError
from sfumato.measures.assessment import SMALLEST_SHOWN
from sfumato.studio import jobs
from sfumato.studio.jobs import Job
from sfumato.studio.steps import Form, Step, columns_of, number_in
from sfumato.studio.workspace import Project

__all__ = ["labels_of", "preview_of"]

_FEW = "(few rows)"
_OTHERS = "other values"
_LISTING = ("{", "all but {")  # names that say which values a group has
_LINES = 60  # of a drawn hierarchy
_MOST_TEXT = 200_000  # characters of an edited tree
_MOST_LETTERS = 80_000  # of the trees on a page; those of further columns are shown one by one
_LONGEST_NAME = 200  # characters of the name of a group
_CELL = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^;]*?))\s*(?:;|$)')

Path = list[str]
"""The labels of a value on all levels below the root, from the value itself."""


class _Hierarchies(Step):
    """How the values of quasi-identifiers get coarser."""

    name, title = "hierarchies", "Hierarchies"

    def read(self, project: Project, form: Form) -> tuple[str, dict[str, Any]]:
        if form.get("edit"):
            name, rows = _edited(project, form)
            hierarchy: Hierarchy | None = Hierarchy.tree(rows)
        else:
            name, hierarchy = hierarchy_in(project, form)
        others = {key: one for key, one in project.state.get("hierarchies", {}).items() if key != name}
        chosen = others if hierarchy is None else {**others, name: hierarchy.to_dict()}
        return f"the hierarchy of {name}", {"hierarchies": chosen}

    def is_decided(self, project: Project) -> bool:
        return bool(project.state.get("hierarchies"))

    def place(self, form: Form) -> str:
        at = number_in(form, "column", "the column", least=0, most=100_000, whole=True, empty=0)
        return f"?column={at}#column-{at}"

    def shown(self, project: Project, job: Job | None, query: Mapping[str, str]) -> dict[str, Any]:
        quasi = [one for one in columns_of(project) if one["role"] == "quasi"]
        known = _values_of(project)
        lines, letters = [], 0
        for at, one in enumerate(quasi):
            values = known.get(one["name"])
            own = project.state.get("hierarchies", {}).get(one["name"])
            line = {**one, "values": values, "own": own, "tree": None, "opened": query.get("column") == str(at)}
            if letters <= _MOST_LETTERS or line["opened"]:
                try:
                    paths = _paths(values, own, one["kind"])
                except SfumatoError:
                    paths = []
                letters += sum(len(label) for path in paths for label in path)
                if _is_listed(values) and paths:
                    line["tree"] = {"root": _tree(project, values, paths), "mark": _mark(paths)}
                line |= {"opened": True, **_drawn(project, values, own, one["kind"])}
            lines.append(line)
        return {"quasi": lines, "smallest": SMALLEST_SHOWN, "measured": bool(known)}


def labels_of(project: Project, names: Sequence[str]) -> dict[str, list[list[str]]]:
    """Return some labels of columns on each level, without those of few rows, unless the owner sees rows anyway."""
    known, own = _values_of(project), project.state.get("hierarchies", {})
    kinds = {one["name"]: one["kind"] for one in columns_of(project)}
    found = {}
    for name in names:
        values = known.get(name)
        try:
            paths = _shown(project, values, _paths(values, own.get(name), kinds.get(name, "")))
        except SfumatoError:
            paths = []
        levels = zip(*paths, strict=True) if paths else ()
        found[name] = [[one for one in dict.fromkeys(level) if not one.startswith(_FEW)] for level in levels]
    return found


# --- the paths of the values --------------------------------------------------------------------


def _values_of(project: Project) -> dict[str, Any]:
    job = jobs.latest(project, "assess")
    values: dict[str, Any] = {} if job is None else job.result.get("values", {})
    return values


def _is_listed(values: Mapping[str, Any] | None) -> bool:
    """Return whether all values of a column are known, not only the first ones."""
    return values is not None and len(values["listed"]) == values["distinct"]


def _paths(values: Mapping[str, Any] | None, own: Any, kind: str) -> list[Path]:
    """Return the paths of the listed values by their own hierarchy, or by the automatic one."""
    listed = [] if values is None else values["listed"]
    if own is None:
        return [one[:-1] for one in listed]
    known = {str(one[0]): None for one in listed}
    if own["kind"] == "tree":
        known |= dict.fromkeys(str(row[0]) for row in own["rows"])
    paths = Hierarchy.from_dict(own).paths([_value(one, kind) for one in known])
    return [list(one[:-1]) for one in paths]


def _shown(project: Project, values: Mapping[str, Any] | None, paths: Sequence[Path]) -> list[Path]:
    """Return paths without labels of few rows, unless the owner sees rows anyway."""
    if project.preview:
        return [list(one) for one in paths]
    count = _counts(values)
    rows: Counter[tuple[int, str]] = Counter()
    for path in paths:
        rows.update(dict.fromkeys(enumerate(path), count.get(path[0], 0)))
    known = {path[0] for path in paths if count.get(path[0], 0) >= SMALLEST_SHOWN}
    found: dict[tuple[str, ...], None] = {}
    for path in paths:
        shown = [*path, ROOT]
        for level in range(len(path) - 1, -1, -1):
            if rows[level, path[level]] < SMALLEST_SHOWN:
                above = shown[level + 1]
                shown[level] = above if above.startswith(_FEW) else f"{_FEW} in {above}"
            else:
                shown[level] = _without_hidden(path[level], known, rows[level, path[level]])
        found[tuple(shown[:-1])] = None
    return [list(path) for path in found]


def _counts(values: Mapping[str, Any] | None) -> dict[str, int]:
    return {} if values is None else {one[0]: one[-1] for one in values["listed"]}


def _without_hidden(label: str, known: set[str], rows: int) -> str:
    """Return the label of a group without the values that are hidden; its number of rows tells it from others."""
    before, brace, inside = label.partition("{")
    if not brace or not inside.endswith("}"):
        return label
    members = inside[:-1].split(", ")
    seen = [one for one in members if one in known]
    return label if len(seen) == len(members) else f"{before}{{{', '.join([*seen, '…'])}}} ({rows:,} rows)"


def _value(text: str, kind: str) -> Any:
    """Return a value as the table has it."""
    try:
        number = float(text) if kind == "number" else math.nan
    except ValueError:
        return text
    return text if not math.isfinite(number) else int(number) if number == int(number) else number


# --- rules and texts ----------------------------------------------------------------------------


def _drawn(project: Project, values: Mapping[str, Any] | None, own: Any, kind: str) -> dict[str, Any]:
    """Return a hierarchy as a drawing, as rows to edit, and what is wrong with it."""
    drawing, rows, problem = "", "", ""
    try:
        paths = _shown(project, values, _paths(values, None, kind))
        seen = [_value(path[0], kind) for path in paths if not path[0].startswith(_FEW)]
        if not own and paths:
            drawing, rows = Hierarchy.tree(paths).draw([path[0] for path in paths], lines=_LINES), _rows(paths)
        elif own:
            hierarchy = Hierarchy.from_dict(own)
            missing = hierarchy.uncovered(seen)
            problem = f"not covered: {', '.join(map(str, missing[:10]))}" if missing else ""
            covered = [one for one in seen if one not in missing]
            drawing = hierarchy.draw(covered, lines=_LINES) if covered else str(hierarchy)
            rows = _rows([path[:-1] for path in hierarchy.paths(covered)])
    except SfumatoError as error:
        problem = str(error)
    return {"drawing": re.sub(rf"{re.escape(_FEW)} in [^,\n]*", "…", drawing), "rows": rows, "problem": problem}


def _rows(paths: Sequence[Sequence[str]]) -> str:
    return "\n".join("; ".join(map(_quoted, path)) for path in paths if not path[0].startswith(_FEW))


def _quoted(cell: str) -> str:
    plain = cell == cell.strip() and not any(one in cell for one in ';"')
    return cell if plain else '"' + cell.replace('"', '""') + '"'


def _cells(line: str) -> Path:
    """Return the cells of a line, which are separated by semicolons and may be quoted.

    Examples
    --------
    >>> _cells("flu;  lung"), _cells('"a; b "; "a ""b"" c"; d')
    (['flu', 'lung'], ['a; b ', 'a "b" c', 'd'])
    """
    cells, at = list[str](), 0
    while at <= len(line):
        found = _CELL.match(line, at)
        if found is None:
            raise OptionError(f"the line '{line[:40]}' cannot be read", hint="close the quotes")
        quoted, plain = found.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        at = found.end() + (0 if found.group().endswith(";") else 1)
    return cells


def preview_of(project: Project, form: Form) -> dict[str, Any]:
    """Return the drawing of a hierarchy that is being edited, and which of the shown values it does not cover."""
    name, hierarchy = hierarchy_in(project, form)
    kind = next(one["kind"] for one in columns_of(project) if one["name"] == name)
    return _drawn(project, _values_of(project).get(name), hierarchy and hierarchy.to_dict(), kind)


def _column_in(project: Project, form: Form) -> dict[str, Any]:
    quasi = [one for one in columns_of(project) if one["role"] == "quasi"]
    at = number_in(form, "column", "the column", least=0, most=max(len(quasi) - 1, 0), whole=True)
    if at is None or not quasi:
        raise OptionError("no column is named")
    return quasi[int(at)]


def hierarchy_in(project: Project, form: Form) -> tuple[str, Hierarchy | None]:
    """Return the column of a form and its hierarchy; None for the automatic one."""
    column = _column_in(project, form)
    name, how, text = column["name"], form.get("how"), str(form.get("text") or "")
    if how == "automatic":
        return name, None
    if len(text) > _MOST_TEXT:
        raise OptionError("the hierarchy is too long", hint="write it to a file, and name it in a schema")
    values = _values_of(project).get(name)
    if how == "tree":
        rows = [_cells(line) for line in text.splitlines() if line.strip()]
        return name, Hierarchy.tree([*rows, *_hidden_rows(project, column, values, rows)])
    if how == "dates":
        return name, Hierarchy.dates()
    try:
        numbers = [float(one) for one in text.replace(",", " ").split()]
        whole = [int(one) if one == int(one) else one for one in numbers]
    except (ValueError, OverflowError):
        raise OptionError(f"'{text[:40]}' must be numbers, such as 5, 10, 20") from None
    if how == "intervals" and whole:
        bounds = values.get("bounds") if values else None
        if bounds is None:
            raise OptionError(f"'{name}' has no numbers that are counted", hint="measure the risk first")
        return name, Hierarchy.intervals(widths=whole, bounds=bounds, outside="code")
    if how == "prefixes" and len(whole) == 1:
        return name, Hierarchy.prefixes(int(whole[0]))
    raise OptionError("there is no such hierarchy", hint="choose a kind, and give its numbers or its lines")


def _hidden_rows(
    project: Project, column: Mapping[str, Any], values: Mapping[str, Any] | None, rows: Sequence[Path]
) -> list[Path]:
    """Return lines for the values that are hidden, which nobody could write: in their group, or in one of their own."""
    if values is not None and not _is_listed(values):
        raise OptionError(
            f"'{column['name']}' has {values['distinct']:,} values, too many for a tree here",
            hint="take intervals or characters, or name a file with the tree in a schema",
        )
    if project.preview or not rows:
        return []
    given, width, count = {row[0] for row in rows}, len(rows[0]), _counts(values)
    above = {row[1]: row[2:] for row in rows if len(row) > 1}
    hidden = []
    for path in _paths(values, project.state.get("hierarchies", {}).get(column["name"]), column["kind"]):
        if path[0] in given or count.get(path[0], 0) >= SMALLEST_SHOWN:
            continue
        group = path[1] if len(path) > 1 and path[1] in above else _OTHERS
        labels = [group, *above.get(group, [_OTHERS] * (width - 2))] if width > 1 else []
        hidden.append([path[0], *labels])
    return hidden


# --- the tree -----------------------------------------------------------------------------------


@dataclass
class Branch:
    """A value or a group of a tree, as it is shown.

    Attributes
    ----------
    key : what the box beside it sends
    label : its name, or what stands for it if it has few rows
    level : 0 for a value
    rows : the number of rows with it; None if that is hidden
    inside : the values and groups in it
    """

    key: str
    label: str
    level: int
    rows: int | None
    inside: list[Branch] = field(default_factory=list)


def _mark(paths: Sequence[Path]) -> str:
    """Return a fingerprint of a tree, to notice that another tab has changed it."""
    return hashlib.sha256(json.dumps(paths).encode()).hexdigest()[:16]


def _numbers(paths: Sequence[Path], level: int) -> dict[str, int]:
    """Return the number of each label on a level, by which forms name it: it may be hidden."""
    return {label: at for at, label in enumerate(dict.fromkeys(path[level] for path in paths))}


def _tree(project: Project, values: Mapping[str, Any] | None, paths: Sequence[Path]) -> Branch:
    """Return the tree of the values; those of few rows are one branch in their group."""
    count = _counts(values)
    known = {one for one, rows in count.items() if rows >= SMALLEST_SHOWN or project.preview}
    numbers = [_numbers(paths, level) for level in range(len(paths[0]))]

    def branch(inside: Sequence[Path], level: int) -> Branch:
        rows = sum(count.get(path[0], 0) for path in inside)
        few = rows < SMALLEST_SHOWN and not project.preview
        while level > few and all(path[level - 1] == path[level] for path in inside):
            level -= 1  # a group that stays the same on the way down is shown once
        label = inside[0][level]
        shown = "a group of few rows" if few else label if project.preview else _without_hidden(label, known, rows)
        made = Branch(f"{level}.{numbers[level][label]}", shown or "(empty)", level, None if few else rows)
        made.inside = below(inside, level, made.key) if level and not few else []
        return made

    def below(inside: Sequence[Path], level: int, key: str) -> list[Branch]:
        if level > 1:
            groups: dict[str, list[Path]] = {}
            for path in inside:
                groups.setdefault(path[level - 1], []).append(path)
            return [branch(one, level - 1) for one in groups.values()]
        seen = [path[0] for path in inside if path[0] in known]
        made = [Branch(f"0.{numbers[0][one]}", one or "(empty)", 0, count.get(one, 0)) for one in seen]
        if hidden := len(inside) - len(seen):
            made.append(Branch(f"few.{key}", f"{hidden:,} value{'s' * (hidden > 1)} of few rows", 0, None))
        return made

    top = len(paths[0])
    return Branch(f"{top}.0", ROOT, top, sum(count.values()), below(paths, top, f"{top}.0"))


def _edited(project: Project, form: Form) -> tuple[str, list[Path]]:
    """Return the column of a form, and its tree after the change that the form asks for."""
    column = _column_in(project, form)
    values = _values_of(project).get(column["name"])
    if not _is_listed(values):
        raise OptionError("the values are not counted", hint="measure the risk first")
    paths = _paths(values, project.state.get("hierarchies", {}).get(column["name"]), column["kind"])
    if form.get("mark") != _mark(paths):
        raise OptionError("the tree has changed meanwhile, perhaps in another tab", hint="look at it, and try again")
    ticked = _ticked(paths, values, form.getlist("tick"))
    name = str(form.get("name") or "").strip()[:_LONGEST_NAME]
    if not ticked:
        raise OptionError("nothing is ticked", hint="tick the values or groups first")
    if form.get("edit") == "dissolve":
        return column["name"], dissolve(paths, ticked)
    if not name:
        raise OptionError("the group has no name", hint="give it one")
    if form.get("edit") == "rename":
        return column["name"], rename(paths, ticked, name)
    return column["name"], gather(paths, ticked, name)


def _ticked(paths: Sequence[Path], values: Mapping[str, Any] | None, keys: Sequence[Any]) -> list[tuple[int, str]]:
    """Return the level and the label of each ticked value or group."""
    count, top = _counts(values), len(paths[0])
    labels = [[*_numbers(paths, level)] for level in range(top)]
    found = []
    for key in keys:
        few, _, rest = str(key).rpartition("few.")
        parts = re.fullmatch(r"(\d{1,3})\.(\d{1,6})", rest)
        level, at = (int(parts[1]), int(parts[2])) if parts else (top + 1, 0)
        inside = labels[level] if level < top else [ROOT] if level == top and key.startswith("few.") else []
        if few or at >= len(inside):
            raise OptionError("there is no such value", hint="look at the tree, and try again")
        if not key.startswith("few."):
            found.append((level, inside[at]))
            continue
        members = [path[0] for path in paths if level == top or path[level] == inside[at]]
        found += [(0, one) for one in members if count.get(one, 0) < SMALLEST_SHOWN]
    return found


def gather(paths: Sequence[Path], ticked: Sequence[tuple[int, str]], name: str) -> list[Path]:
    """Return the paths with the ticked values and groups in a group of this name, a new one or one that exists.

    Examples
    --------
    >>> gather([["flu"], ["cold"], ["ulcer"]], [(0, "flu"), (0, "cold")], "lung")
    [['flu', 'lung'], ['cold', 'lung'], ['ulcer', 'ulcer']]
    """
    level = max(one for one, _ in ticked)
    grown = [[*path, path[-1]] if level + 1 == len(path) else list(path) for path in paths]
    joined = next((path[level + 2 :] for path in grown if path[level + 1] == name), None)
    for at, label in ticked:
        for path in grown:
            if path[at] == label:
                joined = _renamed(path[level + 2 :], label, name) if joined is None else joined
                path[at + 1 :] = [*[label] * (level - at), name, *joined]
    return _without_empty_levels(grown)


def rename(paths: Sequence[Path], ticked: Sequence[tuple[int, str]], name: str) -> list[Path]:
    """Return the paths with another name of a group; if there is such a group, the two become one.

    Examples
    --------
    >>> rename([["flu", "lung"], ["ulcer", "gut"]], [(1, "gut")], "belly")
    [['flu', 'lung'], ['ulcer', 'belly']]
    """
    if any(level == 0 for level, _ in ticked):
        raise OptionError("a value keeps its name", hint="tick a group, or make one of values")
    changed = [list(path) for path in paths]
    for level, label in ticked:
        joined = next((path[level + 1 :] for path in changed if path[level] == name), None)
        for path in changed:
            if path[level] == label:
                path[level:] = [name, *(_renamed(path[level + 1 :], label, name) if joined is None else joined)]
    return _without_empty_levels(changed)


def dissolve(paths: Sequence[Path], ticked: Sequence[tuple[int, str]]) -> list[Path]:
    """Return the paths without the ticked groups; what was in them stays.

    Examples
    --------
    >>> dissolve([["flu", "lung"], ["ulcer", "gut"]], [(1, "gut"), (1, "lung")])
    [['flu'], ['ulcer']]
    """
    if all(level == 0 for level, _ in ticked):
        raise OptionError("no group is ticked", hint="tick the group that goes; its values stay")
    changed = [list(path) for path in paths]
    for level, label in sorted(ticked):
        for path in changed:
            if level and path[level] == label:
                path[level:] = [path[level - 1], *_renamed(path[level + 1 :], label, path[level - 1])]
    return _without_empty_levels(changed)


def _renamed(above: Sequence[str], label: str, name: str) -> Path:
    """Return the labels above a group with another name for it, as far up as it is alone."""
    alone = next((at for at, one in enumerate(above) if one != label), len(above))
    return [*[name] * alone, *above[alone:]]


def _without_empty_levels(paths: list[Path]) -> list[Path]:
    """Return the paths without levels on which nothing changes, or that are like the root.

    A group whose name lists its values is named by those that it has now.
    """
    values = [path[0] for path in paths]
    for level in range(1, len(paths[0])):
        inside: dict[str, list[str]] = {}
        for path in paths:
            inside.setdefault(path[level], []).append(path[0])
        for path in paths:
            if path[level].endswith("}") and path[level].startswith(_LISTING) and path[level] != path[0]:
                members = inside[path[level]]
                path[level] = members[0] if len(members) == 1 else write_set(members, known=values)
    kept = [
        level
        for level in range(len(paths[0]))
        if level == 0
        or (any(path[level] != path[level - 1] for path in paths) and len({path[level] for path in paths}) > 1)
    ]
    return [[path[level] for level in kept] for path in paths]

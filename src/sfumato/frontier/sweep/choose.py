"""Choose a protection: the limits that it must keep, the choice with its reason in words, and the commands to run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.frontier.sweep.grid import Candidate, plain
from sfumato.frontier.sweep.point import CONFIDENCE, Point

__all__ = ["Limits", "Recommendation", "measuring_command", "recommend", "release_command"]

_TRAINED = {"forest": "forest", "tree": "tree", "mlp": "mlp", "boosting": "additive"}
"""The private model of `sfumato train` for each model that is compared."""
_MORE = 0.01
"""What a model must add to the accuracy of a guess, to be worth choosing by it."""
_BY_VALUE = ("mondrian", "hilbert", "rplus", "microaggregate")
"""Methods that publish the medians of groups only if they are told to; see `make`."""


@dataclass(frozen=True)
class Limits:
    """What a protection must keep; None if anything will do.

    Attributes
    ----------
    max_risk : the largest risk of re-identification
    max_advantage : the largest advantage of a membership attack
    min_accuracy : the least accuracy of the model
    """

    max_risk: float | None = None
    max_advantage: float | None = None
    min_accuracy: float | None = None

    def broken_by(self, point: Point, among: int = 1) -> list[str]:
        """Say which limits a point may break when it is measured again with as many fresh seeds.

        The limits hold together, and for all of the points ``among`` which one is chosen, with 95 % confidence: the
        chance of an error is shared (Bonferroni).
        """
        return [words for words, _ in self._excesses(point, among)]

    def distance(self, point: Point, among: int = 1) -> tuple[int, float]:
        """Return how many limits a point may break, and by how much in all: the smaller, the closer."""
        excesses = [excess for _, excess in self._excesses(point, among)]
        return len(excesses), sum(excesses)

    def _excesses(self, point: Point, among: int) -> list[tuple[str, float]]:
        """Return the limits that a point may break, in words, and how far it may be beyond each."""
        asked = self._asked()
        tail = (1 - CONFIDENCE) / max(among * sum(limit is not None for _, limit, *_ in asked), 1)
        broken = []
        for name, limit, sign, words in asked:
            if limit is None:
                continue
            figure = point.figure(name)
            if figure is None:
                broken.append((f"{words} was not measured", 1.0))
                continue
            end = figure.mean + sign * figure.reach(fresh=len(figure.values), tail=tail)
            end = min(max(end, 0.0), 1.0)
            if name == "re_identification" and (k := point.candidate.number("k")):
                end = min(end, 1 / k)  # it is guaranteed
            if (excess := sign * (end - limit)) > 1e-12:
                broken.append((f"{words} may be {end:.3f}, and the limit is {limit:g}", excess))
        return broken

    def kept_on_average_by(self, point: Point) -> bool:
        """Return whether the measured means keep all limits, whatever fresh seeds may give."""
        asked = [(point.figure(name), limit, sign) for name, limit, sign, _ in self._asked() if limit is not None]
        return all(one is not None and sign * (one.mean - limit) <= 0 for one, limit, sign in asked)

    def _asked(self) -> tuple[tuple[str, float | None, int, str], ...]:
        """Return the figure of each limit, the limit, the sign of what is worse, and the figure in words."""
        return (
            ("re_identification", self.max_risk, 1, "the re-identification risk"),
            ("membership_advantage", self.max_advantage, 1, "the membership advantage"),
            ("accuracy", self.min_accuracy, -1, "the accuracy"),
        )

    def risks_only(self) -> Limits:
        """Return the limits of risks alone."""
        return Limits(self.max_risk, self.max_advantage)

    def to_dict(self) -> dict[str, float | None]:
        """Return the limits as plain values."""
        return {
            "max_risk": self.max_risk,
            "max_advantage": self.max_advantage,
            "min_accuracy": self.min_accuracy,
        }

    def __str__(self) -> str:
        words = {
            "max_risk": "a re-identification risk of at most",
            "max_advantage": "a membership advantage of at most",
        }
        words["min_accuracy"] = "an accuracy of at least"
        given = [f"{words[name]} {value:g}" for name, value in self.to_dict().items() if value is not None]
        return " and ".join(filter(None, (", ".join(given[:-1]), *given[-1:])))


_USUAL = Limits(max_risk=0.2, max_advantage=0.1)
"""The limits if none are asked for."""


@dataclass(frozen=True)
class Recommendation:
    """The protection to take; its reason in words, and the command that makes the release.

    Attributes
    ----------
    point : the recommended point; None if none keeps the limits
    reason : in a few sentences
    command : makes the release; empty if there is none to make
    limits : what was asked for
    """

    point: Point | None
    reason: str
    command: str
    limits: Limits

    def to_dict(self) -> dict[str, Any]:
        """Return the recommendation as plain values."""
        left_out = ("seconds", "roc", "measurements")
        named = self.point and {key: value for key, value in self.point.to_dict().items() if key not in left_out}
        return {**(named or {}), "reason": self.reason, "command": self.command, "limits": self.limits.to_dict()}


def recommend(points: Sequence[Point], data: Mapping[str, Any], limits: Limits) -> Recommendation:
    """Return the most accurate point that keeps the limits; without limits, raw data are not recommended."""
    asked = limits if limits != Limits() else _USUAL
    among = max(data.get("considered", 0), len(points))
    able = [point for point in points if "accuracy" in point.utility and not asked.broken_by(point, among)]
    unchanged = _unchanged(points, able, data, asked) + _no_better_than_a_guess(points, data)
    if not able:
        return Recommendation(None, _nearest(points, asked, among) + unchanged, "", asked)
    best = max(able, key=lambda point: (point.utility["accuracy"].mean, point.candidate.strength))
    reason = _reason(best, points, asked, len(able), among, data.get("guess"))
    rows = [point for point in able if point.candidate.publishes_rows]
    if rows and not best.candidate.publishes_rows:
        other = max(rows, key=lambda point: point.utility["accuracy"].mean)
        reason += f" If rows must be released: {other.name}, {other.utility['accuracy'].mean:.1%}."
    reason += unchanged
    return Recommendation(best, reason, release_command(best.candidate, data), asked)


def _reason(best: Point, points: Sequence[Point], limits: Limits, able: int, among: int, guess: float | None) -> str:
    accuracy = best.utility["accuracy"]
    least = accuracy.mean - accuracy.reach(tail=(1 - CONFIDENCE) / among)
    measured = f"{among}" if len(points) == among else f"{len(points)} measured (of {among})"
    kept = (
        f"{able} of {measured} protections keep {limits}"
        if able > 1
        else f"Of {measured} protections, it alone keeps {limits}"
    )
    said = [
        f"{kept}, also if they are measured again (with {CONFIDENCE:.0%} confidence for all of them together).",
        f"{best.name} is the most accurate of these: its model is right about {accuracy.mean:.1%} of other "
        f"people (at least {least:.1%})",
    ]
    raw = next((point.utility["accuracy"].mean for point in points if point.candidate.name == "raw"), None)
    said[-1] += "" if raw is None or best.candidate.name == "raw" else f"; without protection, {raw:.1%}"
    said[-1] += "." if guess is None else f"; a guess that is always the most frequent class, {guess:.1%}."
    if (risk := best.risk.get("re_identification")) is not None:
        said.append(f"The risk to be re-identified is {risk.mean:.3f}{_unlimited(risk.mean, limits.max_risk, 0)}.")
    if (gain := best.risk.get("membership_advantage")) is not None:
        mean = max(gain.mean, 0)
        open_to = _unlimited(mean, limits.max_advantage, 1)
        said.append(f"The strongest attack on membership gains {mean:.3f} over guessing{open_to}.")
    return " ".join(said)


def _unchanged(points: Sequence[Point], able: Sequence[Point], data: Mapping[str, Any], limits: Limits) -> str:
    """Say why no anonymous table keeps a limit of the membership advantage, if it is for its other columns."""
    anonymous = [point for point in points if point.candidate.anonymizes and point.candidate.publishes_rows]
    columns = len(data.get("unchanged", ()))
    if limits.max_advantage is None or not columns or not anonymous or any(point in able for point in anonymous):
        return ""
    return (
        f" No anonymous table keeps them: only its quasi-identifiers ({', '.join(data.get('qi', ()))}) are changed, "
        f"and {columns} other {'columns are' if columns > 1 else 'column is'} released unchanged, by which a model can "
        "know its people again. Name all that others may know as quasi-identifiers."
    )


def _unlimited(risk: float, limit: float | None, which: int) -> str:
    """Say that a risk is large, if no limit was asked for."""
    name, usual = (("--max-risk", _USUAL.max_risk), ("--max-advantage", _USUAL.max_advantage))[which]
    return f", and no limit of it was asked for ({name})" if limit is None and risk > (usual or 0) else ""


def _no_better_than_a_guess(points: Sequence[Point], data: Mapping[str, Any]) -> str:
    """Say that accuracy decides little, if no model is more accurate than a guess without any data about a person."""
    guess = data.get("guess")
    known = [point.utility["accuracy"].mean for point in points if "accuracy" in point.utility]
    if guess is None or not known or max(known) >= guess + _MORE:
        return ""
    return (
        f" Mind: no model here is right more often than a guess that is always the most frequent class ({guess:.1%}), "
        "so that accuracy says little about what is useful. Compare by AUC, or by an analysis of your own."
    )


def _nearest(points: Sequence[Point], limits: Limits, among: int) -> str:
    """Say why no protection keeps the limits."""
    if not points:
        return "No protection could be measured."
    near = [point for point in points if limits.kept_on_average_by(point)]
    closest = min(near or points, key=lambda point: limits.distance(point, among))
    broken = "; ".join(limits.broken_by(closest, among)) or "its accuracy was not measured"
    names = [point.name for point in near]
    then = (
        f"Measured with these seeds alone, {', '.join(names[:3])}{' and others' if names[3:] else ''} "
        f"{'keep' if names[1:] else 'keeps'} them: more seeds (--seeds) or rows make it surer."
        if near
        else "Compare stronger protections (--protect), or accept a weaker limit."
    )
    return f"No protection keeps the limits. Closest is {closest.name}: {broken}. {then}"


def release_command(candidate: Candidate, data: Mapping[str, Any], out: str | None = None) -> str:
    """Return the command that makes the release from all rows; empty for raw data."""
    name, given, out = str(data["name"]), dict(candidate.parameters), out or folder_of(candidate)
    if candidate.name == "raw":
        return ""
    if candidate.recipe:
        return _recipe_command(candidate, data, out)
    target = ["--target", str(data["target"])]
    kinds, reading = _roles(data, "numbers", "categories"), list(data.get("reading", ()))
    if candidate.name == "dp":
        model = ["--model", _TRAINED[data["models"][0]]]
        roles = _roles(data, "identifiers")
        return _line("train", name, *model, *target, *roles, *kinds, *reading, *_flags(given), "-o", out)
    if candidate.name == "synthetic":
        rows = ["-n", str(data.get("rows", 1000))]
        roles = _roles(data, "identifiers", "keep")
        return _line("synthesize", name, *target, *roles, *kinds, *reading, *_flags(given), *rows, "-o", out)
    if not candidate.publishes_rows:
        anonymous, private = (Candidate(*part) for part in candidate.parts)
        made = {**data, "name": f"{folder_of(anonymous)}/table.csv", "identifiers": (), "reading": ()}
        return f"{release_command(anonymous, data)} --format csv && {release_command(private, made, out)}"
    roles = _roles(data, "qi", "sensitive", "identifiers", "keep")
    roles += target if candidate.name == "guided" else []
    how = ["--method", candidate.name, *_flags(given)]
    how += ["--representative", "median"] if candidate.name in _BY_VALUE else []
    how += ["--rows-are-units"] if data.get("rows_are_units") else []
    return _line("anonymize", name, *roles, *reading, *how, "-o", out)


def _recipe_command(candidate: Candidate, data: Mapping[str, Any], out: str) -> str:
    """Return a line of Python that runs a recipe with the values of its options, whatever its command is."""
    given = {key: plain(value) for key, value in candidate.parameters}
    if candidate.anonymizes and candidate.plan and "output" in candidate.plan.options.get("parameters", {}):
        given["output"] = "median"  # as it was measured
    values = ", ".join(f"{key}={value!r}" for key, value in given.items())
    recipe = f"sf.data.Recipe.load({candidate.name!r})" + (f".with_values({values})" if values else "")
    made = f"sf.save(sf.run({recipe}, {str(data['name'])!r}), {out!r})"
    return shlex.join(["python", "-c", f"import sfumato as sf; {made}"])


def measuring_command(candidate: Candidate, data: Mapping[str, Any]) -> str:
    """Return the command that measures a protection again, with the same seeds."""
    seeds = list(data.get("seeds", (0,)))
    options = [
        "--target",
        str(data["target"]),
        *data.get("reading", ()),
        *_roles(data, "qi", "sensitive", "identifiers", "keep"),
    ]
    options += ["--protect", str(candidate), "--model", ",".join(data["models"])]
    options += ["--attacks", ",".join(data["attacks"])] if data.get("attacks") else []
    options += [part for one in data.get("analyses", ()) for part in ("--analysis", one)]
    options += ["--rows-are-units"] if data.get("rows_are_units") else []
    return _line("explore", str(data["name"]), *options, "--seeds", str(len(seeds)), "--seed", str(seeds[0]))


def folder_of(candidate: Candidate) -> str:
    """Return the name of the folder that the command writes to."""
    return re.sub("[:,+/\\\\ ]+", "-", str(candidate).replace("=", "").replace("/recipe.toml", ""))


def _roles(data: Mapping[str, Any], *roles: str) -> list[str]:
    return [part for role in roles if (names := data.get(role)) for part in (f"--{role}", ",".join(names))]


def _flags(options: Mapping[str, str]) -> list[str]:
    return [part for key, value in options.items() for part in (f"--{key.replace('_', '-')}", value)]


def _line(*words: str) -> str:
    return shlex.join(["sfumato", *words])

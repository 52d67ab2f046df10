"""Which attack each anonymity model mainly prevents: each model alone on a census table, judged by its worst class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sfumato.reproductions.values import Experiment, Fact, Figure, Row

if TYPE_CHECKING:
    import polars as pl

__all__ = ["EXPERIMENT", "Settings"]

_QI = ("age", "sex", "education", "race")
_CATEGORY, _ORDERED = "occupation", "education-num"
_GUARANTEES = {
    "k": "k=10",
    "alpha-k": "k=10,alpha=0.9",
    "l": "l=3",
    "entropy-l": "entropy_l=3",
    "recursive": "recursive_c=2,recursive_l=3",
    "t": "t=0.15",
    "beta": "beta=1",
    "enhanced-beta": "enhanced_beta=1",
    "delta": "delta=1",
}
_LINKED, _GAIN, _RATIO = 0.1, 0.15, 1.0


@dataclass(frozen=True)
class Settings:
    """How many rows of Adult are anonymized."""

    rows: int = 32_561
    techniques: tuple[str, ...] = tuple(_GUARANTEES)


def run(settings: Settings) -> Iterator[Row | Figure]:
    """Anonymize with each model alone, and see which attacks its worst class still allows."""
    table = _rows(settings.rows)
    raw = _stopped(table, "")
    note = "every attack succeeds on the table as it is" if not raw else f"already stopped: {', '.join(raw)}"
    for name in settings.techniques:
        stopped = _stopped(table, _GUARANTEES[name])
        printed = str(EXPERIMENT.facts[name].printed).split(", ")
        held = [one for one in printed if one in stopped]
        more = [one for one in stopped if one not in printed]
        verdict = "reproduced" if held == printed else "differs"
        also = f"; here also {', '.join(more)}" if more else ""
        failed = [one for one in printed if one not in stopped]
        wrong = f"; not {', '.join(failed)}" if failed else ""
        yield EXPERIMENT.row(name, ", ".join(held) or "none", verdict, f"{_GUARANTEES[name]}{also}{wrong}; {note}")


def _rows(count: int) -> pl.DataFrame:
    import polars as pl

    from sfumato.data import datasets

    frame = datasets.adult("train").to_polars().select(*_QI, _CATEGORY, _ORDERED).head(count)
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String).fill_null("?"))


def _stopped(table: pl.DataFrame, guarantee: str) -> list[str]:
    """Return the attacks that no class of the release allows.

    Linkage and re-identification: nobody's row is picked with more than 10 %. Homogeneity and background knowledge: no
    one's value is certain, in the second case to someone who can rule out one value. Skewness: no value is more
    frequent in a class than in the table by more than 15 points. Similarity: no class is all in a third of the ordered
    values that holds less than half of the table. Inference: no share of a value changes by more than a factor of e.
    """
    import polars as pl

    import sfumato as sf

    classes, ordered = (_classes(table, one, guarantee) for one in (_CATEGORY, _ORDERED))
    p = table[_CATEGORY].value_counts(normalize=True, name="p")
    counts = classes.group_by("class", _CATEGORY).len("n").join(classes.group_by("class").len("size"), on="class")
    shares = counts.join(p, on=_CATEGORY).with_columns(q=pl.col("n") / pl.col("size"))
    least = int(shares["size"].min() or 0)  # type: ignore[arg-type]
    values = shares.group_by("class").len("values")["values"].min()
    released = sf.assess(classes, qi=["class"], sensitive=[_CATEGORY])
    limits = {
        "linkage": 1 / least <= _LINKED,
        "re-identification": (released.risk.prosecutor_max or 1) <= _LINKED,
        "homogeneity": values >= 2,  # type: ignore[operator]
        "background knowledge": values >= 3,  # type: ignore[operator]
        "skewness": float((shares["q"] - shares["p"]).max() or 0) <= _GAIN,  # type: ignore[arg-type]
        "similarity": not _similar(ordered),
        "inference": (released.delta_disclosure or 0.0) < _RATIO,
    }
    return [name for name, held in limits.items() if held]


def _classes(table: pl.DataFrame, sensitive: str, guarantee: str) -> pl.DataFrame:
    """Return the class of each row, and its sensitive value."""
    import sfumato as sf

    released: Any = table.select(*_QI, sensitive)
    if guarantee:
        made = sf.anonymize(released, guarantee, qi=list(_QI), sensitive=[sensitive], method="mondrian", keep=[])
        released = made.table.to_polars()
    named = released.with_columns(**{"class": released.select(_QI).hash_rows().cast(str)})
    found: pl.DataFrame = named.select("class", sensitive)
    return found


def _similar(rows: pl.DataFrame) -> bool:
    """Say whether all values of some class are in a third of the values that holds less than half of the table."""
    import polars as pl

    levels = sorted(rows[_ORDERED].unique().to_list())
    rank = rows.with_columns(rank=pl.col(_ORDERED).replace_strict(levels, list(range(len(levels)))))
    ends = rank.group_by("class").agg(low=pl.col("rank").min(), high=pl.col("rank").max())
    counts = [int((rank["rank"] == at).sum()) for at in range(len(levels))]
    narrow = ends.filter(pl.col("high") - pl.col("low") < len(levels) / 3)
    return any(sum(counts[low : high + 1]) < len(rows) / 2 for low, high in narrow.select("low", "high").iter_rows())


EXPERIMENT = Experiment(
    name="techniques",
    title="Which attack each anonymity model prevents",
    source='"Privacy preserving techniques for data science": a table of nine models and seven attacks',
    facts={
        "k": Fact("k-anonymity", "linkage, re-identification"),
        "alpha-k": Fact("(alpha,k)-anonymity", "linkage, re-identification, homogeneity"),
        "l": Fact("l-diversity", "homogeneity, background knowledge"),
        "entropy-l": Fact("entropy l-diversity", "homogeneity, background knowledge"),
        "recursive": Fact("recursive (c,l)-diversity", "homogeneity, background knowledge"),
        "t": Fact("t-closeness", "skewness, similarity"),
        "beta": Fact("basic beta-likeness", "skewness"),
        "enhanced-beta": Fact("enhanced beta-likeness", "skewness"),
        "delta": Fact("delta-disclosure privacy", "inference"),
    },
    full=Settings(),
    quick=Settings(rows=3_000),
    run=run,
)

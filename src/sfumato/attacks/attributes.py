"""Attribute inference: guess a sensitive value of a person whose other values and label are known, with a model.

The attacker asks the model for its prediction with every possible value. A value is likely if it is frequent, and if
the model, known to confuse classes as it does, says for it what is known to be true. Whoever has data of the same kind
can impute the value without the model, so the attack is compared with imputation, and members with non-members: what
a model says about everyone is not a leak of its training data.

- Fredrikson, Jha, Ristenpart, *Model inversion attacks that exploit confidence information and basic countermeasures*,
  ACM CCS 2015: the attack with the confusion matrix, after Fredrikson et al., *Privacy in pharmacogenetics*, USENIX
  Security 2014. As in the comparison of Mehnaz et al., *Are your sensitive attributes private?*, USENIX Security 2022.
- Jayaraman, Evans, *Are attribute inference attacks just imputation?*, ACM CCS 2022: why imputation is the baseline.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sfumato.attacks.base import Attack, Baseline, Records, Scores
from sfumato.data.validate import whole
from sfumato.errors import ColumnError, InputError, OptionError, did_you_mean

__all__ = ["AttributeInference", "confusion_guesses"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_MOST_VALUES = 100  # each is one prediction for every record


class AttributeInference(Attack):
    """Guess the value of a column from the model's prediction for each possible value and its confusion matrix.

    The prior of the values, the confusion matrix and the imputation come from non-members, which the attacker may
    own: those of one half of the non-members serve to attack the other half and half of the members, and in turn.

    Parameters
    ----------
    column : str, optional
        The column that is guessed; the target's sensitive columns by default, each in an attack of its own.
    positive : optional
        Guess only whether the column has this value; the precision and recall of the result are those of this value.
    edges : sequence of numbers, optional
        Where the bins of a number begin, but the first; a guess is right if the bin is. Quantiles by default.
    bins : int
        The number of quantile bins of a number with more distinct values than that.
    imputer : scikit-learn classifier, optional
        The model of the imputation; the target's own kind by default, or a random forest if that is not scikit-learn's.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from sfumato.attacks import AttributeInference, ModelTarget, Records, run_attacks
    >>> rng = np.random.default_rng(0)
    >>> rows = pl.DataFrame({"home": rng.integers(0, 500, 400).astype(str), "ill": rng.choice(["no", "yes"], 400)})
    >>> labels = rng.integers(0, 2, 400)
    >>> inside, outside = Records(rows[:200], labels[:200]), Records(rows[200:], labels[200:])
    >>> tree = make_pipeline(OneHotEncoder(handle_unknown="ignore"), DecisionTreeClassifier(random_state=0))
    >>> target = ModelTarget(tree.fit(rows[:200], labels[:200]))
    >>> report = run_attacks([AttributeInference("ill")], target, inside, outside)
    >>> report.results[0].baseline.method
    'the most frequent value (54.5%) and imputation by DecisionTreeClassifier (53.5%)'
    >>> report.verdict
    'no leakage found by 1 attack, which does not prove that there is none'
    """

    name = "attribute"
    question = "Which sensitive value does this person have, whose other values and label are known?"
    targets = ("model",)
    guesses = True
    knows_people = True

    def __init__(
        self,
        column: str | None = None,
        *,
        positive: Any = None,
        edges: Sequence[float] | None = None,
        bins: int = 5,
        imputer: Any = None,
    ) -> None:
        self.column, self.positive, self.imputer = column, positive, imputer
        self.edges = None if edges is None else np.sort(np.asarray(edges, dtype=np.float64))
        self.bins = whole("the number of bins", bins, least=2, most=_MOST_VALUES)

    def parts(self, target: Any) -> tuple[Attack, ...]:
        """Return one attack for each sensitive column of the target, unless one is named."""
        sensitive = getattr(target, "sensitive", ())
        if self.column is not None or len(sensitive) < 2:
            return (self,)
        attacks = tuple(AttributeInference(column, bins=self.bins, imputer=self.imputer) for column in sensitive)
        for attack in attacks:
            attack.name = f"{self.name}:{attack.column}"
        return attacks

    def obstacle(self, target: Any, members: Records | None, nonmembers: Records | None) -> str | None:
        """Return why this attack cannot be run; None if it can."""
        found = super().obstacle(target, members, nonmembers)
        if found is not None or members is None or nonmembers is None:
            return found
        if self.column is None and not target.sensitive:
            return "it needs to know which column is sensitive"
        if not isinstance(nonmembers.rows, pl.DataFrame):
            return "it guesses a column of a table, and the records are an array"
        if nonmembers.persons < 4:
            return "it needs at least four non-members"
        column = self._column(target, nonmembers)
        series = nonmembers.frame[column]
        if not series.dtype.is_numeric() and series.n_unique() > _MOST_VALUES:
            return (
                f"it asks the model once per value, and '{column}' has {series.n_unique():,} (at most {_MOST_VALUES})"
            )
        return None

    def run(self, target: Any, members: Records, nonmembers: Records, seed: int) -> Scores:
        """Guess the column for members and non-members, in one record of each person; a score is 1 if it is right."""
        column = self._column(target, nonmembers)
        values = _Values(nonmembers.frame[column], self.positive, self.edges, self.bins)
        rng = np.random.default_rng(seed)
        sides = (members, nonmembers)
        asked = [records.take(records.known(seed)) for records in sides]
        halves = [rng.permutation(len(records)) % 2 for records in asked]
        right = [{how: np.zeros(len(records)) for how in ("attack", "imputation", "majority")} for records in asked]
        hits = called = positives = 0
        for here in (0, 1):
            others = nonmembers.take(np.flatnonzero(halves[1][nonmembers.owners] != here))
            attacker = _Attacker(target, others, column, values)
            imputer = _Imputer(self.imputer, attacker, seed + here)
            for side, records in enumerate(asked):
                rows = np.flatnonzero(halves[side] == here)
                known = records.take(rows)
                truth = values.groups_of(known.frame[column])
                guess = attacker.guesses(known)
                right[side]["attack"][rows] = guess == truth
                right[side]["imputation"][rows] = imputer.guesses(known) == truth
                right[side]["majority"][rows] = attacker.majority == truth
                if side == 0 and self.positive is not None:
                    hits += int(np.sum((guess == 1) & (truth == 1)))
                    called, positives = called + int(np.sum(guess == 1)), positives + int(np.sum(truth == 1))
        shares = [{how: float(found.mean()) for how, found in side.items()} for side in right]
        named = self.positive is not None
        return Scores(
            right[0]["attack"],
            right[1]["attack"],
            _baseline(shares[0], imputer.name),
            precision=hits / called if named and called else None,
            recall=hits / positives if named and positives else None,
            details={
                "column": column,
                "values": len(values.candidates),
                "positive": None if self.positive is None else str(self.positive),
                "members": shares[0],
                "nonmembers": shares[1],
                "leakage": sum(
                    sign * (side["attack"] - side["imputation"]) for sign, side in zip((1, -1), shares, strict=True)
                ),
                "known": "prior, confusion matrix and imputation from half of the non-members, twice",
            },
        )

    def _column(self, target: Any, records: Records) -> str:
        column = self.column if self.column is not None else next(iter(target.sensitive), None)
        if column is None:
            raise InputError("attribute inference needs to know which column is sensitive", hint="name the column")
        if column not in records.frame.columns:
            raise ColumnError(
                f"the records have no column '{column}' to guess", hint=did_you_mean(column, records.frame.columns)
            )
        return str(column)


def confusion_guesses(predicted: Ints, labels: Ints, confusion: Floats, prior: Floats, groups: Ints) -> Ints:
    """Return the most likely group of values of each record: argmax of the sum of P(v) C[y, f(x with v)].

    Parameters
    ----------
    predicted : array of ints, by value and record
        The class that the model predicts if the record had the value.
    labels : array of ints
        The true class of each record.
    confusion : array, by true and predicted class
        Its rows sum to 1.
    prior : array
        The share of each value.
    groups : array of ints
        The group of each value: 0, 1, 2, ... if values are guessed one by one.

    Returns
    -------
    array of ints
        Of equal sums the group with the larger prior is taken; if all are 0, the one with the largest.

    Examples
    --------
    >>> says = np.array([[0, 0], [1, 1]])  # of two records: class 0 with the first value, 1 with the second
    >>> confusion = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> confusion_guesses(says, np.array([0, 1]), confusion, np.array([0.5, 0.5]), np.array([0, 1])).tolist()
    [0, 1]
    """
    likely = prior[:, None] * confusion[labels[None, :], predicted]
    joined = np.zeros((int(groups.max()) + 1, len(labels)))
    np.add.at(joined, groups, likely)
    weight = np.bincount(groups, prior)
    best = joined >= joined.max(axis=0) * (1 - 1e-12)
    result: Ints = np.where(best, weight[:, None], -1.0).argmax(axis=0)
    return result


class _Values:
    """The possible values of a column: those of non-members, numbers in bins; and the groups that are told apart."""

    def __init__(self, series: pl.Series, positive: Any, edges: Floats | None, bins: int) -> None:
        self.dtype, self.edges = series.dtype, edges
        if edges is not None and not series.dtype.is_numeric():
            raise OptionError(f"column '{series.name}' does not hold numbers, so that it has no bins")
        if edges is None and series.dtype.is_numeric() and series.n_unique() > bins:
            numbers = series.cast(pl.Float64).fill_nan(None).drop_nulls().to_numpy()
            self.edges = np.unique(np.quantile(numbers, np.arange(1, bins) / bins))
        # The value that stands for a bin is its middle one that occurs.
        middle = pl.col("value").sort().gather(pl.len() // 2).first()
        listed = pl.DataFrame({"key": self._keys_of(series), "value": series}).group_by("key").agg(middle).sort("key")
        self._places = listed.select("key", place=pl.int_range(pl.len(), dtype=pl.Int64))
        self.candidates: list[Any] = listed["value"].to_list()
        self.groups: Ints = np.arange(len(self.candidates))
        self._unseen = -1
        if positive is not None:
            if self.edges is not None or positive not in self.candidates:
                raise OptionError(f"{positive!r} is not a value of column '{series.name}'")
            self.groups = np.array([int(value == positive) for value in self.candidates])
            self._unseen = 0

    def _keys_of(self, series: pl.Series) -> pl.Series:
        """Return the bin of each number, or each value as text; missing values stay missing."""
        if self.edges is None:
            return series.cast(pl.String)
        numbers = series.cast(pl.Float64).fill_nan(None)
        bins = np.searchsorted(self.edges, numbers.fill_null(0.0).to_numpy(), side="right")
        return pl.select(pl.when(numbers.is_not_null()).then(pl.Series(bins, dtype=pl.Int64))).to_series()

    def places(self, series: pl.Series) -> Ints:
        """Return the position of each value among the candidates; -1 if no non-member has it."""
        asked = pl.DataFrame({"key": self._keys_of(series)})
        found = asked.join(self._places, on="key", how="left", nulls_equal=True, maintain_order="left")
        return found["place"].fill_null(-1).to_numpy()

    def groups_of(self, series: pl.Series) -> Ints:
        """Return the group of each value; one that no non-member has cannot be guessed."""
        places = self.places(series)
        return np.where(places < 0, self._unseen, self.groups[places])


class _Attacker:
    """What an attacker knows: records of other people, and what the model says about them."""

    def __init__(self, target: Any, records: Records, column: str, values: _Values) -> None:
        self.target, self.records, self.column, self.values = target, records, column, values
        self.truth = values.groups_of(records.frame[column])
        places = values.places(records.frame[column])
        self.prior: Floats = np.bincount(places, minlength=len(values.candidates)) / len(places)
        self.majority = int(np.bincount(values.groups, self.prior).argmax())
        classes = len(target.classes)
        said = target.probabilities(records).argmax(axis=1)
        counts = np.zeros((classes, classes))
        np.add.at(counts, (target.codes(records), said), 1.0)
        total = counts.sum(axis=1, keepdims=True)
        self.confusion: Floats = np.where(total > 0, counts / np.maximum(total, 1), 1 / classes)

    def guesses(self, records: Records) -> Ints:
        """Return the most likely group of each record's value."""
        frame = records.frame
        said = []
        for value in self.values.candidates:
            asked = frame.with_columns(pl.lit(value).cast(self.values.dtype).alias(self.column))
            said.append(self.target.probabilities(Records(asked)).argmax(axis=1))
        labels = self.target.codes(records)
        return confusion_guesses(np.array(said), labels, self.confusion, self.prior, self.values.groups)


class _Imputer:
    """Predict the column from the others and the label, without the attacked model."""

    def __init__(self, model: Any, attacker: _Attacker, seed: int) -> None:
        self.column, self.target = attacker.column, attacker.target
        kind = _own_kind(attacker.target.model) if model is None else _sklearn("base").clone(model)
        self.name = type(kind).__name__
        self.only = int(attacker.truth[0]) if len(np.unique(attacker.truth)) == 1 else None
        features = self._features(attacker.records)
        texts = [name for name, dtype in features.schema.items() if dtype == pl.String]
        numbers = [name for name in features.columns if name not in texts]
        coding = _sklearn("compose").ColumnTransformer(
            [
                ("texts", _sklearn("preprocessing").OneHotEncoder(handle_unknown="ignore"), texts),
                ("numbers", _sklearn("preprocessing").StandardScaler(), numbers),
            ]
        )
        if "random_state" in kind.get_params():
            kind.set_params(random_state=seed)
        self.model = _sklearn("pipeline").make_pipeline(coding, kind)
        if self.only is None:
            self.model.fit(features, attacker.truth)

    def guesses(self, records: Records) -> Ints:
        """Return the imputed group of each record's value."""
        if self.only is not None:
            return np.full(len(records), self.only)
        result: Ints = self.model.predict(self._features(records))
        return result

    def _features(self, records: Records) -> pl.DataFrame:
        """Return the other columns: numbers without gaps, the rest as text, and the label as one more text."""
        others = records.frame.drop(self.column)
        columns = [
            series.cast(pl.Float64).fill_nan(None).fill_null(0.0)
            if series.dtype.is_numeric()
            else series.cast(pl.String).fill_null("")
            for series in others
        ]
        label = pl.Series("label" + "_" * max(map(len, others.columns), default=0), self.target.codes(records))
        return pl.DataFrame([*columns, label.cast(pl.String)])


def _own_kind(model: Any) -> Any:
    """Return an unfitted copy of a scikit-learn classifier, also behind a pipeline; else a random forest."""
    while not type(model).__module__.startswith("sklearn.") or hasattr(model, "steps"):
        steps = getattr(model, "steps", None)
        inner = (
            steps[-1][1] if isinstance(steps, list) else getattr(model, "model_", getattr(model, "estimator_", None))
        )
        if inner is None:
            return _sklearn("ensemble").RandomForestClassifier(100)
        model = inner
    return _sklearn("base").clone(model)


def _baseline(shares: dict[str, float], imputer: str) -> Baseline:
    """Return the strongest guess without the model; its description names every one that beats the attack."""
    methods = {"majority": "the most frequent value", "imputation": f"imputation by {imputer}"}
    better = [how for how in methods if shares[how] > shares["attack"]]
    strongest = max(methods, key=lambda how: shares[how])
    named = " and ".join(f"{methods[how]} ({shares[how]:.1%})" for how in better or [strongest])
    return Baseline(shares[strongest], named)


def _sklearn(part: str) -> Any:
    """Import a part of scikit-learn on demand: it takes a second."""
    return importlib.import_module(f"sklearn.{part}")

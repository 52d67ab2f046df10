"""Nothing that a public function returns, prints, logs or writes shows a record: secrets are planted, and looked for.

What errors say, with `--debug` too, is in `test_canary`.
"""

from __future__ import annotations

import inspect
import io
import json
import logging
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sklearn.tree import DecisionTreeClassifier

import sfumato as sf
from tests.conftest import Ran
from tests.hospital import extract

Run = Callable[..., Ran]
EXTRACT = extract("en", people=60)
HIDDEN = ["patient_id", "name", "email", "phone", "note", "admitted"]
ROWS = pl.read_csv(io.StringIO(EXTRACT.text()), infer_schema=False).with_columns(
    pl.col("hba1c", "creatinine").cast(pl.Float64, strict=False), pl.col("birth_date").str.to_date()
)
TABLE = sf.Table.of(ROWS, qi=["birth_date", "sex", "zip"], sensitive=["icd10"], identifiers=HIDDEN)
BIRTHS = {row[EXTRACT.header.index("birth_date")] for row in EXTRACT.rows}
NAMED = tuple(secret for secret in EXTRACT.planted if secret not in BIRTHS)
"""What no output of any kind may hold. Birth dates are a quasi-identifier: the owner of the data sees them on purpose
in the witnesses of an assessment, and nobody in a representation."""
DOMAINS = sf.Schema(
    [
        sf.Column(name="sex", kind="category", domain=["f", "m"]),
        sf.Column(name="zip", kind="category", domain=sorted(set(ROWS["zip"]))),
    ]
)
KEY = sf.Key(b"0123456789abcdef0123456789abcdef")
CALLS: dict[str, Callable[[], Any]] = {
    "anonymize": lambda: sf.anonymize(TABLE, "k=5"),
    "anonymize_model": lambda: sf.anonymize_model(
        DecisionTreeClassifier(max_depth=2),
        sf.Table.of(ROWS.select("creatinine", "sex").fill_null(1.0).to_pandas(), qi=["creatinine"], target="sex"),
        k=5,
        guide="true",
        cut_by="qi",
        transform=False,
    ),
    "assess": lambda: sf.assess(TABLE, require="k=2", detail=True, preset="hipaa", population=ROWS),
    "attack": lambda: _attacked(),
    "check": lambda: sf.check(TABLE, "k=2"),
    "distances": lambda: sf.measures.distances(ROWS, ROWS, columns=["birth_date", "sex"]),
    "evaluate": lambda: sf.evaluate(
        ROWS.select("birth_date", "sex"), ROWS.select("birth_date", "sex")[::2], models=(), attacks=(), queries=20
    ),
    "explore": lambda: sf.explore(
        ROWS.select("creatinine", "sex").drop_nulls(),
        target="sex",
        qi=["creatinine"],
        protections=["raw", "mondrian:k=5"],
        attacks=["gap"],
        utilities=["tree"],
        seeds=1,
        jobs=1,
    ),
    "federate": lambda: sf.federate(
        sf.Table(ROWS.select("zip", "sex"), DOMAINS), target="sex", clients=2, rounds=1, centralised=False
    ),
    "load_model": lambda: (
        _trained("model") and sf.learners.load_model(next(Path("model").rglob("certificate.json")).parent)
    ),
    "load": lambda: sf.save(sf.anonymize(TABLE, "k=5"), "loaded") or sf.load("loaded"),
    "loss": lambda: sf.loss(TABLE, TABLE),
    "mask": lambda: sf.mask(TABLE, [sf.masking.TopBottomCode("hba1c", high=9), sf.masking.Pram("sex")]),
    "model_accuracy": lambda: sf.measures.model_accuracy(TABLE, TABLE, target="sex", models=["tree"], repeats=1),
    "perturb": lambda: sf.perturb(ROWS, ["sex"], epsilon=1, schema=DOMAINS),
    "preview": lambda: _granted() and sf.preview(ROWS, "count by sex", epsilon=1, schema=DOMAINS),
    "pseudonymize": lambda: sf.pseudonymize(TABLE, sf.pseudonyms.KeyedTokens(sf.Key.new("a.key")), columns=["name"]),
    "query": lambda: _granted() and sf.query(ROWS, "count by sex", epsilon=1, schema=DOMAINS),
    "query_error": lambda: sf.measures.query_error(TABLE, TABLE, columns=["birth_date", "sex"], queries=5),
    "read": lambda: sf.write(ROWS, "rows.csv") or sf.read("rows.csv"),
    "reidentify": lambda: sf.reidentify(
        sf.pseudonymize(TABLE, sf.pseudonyms.EncryptedTokens(KEY), columns=["icd10"]),
        sf.pseudonyms.EncryptedTokens(KEY),
        columns=["icd10"],
    ),
    "reproduce": lambda: sf.reproduce("techniques", quick=True),
    "run": lambda: (
        sf.save(sf.mask(ROWS.select("sex", "hba1c"), [sf.masking.Pram("sex")]), "masked") or sf.run("masked", ROWS)
    ),
    "safe_harbor": lambda: sf.safe_harbor(TABLE),
    "save": lambda: sf.save(sf.anonymize(TABLE, "k=5"), "release"),
    "train": lambda: _trained("trained"),
    "synthesize": lambda: sf.synthesize(sf.Table(ROWS.select("zip", "sex"), DOMAINS), 1.0, rows=20),
    "verify": lambda: sf.save(sf.anonymize(TABLE, "k=5"), "verified") or sf.verify("verified"),
    "write": lambda: sf.write(sf.anonymize(TABLE, "k=5").table, "release.csv"),
    "write_report": lambda: sf.write_report(sf.assess(TABLE, detail=True), "page.html"),
}
OBJECTS: dict[str, Callable[[], Any]] = {
    "Column": lambda: sf.Column(name="name", domain=ROWS["name"].to_list()),
    "EncryptedTokens": lambda: sf.pseudonyms.EncryptedTokens(sf.Key.new("c.key")),
    "Guided": lambda: sf.Guided("k=5", qi=["birth_date"], labels=ROWS["name"].to_list()).fit(ROWS),
    "Hierarchy": lambda: sf.Hierarchy.tree([(name, "*") for name in ROWS["name"]]),
    "Hilbert": lambda: sf.Hilbert("k=5", qi=["birth_date"]).fit(ROWS),
    "Key": lambda: sf.Key.new("d.key"),
    "KeyedTokens": lambda: sf.pseudonyms.KeyedTokens(sf.Key.new("e.key")),
    "Lattice": lambda: sf.Lattice("k=5", qi=["birth_date"]).fit(ROWS),
    "Ledger": lambda: sf.Ledger.grant(ROWS, epsilon=1, path="l.ledger"),
    "LocalSuppression": lambda: sf.LocalSuppression("k=5", qi=["zip"]).fit(ROWS),
    "Microaggregate": lambda: sf.Microaggregate("k=5", qi=["birth_date"]).fit(ROWS),
    "Mondrian": lambda: sf.Mondrian("k=5", qi=["birth_date"]).fit(ROWS),
    "RandomTokens": lambda: sf.pseudonyms.RandomTokens("tokens.map", passphrase=NAMED[0]),
    "RPlus": lambda: sf.RPlus("k=5", qi=["birth_date"]).fit(ROWS),
    "Schema": lambda: sf.Schema.suggest(ROWS.with_columns(pl.col("name").cast(pl.Enum(ROWS["name"].unique())))),
    "Table": lambda: sf.Table(ROWS.to_pandas().set_index("name")),
}
RETURNED = {"Assessment", "Release", "Verification"}
"""Classes that some of the calls return, or what these return holds."""


def _trained(folder: str) -> sf.learners.Training:
    training = sf.train(sf.Table(ROWS.select("zip", "sex"), DOMAINS), "naive-bayes", target="sex", epsilon=1)
    sf.save(training, folder)
    return training


def _attacked() -> list[sf.attacks.AttackReport]:
    rows = ROWS.drop(HIDDEN)
    released = sf.anonymize(sf.Table.of(rows, qi=["birth_date", "sex", "zip"], sensitive=["icd10"]), "k=2")
    reports = [
        sf.attack(released, rows[:30], control=rows[30:], population=rows),
        sf.attack(ROWS[30:], ROWS[:30], control=ROWS[30:45].with_columns(sex=pl.lit("x")), kind="synthetic"),
        sf.attack(ROWS, target="sex", model="tree", sensitive=["name", "icd10"], references=4, processes=1),
    ]
    for number, report in enumerate(reports):
        sf.write_report(report, f"attacks-{number}.html")
    return reports


def _granted() -> bool:
    sf.Ledger.grant(ROWS, epsilon=5).close()
    return True


def _objects(thing: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Find every object of ours that can be reached by public names."""
    if id(thing) in seen or len(seen) > 5000:
        return
    seen.add(id(thing))
    if isinstance(thing, dict):
        for name, one in thing.items():
            yield from _objects(one, f"{path}[{name!r}]", seen)
    elif type(thing).__module__.startswith("sfumato") and not isinstance(thing, Enum):
        yield path, thing
        for name in dir(thing):
            value = None if name.startswith("_") else inspect.getattr_static(thing, name, None)
            if value is not None and not callable(value) and not isinstance(value, classmethod | staticmethod):
                try:
                    value = getattr(thing, name)
                except (sf.SfumatoError, AttributeError):  # such as what an estimator of this kind lacks
                    continue
                yield from _objects(value, f"{path}.{name}", seen)
    elif isinstance(thing, list | tuple):
        for position, one in enumerate(thing[:100]):
            yield from _objects(one, f"{path}[{position}]", seen)


def _silent(text: str, secrets: tuple[str, ...], where: str) -> None:
    found = [secret for secret in secrets if secret in text]
    assert not found, f"{where} shows {len(found)} planted values, such as {found[0]!r}"


@pytest.mark.parametrize("name", [*CALLS, *OBJECTS])
def test_no_result_shows_a_record(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    with caplog.at_level(logging.DEBUG):
        result = (CALLS | OBJECTS)[name]()
    for path, thing in _objects(result, name, set()):
        shown = repr(thing)
        _silent(shown, EXTRACT.planted, f"repr({path})")
        assert len(shown) < 1500, f"repr({path}) is not short"
        if type(thing).__str__ is object.__str__ or type(thing).__str__ is type(thing).__repr__:
            _silent(str(thing), EXTRACT.planted, f"str({path})")
        for way in ("_repr_html_", "_repr_mimebundle_"):
            if hasattr(thing, way):
                _silent(str(getattr(thing, way)()), EXTRACT.planted, f"{path}.{way}()")
        if hasattr(thing, "to_dict") and not isinstance(thing, sf.Column | sf.Schema | sf.Hierarchy | sf.Table):
            _silent(json.dumps(thing.to_dict(), default=str), NAMED, f"{path}.to_dict()")
    _silent(caplog.text + "".join(capsys.readouterr()), EXTRACT.planted, "a log")
    for file in tmp_path.rglob("*.*"):
        if file.is_file() and file.name != "rows.csv":
            _silent(file.read_bytes().decode("utf-8", "replace"), NAMED, file.name)


def test_every_public_name_is_looked_at() -> None:
    public = {name: getattr(sf, name) for name in sf.__all__ if name not in ("datasets", "errors")}
    functions = {name for name, one in public.items() if inspect.isfunction(one)}
    assert functions <= set(CALLS)
    parameters = (sf.Guarantee, sf.SfumatoError, Enum)
    results = {name for name, one in public.items() if inspect.isclass(one) and not issubclass(one, parameters)}
    assert results <= set(OBJECTS) | RETURNED


COMMANDS = [
    "schema rows.csv --json",
    "schema rows.csv",
    "assess rows.csv {roles} --report page.html --detail",
    "assess rows.csv {roles} --json --preset hipaa",
    "anonymize rows.csv {roles} --k 5 -o release",
    "anonymize rows.csv {roles} --k 5 -o release.csv --json",
    "verify release",
    "verify release --json",
    "attack release --source rows.csv -o attacks.html --references 4 --processes 1",
    "attack rows.csv --target sex --model tree --attacks loss,gap,attribute --sensitive icd10 {hide} --json",
    "attack rows.csv --target nome --model tree --debug {hide}",
    "explore rows.csv --target sex --qi creatinine --protect raw --seeds 1 --jobs 1 --model tree {hide} -o e --json",
    "explore rows.csv --target nome --debug {hide}",
    "mask rows.csv --noise hba1c=0.1 -o masked.parquet --debug --json",
    "perturb rows.csv --columns sex --domain sex=f,m --epsilon 1 -o perturbed.csv --json",
    "estimate perturbed.csv",
    "budget grant rows.csv --epsilon 2",
    'query rows.csv "count by sex" --domain sex=f,m --epsilon 1 --json',
    "budget history rows.csv --json",
    "assess rows.csv --qi nome --debug",
    "anonymize rows.csv --qi zip --k 999 -o none.csv --debug {hide}",
]


def test_no_command_shows_a_record(sfumato: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    monkeypatch.setenv("SFUMATO_HOME", str(tmp_path / "home"))
    Path("rows.csv").write_text(EXTRACT.text(), encoding="utf-8")
    hide = f"--identifiers {','.join(HIDDEN)}"
    for command in COMMANDS:
        roles = f"--qi birth_date,sex,zip --sensitive icd10 {hide}"
        ran = sfumato(*shlex.split(command.format(roles=roles, hide=hide)))
        assert ran.code < 2 or "--debug" in command, ran.err
        _silent(ran.out + ran.err, NAMED, command)
    for page in ("page.html", "attacks.html"):
        _silent(Path(page).read_text(encoding="utf-8"), EXTRACT.planted, page)
    for file in Path("release").iterdir():
        _silent(file.read_text(encoding="utf-8"), NAMED, file.name)

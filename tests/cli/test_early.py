"""Options that are wrong are refused before a table is read: here there is none to read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran, refused

ANONYMIZE = "anonymize none.csv --qi a --k 5"
TRAIN = "train none.csv --model forest --target y"
ATTACK = "attack none.csv --model forest --target y"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"{ANONYMIZE} -o away/out.csv", "there is no folder 'away'"),
        (f"{ANONYMIZE} -o away/deep/out", "there is no folder"),
        (f"{ANONYMIZE} --method mondrian,guided -o out", "the method guided needs a target"),
        (f"{ANONYMIZE} --method lattice --suppress 2 -o out", "--suppress must be a number from 0 to 1, got 2"),
        (f"{ANONYMIZE} --escape-formulas -o out.parquet", "formulas are escaped only in text files"),
        (f"{ANONYMIZE} --escape-formulas --format parquet -o out", "formulas are escaped only in text files"),
        (f"{ANONYMIZE} --schema none.toml -o out", "the schema 'none.toml' cannot be read"),
        ("assess none.csv --qi a --report away/x.html", "there is no folder 'away'"),
        ("assess none.csv --qi a --report x.pdf", "must end in .html"),
        ("assess none.csv --qi a --require k=x", "needs a number, got 'x'"),
        ("assess none.csv --qi a --threshold x", "--threshold must be a number from 0 to 1, got 'x'"),
        ("assess none.csv --qi a --threshold 7", "--threshold must be a number from 0 to 1, got 7"),
        (
            "assess none.csv --qi a --population-size -3",
            "--population-size must be a whole number of at least 1, got -3",
        ),
        ("assess none.csv --qi a --missing drpo", "'drpo' is unknown (did you mean 'drop'?)"),
        (f"{ANONYMIZE} --method mondrain -o out", "'mondrain' is unknown (did you mean 'mondrian'?)"),
        (
            f"{ANONYMIZE} -o out.pdf",
            "(the name must end in .csv, .txt, .tsv, .tab, .parquet, .pq, .arrow, .feather, .ipc, .xlsx,",
        ),
        ("query none.csv count --epsilon 1 --bounds age=5", "--bounds must look like age=0,100, got 'age=5'"),
        ("query none.csv count --epsilon 1 --bounds age=9,5", "--bounds needs the smaller number first, got '9,5'"),
        ("query none.csv count --epsilon 1 --domain age", "--domain must look like sex=f,m, got 'age'"),
        ("query none.csv count --epsilon 1 --ledger away/l", "there is no ledger 'away/l'"),
        ("budget show none.csv --ledger away/l", "there is no ledger 'away/l'"),
        ("attack none.csv", "this is not the folder of a release, so say what to attack"),
        (f"{ATTACK} --model forrest", "'forrest' is unknown (did you mean 'forest'?)"),
        (f"{ATTACK} --attacks loss,lora", "'lora' is unknown (did you mean 'lira'?)"),
        (f"{ATTACK} --protect gided:k=5", "there is no protection 'gided' (did you mean 'guided'?)"),
        (f"{ATTACK} --protect guided", "the protection 'guided' needs a guarantee"),
        (f"{ATTACK} --protect dp:epsilon=x", "epsilon of the protection 'dp' must be a number, got 'x'"),
        (f"{ATTACK} --references 1", "--references must be a whole number from 2 to 10,000, got 1"),
        (f"{ATTACK} --repeats 0", "--repeats must be a whole number from 1 to 100, got 0"),
        (f"{ATTACK} --seed -1", "--seed must be a whole number from 0 to 2,147,483,647, got -1"),
        (f"{ATTACK} --require k=5", "--require must look like auc=0.55, got 'k=5'"),
        (f"{ATTACK} --require auc=2", "the AUC of --require must be a number of at least 0.5 and below 1, got 2"),
        (f"{ATTACK} -o away/page.html", "there is no folder 'away'"),
        (f"{ATTACK} -o page.pdf", "must end in .html"),
        (f"{ATTACK} --source x.csv", "leave source, control, population and kind out"),
        ("attack none.csv --synthetic --control x.csv", "a control without a source"),
        ("attack none.csv --audit", "--audit tests the claim of a release, and 'none.csv' is not its folder"),
        ("estimate none.csv --confidence 2", "--confidence must be a number between 0 and 1, got 2"),
        ("mask none.csv --noise a=x -o out.csv", "--noise must look like age=0.1, got 'a=x'"),
        ("pseudonymize a.csv b.csv --columns a --key k -o out.csv", "2 files do not fit into 'out.csv'"),
        (f"{TRAIN} --holdout 3 -o out", "--holdout must be a number between 0 and 1, got 3"),
        ("train none.csv --target y --model forrest", "'forrest' is unknown (did you mean 'forest'?)"),
        ("mask none.csv --noise a=1 -o away/out.csv", "there is no folder 'away'"),
        ("perturb none.csv --columns a --epsilon -1 -o out.csv", "epsilon must be a finite number above 0"),
        ("perturb none.csv --columns a --epsilon 1 -o away/out.csv", "there is no folder 'away'"),
        ("schema none.csv -o away/schema.toml", "there is no folder 'away'"),
        ("query none.csv count --epsilon -1", "epsilon must be a finite number above 0"),
        ("query none.csv count --epsilon 1 --confidence 4", "confidence must be a number between 0 and 1"),
        ("query none.csv nonsense --epsilon 1", "must begin with a statistic"),
        ("budget grant none.csv --epsilon -1", "epsilon must be a finite number above 0"),
        ("budget grant none.csv --epsilon 1 --delta 5", "delta must be a number"),
        (f"{TRAIN} --epsilon x -o out", "epsilon must be numbers above 0"),
        (f"{TRAIN} --epsilon 1 --delta 3 -o out", "delta must be a number"),
        (f"{TRAIN} --epsilon 1 -o away/deep/out", "there is no folder"),
    ],
)
def test_it_is_refused_before_the_table_is_read(sfumato: Callable[..., Ran], command: str, said: str) -> None:
    refused(sfumato(*command.split()), said)
    assert list(Path().iterdir()) == []


def test_a_target_that_only_the_schema_could_name_is_missed_before_any_method_works(
    sfumato: Callable[..., Ran],
) -> None:
    Path("t.csv").write_text("a,b\n" + "1,x\n2,y\n" * 4)
    Path("schema.toml").write_text('[columns.a]\nrole = "quasi"\n')
    ran = sfumato(
        *["anonymize", "t.csv", "--schema", "schema.toml", "--k", "2", "--method", "mondrian,guided", "-o", "out"]
    )
    refused(ran, "the method guided needs a target", "--target")
    assert not Path("out").exists()

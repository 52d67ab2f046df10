"""What a frame carries besides its rows stays behind."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import sfumato as sf
from sfumato.data.sanitize import permutation, sanitize
from sfumato.engines.shuffle import shuffle_batches

LEVELS = ["none", "secret", "some"]  # nobody who is released is "secret"
ROWS = pl.DataFrame(
    {
        "who": [f"planted{row}" for row in range(41)],
        "age": [20 + row % 20 for row in range(41)],
        "level": pl.Series(["none", "some"] * 20 + ["secret"], dtype=pl.Enum(LEVELS)),
        "town": pl.Series(["Bonn", "Rome"] * 20 + ["secret"], dtype=pl.Categorical),
    }
)
PLANTED = (b"secret", b"planted")
ROLES: dict[str, Any] = {"qi": ["age"], "sensitive": ["level"]}


def _pandas() -> pd.DataFrame:
    frame = ROWS.to_pandas().set_index("who")
    frame["level"] = pd.Categorical(frame["level"], categories=LEVELS, ordered=True)
    frame["town"] = frame["town"].astype("category")
    frame["place"] = pd.Series(pd.arrays.ArrowExtensionArray(_dictionary()), index=frame.index)
    frame.attrs["note"] = "secret"
    frame.columns.name = "secret"
    return frame.iloc[:40]


def _dictionary() -> pa.Array:
    return pa.array([*["Bonn", "Rome"] * 20, "secret"]).dictionary_encode()


def _arrow() -> pa.Table:
    level = pa.DictionaryArray.from_arrays(pa.array([0, 2] * 20 + [1]), LEVELS, ordered=True)
    table = pa.table({"age": ROWS["age"].to_arrow(), "level": level, "town": _dictionary()}).slice(0, 40)
    fields = [field.with_metadata({"note": "secret"}) for field in table.schema]
    return table.cast(pa.schema(fields, metadata={"note": "secret"}))


FRAMES = {"polars": lambda: ROWS.drop("who").head(40), "pandas": _pandas, "pyarrow": _arrow}


def _everything(frame: Any) -> bytes:
    """Return all that a reader of a frame in memory can find in it."""
    if isinstance(frame, pd.DataFrame):
        known = [list(one.cat.categories) for _, one in frame.items() if isinstance(one.dtype, pd.CategoricalDtype)]
        place = frame["place"].array.__arrow_array__() if "place" in frame else None
        return repr((frame.to_dict(), frame.index, frame.columns, frame.attrs, known, str(place))).encode()
    if isinstance(frame, pa.Table):
        return (frame.schema.to_string(truncate_metadata=False) + str(frame)).encode()
    return repr((frame.schema, frame.rows())).encode()


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES.keys())
def test_a_released_frame_holds_nothing_but_its_rows(make: Any) -> None:
    frame = make()
    before = _everything(frame)
    assert b"secret" in before
    release = sf.anonymize(frame, "k=2", **ROLES)
    for one in (release.table.frame, release.aligned.frame):
        assert not any(secret in _everything(one) for secret in PLANTED)
        assert type(one) is type(frame)
    assert release.table.schema["level"].domain in (None, ("none", "some"))  # pyarrow has no order that others read
    assert _everything(frame) == before, "the input is never modified"


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv"])
@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES.keys())
def test_a_written_release_holds_nothing_but_its_rows(make: Any, suffix: str, tmp_path: Path) -> None:
    release = sf.anonymize(make(), "k=2", **ROLES, to=tmp_path / f"release.{suffix}")
    sf.save(release, tmp_path / "release", format="csv" if suffix == "csv" else "parquet")
    assert sf.verify(tmp_path / "release")
    for file in (tmp_path / f"release.{suffix}", *(tmp_path / "release").iterdir()):
        assert not any(secret in file.read_bytes() for secret in PLANTED), file


@pytest.mark.parametrize("keep_order", [True, False])
@pytest.mark.parametrize("make", [FRAMES["pyarrow"], FRAMES["polars"]], ids=["pyarrow", "polars"])
def test_a_streamed_release_holds_nothing_but_its_rows(make: Any, keep_order: bool, tmp_path: Path) -> None:
    frame = make()
    if isinstance(frame, pa.Table):
        pa.parquet.write_table(frame, tmp_path / "rows.parquet")
    else:
        frame.write_parquet(tmp_path / "rows.parquet")
    assert b"secret" in (tmp_path / "rows.parquet").read_bytes()
    to = tmp_path / "release.parquet"
    release = sf.anonymize(tmp_path / "rows.parquet", "k=2", **ROLES, to=to, keep_order=keep_order)
    assert b"secret" not in to.read_bytes()
    assert release.table.schema["level"].domain in (None, ("none", "some"))  # pyarrow has no order that others read
    assert Counter(release.table.column("town").to_list()) == {"Bonn": 20, "Rome": 20}
    sf.save(release, tmp_path / "release")
    assert sf.verify(tmp_path / "release")
    assert not any(b"secret" in file.read_bytes() for file in (tmp_path / "release").iterdir())


def test_a_declared_domain_is_public_and_stays() -> None:
    schema = sf.Schema([sf.Column(name="level", role="sensitive", kind="ordinal", domain=["none", "some", "much"])])
    release = sf.anonymize(ROWS.drop("who").head(40), "k=2", qi=["age"], schema=schema)
    assert release.table.schema["level"].domain == ("none", "some", "much")


def test_pseudonyms_and_masks_leave_the_index_behind_and_keep_the_order(tmp_path: Path) -> None:
    frame = _pandas().assign(id=range(40))
    tokens = sf.pseudonymize(frame, sf.pseudonyms.KeyedTokens(sf.Key.new(tmp_path / "key")), columns=["id"])
    masked = sf.mask(frame, [sf.masking.TopBottomCode("age", high=30)]).table.frame
    for one in (tokens, masked):
        assert one.index.equals(pd.RangeIndex(40))
        assert one["level"].tolist() == frame["level"].tolist()
        assert not any(secret in _everything(one) for secret in PLANTED)


def test_lists_and_records_of_categories_become_texts() -> None:
    nested = pl.DataFrame(
        {"list": pl.Series([["none"]], dtype=pl.List(pl.Enum(LEVELS))), "record": [{"level": "none"}]},
        schema_overrides={"record": pl.Struct({"level": pl.Enum(LEVELS)})},
    )
    assert sanitize(nested).schema == {"list": pl.List(pl.String), "record": pl.Struct({"level": pl.String})}
    arrow = pa.table({"list": pa.array([["none"]], pa.list_(pa.dictionary(pa.int32(), pa.string())))})
    assert sanitize(arrow).schema.field("list").type == pa.list_(pa.string())


# --- the order of the rows ----------------------------------------------------------------------


def test_every_order_is_equally_likely() -> None:
    found = Counter(tuple(permutation(3).tolist()) for _ in range(6000))
    assert len(found) == 6
    # Each count is binomial(6000, 1/6): six of them are all within 6 standard deviations but for a chance of 1.2e-8.
    assert all(abs(count - 1000) < 6 * math.sqrt(1000 * 5 / 6) for count in found.values())


@pytest.mark.parametrize("bucket", [64, 10**9], ids=["on the disk", "in the memory"])
def test_scattered_rows_are_uniformly_shuffled(bucket: int) -> None:
    batch = pa.RecordBatch.from_pydict({"row": [0, 1, 2], "name": pa.array(["a", "b", "a"]).dictionary_encode()})
    both = [
        batch,
        pa.RecordBatch.from_pydict({"row": [3, 4, 5, 6, 7], "name": pa.array(list("cdefg")).dictionary_encode()}),
    ]
    places, draws = Counter[tuple[int, int]](), 400
    for _ in range(draws):
        rows = [row for one in shuffle_batches(iter(both), 8, bucket=bucket) for row in one.to_pylist()]
        assert {(row["row"], row["name"]) for row in rows} == set(enumerate("abacdefg"))
        places.update((row["row"], place) for place, row in enumerate(rows))
    # 64 counts, each binomial(400, 1/8): all within 6 standard deviations but for a chance of 1.3e-7.
    assert all(abs(places[row, at] - draws / 8) < 6 * math.sqrt(draws * 7 / 64) for row in range(8) for at in range(8))


@pytest.mark.parametrize("suffix", [None, "csv", "parquet"])
@pytest.mark.parametrize("source", ["frame", "parquet"])
def test_rows_are_shuffled_unless_their_order_is_to_be_kept(source: str, suffix: str | None, tmp_path: Path) -> None:
    rows = pl.DataFrame({"age": [30] * 200, "row": range(200)})
    rows.write_parquet(tmp_path / "rows.parquet")
    data = rows if source == "frame" else tmp_path / "rows.parquet"
    found = []
    for keep_order in (True, False, False):
        to = tmp_path / f"release.{suffix}" if suffix else None
        release = sf.anonymize(data, "k=2", qi=["age"], keep=["row"], to=to, keep_order=keep_order)
        found.append(release.table.column("row").to_list())
        assert release.order == ("kept" if keep_order else "shuffled") == release.to_dict()["order"]
        assert release.aligned.column("row").to_list() == list(range(200))
    assert found[0] == list(range(200))
    assert sorted(found[1]) == sorted(found[2]) == list(range(200))
    assert found[0] != found[1] != found[2] != found[0]  # by chance equal once in 200! times


def test_the_folder_of_a_release_says_what_became_of_the_order(tmp_path: Path) -> None:
    for keep_order, said in ((True, "kept"), (False, "shuffled")):
        folder = tmp_path / said
        sf.save(sf.anonymize(ROWS.head(40), "k=2", qi=["age"], identifiers=["who"], keep_order=keep_order), folder)
        assert f'"order": "{said}"' in (folder / "certificate.json").read_text()
        assert ("keep_order = true" in (folder / "recipe.toml").read_text()) is keep_order
        page = (folder / "report.html").read_text()
        assert ("as in the original" if keep_order else "shuffled") in page
        assert sf.verify(folder)
    forged = (tmp_path / "kept" / "recipe.toml").read_text().replace("keep_order = true", "")
    (tmp_path / "kept" / "recipe.toml").write_text(forged)
    assert not sf.verify(tmp_path / "kept")

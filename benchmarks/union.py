"""Adult held by several holders, anonymized from masked sums: equal to the pooled release, time and bytes.

python benchmarks/union.py
"""

from __future__ import annotations

import json
import time
from collections import Counter

import numpy as np
import polars as pl

import sfumato as sf
from sfumato.federation import InProcess, Party, UnionHolder, anonymize_union, connect

QUASI = ("age", "education", "marital-status", "race", "sex")
GUIDED = sf.Guided(labels="income", cross_fit=False, look_ahead=0)


def main() -> None:
    """Print one line of JSON per run."""
    columns = [*QUASI, "occupation", "income"]
    rows = pl.DataFrame(sf.datasets.adult().frame).select(columns)
    listed = {name: tuple(sorted(rows[name].drop_nulls().unique())) for name in columns if name != "age"}
    roles = {**dict.fromkeys(QUASI, "quasi"), "occupation": "sensitive", "income": "other"}
    schema = sf.Schema(
        sf.Column(name=name, role=roles[name], **({"bounds": (0, 120)} if name == "age" else {"domain": listed[name]}))
        for name in columns
    )
    for parties, method, asked in (
        (3, sf.Mondrian(), "k=10"),
        (10, sf.Mondrian(), "k=10,l=3"),
        (3, GUIDED, "k=10,l=3"),
    ):
        owner = np.random.default_rng(parties).integers(0, parties, len(rows))
        holders = {f"{at:02}": UnionHolder(rows.filter(pl.Series(owner == at))) for at in range(parties)}
        handlers, sums = connect("masks", {name: one.contribute for name, one in holders.items()}, threshold=parties)
        channel = InProcess(Party(name, {**handlers[name], **one.handlers}) for name, one in holders.items())
        began = time.process_time()
        release = anonymize_union(channel, sums, schema, asked, method=method)
        union = time.process_time() - began
        began = time.process_time()
        pooled = sf.anonymize(rows, asked, method=method, schema=schema)
        alone = time.process_time() - began
        both = [Counter(pl.DataFrame(one.table.frame).rows()) for one in (release, pooled)]
        facts = {"parties": parties, "method": release.method, "asked": asked, "equal": both[0] == both[1]}
        groups = {"k": release.k, "groups": release.details["groups"], "opened": release.details["opened"]}
        traffic = sum(channel.sent.values()) / parties / 1e6
        print(json.dumps({**facts, **groups, "cpu": union, "pooled_cpu": alone, "megabytes_sent": traffic}), flush=True)


if __name__ == "__main__":
    main()

"""Count and recode rows where they are: in memory, in Parquet files, in DuckDB, in an SQL database or in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.engines.dispatch import recode as recode
    from sfumato.engines.dispatch import reduce as reduce
    from sfumato.engines.duckdb import DuckDB as DuckDB
    from sfumato.engines.engine import Engine as Engine
    from sfumato.engines.engine import Recoding as Recoding
    from sfumato.engines.memory import Memory as Memory
    from sfumato.engines.spark import Spark as Spark
    from sfumato.engines.sql import Sql as Sql
    from sfumato.engines.tuples import Tuples as Tuples

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "duckdb": "DuckDB",
        "engine": "Engine Recoding",
        "memory": "Memory",
        "dispatch": "recode reduce",
        "spark": "Spark",
        "sql": "Sql",
        "tuples": "Tuples",
    },
)

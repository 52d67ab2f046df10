"""Run every benchmark and write the figures to RESULTS.md."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path

import budget
import dp_step
import dp_step_gpu
import first_use
import guided
import lattice
import measures
import on_spark
import page
import partition
import private_accuracy
import private_tables
import scale
import sfumato as sf
import startup
import training_defaults


def main() -> None:
    benchmarks = (
        *(startup, first_use, measures, page, partition, guided, lattice, budget),
        *(dp_step, dp_step_gpu, private_accuracy, training_defaults, private_tables, scale, on_spark),
    )
    rows = [row for benchmark in benchmarks for row in benchmark.main()]
    lines = [
        "# Benchmark figures",
        "",
        f"Made by `make bench` on {datetime.datetime.now(datetime.UTC):%Y-%m-%d} with Sfumato {sf.__version__}, "
        f"Python {platform.python_version()}, 2 shared cores. CPU time, ours and the peer's runs alternating in one "
        "process, medians.",
        "",
        "| what | measured | asked |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]
    text = "\n".join(lines)
    Path(__file__).with_name("RESULTS.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

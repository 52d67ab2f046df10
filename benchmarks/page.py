"""The page for Adult: how large it is, and how long it takes after the measures."""

from __future__ import annotations

import sfumato as sf
from clock import cpu_seconds
from sfumato.report.page import render_report


def main() -> list[tuple[str, str, str]]:
    """Return (what, measured, asked) rows."""
    adult = sf.datasets.adult()

    def everything() -> sf.Assessment:
        return sf.assess(adult, detail=True, population_size=10_000_000, preset="hipaa")

    result = everything()
    measures = min(cpu_seconds(lambda: sf.assess(adult)) for _ in range(3))
    detail = min(cpu_seconds(everything) for _ in range(3))
    page = min(cpu_seconds(lambda: render_report(result)) for _ in range(3))
    size = len(render_report(result).encode()) / 1000
    return [
        (
            "page for Adult with all its sections, after the measures (risk of every column and of all sets of "
            "three, population uniques, Safe Harbor, charts)",
            f"{detail - measures + page:.2f} CPU s, {size:.0f} KB",
            "under 2 CPU s, under 300 KB",
        )
    ]


if __name__ == "__main__":
    for row in main():
        print(" | ".join(row))

"""The attacks that an assessment names, and the attack of the catalogue that shows each on real data."""

from __future__ import annotations

__all__ = ["SHOWN_BY"]

SHOWN_BY = {
    "linkage": "linkage",
    "re-identification": "linkage",
    "homogeneity": "homogeneity",
    "background knowledge": "background-knowledge",
    "skewness": "skewness",
    "similarity": "similarity",
    "inference": "inference",
}
"""By the name in the report of `sf.assess`. A linked row is a re-identified person, so one attack shows both."""

"""Microaggregation (MDAV): groups of near records, each published as its average."""

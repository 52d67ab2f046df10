"""Mondrian and the R+-tree: top-down partitions, in memory and in Spark."""

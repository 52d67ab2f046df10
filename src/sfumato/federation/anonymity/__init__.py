"""Anonymity of a union of tables: several holders count together, and none shows its rows."""

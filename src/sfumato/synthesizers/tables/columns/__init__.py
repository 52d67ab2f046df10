"""Columns as codes: what is declared or bought of them, and what every row must meet."""

"""Mechanisms: each answers with noise and carries the event that it ran."""

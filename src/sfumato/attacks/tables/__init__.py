"""Attacks on released tables and synthetic sets: link rows to people, single people out, infer their values."""

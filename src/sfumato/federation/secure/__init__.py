"""Sums over several parties of which nobody sees a summand."""

"""Audits of differential privacy: bounds, canaries, and the replay of a function on neighbouring tables."""

"""Attack releases: measure what an attacker can learn from a table, a model, a synthetic set or a training procedure."""

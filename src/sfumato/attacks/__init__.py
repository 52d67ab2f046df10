"""Attack releases: what can an attacker learn from a table, a model, a synthetic set or a training procedure?"""

"""Make synthetic data that do not reveal whether a person was in the original."""

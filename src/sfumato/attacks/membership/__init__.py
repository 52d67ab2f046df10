"""Membership inference: find out whether a record was in the training data of a model."""

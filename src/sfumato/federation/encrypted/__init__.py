"""Predictions on records that only their owner can read."""

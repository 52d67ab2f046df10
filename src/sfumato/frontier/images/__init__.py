"""Evaluate synthetic images."""

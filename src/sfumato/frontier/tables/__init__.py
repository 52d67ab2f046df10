"""Evaluate a released or synthetic table."""

"""Synthetic tables: columns coded as whole numbers, methods that learn from noisy counts, and generators."""

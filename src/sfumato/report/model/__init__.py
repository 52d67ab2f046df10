"""The page of a training: scores, curves, and the accounting in words."""

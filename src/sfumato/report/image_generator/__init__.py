"""The page of a generator of synthetic images."""

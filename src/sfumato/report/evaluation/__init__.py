"""The page of an evaluation: real rows beside released ones, for the owner of the data."""

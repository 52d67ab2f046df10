"""The page of the answer to a question."""

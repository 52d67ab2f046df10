"""The page of a model that several holders have trained."""

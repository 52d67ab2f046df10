"""Model-guided anonymization, and models trained on the result."""

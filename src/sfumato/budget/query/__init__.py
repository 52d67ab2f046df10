"""Answer a person's questions about a table with noise, charged to its ledger."""

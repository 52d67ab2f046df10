"""The ledger: what was granted for a data set and what was spent, across processes and crashes."""

"""Learn and count together without pooling: federated training, secure sums, anonymity of a union of tables."""

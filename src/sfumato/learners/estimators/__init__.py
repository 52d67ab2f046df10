"""Estimators with scikit-learn's interface that see the data through noisy sums only."""

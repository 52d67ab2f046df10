"""Estimators with scikit-learn's interface that read the data only through noisy sums."""

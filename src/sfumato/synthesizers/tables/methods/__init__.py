"""The methods: each learns a model from noisy sums of coded columns, and draws rows from it."""

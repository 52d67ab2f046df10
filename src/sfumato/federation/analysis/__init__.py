"""Statistics and regressions over the rows of several holders, each from sums that a `SecureSum` adds up."""

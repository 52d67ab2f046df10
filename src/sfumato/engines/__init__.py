"""Where counting runs: the one pass that reduces a table to distinct tuples."""

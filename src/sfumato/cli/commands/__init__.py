"""One module per command; each translates its options to one Python function."""

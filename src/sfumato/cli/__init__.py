"""The command line: each command translates its options to one Python function."""

"""The pages of a table and its release, and what of them a page may show."""

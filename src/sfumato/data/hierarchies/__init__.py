"""How the values of a column generalize: trees, rules for numbers, codes and dates, and automatic hierarchies."""

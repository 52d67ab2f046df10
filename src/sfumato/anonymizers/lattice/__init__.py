"""Full-domain generalization: one level of its hierarchy for every column, the best combination of all."""

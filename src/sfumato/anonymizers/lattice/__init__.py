"""Full-domain generalization: the best combination of one hierarchy level per column."""

"""Local privacy: every record is perturbed on its own before anyone else sees it."""

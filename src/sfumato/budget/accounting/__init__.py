"""What events cost together: privacy loss distributions, composition, and the smallest epsilon that can be proved."""

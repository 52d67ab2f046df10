"""What a release has lost against its original, and what it is still good for."""

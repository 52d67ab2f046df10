"""The pages of synthetic images: one for everybody, and one for the owner of the real images."""

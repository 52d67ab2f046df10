"""Charts and images as inline SVG and PNG: small, offline, readable without colour."""

"""Groups of neighbours along the Hilbert curve."""

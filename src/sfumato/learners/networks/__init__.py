"""Networks with scikit-learn's interface, architectures, and the scattering transform. Needs torch."""

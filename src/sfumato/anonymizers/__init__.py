"""Methods that put records into groups which keep the guarantees asked for."""

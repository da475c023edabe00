"""simplex."""

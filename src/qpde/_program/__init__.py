"""What JAX programs say about functions: dependence, smoothness, bounds."""

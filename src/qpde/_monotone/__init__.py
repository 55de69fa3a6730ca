"""Monotonicity constants: proved from the coefficients, looked for in laws of points, refuted by pairs."""

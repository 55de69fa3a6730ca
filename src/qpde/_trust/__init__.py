"""Bounds for the error, and what the theory says about a problem."""

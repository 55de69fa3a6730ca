"""Boundary values carried into the domain."""

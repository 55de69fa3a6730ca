"""The infinitely wide network as a solver."""

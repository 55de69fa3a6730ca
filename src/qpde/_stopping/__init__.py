"""Optimal stopping: the best time to take a payoff, and bounds for what it is worth from both sides."""

"""Values at points with confidence intervals, by random walks."""

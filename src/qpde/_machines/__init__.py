"""Several processes that work on one call, with the same bits whatever their number."""

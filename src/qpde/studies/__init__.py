"""Studies: the cost and the accuracy of the method beside other codes, and the paper's experiments."""

"""A problem, the trial function `Q = S eta + f`, laws of points, and the solution."""

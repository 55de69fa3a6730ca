"""How residuals and values move with the parameters: Jacobians that need not be made, and their systems."""

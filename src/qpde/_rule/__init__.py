"""How one step moves the parameters."""

"""Studies: what the method costs and how well it does, measured against others."""

"""Diffusions in the whole space: how they move, exactly where their law is known, else in small steps."""

"""Where an equation is solved. A domain answers for itself; adding one means writing one file."""

"""The command `qpde`."""

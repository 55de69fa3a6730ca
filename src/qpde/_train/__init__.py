"""Blocks of steps of one rule from a start to an end, and what is looked at between them."""

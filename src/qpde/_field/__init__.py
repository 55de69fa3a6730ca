"""Functions of one point that know their derivatives, and what an equation asks of them."""

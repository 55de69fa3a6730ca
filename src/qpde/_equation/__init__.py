"""An equation as a program: its coefficients, what they depend on, bounds for them."""

"""`python -m qpde.cli`."""

from .main import main

main()
